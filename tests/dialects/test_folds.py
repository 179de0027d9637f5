"""Calls of folds as plain Spark SQL, and what is refused in them."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Span
from headrace.planning.dialects.functions import with_folds
from headrace.planning.functions import Folded

FOLDS = {"f": Folded(("k",), ("at",)), "g": Folded(("k", "j"), ("at", "id"))}


def rewritten(text: str) -> str:
    return with_folds(Span(text, 0, len(text)), FOLDS).text


def called(name: str, events: str, key: str = "`k`", order: str = "`at`") -> str:
    return (
        f"(SELECT {key}, __row.* FROM (SELECT {key}, `{name}`(sort_array(collect_list(named_struct("
        f"'by', struct({order}), 'event', struct(*))))) AS __row FROM {events} GROUP BY {key}))"
    )


@pytest.mark.parametrize(
    ("call", "events"),
    [
        ("f(TABLE t)", "t"),
        ("F(table gold.t)", "gold.t"),
        ("`f`(TABLE(t))", "t"),
        ("f(TABLE(SELECT * FROM t WHERE (x) > 1))", "(SELECT * FROM t WHERE (x) > 1)"),
        ("f(TABLE t PARTITION BY K ORDER BY at ASC)", "t"),
        ("f(TABLE(t) PARTITION BY (k))", "t"),
    ],
)
def test_a_call_is_a_subquery(call, events):
    assert rewritten(f"SELECT a FROM {call} AS x") == f"SELECT a FROM {called('f', events)} AS x"


def test_several_keys_and_orders_and_calls_of_calls():
    outer = called("g", "(SELECT *, 1 AS j FROM f(TABLE t))", "`k`, `j`", "`at`, `id`")
    outer = outer.replace("f(TABLE t)", called("f", "t"))
    text = (
        "SELECT * FROM g(TABLE(SELECT *, 1 AS j FROM f(TABLE t)) PARTITION BY k, j ORDER BY at, id)"
    )
    assert rewritten(text) == f"SELECT * FROM {outer}"


@pytest.mark.parametrize(
    "text", ["SELECT f(x) FROM t", "SELECT f FROM t", "SELECT h(TABLE t)", "SELECT 'f(TABLE t)'"]
)
def test_what_is_no_call_stays(text):
    assert rewritten(text) == text


@pytest.mark.parametrize(
    ("text", "why", "at"),
    [
        ("SELECT * FROM f(TABLE t PARTITION BY j)", "has another PARTITION BY: k", "j"),
        ("SELECT * FROM g(TABLE t ORDER BY at)", "has another ORDER BY: at, id", "at"),
        ("SELECT * FROM f(TABLE)", "expected the name of a relation", ")"),
        ("SELECT * FROM f(TABLE t, 1)", r'expected "\)"', ","),
        ("SELECT * FROM f(TABLE(SELECT 1)", r'expected "\)"', ""),
    ],
)
def test_an_error_is_at_its_place(text, why, at):
    with pytest.raises(HeadraceError, match=why) as refused:
        rewritten(text)
    span = refused.value.span
    assert span is not None
    assert span.source == at
