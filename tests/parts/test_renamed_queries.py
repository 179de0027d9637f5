"""Names in queries are replaced where Spark does not know them any more."""

from __future__ import annotations

import re

import pytest

from headrace.errors import Code, HeadraceError, Span
from headrace.parts.renamed_queries import (
    RenamedColumn,
    RenamedRelation,
    RenamedRelations,
    keeping_names,
    renamed,
)
from headrace.sql.edits import as_name, with_column


def refusing(pattern):
    """Return an analysis that does not know the first place where a pattern matches."""

    def analyse(span):
        found = re.search(pattern, span.text)
        if found is not None:
            place = Span(span.text, *found.span())
            raise HeadraceError(Code.INVALID, "does not exist", span=place)

    return analyse


@pytest.mark.parametrize(
    ("query", "unknown", "expected"),
    [
        ("SELECT v FROM s", r"\bv\b", "SELECT w AS v FROM s"),
        ("SELECT x.v, k FROM s x", r"x\.v", "SELECT x.w AS v, k FROM s x"),
        ("SELECT k, abs(`v`) FROM s", "`v`", "SELECT k, abs(w) FROM s"),
        ('SELECT "k", abs("v") FROM "s"', '"v"', 'SELECT "k", abs("w") FROM "s"'),
        ("SELECT v AS v FROM s", r"\bv\b(?= AS)", "SELECT w AS v FROM s"),
        ("SELECT k FROM s WHERE v > 1", r"\bv\b", "SELECT k FROM s WHERE w > 1"),
        ("SELECT k, v -- v\nFROM s", r"\bv\b(?= --)", "SELECT k, w AS v -- v\nFROM s"),
        ("SELECT s.v.v FROM s", r"s\.v\.v", "SELECT s.v.w AS v FROM s"),
        ("SELECT v, max(v) FROM s GROUP BY v", r"\bv\b",
         "SELECT w AS v, max(w) FROM s GROUP BY w"),
        ("WITH q AS (SELECT v FROM s) SELECT q.v FROM q", r"\bv\b",
         "WITH q AS (SELECT w FROM s) SELECT q.w AS v FROM q"),
        ("SELECT v FROM s UNION SELECT v FROM s", r"\bv\b",
         "SELECT w AS v FROM s UNION SELECT w AS v FROM s"),
    ],
)  # fmt: skip
def test_a_column_is_replaced_and_a_querys_column_keeps_its_name(query, unknown, expected):
    found = renamed(query, RenamedColumn("v", "w"), refusing(unknown))
    assert keeping_names(query, found) == expected


@pytest.mark.parametrize(
    ("query", "unknown", "expected"),
    [
        ("SELECT s.v FROM s", r"\bs\.v", "SELECT b.v FROM b"),
        ("SELECT v FROM t, s x", r"\bs\b", "SELECT v FROM t, b x"),
        ("WITH s AS (SELECT 1) SELECT * FROM s", "nothing", None),
        (
            'SELECT "v" FROM "s" WHERE "s"."v" > 1',
            r'"s"\."v"',
            'SELECT "v" FROM "b" WHERE "b"."v" > 1',
        ),
        ("SELECT 's' FROM `s` JOIN s ON true", "nothing", "SELECT 's' FROM b JOIN b ON true"),
        ("SELECT * FROM TUMBLE(TABLE s, ts)", "nothing", "SELECT * FROM TUMBLE(TABLE b, ts)"),
    ],
)
def test_a_relation_is_replaced_but_not_what_else_has_its_name(query, unknown, expected):
    name = RenamedRelations((RenamedRelation("s", "b"),))
    assert renamed(query, name, refusing(unknown)) == (expected or query)


def test_a_qualified_name_is_replaced_whole():
    name = RenamedRelations((RenamedRelation("a.s", "b.s t"), RenamedRelation("a.r", "b.r")))
    query = "SELECT a.s.v FROM a.s JOIN a . r ON s.v = r.v"
    found = renamed(query, name, refusing(r"\ba\.s\.v"))
    assert found == "SELECT b.`s t`.v FROM b.`s t` JOIN b.r ON s.v = r.v"


def test_an_error_elsewhere_is_raised():
    with pytest.raises(HeadraceError, match="does not exist"):
        renamed("SELECT u FROM s", RenamedColumn("v", "w"), refusing("u"))


def test_expressions_over_one_relation_follow():
    assert (
        with_column("v + x.v + v(v) - 'v'", "v", "select") == "`select` + x.v + v(`select`) - 'v'"
    )
    assert as_name("a b") == "`a b`"
