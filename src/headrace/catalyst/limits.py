"""Moves the limit of ``ORDER BY ... LIMIT`` in a correlated subquery next to its order.

Spark computes such a subquery for all outer rows at once, and selects its first rows by
``row_number()`` in the order of a ``Sort`` directly below the limit. If the order uses a column
that is not selected, a projection is between the two, and Spark numbers the rows in no order. A
projection keeps the number of rows, so the limit can be taken below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst.walk import SUBQUERIES, with_children, with_replaced

if TYPE_CHECKING:
    from headrace.catalyst.scala import Scala

_LIMITS = ("GlobalLimit", "LocalLimit", "Offset")
_BETWEEN = ("Project", "SubqueryAlias")


def with_limits_below(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan whose subqueries have each limit directly above its order.

    Returns the plan itself if nothing changes.
    """
    if not (scala.may_hold("LIMIT", plan) and scala.may_hold("PLAN_EXPRESSION", plan)):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind not in SUBQUERIES:
            return None
        inner = expression.plan()
        new = _lowered(scala, with_replaced(scala, inner, replace))
        return expression if new is inner else expression.withNewPlan(new)

    return with_replaced(scala, plan, replace)


def _lowered(scala: Scala, plan: Any) -> Any:
    if plan.nodeName() in _LIMITS:
        plan = _below(scala, plan)
    return with_children(scala, plan, lambda child: _lowered(scala, child))


def _below(scala: Scala, plan: Any) -> Any:
    """Return limits above projections of sorted rows as projections of limits."""
    limits: list[Any] = []
    between: list[Any] = []
    sort = plan
    while sort.nodeName() in (*_LIMITS, *_BETWEEN):
        (between if sort.nodeName() in _BETWEEN else limits).append(sort)
        sort = sort.child()
    if sort.nodeName() != "Sort" or not between:
        return plan
    for each in (*reversed(limits), *reversed(between)):
        sort = each.withNewChildren(scala.seq([sort]))
    return sort
