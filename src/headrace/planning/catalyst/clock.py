"""Keeps the clock in a query from being evaluated by Spark's optimiser.

Spark replaces ``now()`` by the time of planning. Conditions on the clock in a view must stay
conditions, so before the query is optimised, each call in a condition of WHERE, HAVING or ON is
replaced by a mark. The mark is one of Catalyst's own expressions, a reference without definition:
it has no columns and no value, and the optimiser's rules move it like a constant.
"""

from __future__ import annotations

from typing import Any

from headrace.planning.catalyst.scala import (
    EXPRESSIONS,
    TYPES,
    Scala,
    items,
    kind_of,
    replaced,
    with_replaced,
    within,
)

MARK = "CommonExpressionRef"
"""The class of the mark."""

CALLS = frozenset({"CurrentTimestamp", "Now", "CurrentDate"})
"""The expression classes that the mark replaces."""

NAMES = frozenset({"now", "current_timestamp", "current_date", "curdate"})
"""The functions of these expressions."""

CONDITIONS = frozenset({"Filter", "Join"})
"""The nodes whose conditions may contain a call."""

_ID = 2**40
_PATTERNS = "org.apache.spark.sql.catalyst.trees.TreePattern"
"""Catalyst knows of each tree which patterns of nodes it contains, subqueries included."""


def with_clock_marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with the mark in place of the clock, subqueries included."""
    id_ = scala.named(f"{EXPRESSIONS}.CommonExpressionId")(_ID, False)  # noqa: FBT003
    time = scala.module(f"{TYPES}.TimestampType")
    return _with_clock(scala, plan, scala.expression(MARK, id_, time, False))  # noqa: FBT003


def with_clock_at(scala: Scala, plan: Any, now: int) -> Any:
    """Return an analysed plan with a time in place of the clock, subqueries included."""
    return _with_clock(scala, plan, scala.expression("MicrosToTimestamp", scala.long(now)))


def _with_clock(scala: Scala, plan: Any, time: Any) -> Any:
    if not plan.containsPattern(scala.module(_PATTERNS).CURRENT_LIKE()):
        return plan

    def replace(expression: Any, kind: str, node: str) -> Any | None:
        if node not in CONDITIONS:
            return None
        if kind == "With" and _names_clock(expression):
            return replaced(scala, _written_out(scala, expression, node), node, replace)
        if kind not in CALLS:
            return None
        if kind == "CurrentDate":
            return scala.cast(time, scala.module(f"{TYPES}.DateType"))
        return time

    return with_replaced(scala, plan, replace)


def _names_clock(given: Any) -> bool:
    """Return whether a named part is a call of the clock, as the value that BETWEEN compares."""
    _whole, *named = items(given.children())
    return any(kind_of(each) in CALLS for name in named for each in within(name))


def _written_out(scala: Scala, given: Any, node: str) -> Any:
    """Return an expression with named parts replaced by their definitions.

    Spark would compute a named part as a column below the node, where it is not marked as the
    clock.
    """
    whole, *named = items(given.children())
    values = {int(each.id().id()): each.child() for each in named}

    def value(expression: Any, kind: str, _node: str) -> Any | None:
        return values.get(int(expression.id().id())) if kind == MARK else None

    return replaced(scala, whole, node, value)


def has_mark(expression: Any) -> bool:
    """Return whether an expression depends on the clock."""
    return any(kind_of(each) == MARK for each in within(expression))


def conjuncts(condition: Any) -> list[Any]:
    """Return the conditions that AND combines."""
    if kind_of(condition) != "And":
        return [condition]
    return [each for side in items(condition.children()) for each in conjuncts(side)]


def all_of(scala: Scala, conditions: list[Any]) -> Any | None:
    """Combine conditions by AND; None if there are none."""
    joined = None
    for condition in conditions:
        joined = condition if joined is None else scala.expression("And", joined, condition)
    return joined
