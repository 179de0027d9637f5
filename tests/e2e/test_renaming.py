"""ALTER ... RENAME TO: what names it follows, and what follows it goes on."""

from __future__ import annotations

import json

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from waiting import landed

pytestmark = pytest.mark.spark


def rows(db, query):
    return sorted(db.sql(query).fetchall(), key=repr)


def created(db, name):
    ((_, text),) = db.sql(f"SHOW CREATE {name}").fetchall()
    return text


def test_views_sinks_indexes_and_candidates_follow_a_renamed_table(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
        db.sql("CREATE TABLE copy (g INT PRIMARY KEY, n BIGINT)")
        db.sql("CREATE VIEW p AS SELECT t.k, g FROM t WHERE t.g > 0")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM p GROUP BY g")
        db.sql("CREATE MATERIALIZED VIEW w AS WITH t AS (SELECT 1 AS k) SELECT k FROM t")
        db.sql("CREATE INDEX by_g ON t (g)")
        db.sql("CREATE SINK s INTO copy FROM v")
        db.sql(
            "CREATE OR REPLACE MATERIALIZED VIEW v WITH (auto_swap = false) AS"
            " SELECT q.g, count(*) AS n FROM t, p q WHERE t.k = q.k GROUP BY q.g"
        )
        db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        assert rows(db, "SELECT * FROM v") == [(1, 2), (2, 1)]
        assert str(db.sql("ALTER TABLE t RENAME TO things")) == "renamed table t to things"
        db.sql("ALTER VIEW p RENAME TO `some`")
        db.sql("ALTER MATERIALIZED VIEW v RENAME TO counts")
        db.sql("ALTER TABLE copy RENAME TO target")
        db.sql("ALTER INDEX by_g RENAME TO things_g")
        db.sql("ALTER SINK s RENAME TO sunk")
        db.sql("INSERT INTO things VALUES (4, 2)")
        assert rows(db, "SELECT * FROM counts") == [(1, 2), (2, 2)]
        assert rows(db, "SELECT k FROM things WHERE g = 2") == [(3,), (4,)]
        assert created(db, "`some`") == (
            "CREATE VIEW `some` AS SELECT things.k, g FROM things WHERE things.g > 0"
        ).replace("`some` AS", "some AS")
        assert created(db, "counts") == (
            "CREATE MATERIALIZED VIEW counts AS SELECT g, count(*) AS n FROM some GROUP BY g"
        )
        assert created(db, "w").endswith("WITH t AS (SELECT 1 AS k) SELECT k FROM t")
        assert created(db, "sunk") == "CREATE SINK sunk INTO target FROM counts"
        with pytest.raises(HeadraceError, match='"t" does not exist'):
            db.sql("SELECT * FROM t")
        tables = db.sql("SELECT table_name FROM information_schema.tables").fetchall()
        assert {"things", "counts", "target", "some"} <= {name for (name,) in tables}
        assert "things" in str(db.sql("EXPLAIN counts").fetchall())
        db.sql("SWAP VIEW counts")
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("DELETE FROM things WHERE k = 1")
        assert rows(db, "SELECT * FROM counts") == [(1, 1), (2, 2)]
        db.flush()
        assert rows(db, "SELECT * FROM target") == [(1, 1), (2, 2)]
        assert [name for name, *_ in db.sql("SHOW INDEXES").fetchall()] == ["things_g"]
        db.sql("ROLLBACK VIEW counts")
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


def test_followers_and_their_tokens_continue(db):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT k, sum(v) AS v FROM s GROUP BY k")
    db.sql("INSERT INTO s VALUES ('a', 1)")
    db.flush()
    with db.subscribe("m") as changes, db.subscribe("SELECT k FROM s WHERE v > 1") as query:
        assert len(changes.poll()) == 1
        assert query.poll() in ([], None)
        at = changes.epoch
        db.sql("ALTER MATERIALIZED VIEW m RENAME TO sums")
        db.sql("ALTER STREAM s RENAME TO events")
        db.sql("INSERT INTO events VALUES ('a', 2)")
        db.flush()
        assert [change.row["v"] for change in changes.poll()] == [1, 3]
        assert [change.row for change in query.poll()] == [{"k": "a"}]
    with db.subscribe("sums", after=at) as resumed:
        assert [change.row["v"] for change in resumed.poll()] == [1, 3]
    with pytest.raises(HeadraceError, match='"m" does not exist'):
        db.subscribe("m")
    assert rows(db, f"SELECT * FROM sums AS OF EPOCH {at}") == [("a", 1)]


@pytest.mark.long
def test_a_schema_is_renamed_with_all_that_is_in_it_and_roles_follow(db):
    db.sql("CREATE SCHEMA a")
    db.sql("CREATE TABLE a.t (k INT PRIMARY KEY, g INT)")
    db.sql("CREATE INDEX i ON a.t (g)")
    db.sql("CREATE MATERIALIZED VIEW a.v AS SELECT t.g, count(*) AS n FROM a.t GROUP BY t.g")
    db.sql("CREATE VIEW outside AS SELECT v.n, a.t.k FROM a.v, a.t WHERE a.t.g = v.g")
    db.sql("CREATE TOKEN x")
    db.sql("GRANT READER ON SCHEMA a TO x")
    db.sql("INSERT INTO a.t VALUES (1, 1), (2, 1)")
    assert str(db.sql("ALTER SCHEMA a RENAME TO b")) == "renamed schema a to b"
    db.sql("INSERT INTO b.t VALUES (3, 2)")
    assert rows(db, "SELECT * FROM b.v") == [(1, 2), (2, 1)]
    assert rows(db, "SELECT * FROM outside") == [(1, 3), (2, 1), (2, 2)]
    assert rows(db, "SELECT k FROM b.t WHERE g = 1") == [(1,), (2,)]
    assert [name for name, *_ in db.sql("SHOW INDEXES").fetchall()] == ["b.i"]
    assert "b" in str(db.sql("SHOW GRANTS FOR x").fetchall())
    assert "a" not in {name for (name, *_) in db.sql("SHOW SCHEMAS").fetchall()}
    db.sql("ALTER TABLE b.t RENAME TO u")
    assert rows(db, "SELECT count(*) FROM b.u") == [(3,)]
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.parametrize(
    ("statement", "code", "match"),
    [
        ("ALTER TABLE t RENAME TO s", Code.CONFLICT, 'stream "s" exists already'),
        ("ALTER TABLE t RENAME TO `T`", Code.INVALID, 'table "t" has that name'),
        ("ALTER TABLE t RENAME TO information_schema.u", Code.INVALID, "reserved"),
        ("ALTER SINK t RENAME TO u", Code.INVALID, "not a sink"),
        ("ALTER TABLE nothing RENAME TO u", Code.INVALID, "does not exist"),
        ("ALTER INDEX nothing RENAME TO u", Code.INVALID, "does not exist"),
        ("ALTER SCHEMA default RENAME TO u", Code.INVALID, "cannot be renamed"),
        ("ALTER SECRET t RENAME TO u", Code.INVALID, "does not exist"),
        ("ALTER TOKEN t RENAME TO u", Code.UNSUPPORTED, "renaming a token"),
        ("ALTER FUNCTION f RENAME TO g", Code.UNSUPPORTED, "renaming a function"),
    ],
)
def test_names_that_are_taken_and_kinds_without_rename_are_refused(db, statement, code, match):
    db.sql("CREATE TABLE t (k INT)")
    db.sql("CREATE STREAM s (k INT)")
    with pytest.raises(HeadraceError, match=match) as caught:
        db.sql(statement)
    assert caught.value.code is code
    assert db.sql("ALTER TABLE IF EXISTS nothing RENAME TO u") is not None


def test_a_source_goes_on_under_the_new_names_and_reads_both_layouts(tmp_path, spark):
    folder = tmp_path / "in"
    folder.mkdir()

    def put(name, **row):
        (folder / f"{name}.json").write_text(json.dumps(row) + "\n")

    with headrace.connect(tmp_path / "db", spark=spark) as db:
        put("one", a=1, k="x")
        db.sql(
            "CREATE STREAM s (a INT, k STRING, z INT) WITH (connector = 'filesystem',"
            f" path = '{folder}', format = 'json')"
        )
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT k, sum(a) AS a FROM s GROUP BY k")
        landed(db, "s", 1)
        db.sql("ALTER STREAM s RENAME COLUMN a TO amount")
        db.sql("ALTER STREAM s DROP COLUMN z")
        db.sql("ALTER STREAM s RENAME TO events")
        put("two", a=10, k="x", z=5)
        put("three", amount=100, k="x")
        landed(db, "events", 3)
        assert rows(db, "SELECT amount, k FROM events") == [(1, "x"), (10, "x"), (100, "x")]
        assert rows(db, "SELECT * FROM m") == [("x", 111)]


def test_secrets_and_connections_that_nothing_uses_are_renamed(db, tmp_path):
    value = tmp_path / "value"
    value.write_text("x")
    db.sql(f"CREATE SECRET a FROM FILE '{value}'")
    db.sql(f"CREATE SECRET b FROM FILE '{value}'")
    assert str(db.sql("ALTER SECRET a RENAME TO c")) == "renamed secret a to c"
    assert sorted(name for name, *_ in db.sql("SHOW SECRETS").fetchall()) == ["b", "c"]
    with pytest.raises(HeadraceError, match='secret "b" exists already'):
        db.sql("ALTER SECRET c RENAME TO b")
