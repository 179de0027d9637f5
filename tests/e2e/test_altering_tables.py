"""ALTER TABLE of columns: rows, history and what depends on the table, and what is refused."""

from __future__ import annotations

import threading

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.lifecycle.states.evaluating import Snapshots
from headrace.tools.cli.command import main
from length import each

pytestmark = pytest.mark.spark


def rows(db, query):
    return sorted(db.sql(query).fetchall(), key=repr)


def refused(db, statement):
    with pytest.raises(HeadraceError) as caught:
        db.sql(statement)
    assert caught.value.span is not None
    return caught.value


def test_rows_and_history_have_the_present_columns(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k STRING PRIMARY KEY, a INT, v SMALLINT DEFAULT 7)")
        db.sql("CREATE MATERIALIZED VIEW n AS SELECT v, count(*) AS n FROM t GROUP BY v")
        db.sql("INSERT INTO t VALUES ('x', 1, 10), ('y', 2, 20), ('z', 3, NULL)")
        first = db.sql("SELECT * FROM t").epoch
        db.sql("UPDATE t SET a = 4 WHERE k = 'x'")
        db.flush()
        assert str(db.sql("ALTER TABLE t DROP COLUMN a")) == 'dropped "a" of table t'
        said = str(db.sql("ALTER TABLE t ADD COLUMN a STRING DEFAULT 'new'"))
        assert said == 'added "a" to table t: rows that it has have the default'
        again = "ALTER TABLE t ADD COLUMN IF NOT EXISTS a STRING DEFAULT 'other'"
        assert str(db.sql(again)) == 'table t has "a"'
        db.sql("ALTER TABLE t DROP COLUMN IF EXISTS nothing")
        db.sql("ALTER TABLE t RENAME COLUMN k TO id")
        db.sql("INSERT INTO t (id) VALUES ('w')")
        db.sql("DELETE FROM t WHERE id = 'y'")
        assert rows(db, "SELECT * FROM t") == [
            ("w", 7, "new"),
            ("x", 10, "new"),
            ("z", None, "new"),
        ]
        assert rows(db, "SELECT * FROM t WHERE id = 'x'") == [("x", 10, "new")]
        assert rows(db, "SELECT upper(id) FROM t WHERE a = 'new'") == [("W",), ("X",), ("Z",)]
        error = refused(db, f"SELECT * FROM t AS OF EPOCH {first}")
        assert error.primary == f'column "a" of table "t" did not exist at epoch {first}'
        db.sql("ALTER TABLE t RENAME COLUMN a TO b")
        assert rows(db, f"SELECT * FROM t AS OF EPOCH {first}") == [
            ("x", 10, "new"), ("y", 20, "new"), ("z", None, "new")
        ]  # fmt: skip
        db.sql("ALTER TABLE t RENAME COLUMN b TO a")
        db.sql("INSERT INTO t VALUES ('x', 11, 'again') ON CONFLICT (id) DO UPDATE SET v = 12")
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        assert rows(db, "SELECT * FROM t") == [
            ("w", 7, "new"),
            ("x", 12, "new"),
            ("z", None, "new"),
        ]
        assert rows(db, "SELECT * FROM n") == [(12, 1), (7, 1), (None, 1)]
        db.sql("DROP MATERIALIZED VIEW n")
        db.sql("CREATE MATERIALIZED VIEW n AS SELECT a, count(*) AS n FROM t GROUP BY a")
        assert rows(db, "SELECT * FROM n") == [("new", 3)]
        db.sql("UPDATE t SET a = NULL WHERE id = 'x'")
        assert rows(db, "SELECT * FROM n") == [("new", 2), (None, 1)]
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
        assert "can become INT or BIGINT." in refused(db, "ALTER TABLE t ALTER v TYPE DATE").hint
        db.sql("ALTER TABLE t ALTER COLUMN v TYPE INT")
        db.sql("UPDATE t SET v = 70000 WHERE v IS NULL")
        db.sql("CREATE INDEX by_v ON t (v)")
        assert rows(db, "SELECT id FROM t WHERE v = 70000") == [("z",)]
        error = refused(db, "SELECT * FROM t AS OF TIMESTAMP '2999-01-01 00:00:00'")
        assert error.primary == "the time has not come yet"
        ((*_, verdict),) = db.sql("RECONCILE TABLE t SAMPLE 100 PERCENT").fetchall()
        assert verdict == "equal"
        assert refused(db, "INSERT INTO t (k) VALUES ('q')").hint == 'It was renamed to "id".'


