"""Maps, arrays and structs without a type or a value, in each statement that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def db(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[headrace.Database]:
    folder: Path = tmp_path_factory.mktemp("nested")
    with headrace.connect(folder, spark=spark, partitions=2, continuous=False) as db:
        yield db


def rows(db: headrace.Database, query: str) -> list[tuple[object, ...]]:
    return sorted(db.sql(query).fetchall(), key=repr)


@pytest.mark.long
def test_a_map_without_entries_is_an_empty_map(db: headrace.Database) -> None:
    assert rows(db, "SELECT map() AS m, array() AS a, struct(map()) AS s, NULL AS n") == [
        ([], [], {"col1": []}, None)
    ]
    db.sql("""
        CREATE TABLE m (id INT PRIMARY KEY, m MAP<STRING, INT>, d MAP<DATE, INT>);
        INSERT INTO m VALUES (1, map('a', 1), map()), (2, map(), map());
        INSERT INTO m SELECT 3, map(), map(DATE '2024-01-01', 1);
        UPDATE m SET m = map(), d = map() WHERE id = 1;
        CREATE MATERIALIZED VIEW empty AS
            SELECT id, map() AS e, array() AS a, array(NULL) AS n, struct(NULL AS x) AS s FROM m
    """)
    assert rows(db, "SELECT id, size(m), size(d) FROM m") == [(1, 0, 0), (2, 0, 0), (3, 0, 1)]
    assert rows(db, "SELECT * FROM empty WHERE id = 2") == [(2, [], [], [None], {"x": None})]
    assert rows(db, "SELECT id, map() AS e, array(map()) AS a FROM m WHERE id = 2") == [
        (2, [], [[]])
    ]
    assert db.sql("VERIFY empty").fetchall()[0][2:] == (0, "equal to batch")
    with pytest.raises(HeadraceError, match="keys have no type") as caught:
        db.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT e, count(*) AS n"
            " FROM (SELECT array(map()) AS e FROM m) GROUP BY e"
        )
    assert caught.value.code is Code.UNSUPPORTED


def test_nulls_without_a_type_are_as_many_as_the_lists_have(db: headrace.Database) -> None:
    assert rows(
        db,
        "SELECT array(NULL, NULL), map('a', NULL, 'b', NULL), array(array(NULL, NULL), array()),"
        " struct(NULL AS x, array(NULL, NULL, NULL) AS y), transform(array(1, 2), x -> NULL)",
    ) == [
        (
            [None, None],
            [("a", None), ("b", None)],
            [[None, None], []],
            {"x": None, "y": [None] * 3},
            [None, None],
        )
    ]
    listed = "VALUES (1, array(NULL, NULL)), (2, array(NULL)), (3, NULL), (4, array()) AS v(i, a)"
    assert [row[1] for row in rows(db, f"SELECT * FROM {listed}")] == [[None] * 2, [None], None, []]
    db.sql("""
        CREATE TABLE typed (id INT PRIMARY KEY, xs ARRAY<INT>, m MAP<STRING, INT>,
            s STRUCT<a: INT, b: ARRAY<ARRAY<STRING>>>);
        CREATE MATERIALIZED VIEW untyped AS SELECT id, array(NULL, NULL) AS z FROM typed;
        INSERT INTO typed VALUES
            (1, array(NULL, NULL), map('a', NULL, 'b', NULL), struct(NULL, array(array(NULL, NULL)))),
            (2, array(1, NULL), map(), NULL);
        INSERT INTO typed SELECT 3, array(NULL, NULL, NULL), NULL, NULL;
        UPDATE typed SET xs = array(NULL, NULL) WHERE id = 2
    """)
    assert rows(db, "SELECT id, xs FROM typed") == [
        (1, [None] * 2),
        (2, [None] * 2),
        (3, [None] * 3),
    ]
    assert rows(db, "SELECT m, s FROM typed WHERE id = 1") == [
        ([("a", None), ("b", None)], {"a": None, "b": [[None, None]]})
    ]
    assert rows(db, "SELECT * FROM untyped") == [(each, [None, None]) for each in (1, 2, 3)]
    assert db.sql("VERIFY untyped").fetchall()[0][2:] == (0, "equal to batch")


@pytest.mark.long
def test_a_null_struct_stays_null_without_one_of_its_fields(db: headrace.Database) -> None:
    db.sql("""
        CREATE TABLE st (id INT PRIMARY KEY, s STRUCT<a: INT, b: STRUCT<p: INT, q: INT>>);
        INSERT INTO st VALUES (1, NULL), (2, struct(1, NULL)), (3, struct(1, struct(2, 3)));
        CREATE MATERIALIZED VIEW kept AS SELECT id, s IS NULL AS n, s.b IS NULL AS m
            FROM (SELECT * EXCEPT (s.a, s.b.p) FROM st);
        CREATE VIEW plain AS SELECT * EXCEPT (s.a) FROM st;
        CREATE MATERIALIZED VIEW made AS SELECT id, s IS NULL AS n FROM
            (SELECT id, named_struct('b', s.b) AS s FROM st)
    """)
    expected = [(1, True, True), (2, False, True), (3, False, False)]
    assert rows(db, "SELECT * FROM kept") == expected
    query = (
        "SELECT id, s IS NULL AS n, s.b IS NULL AS m FROM (SELECT * EXCEPT (s.a, s.b.p) FROM st)"
    )
    assert rows(db, query) == expected
    assert rows(db, f"{query} WHERE id IN (1, 2, 3)") == expected
    assert rows(db, "SELECT * EXCEPT (s.a, s.b.p) FROM st WHERE id < 3") == [
        (1, None),
        (2, {"b": None}),
    ]
    assert rows(db, "SELECT id FROM plain WHERE s IS NULL") == [(1,)]
    inner = "SELECT max(id) FROM (SELECT * EXCEPT (s.a) FROM st) WHERE s IS NULL"
    assert rows(db, f"SELECT id FROM st WHERE id = ({inner})") == [(1,)]
    # What the query itself constructs is a struct.
    assert rows(db, "SELECT * FROM made") == [(1, False), (2, False), (3, False)]
    assert rows(db, "SELECT id, struct(s.*) IS NULL AS n FROM st WHERE id = 1") == [(1, False)]
    for view in ("kept", "made"):
        assert db.sql(f"VERIFY {view}").fetchall()[0][2:] == (0, "equal to batch")


def test_what_is_raised_in_python_is_an_error_with_a_code(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object, **_more: object) -> None:
        raise ValueError("a field may not be")

    monkeypatch.setattr("headrace.planning.catalyst.scala.exchanged", fail)
    with pytest.raises(HeadraceError, match="failed unexpectedly") as caught:
        db.sql("SELECT uuid() AS u")
    assert caught.value.code is Code.INTERNAL
    assert caught.value.detail == "ValueError: a field may not be."
