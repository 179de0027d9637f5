"""DISTINCT in aggregates, kept from Spark's optimiser.

Spark rewrites several ``DISTINCT`` aggregates of one query into two levels of grouping, numbered in
an order that differs from one planning to the next. Neither suits us: values that come and go are
counted by one operator, and what is stored must mean the same when it is planned again. So calls
lose their ``DISTINCT`` before the query is optimised, and their arguments carry a mark instead: two
of Catalyst's tags, which compute nothing, and which no rule removes or adds in this order.
"""

from __future__ import annotations

from typing import Any

from headrace.catalyst.scala import Scala, items

_OUTER, _INNER = "KnownNullable", "KnownFloatingPointNormalized"


def marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with marks in place of ``DISTINCT``, subqueries included."""
    children = items(plan.children())
    new = [marked(scala, child) for child in children]
    if any(a is not b for a, b in zip(children, new, strict=True)):
        plan = plan.withNewChildren(scala.seq(new))
    kind = str(plan.nodeName())
    match kind:
        case "Aggregate":
            calls = items(plan.aggregateExpressions())
            found = [_marked(scala, call) for call in calls]
            if _same(calls, found):
                return plan
            return scala.logical(
                "Aggregate", plan.groupingExpressions(), scala.seq(found), plan.child(), plan.hint()
            )
        case "Project":
            named = items(plan.projectList())
            found = [_marked(scala, each) for each in named]
            if _same(named, found):
                return plan
            return scala.logical("Project", scala.seq(found), plan.child())
        case "Filter":
            condition = plan.condition()
            new_condition = _marked(scala, condition)
            if new_condition is condition:
                return plan
            return scala.logical("Filter", new_condition, plan.child())
        case _:
            return plan


def is_marked(function: Any) -> bool:
    """Say whether an aggregate function lost its ``DISTINCT``."""
    kind = str(function.getClass().getSimpleName())
    below = items(function.children())
    if kind == _OUTER and str(below[0].getClass().getSimpleName()) == _INNER:
        return True
    return any(is_marked(child) for child in below)


def _marked(scala: Scala, expression: Any) -> Any:
    kind = str(expression.getClass().getSimpleName())
    if kind == "AggregateExpression":
        if not expression.isDistinct():
            return expression
        function = expression.aggregateFunction()
        tagged = [_tagged(scala, argument) for argument in items(function.children())]
        return scala.expression(
            "aggregate.AggregateExpression",
            function.withNewChildren(scala.seq(tagged)),
            expression.mode(),
            False,  # noqa: FBT003
            expression.filter(),
            expression.resultId(),
        )
    if kind in ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"):
        plan = expression.plan()
        new = marked(scala, plan)
        return expression if new is plan else expression.withNewPlan(new)
    below = items(expression.children())
    found = [_marked(scala, child) for child in below]
    if _same(below, found):
        return expression
    return expression.withNewChildren(scala.seq(found))


def _tagged(scala: Scala, argument: Any) -> Any:
    return scala.expression(_OUTER, scala.expression(_INNER, argument))


def _same(before: list[Any], after: list[Any]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))