def test_a_column_that_was_added_again_is_not_read_as_of_an_epoch_of_the_former_one(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT)")
    db.sql("INSERT INTO t VALUES (1, 5)")
    first = db.sql("SELECT * FROM t").epoch
    db.sql("ALTER TABLE t RENAME COLUMN a TO b")
    db.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 7")
    assert rows(db, f"SELECT * FROM t AS OF EPOCH {first}") == [(1, 5, 7)]
    db.sql("ALTER TABLE t DROP COLUMN b")
    db.sql("ALTER TABLE t ADD COLUMN b INT DEFAULT 9")  # its former name in files is free
    db.sql("INSERT INTO t VALUES (2, 8, 10)")
    again = db.sql("SELECT * FROM t").epoch
    for query in (
        f"SELECT * FROM t AS OF EPOCH {first}",
        f"SELECT k, b + 1 FROM t AS OF EPOCH {first}",
        f"SELECT b FROM t AS OF EPOCH {first} WHERE k = 1",
    ):
        error = refused(db, query)
        assert error.primary == f'column "b" of table "t" did not exist at epoch {first}'
        assert "RENAME COLUMN b first" in error.hint
    db.sql("ALTER TABLE t ADD COLUMN d INT")
    db.sql("UPDATE t SET b = 11 WHERE k = 1")
    assert rows(db, f"SELECT k, b FROM t AS OF EPOCH {again}") == [(1, 9), (2, 10)]


def test_indexes_and_sinks_into_tables_follow_a_renamed_column(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT, a INT)")
        db.sql("CREATE INDEX by_v ON t (v)")
        db.sql("CREATE INDEX ON t (a, v)")
        db.sql("CREATE TABLE copy (k INT PRIMARY KEY, v INT, a INT)")
        db.sql("CREATE SINK out INTO copy FROM t")
        db.sql("CREATE SINK file FROM t WITH (connector = 'file', path = 'file')")
        db.sql("INSERT INTO t VALUES (1, 10, 1), (2, 20, 2)")
        before = db.sql("SELECT * FROM t").epoch
        error = refused(db, "ALTER TABLE t RENAME COLUMN v TO w")
        assert error.primary.endswith('its destination has "v"')
        db.sql("DROP SINK file")
        db.sql("CREATE SINK keyed INTO copy FROM t WITH (key = 'k, V')")
        error = refused(db, "ALTER TABLE t RENAME COLUMN v TO w")
        assert error.primary.endswith("its option key has it")
        db.sql("DROP SINK keyed")
        db.sql("ALTER TABLE t RENAME COLUMN v TO w")
        db.sql("ALTER TABLE t RENAME COLUMN a TO v")
        db.sql("INSERT INTO t VALUES (3, 20, 3)")
        db.sql("UPDATE t SET w = 11 WHERE k = 1")
        listed = [("by_v", "t", "w"), ("t_a_v_idx", "t", "v, w")]
        assert rows(db, "SHOW INDEXES") == listed
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("INSERT INTO t VALUES (4, 20, 4)")
        assert rows(db, "SHOW INDEXES") == listed
        query = "SELECT k FROM t WHERE w = 20"
        assert db.sql(f"EXPLAIN {query}").fetchall()[-1][0].endswith('by index "by_v"')
        assert rows(db, query) == [(2,), (3,), (4,)]
        assert rows(db, "SELECT k FROM t WHERE w = 20 AND v = 3") == [(3,)]
        assert rows(db, f"SELECT * FROM t AS OF EPOCH {before} WHERE w = 10") == [(1, 10, 1)]
        expected = [(1, 11, 1), (2, 20, 2), (3, 20, 3), (4, 20, 4)]
        assert rows(db, "SELECT k, v, a FROM copy") == expected
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_a_copy_of_an_altered_table_is_restored_and_repaired(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT, v INT)")
        db.sql("INSERT INTO t VALUES (1, 1, 10), (2, 2, 20)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS v FROM t")
        db.sql("UPDATE t SET a = 9")
        before = db.sql("SELECT * FROM t").epoch
        db.sql("ALTER TABLE t DROP COLUMN a")
        db.sql("ALTER TABLE t RENAME COLUMN v TO w")
        db.sql("UPDATE t SET w = 11 WHERE k = 1")
        assert rows(db, "SELECT * FROM m") == [(31,)]
        db.sql(f"BACKUP TO '{tmp_path / 'copy'}'")
        with pytest.raises(HeadraceError, match="altered"):
            db.sql(f"CREATE BRANCH c FROM EPOCH {before}")
    assert main(["restore", str(tmp_path / "copy"), "--data", str(tmp_path / "again")]) == 0
    for place in ("db", "again"):
        with headrace.connect(tmp_path / place, spark=spark, continuous=False) as db:
            db.sql("INSERT INTO t VALUES (3, 1)")
            assert rows(db, "SELECT * FROM t") == [(1, 11), (2, 20), (3, 1)]
            assert rows(db, "SELECT * FROM m") == [(32,)]
            assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_a_versioned_table_goes_on_under_other_names(db):
    db.sql(
        "CREATE TABLE f (kind STRING, percent INT, note STRING, since TIMESTAMP, PRIMARY KEY (kind))"
        " WITH (effective_from = 'since')"
    )
    db.sql("CREATE STREAM s (kind STRING, amount INT, at TIMESTAMP)")
    db.sql(
        "CREATE MATERIALIZED VIEW billed AS SELECT s.at, s.amount * f.percent AS fee FROM s"
        " JOIN f FOR SYSTEM_TIME AS OF s.at f ON s.kind = f.kind"
    )
    db.sql("INSERT INTO f VALUES ('a', 5, 'x', TIMESTAMP '2026-01-01 00:00:00')")
    db.sql("INSERT INTO s VALUES ('a', 10, TIMESTAMP '2026-03-01 00:00:00')")
    db.sql("INSERT INTO s VALUES ('a', 20, TIMESTAMP '2026-03-09 00:00:00')")
    assert [row[1] for row in rows(db, "SELECT * FROM billed")] == [50, 100]
    for change in ("DROP COLUMN note", "ADD COLUMN more INT"):  # its state has whole versions
        assert 'view "billed"' in refused(db, f"ALTER TABLE f {change}").primary
    db.sql("ALTER TABLE f RENAME COLUMN since TO begins")
    db.sql("ALTER TABLE f RENAME COLUMN kind TO name")
    db.sql("INSERT INTO f VALUES ('a', 7, 'y', TIMESTAMP '2026-03-05 00:00:00')")
    ((view, *_),) = db.sql("SHOW DIRTY").fetchall()
    assert view == "billed"
    assert [row[1] for row in rows(db, "SELECT * FROM billed")] == [50, 140]
    db.sql("UPDATE f SET percent = 8 WHERE name = 'a' AND begins > TIMESTAMP '2026-02-01 00:00:00'")
    assert [row[1] for row in rows(db, "SELECT * FROM billed")] == [50, 160]
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    for column in ("begins", "name"):
        assert "its PRIMARY KEY" in refused(db, f"ALTER TABLE f DROP COLUMN {column}").primary


