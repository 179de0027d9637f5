"""The clock in a query, kept from Spark's optimiser.

Spark replaces ``now()`` by the time of planning. A view's conditions on the clock have to stay
conditions: before the query is optimised, each call in a condition of WHERE, HAVING or ON gives way
to a mark. It is one of Catalyst's own expressions, a reference that nothing defines: without
columns, without a value, and left alone by every rule, which move it as they would move a constant.
"""

from __future__ import annotations

from typing import Any

from headrace.catalyst.scala import EXPRESSIONS, Scala, items, maybe

MARK = "CommonExpressionRef"
"""The class of the mark."""

CALLS = frozenset({"CurrentTimestamp", "Now", "CurrentDate"})
"""The expression classes that give way to the mark."""

NAMES = frozenset({"now", "current_timestamp", "current_date", "curdate"})
"""The functions that they come from."""

CONDITIONS = frozenset({"Filter", "Join"})
"""The nodes in whose conditions a call may stand."""

_ID = 2**40
_TYPES = "org.apache.spark.sql.types"
_SUBQUERIES = ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery")


def with_clock_marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with the mark in place of the clock, subqueries included."""
    id_ = scala.named(f"{EXPRESSIONS}.CommonExpressionId")(_ID, False)  # noqa: FBT003
    time = scala.module(f"{_TYPES}.TimestampType")
    mark = scala.expression(MARK, id_, time, False)  # noqa: FBT003
    return _with_clock(scala, plan, mark)


def with_clock_at(scala: Scala, plan: Any, now: int) -> Any:
    """Return an analysed plan with a time in place of the clock, subqueries included."""
    micros = cast(scala, scala.module(f"{EXPRESSIONS}.Literal").apply(now), "LongType")
    return _with_clock(scala, plan, scala.expression("MicrosToTimestamp", micros))


def _with_clock(scala: Scala, plan: Any, mark: Any) -> Any:
    children = items(plan.children())
    new = [_with_clock(scala, child, mark) for child in children]
    if not _same(children, new):
        plan = plan.withNewChildren(scala.seq(new))
    match str(plan.nodeName()):
        case "Filter":
            condition = plan.condition()
            found = _marked(scala, condition, mark, here=True)
            return plan if found is condition else scala.logical("Filter", found, plan.child())
        case "Join":
            condition = maybe(plan.condition())
            found = None if condition is None else _marked(scala, condition, mark, here=True)
            if found is condition:
                return plan
            given = scala.named("scala.Option").apply(found)
            parts = (plan.left(), plan.right(), plan.joinType())
            return scala.logical("Join", *parts, given, plan.hint())
        case "Project":
            named = items(plan.projectList())
            shown = [_marked(scala, each, mark, here=False) for each in named]
            if _same(named, shown):
                return plan
            return scala.logical("Project", scala.seq(shown), plan.child())
        case "Aggregate":
            calls = items(plan.aggregateExpressions())
            shown = [_marked(scala, call, mark, here=False) for call in calls]
            if _same(calls, shown):
                return plan
            return scala.logical(
                "Aggregate", plan.groupingExpressions(), scala.seq(shown), plan.child(), plan.hint()
            )
        case _:
            return plan


def has_mark(expression: Any) -> bool:
    """Say whether an expression depends on the clock."""
    if kind_of(expression) == MARK:
        return True
    return any(has_mark(child) for child in items(expression.children()))


def kind_of(expression: Any) -> str:
    """Return the name of an expression's class."""
    return str(expression.getClass().getSimpleName())


def conjuncts(condition: Any) -> list[Any]:
    """Return the conditions that AND joins."""
    if kind_of(condition) != "And":
        return [condition]
    return [each for side in items(condition.children()) for each in conjuncts(side)]


def all_of(scala: Scala, conditions: list[Any]) -> Any | None:
    """Join conditions by AND; None where there is none."""
    joined = None
    for condition in conditions:
        joined = condition if joined is None else scala.expression("And", joined, condition)
    return joined


def cast(scala: Scala, value: Any, type_: str) -> Any:
    """Return a value as another type, in UTC; ``type_`` names the object of the type."""
    utc = scala.named("scala.Option").apply("UTC")
    ansi = scala.module(f"{EXPRESSIONS}.EvalMode").ANSI()
    return scala.expression("Cast", value, scala.module(f"{_TYPES}.{type_}"), utc, ansi)


def _marked(scala: Scala, expression: Any, mark: Any, *, here: bool) -> Any:
    """Mark the clock in an expression if it may stand ``here``, and in its subqueries."""
    kind = kind_of(expression)
    if kind in CALLS and here:
        return cast(scala, mark, "DateType") if kind == "CurrentDate" else mark
    if kind in _SUBQUERIES:
        plan = expression.plan()
        new = _with_clock(scala, plan, mark)
        return expression if new is plan else expression.withNewPlan(new)
    below = items(expression.children())
    found = [_marked(scala, child, mark, here=here) for child in below]
    return expression if _same(below, found) else expression.withNewChildren(scala.seq(found))


def _same(before: list[Any], after: list[Any]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))
