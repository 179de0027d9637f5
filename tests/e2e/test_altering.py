"""ALTER STREAM ... ADD COLUMN: history has NULL, and what depends on the stream stays as it is."""

from __future__ import annotations

import pytest

import headrace
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
            (0, "a", None, None, None),
            (1, "b", pytest.approx(1.5), "none", None),
        ]
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("INSERT INTO s (ROWTIME, k, v, y) VALUES (3000, 'b', 3, 'three')")
        assert rows(db, "SELECT k, n, v FROM w") == [("a", 1, 1), ("b", 2, 3)]
        assert rows(db, "SELECT * FROM m") == [("a", None), ("b", "none"), ("b", "three")]
        assert rows(db, "SELECT * FROM e") == [("a", 2), ("b", 3), ("b", 4)]
        assert rows(db, "SELECT * FROM p") == [("a",), ("b",), ("b",)]
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
        ((_, created),) = db.sql("SHOW CREATE s").fetchall()
        assert created.count("ALTER") == 2


@pytest.mark.parametrize(
    "kind", ["MATERIALIZED VIEW", pytest.param("VIEW", marks=pytest.mark.long)]
)
def test_a_view_of_all_columns_refuses_and_stays(db, kind):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s")
    db.sql(f"CREATE {kind} a AS SELECT * FROM s")
    with pytest.raises(headrace.HeadraceError, match='"a" would have other columns') as caught:
        db.sql("ALTER STREAM s ADD COLUMN x INT")
    assert caught.value.code == "conflict"
    db.sql("INSERT INTO s VALUES ('b', 2)")
    assert rows(db, "SELECT * FROM a") == [("b", 2)]
    assert rows(db, "SELECT n FROM n") == [(1,)]
    db.sql(f"DROP {kind} a")
    db.sql("ALTER STREAM s ADD COLUMN x INT")
    assert rows(db, "SELECT * FROM s") == [("b", 2, None)]


@pytest.mark.parametrize(
    ("statement", "code"),
    each(
        2,
        [
            ("ALTER STREAM s ADD COLUMN V INT", "conflict"),
            ("ALTER STREAM s ADD COLUMN x INT NOT NULL", "unsupported"),
            ("ALTER STREAM s ADD COLUMN x AS v + 1", "unsupported"),
            ("ALTER STREAM s ADD COLUMN x TIMESTAMP METADATA FROM 'timestamp'", "unsupported"),
            ("ALTER STREAM s ADD COLUMN x INT PRIMARY KEY", "unsupported"),
            ("ALTER STREAM s DROP COLUMN v", "unsupported"),
            ("ALTER TABLE t ADD COLUMN x INT", "unsupported"),
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