def test_a_subscription_to_an_altered_table_ends_and_one_to_a_view_goes_on(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT, v INT)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t WHERE v > 0")
    db.sql("INSERT INTO t VALUES (1, 1, 1)")
    with db.subscribe("t") as whole, db.subscribe("m") as part:
        assert [change.row for change in whole.poll()] == [{"k": 1, "a": 1, "v": 1}]
        assert [change.row for change in part.poll()] == [{"k": 1, "v": 1}]
        db.sql("ALTER TABLE t DROP COLUMN a")
        db.sql("INSERT INTO t VALUES (2, 2)")
        db.flush()
        with pytest.raises(HeadraceError, match='"t" has other columns now') as caught:
            whole.poll()
        assert caught.value.hint == "Subscribe again."
        assert [change.row for change in part.poll()] == [{"k": 2, "v": 2}]
    with db.subscribe("t") as whole:
        assert len(whole.poll()) == 2


@pytest.mark.parametrize(
    ("statement", "code", "text"),
    each(
        3,
        [
            ("t DROP COLUMN k", "conflict", "its PRIMARY KEY"),
            ("t DROP COLUMN v", "conflict", 'view "m"'),
            ("t ADD COLUMN V INT", "conflict", "exists already"),
            ("t ADD COLUMN x INT NOT NULL", "unsupported", "NOT NULL"),
            ("t RENAME COLUMN a TO v", "conflict", "exists already"),
            ("t ALTER COLUMN a TYPE DOUBLE", "unsupported", "another form"),
            ("t ALTER COLUMN k TYPE BIGINT", "conflict", "its PRIMARY KEY"),
            ("t ALTER COLUMN v TYPE BIGINT", "conflict", 'view "m" could not go on'),
            ("every ADD COLUMN x INT", "conflict", 'view "stars" would have other columns'),
            ("u DROP COLUMN q", "conflict", "no PRIMARY KEY"),
            ("u ALTER COLUMN q TYPE BIGINT", "conflict", "no PRIMARY KEY"),
            ("i ADD COLUMN x INT", "conflict", 'index "by_v" has all columns of table "i"'),
            ("d DROP COLUMN v", "conflict", 'sink "out" writes all columns of table "d"'),
            ("m DROP COLUMN v", "unsupported", "The columns of streams and tables"),
        ],
    ),
)
def test_other_alterations_are_refused(db, statement, code, text):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT, v INT)")
    db.sql("CREATE TABLE u (p INT, q INT)")
    if statement.startswith(("t", "m")):
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t")
    if statement.startswith("every"):
        db.sql("CREATE TABLE every (k INT)")
        db.sql("CREATE MATERIALIZED VIEW stars AS SELECT * FROM every")
    if statement.startswith("i"):
        db.sql("CREATE TABLE i (k INT PRIMARY KEY, v INT)")
        db.sql("CREATE INDEX by_v ON i (v)")
    if statement.startswith("d"):
        db.sql("CREATE TABLE d (k INT PRIMARY KEY, v INT)")
        db.sql("CREATE TABLE other (k INT PRIMARY KEY, v INT)")
        db.sql("CREATE SINK out INTO other FROM d")
    before = db.sql("SELECT * FROM information_schema.columns").fetchall()
    error = refused(db, f"ALTER TABLE {statement}")
    assert error.code is Code(code)
    assert text in f"{error.primary} {error.detail}"
    assert db.sql("SELECT * FROM information_schema.columns").fetchall() == before


