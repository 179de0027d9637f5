"""Columns of the type VARIANT: stored, joined, numbered and read as JSON."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

import headrace
from headrace.execution.serving.values import json_objects
from headrace.types import variant_of
from length import choose

VIEWS = {
    "parsed": "SELECT id, g, try_parse_json(j) AS v FROM t",
    "got": "SELECT id, variant_get(v, '$.a', 'variant') AS a, try_variant_get(v, '$.b', 'int') AS b FROM parsed",
    "counted": "SELECT try_variant_get(v, '$.a', 'string') AS a, count(*) AS n, count(v) AS m FROM parsed GROUP BY ALL",
    "joined": "SELECT l.id, r.x, l.v, is_variant_null(l.v) AS nothing FROM parsed l"
    " LEFT JOIN s r ON l.g = r.g",
    "numbered": "SELECT g, v, row_number() OVER (PARTITION BY g"
    " ORDER BY try_variant_get(v, '$.b', 'int'), id) AS n FROM parsed",
    "last": "SELECT g, max_by(v, id) AS v FROM parsed GROUP BY g",
    "both": "SELECT v FROM parsed UNION ALL SELECT CAST(x AS VARIANT) AS v FROM s",
}
TEXTS = [
    '{"a": 1, "b": 2}',
    '{"a": {"b": [1, 2.50, "x", null]}}',
    "[1e3, true]",
    "null",
    "no JSON",
    '{"b": 2, "c": 1}',
    '"text"',
    None,
]


@pytest.mark.parametrize("small_rows", [20_000, pytest.param(0, marks=pytest.mark.long)])
def test_views_of_variants_equal_batch(oracle, small_rows):
    run = oracle(rows_per_change=100, small_rows=small_rows)
    run.table("t", "id INT, g INT, j STRING", key="id")
    run.stream("s", "g INT, x INT")
    run.insert("t", [(i, i % 3, TEXTS[i % len(TEXTS)]) for i in range(12)])
    names = choose(["parsed", "got", "joined", "numbered", "both"], list(VIEWS))
    for name in names:
        run.view(name, VIEWS[name])
    run.insert("s", [(0, 1), (1, 2), (1, 2)])
    run.epoch()
    run.insert("t", [(5, 2, TEXTS[6]), (6, 0, TEXTS[0]), (20, 1, TEXTS[2])])
    run.delete("t", "id < 2")
    run.epoch()
    run.finish()


def test_rows_that_tie_are_told_apart_by_the_bytes_of_their_variants(db):
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARIANT)")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT v, row_number() OVER (ORDER BY 1) AS n FROM t")
    alike = ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}']
    for first in (0, 8):
        rows = [(first + i, alike[i % 2]) for i in range(8)]
        db.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, '{text}')" for i, text in rows))
        db.sql(f"DELETE FROM t WHERE id IN ({first + 1}, {first + 2}, {first + 7})")
        assert sorted(n for _, n in db.sql("SELECT * FROM w")) == list(range(1, 6 + first * 5 // 8))
        assert db.sql("VERIFY w").fetchall()[0][-1] == "equal to batch"


def test_a_column_of_variants_is_written_and_read_as_json(db):
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARIANT)")
    db.sql(
        "CREATE MATERIALIZED VIEW w AS SELECT id, v, try_variant_get(v, '$.a', 'int') AS a FROM t"
    )
    db.sql("""INSERT INTO t VALUES (1, parse_json('{"a": 1}')), (2, '{"a": 2.50}'), (3, NULL)""")
    db.insert("t", [{"id": 4, "v": {"a": [1, None, "x"]}}, {"id": 5, "v": "text"}])
    rows = sorted(db.sql("SELECT * FROM w"))
    assert rows == [
        (1, {"a": 1}, 1),
        (2, {"a": Decimal("2.50")}, 2),
        (3, None, None),
        (4, {"a": [1, None, "x"]}, None),
        (5, "text", None),
    ]
    kinds = "SELECT id, schema_of_variant(v) FROM t WHERE id IN (2, 4) ORDER BY id"
    assert db.sql(kinds).fetchall() == [
        (2, "OBJECT<a: DECIMAL(2,1)>"),
        (4, "OBJECT<a: ARRAY<VARIANT>>"),
    ]
    found = db.sql("SELECT id, v FROM w WHERE id < 4 ORDER BY id").to_arrow()
    columns = dict(zip(found.column_names, found.columns, strict=True))
    assert json_objects(columns, 3).to_pylist() == [
        '{"id":1,"v":{"a":1}}',
        '{"id":2,"v":{"a":2.50}}',
        '{"id":3,"v":null}',
    ]
    conflict = "ON CONFLICT (id) DO UPDATE SET v = coalesce(t.v, excluded.v)"
    db.sql(f"INSERT INTO t VALUES (1, '2'), (3, NULL) {conflict}")
    frame = db.sql("SELECT v FROM w WHERE id < 4 ORDER BY id").to_pandas()
    assert frame["v"].tolist() == [{"a": 1}, {"a": Decimal("2.50")}, None]
    assert db.sql("VERIFY w").fetchall()[0][-1] == "equal to batch"
    db.sql("""UPDATE t SET v = parse_json('[1]') WHERE id = 1; DELETE FROM t WHERE id = 4""")
    assert db.sql("SELECT v FROM w WHERE id = 1").fetchall() == [([1],)]
    for value, why in (
        ("'no JSON'", "not JSON"),
        ("""'{"a": 1, "a": 2}'""", '"a" is given twice'),
        ("concat('1', '')", '"1" is not a VARIANT'),
    ):
        with pytest.raises(headrace.HeadraceError, match=why):
            db.sql(f"INSERT INTO t VALUES (9, {value})")
    for wrong, why in (
        ("CREATE TABLE u (v VARIANT PRIMARY KEY)", "a primary key of type VARIANT"),
        ("CREATE TABLE u (v ARRAY<VARIANT>)", "ARRAY<VARIANT> cannot be kept"),
        ("CREATE MATERIALIZED VIEW u AS SELECT v, count(*) AS n FROM t GROUP BY v", "VARIANT"),
    ):
        with pytest.raises(headrace.HeadraceError, match=why):
            db.sql(wrong)


@pytest.mark.parametrize("text", [text for text in TEXTS if text and text != "no JSON"])
def test_a_variant_made_in_python_has_the_bytes_that_spark_writes(spark, text):
    (expected,) = spark.sql("SELECT parse_json(?) AS v", args=[text]).collect()[0]
    made = variant_of(json.loads(text, parse_float=Decimal))
    assert (made["value"], made["metadata"]) == (expected.value, expected.metadata)
