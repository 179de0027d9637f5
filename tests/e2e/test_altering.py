"""ALTER of streams and of names: history stays readable, and what depends on them goes on."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import _parse_datatype_string

import headrace
from headrace.types.schema import widens
from length import each

pytestmark = pytest.mark.spark


def rows(db, query):
    return sorted(db.sql(query).fetchall(), key=repr)


@pytest.mark.long
def test_a_column_is_added_under_views_and_after_reopening(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE STREAM s (k STRING, v INT)")
        db.sql("INSERT INTO s (ROWTIME, k, v) VALUES (1000, 'a', 1)")
        db.sql(
            "CREATE TABLE w AS SELECT k, COUNT(*) AS n, LATEST_BY_OFFSET(v) AS v FROM s"
            " WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k"
        )
        db.sql("CREATE STREAM e AS SELECT k, v + 1 AS v FROM s")
        db.sql("CREATE VIEW p AS SELECT k FROM s")
        db.sql("ALTER STREAM s ADD COLUMN x DECIMAL(10,2)")
        db.sql("ALTER TABLE s ADD COLUMNS (y STRING DEFAULT 'none', z ARRAY<INT>)")
        db.sql("INSERT INTO s (ROWTIME, k, v, x) VALUES (2000, 'b', 2, 1.5)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT k, y FROM s WHERE x IS NULL OR y = 'none'")
        assert rows(db, "SELECT ROWOFFSET, k, x, y, z FROM s") == [
            (0, "a", None, "none", None),
            (1, "b", pytest.approx(1.5), "none", None),
        ]
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("INSERT INTO s (ROWTIME, k, v, y) VALUES (3000, 'b', 3, 'three')")
        assert rows(db, "SELECT k, n, v FROM w") == [("a", 1, 1), ("b", 2, 3)]
        assert rows(db, "SELECT * FROM m") == [("a", "none"), ("b", "none"), ("b", "three")]
        assert rows(db, "SELECT * FROM e") == [("a", 2), ("b", 3), ("b", 4)]
        assert rows(db, "SELECT * FROM p") == [("a",), ("b",), ("b",)]
        db.sql("REPLAY VIEW m WHERE y = 'none'")
        assert rows(db, "SELECT * FROM m") == [("a", "none"), ("b", "none"), ("b", "three")]
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
        ((_, created),) = db.sql("SHOW CREATE s").fetchall()
        assert created.count("ALTER") == 2


def test_a_view_of_all_columns_keeps_those_that_it_has(db):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("CREATE MATERIALIZED VIEW a AS SELECT * FROM s WHERE v > 1")
    db.sql("CREATE VIEW p AS SELECT s.*, 1 AS x FROM s")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT * FROM p")
    db.sql("ALTER STREAM s ADD COLUMN x INT DEFAULT 7")
    db.sql("INSERT INTO s VALUES ('b', 2, 3)")
    assert rows(db, "SELECT * FROM a") == [("b", 2)]
    assert rows(db, "SELECT * FROM above") == [("b", 2, 1)]
    ((_, created),) = db.sql("SHOW CREATE a").fetchall()
    assert created.endswith("AS SELECT * FROM (SELECT k, v FROM s) AS s WHERE v > 1")
    db.sql("ALTER MATERIALIZED VIEW a AS SELECT * FROM s WHERE v > 1")
    assert rows(db, "SELECT * FROM a") == [("b", 2, 3)]
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


def test_alterations_that_cancel_out_are_not_listed(db):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("ALTER STREAM s RENAME COLUMN v TO w")
    db.sql("ALTER STREAM s ADD COLUMN x INT DEFAULT 1")
    db.sql("ALTER STREAM s DROP COLUMN x")
    db.sql("ALTER STREAM s RENAME COLUMN w TO u")
    ((_, created),) = db.sql("SHOW CREATE s").fetchall()
    assert created.split("\n")[1:] == ["ALTER STREAM s RENAME COLUMN v TO u"]
    db.sql("ALTER STREAM s RENAME COLUMN u TO v")
    ((_, created),) = db.sql("SHOW CREATE s").fetchall()
    assert created == "CREATE STREAM s (k STRING, v INT)"


@pytest.mark.parametrize(
    ("statement", "code"),
    each(
        2,
        [
            ("ALTER STREAM s ADD COLUMN V INT", "conflict"),
            ("ALTER STREAM s ADD COLUMN Headrace_Op STRING", "invalid"),
            ("ALTER STREAM s RENAME COLUMN v TO rowoffset", "invalid"),
            ("CREATE TABLE r (k INT PRIMARY KEY, headrace_weight INT)", "invalid"),
            ("ALTER STREAM s ADD COLUMN x INT NOT NULL", "unsupported"),
            ("ALTER STREAM s ADD COLUMN x AS v + 1", "unsupported"),
            ("ALTER STREAM s ADD COLUMN x TIMESTAMP METADATA FROM 'timestamp'", "unsupported"),
            ("ALTER STREAM s ADD COLUMN x INT PRIMARY KEY", "unsupported"),
            ("ALTER STREAM s DROP COLUMN x", "invalid"),
            ("ALTER STREAM s DROP COLUMNS (k, v)", "conflict"),
            ("ALTER STREAM s DROP COLUMN k, DROP COLUMN K", "invalid"),
            ("ALTER TABLE t DROP COLUMN k", "conflict"),
            ("ALTER STREAM s ALTER COLUMN v DROP DEFAULT", "unsupported"),
            ("ALTER STREAM s ALTER COLUMN k TYPE INT", "unsupported"),
            ("ALTER TABLE t ADD COLUMN x INT NOT NULL", "unsupported"),
            ("ALTER STREAM s ADD COLUMN x NOTATYPE", "invalid"),
        ],
    ),
)
def test_other_alterations_are_refused(db, statement, code):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("CREATE TABLE t (k STRING PRIMARY KEY)")
    with pytest.raises(headrace.HeadraceError) as caught:
        db.sql(statement)
    assert caught.value.code == code
    assert caught.value.span is not None
    assert db.sql("DESCRIBE s").to_arrow().num_rows == 2


@pytest.mark.long
def test_a_dropped_columns_name_can_be_used_again_and_history_stays_readable(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE STREAM s (id STRING, a INT, b INT) DEDUPLICATE ON id")
        db.sql("INSERT INTO s VALUES ('x', 1, 10), ('y', 2, 20)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, sum(b) AS b FROM s GROUP BY id")
        assert rows(db, "SELECT * FROM v") == [("x", 10), ("y", 20)]
        before = db.sql("SELECT * FROM v").epoch
        db.sql("ALTER STREAM s DROP COLUMN a")
        db.sql("ALTER STREAM s ADD COLUMN a STRING")
        db.sql("ALTER STREAM s RENAME COLUMN id TO key")
        db.sql("ALTER STREAM s ALTER COLUMN b TYPE INT")
        db.sql("INSERT INTO s VALUES ('y', 3, 'again'), ('z', 30, 'new')")
        assert rows(db, "SELECT * FROM s") == [("x", 10, None), ("y", 20, None), ("z", 30, "new")]
        db.sql("CORRECT STREAM s REPLACE SET b = 11 WHERE key = 'x'")
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("INSERT INTO s VALUES ('x', 5, 'again')")
        assert rows(db, "SELECT * FROM s") == [("x", 11, None), ("y", 20, None), ("z", 30, "new")]
        assert rows(db, "SELECT * FROM v") == [("x", 11), ("y", 20), ("z", 30)]
        assert rows(db, f"SELECT * FROM v AS OF EPOCH {before}") == [("x", 10), ("y", 20)]
        db.sql("REPLAY VIEW v WHERE id = 'x'")
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
        db.sql("DROP MATERIALIZED VIEW v")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT key, a FROM s WHERE b > 10")
        assert rows(db, "SELECT * FROM v") == [("x", None), ("y", None), ("z", "new")]


@pytest.mark.parametrize(
    ("former", "present", "fits"),
    [
        ("INT", "BIGINT", True),
        ("INT", "DOUBLE", True),
        ("FLOAT", "DOUBLE", True),
        ("DECIMAL(6,2)", "DECIMAL(9,3)", True),
        ("SMALLINT", "DECIMAL(5,0)", True),
        ("BIGINT", "DOUBLE", False),
        ("INT", "SMALLINT", False),
        ("DECIMAL(6,2)", "DECIMAL(6,3)", False),
        ("DATE", "TIMESTAMP", False),
        ("STRING", "INT", False),
    ],
)
@pytest.mark.usefixtures("spark")
def test_only_types_that_hold_all_values_are_wider(former, present, fits):
    assert widens(_parse_datatype_string(former), _parse_datatype_string(present)) is fits


@pytest.mark.long
def test_a_column_gets_a_wider_type_unless_something_has_stored_the_former(db):
    db.sql("CREATE STREAM s (k STRING, v INT, w FLOAT, d DECIMAL(4,1))")
    db.sql("INSERT INTO s VALUES ('a', 1, 0.1, 1.5), ('b', NULL, NULL, NULL)")
    db.sql("CREATE MATERIALIZED VIEW n AS SELECT k, count(v) AS n FROM s GROUP BY k")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT max(w) AS w FROM s")
    db.sql("CREATE VIEW h AS SELECT k, hash(d) AS h FROM s")
    db.sql("CREATE MATERIALIZED VIEW big AS SELECT k FROM s WHERE v IN (1, 2) OR v > 100")
    db.sql("CREATE VIEW o AS SELECT k, hash(v + 1) AS h FROM s")
    with pytest.raises(headrace.HeadraceError, match='plain view "o" could not go on'):
        db.sql("ALTER STREAM s ALTER COLUMN v TYPE BIGINT")
    db.sql("DROP VIEW o")
    said = str(db.sql("ALTER STREAM s ALTER COLUMN v TYPE BIGINT"))
    assert said == 'column "v" of stream s is BIGINT now'
    with pytest.raises(headrace.HeadraceError, match='plain view "h" could not go on'):
        db.sql("ALTER TABLE s ALTER d SET DATA TYPE DECIMAL(10,2)")
    db.sql("DROP VIEW h")
    db.sql("ALTER TABLE s ALTER d SET DATA TYPE DECIMAL(10,2)")
    db.sql("INSERT INTO s VALUES ('c', 5000000000, 0.5, 12345.25)")
    assert [row[1] for row in rows(db, "SELECT k, v, d FROM s")] == [1, None, 5_000_000_000]
    assert rows(db, "SELECT * FROM n") == [("a", 1), ("b", 0), ("c", 1)]
    assert rows(db, "SELECT * FROM big") == [("a",), ("c",)]
    with pytest.raises(headrace.HeadraceError, match='view "m" could not go on') as caught:
        db.sql("ALTER STREAM s ALTER COLUMN w TYPE DOUBLE")
    assert 'view "m"' in (caught.value.detail or "")
    db.sql("INSERT INTO s VALUES ('c', 1, 2.5, 1.25)")
    assert rows(db, "SELECT * FROM m") == [(2.5,)]
    with pytest.raises(headrace.HeadraceError, match="cannot become INT") as caught:
        db.sql("ALTER STREAM s ALTER COLUMN v TYPE INT")
    assert "DECIMAL with 20 digits" in (caught.value.hint or "")
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


RENAMED = {
    "SELECT k, v FROM s": "SELECT k, value AS v FROM s",
    "SELECT s.v, v + 1 AS w FROM s": "SELECT s.value AS v, value + 1 AS w FROM s",
    "SELECT v AS w FROM s ORDER BY v LIMIT 2": "SELECT value AS w FROM s ORDER BY value LIMIT 2",
    "SELECT k, (SELECT max(v) FROM s) AS v FROM s": (
        "SELECT k, (SELECT max(value) FROM s) AS v FROM s"
    ),
    "WITH q AS (SELECT v FROM s) SELECT v FROM q": (
        "WITH q AS (SELECT value FROM s) SELECT value AS v FROM q"
    ),
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS n, v FROM s": (
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY value) AS n, value AS v FROM s"
    ),
    "SELECT k, 'v' AS c /* v */ FROM s": "SELECT k, 'v' AS c /* v */ FROM s",
}


def test_queries_follow_a_renamed_column_and_name_their_columns_as_before(db):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("INSERT INTO s VALUES ('a', 1)")
    for number, former in enumerate(RENAMED):
        db.sql(f"CREATE MATERIALIZED VIEW m{number} AS {former}")
    db.sql("CREATE MATERIALIZED VIEW every AS SELECT * FROM s")
    with db.subscribe("SELECT * FROM s WHERE v > 0") as changes:
        assert [change.row for change in changes.poll()] == [{"k": "a", "v": 1}]
        db.sql("ALTER STREAM s RENAME COLUMN v TO value")
        db.sql("INSERT INTO s (k, value) VALUES ('b', 2)")
        db.flush()
        assert [change.row for change in changes.poll()] == [{"k": "b", "v": 2}]
    for number, present in enumerate(RENAMED.values()):
        ((_, created),) = db.sql(f"SHOW CREATE m{number}").fetchall()
        assert created == f"CREATE MATERIALIZED VIEW m{number} AS {present}"
    ((_, created),) = db.sql("SHOW CREATE every").fetchall()
    assert created == "CREATE MATERIALIZED VIEW every (k, v) AS SELECT * FROM s"
    with pytest.raises(headrace.HeadraceError, match='column "v" does not exist') as caught:
        db.sql("INSERT INTO s (k, v) VALUES ('c', 3)")
    assert caught.value.hint == 'It was renamed to "value".'
    with pytest.raises(headrace.HeadraceError, match='"value" of stream "s" exists already'):
        db.sql("ALTER STREAM s RENAME COLUMN k TO value")


FORMER_NAMES = {
    # Without s.v, the inner v would be that of t.
    "SELECT id FROM t WHERE id IN (SELECT v FROM s)": None,
    "SELECT * FROM s LEFT JOIN t USING (v)": None,
    "SELECT s.v, id FROM s NATURAL JOIN t": None,
    "SELECT s.k, v FROM s JOIN o ON s.k = o.k": None,
    "SELECT k AS w, count(v) AS n FROM s GROUP BY w": None,
    "SELECT k, transform(array(v), w -> w + v) AS a FROM s": (
        "SELECT k, transform(array(w), w_2 -> w_2 + w) AS a FROM s"
    ),
    "SELECT k, transform(array(v), v -> v + 1) AS a FROM s": (
        "SELECT k, transform(array(w), v -> v + 1) AS a FROM s"
    ),
}


def test_a_renamed_column_keeps_its_meaning_where_its_new_name_has_another(db):
    db.sql("CREATE STREAM s (k STRING, v INT, day INT)")
    db.sql("CREATE STREAM t (id INT, v INT)")
    db.sql("CREATE STREAM o (k STRING, w INT)")
    for number, query in enumerate(FORMER_NAMES):
        db.sql(f"CREATE MATERIALIZED VIEW m{number} AS {query}")
    db.sql("CREATE VIEW p AS SELECT s.* FROM s WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.k = s.k)")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT day, sum(v) AS v FROM p GROUP BY day")
    db.sql("ALTER STREAM s RENAME COLUMN v TO w")
    db.sql("ALTER STREAM s RENAME COLUMN day TO `a.b`")
    db.sql("INSERT INTO s VALUES ('a', 7, 1), ('b', 8, 1)")
    db.sql("INSERT INTO t VALUES (7, 1), (1, 7)")
    db.sql("INSERT INTO o VALUES ('a', 70)")
    assert rows(db, "SELECT * FROM m0") == [(7,)]
    assert rows(db, "SELECT v, k, day, id FROM m1") == [(7, "a", 1, 1), (8, "b", 1, None)]
    assert rows(db, "SELECT * FROM m2") == [(7, 1)]
    assert rows(db, "SELECT * FROM m3") == [("a", 7)]
    assert rows(db, "SELECT * FROM m4") == [("a", 1), ("b", 1)]
    assert rows(db, "SELECT * FROM m5") == [("a", [14]), ("b", [16])]
    assert rows(db, "SELECT * FROM m6") == [("a", [8]), ("b", [9])]
    assert rows(db, "SELECT * FROM above") == [(1, 8)]
    for number, present in enumerate(FORMER_NAMES.values()):
        ((_, created),) = db.sql(f"SHOW CREATE m{number}").fetchall()
        assert created.endswith(f" AS {present}") if present else "w AS v" in created
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


def test_rows_in_quarantine_stay_there_under_a_renamed_column(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, v STRING, n INT)")
        db.sql(
            "CREATE MATERIALIZED VIEW m WITH (on_error = 'quarantine') AS"
            " SELECT k, CAST(v AS INT) AS v FROM t WHERE n > 0"
        )
        db.sql("INSERT INTO t VALUES (1, '1', 1), (2, 'two', 1), (3, 'three', 1)")
        assert rows(db, "SELECT * FROM m") == [(1, 1)]
        with pytest.raises(headrace.HeadraceError, match='view "m" could not go on'):
            db.sql("ALTER TABLE t ALTER COLUMN n TYPE BIGINT")
        db.sql("ALTER TABLE t RENAME COLUMN v TO w")
        db.sql("INSERT INTO t VALUES (4, 'four', 1)")
        db.sql("DELETE FROM t WHERE k = 2")
        assert rows(db, "SELECT * FROM m") == [(1, 1)]
        kept = (json.loads(row) for _, row, *_ in rows(db, "SHOW ERRORS FOR m"))
        assert sorted((row["k"], row["w"]) for row in kept) == [(3, "three"), (4, "four")]
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("ALTER TABLE t RENAME COLUMN k TO v")
        db.sql("UPDATE t SET w = '3' WHERE v = 3")
        assert rows(db, "SELECT * FROM m") == [(1, 1), (3, 3)]
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
        db.sql("REPAIR m")
        assert len(rows(db, "SHOW ERRORS FOR m")) == 1
        db.sql("DELETE FROM t WHERE v = 4")
        assert not rows(db, "SHOW ERRORS FOR m")
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


def test_a_computed_column_follows_what_its_names_resolve_to(db):
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, xs ARRAY<INT>, day INT, at DATE,"
        " y AS transform(xs, w -> w + v), z AS aggregate(xs, v, (a, w) -> a * v + w),"
        " n AS at + INTERVAL '1' DAY, f AS named_struct('day', day).day)"
    )
    db.sql("CREATE STREAM s (at TIMESTAMP, day INT, WATERMARK FOR at AS at - INTERVAL '1' DAY)")
    db.sql("ALTER TABLE t RENAME COLUMN v TO w")
    db.sql("ALTER TABLE t RENAME COLUMN day TO v")
    db.sql("INSERT INTO t (id, w, xs, v, at) VALUES (2, 10, array(1, 2), 5, DATE '2026-01-01')")
    assert db.sql("SELECT y, z, CAST(n AS STRING), f FROM t").fetchall() == [
        ([11, 12], 1012, "2026-01-02", 5)
    ]
    with pytest.raises(headrace.HeadraceError, match='computed column "f"'):
        db.sql("ALTER TABLE t DROP COLUMN v")
    db.sql("ALTER STREAM s DROP COLUMN day")  # the watermark has the word, not the column
    db.sql("ALTER STREAM s RENAME COLUMN at TO day")
    extended = {row[0]: row[1] for row in db.sql("DESCRIBE EXTENDED s").fetchall()}
    assert extended["# watermark"] == "day AS day - INTERVAL '1' DAY"


def test_an_alteration_that_is_not_committed_leaves_nothing(tmp_path, spark):
    class Killed(BaseException):
        pass

    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE STREAM s (a INT, v INT)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS v FROM s")
        db.sql("INSERT INTO s VALUES (1, 2)")
        assert rows(db, "SELECT * FROM m") == [(2,)]
        commit = type(db.parts.ledger).commit

        def killed(_ledger, _change):
            raise Killed

        for statement in ("DROP COLUMN a", "RENAME COLUMN v TO w", "RENAME TO other"):
            type(db.parts.ledger).commit = killed
            try:
                with pytest.raises(Killed):
                    db.sql(f"ALTER STREAM s {statement}")
            finally:
                type(db.parts.ledger).commit = commit
            db.sql("INSERT INTO s VALUES (1, 3)")
        assert rows(db, "SELECT * FROM m") == [(11,)]
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("INSERT INTO s VALUES (1, 1)")
        assert rows(db, "SELECT * FROM m") == [(12,)]