def test_a_statement_beside_an_alteration_is_planned_again(db, monkeypatch):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT, v INT)")
    db.sql("CREATE STREAM s (k INT, v INT)")
    db.sql("INSERT INTO t VALUES (1, 14, 10), (2, 14, 20), (3, 15, 30)")
    db.sql("INSERT INTO s VALUES (1, 10), (2, 20)")
    read = Snapshots.rows
    meanwhile = []

    def rows_after(*given):
        if meanwhile:
            other = threading.Thread(target=db.session().sql, args=(meanwhile.pop(),))
            other.start()
            other.join()
        return read(*given)

    monkeypatch.setattr(Snapshots, "rows", rows_after)
    meanwhile.append("ALTER TABLE t RENAME COLUMN v TO ww")
    assert str(db.sql("DELETE FROM t WHERE g = 14 AND k = 1")) == "1 row deleted"
    meanwhile.append("ALTER TABLE t DROP COLUMN ww")
    assert str(db.sql("UPDATE t SET g = 16 WHERE g = 14")) == "1 row updated"
    meanwhile.append("ALTER STREAM s RENAME COLUMN v TO w")
    assert str(db.sql("CORRECT STREAM s VOID WHERE k = 1")) == "1 event voided"
    meanwhile.append("ALTER TABLE t RENAME COLUMN g TO h")
    assert 'column "g" does not exist' in str(refused(db, "DELETE FROM t WHERE g = 16"))
    assert not meanwhile
    assert rows(db, "SELECT * FROM t") == [(2, 16), (3, 15)]
    assert rows(db, "SELECT * FROM s") == [(2, 20)]


@pytest.mark.long
def test_an_alteration_that_is_not_committed_leaves_nothing(tmp_path, spark):
    class Killed(BaseException):
        pass

    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT, v INT)")
        db.sql("CREATE STREAM s (k INT)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS v FROM s JOIN t ON s.k = t.k")
        db.sql("INSERT INTO t VALUES (1, 1, 2)")
        db.sql("INSERT INTO s VALUES (1)")
        commit = type(db.parts.ledger).commit

        def killed(_ledger, _change):
            raise Killed

        for number, statement in enumerate(
            ("DROP COLUMN a", "RENAME COLUMN v TO w", "ADD COLUMN x INT")
        ):
            type(db.parts.ledger).commit = killed
            try:
                with pytest.raises(Killed):
                    db.sql(f"ALTER TABLE t {statement}")
            finally:
                type(db.parts.ledger).commit = commit
            db.sql(f"UPDATE t SET v = {number}")
            assert rows(db, "SELECT * FROM m") == [(number,)]
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("INSERT INTO s VALUES (1)")
        assert rows(db, "SELECT * FROM m") == [(4,)]
        db.sql("ALTER TABLE t RENAME COLUMN v TO w")
        db.sql("UPDATE t SET w = 5")
        assert rows(db, "SELECT * FROM m") == [(10,)]
