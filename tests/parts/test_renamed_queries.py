"""Names in queries are replaced where Spark does not know them any more."""

from __future__ import annotations

import re

import pytest

from headrace.errors import Code, HeadraceError, Span
from headrace.lifecycle.definitions.renamed import (
    RenamedColumn,
    RenamedRelation,
    RenamedRelations,
    keeping_names,
    renamed,
    under_former_names,
    with_other_variables,
)
from headrace.planning.catalyst.written import RelationPlace
from headrace.planning.sql.rewritten import as_name


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


def test_a_name_with_a_dot_is_one_name():
    found = renamed("SELECT v FROM s", RenamedColumn("v", "a.b"), refusing(r"\bv\b"))
    assert found == "SELECT `a.b` FROM s"
    assert as_name("a b") == "`a b`"


def test_in_a_wide_place_only_names_of_columns_are_replaced():
    query = "SELECT transform(xs, v -> v + INTERVAL '1' day * day) FROM s"
    at = query.index("day)")
    name = RenamedColumn("day", "d", lambda *_: [Span(query, at, at + 3)])
    found = renamed(query, name, refusing(r"transform.*day\)"))
    assert found == "SELECT transform(xs, v -> v + INTERVAL '1' day * d) FROM s"


def test_where_no_relation_can_be_named_the_first_part_is_the_column():
    name = RenamedColumn("v", "w", alone=True)
    assert renamed("SELECT v.v FROM s", name, refusing(r"\bv\.v")) == "SELECT w.v FROM s"


def test_variables_get_a_name_that_nothing_has():
    query = "SELECT transform(xs, W -> w + w_2 + v) FROM s"
    places = [Span(query, at.start(), at.end()) for at in re.finditer(r"\b[wW]\b", query)]
    found = with_other_variables(query, "w", lambda _, name: places if name == "w" else [])
    assert found == "SELECT transform(xs, w_3 -> w_3 + w_2 + v) FROM s"
    assert with_other_variables("SELECT v FROM s", "w", lambda *_: places) == "SELECT v FROM s"


def test_a_relation_is_read_with_the_former_names_of_its_columns():
    query = "SELECT * FROM gold.s JOIN gold.s x USING (v)"
    places = [
        RelationPlace("gold.s", Span(query, at.start(), at.end()), is_named)
        for at, is_named in zip(re.finditer(r"gold\.s", query), (False, True), strict=True)
    ]
    assert under_former_names(query, places, "w AS v, k") == (
        "SELECT * FROM (SELECT w AS v, k FROM gold.s) AS s"
        " JOIN (SELECT w AS v, k FROM gold.s) x USING (v)"
    )
