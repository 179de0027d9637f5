"""Calls of functions by CREATE FUNCTION, as text."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import FUNCTION_VIEW, PlainView
from headrace.planning.dialects import macros_of, spark_text
from headrace.planning.sql import CreateFunction, parse
from headrace.planning.sql.rewritten import function_of
from headrace.types import RelationId, Schema

STATEMENTS = {
    "f": "CREATE FUNCTION f(x INT) RETURNS INT AS x + 1",
    "g": "CREATE OR REPLACE FUNCTION g(a INT, `b` STRING NOT NULL) RETURNS TEXT LANGUAGE SQL RETURN b || f(a)",
    "square": "CREATE FUNCTION square(x DOUBLE) RETURNS DOUBLE DETERMINISTIC RETURN x * X",
    "one": "CREATE FUNCTION one() RETURNS INT COMMENT 'a number' RETURN 1",
    "field": "CREATE FUNCTION field_of(x STRUCT<x: INT>) RETURNS INT RETURN transform(array(x.x), y -> y + x.x)[0]",
    "twice": "CREATE FUNCTION twice(x STRING) RETURNS STRING AS x || x",
    "year_of": "CREATE FUNCTION year_of(x DATE) RETURNS INT AS EXTRACT(YEAR FROM x)",
}


def relations():
    found = {}
    for id_, text in enumerate(STATEMENTS.values()):
        (function,) = parse(text)
        name = f"{FUNCTION_VIEW}{function.name.dotted}"
        through = (RelationId(0),) if function.name.dotted == "g" else ()
        found[name] = PlainView(RelationId(id_), name, Schema(()), "", (), through, text)
    return found


RELATIONS = relations()


def read(text: str) -> str:
    return spark_text(Span.whole(text), RELATIONS).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT f(k) FROM t", "SELECT CAST((CAST((k) AS INT) + 1) AS INT) FROM t"),
        (
            "SELECT F( f(k) ), 2",
            "SELECT CAST((CAST((CAST((CAST((k) AS INT) + 1) AS INT)) AS INT) + 1) AS INT), 2",
        ),
        (
            "SELECT g(1, 'x, f(2)')",
            (
                "SELECT CAST((CAST(('x, f(2)') AS STRING) || CAST((CAST((CAST((1) AS INT)) AS INT) + 1)"
                " AS INT)) AS STRING)"
            ),
        ),
        ("SELECT one()", "SELECT CAST((1) AS INT)"),
        (
            "SELECT square(v)",
            "SELECT CAST((CAST((v) AS DOUBLE) * CAST((v) AS DOUBLE)) AS DOUBLE)",
        ),
        (
            "SELECT year_of(d)",
            "SELECT CAST((EXTRACT(YEAR FROM CAST((d) AS DATE))) AS INT)",
        ),
        ("SELECT t.f(k), f, f.x FROM f", "SELECT t.f(k), f, f.x FROM f"),
        ("SELECT 'f(1)' -- f(1)", "SELECT 'f(1)' -- f(1)"),
    ],
)
def test_a_call_of_a_sql_function_becomes_its_body(text, expected):
    assert read(text) == expected


def test_a_field_with_the_name_of_a_parameter_stays_a_field():
    written = read("SELECT field_of(s) FROM t")
    assert "transform(array(CAST((s) AS STRUCT<`x`: INT>).x), y -> y + " in written


def test_a_query_depends_on_the_functions_that_it_calls_also_through_others():
    assert set(macros_of(Span.whole("SELECT g(1, one()) FROM t"), RELATIONS)) == {0, 1, 3}
    assert macros_of(Span.whole("SELECT h(1) FROM t"), RELATIONS) == ()


def test_the_statement_is_read_again_as_it_was():
    for text in STATEMENTS.values():
        (function,) = parse(text)
        assert isinstance(function, CreateFunction)
        assert function_of(text) == function
    (function,) = parse(STATEMENTS["g"])
    assert function.signature == "g(a INT, b STRING) RETURNS STRING"


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("SELECT f(1, 2)", "f(1, 2)", Code.INVALID),
        ("SELECT f()", "f()", Code.INVALID),
        ("SELECT twice(uuid()) FROM t", "twice(uuid())", Code.UNSUPPORTED),
        (f"SELECT {'square(' * 40}v{')' * 40}", None, Code.UNSUPPORTED),
    ],
)
def test_a_call_that_cannot_be_its_body_is_refused_at_its_place(text, place, code):
    with pytest.raises(HeadraceError) as caught:
        read(text)
    assert caught.value.code is code
    assert place is None or (caught.value.span is not None and caught.value.span.source == place)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f(x INT) RETURNS INT AS f(x - 1)", "calls itself"),
        ("f(x INT) RETURNS INT AS (SELECT max(v) FROM t)", "SELECT in the body"),
        ("f(x INT) RETURNS INT AS sum(x) OVER ()", "OVER in the body"),
        ("f(x INT) RETURNS INT AS 'SELECT 1'", "in quotes"),
        ("f(x INT) RETURNS INT LANGUAGE JAVA AS x", "LANGUAGE JAVA"),
        ("f(x INT, X INT) RETURNS INT AS x", "there twice"),
        ("f(x INT DEFAULT 1) RETURNS INT AS x", "a default"),
        ("f(x INT) RETURNS TABLE (y INT) RETURN SELECT 1", "returns a table"),
        ("f(x ARRAY<INT>) RETURNS ARRAY<INT> AS transform(x, x -> x + 1)", "lambda function"),
        ("f(x ARRAY<INT>) RETURNS INT AS reduce(x, 0, (a, x) -> a + x)", "lambda function"),
        ("f AS 'com.example.F'", "without parameters"),
        ("f(x INT) RETURNS INT", "expected AS or RETURN"),
    ],
)
def test_a_body_that_cannot_stand_for_a_call_is_refused(text, message):
    with pytest.raises(HeadraceError, match=message):
        parse(f"CREATE FUNCTION {text}")
