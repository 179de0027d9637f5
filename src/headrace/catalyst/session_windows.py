"""Applies conditions on session windows to whole sessions.

Spark moves a condition on grouping columns below the aggregate. But the aggregate itself computes
sessions: below it, the column has the window of a single row, so that a session would lose the rows
whose own windows do not meet the condition. Conditions on columns with an aggregate function stay
above, so sessions become ``if(count(*) > 0, session, NULL)``.
"""

from __future__ import annotations

from typing import Any

from headrace.catalyst.rewrite import count
from headrace.catalyst.scala import Scala, items, kind_of
from headrace.catalyst.walk import SUBQUERIES, replaced, with_children, with_replaced

_PATTERNS = ("AGGREGATE", "CREATE_NAMED_STRUCT")
_CONDITIONS = ("Filter", "Join")
_SESSION = "spark.sessionWindow"


def with_sessions_merged(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan in which conditions apply to merged sessions.

    Returns the plan itself if nothing changes.
    """
    if not all(scala.may_hold(pattern, plan) for pattern in _PATTERNS):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind not in SUBQUERIES:
            return None
        inner = expression.plan()
        new = _merged(scala, with_replaced(scala, inner, replace), conditions=True)
        return expression if new is inner else expression.withNewPlan(new)

    if scala.may_hold("PLAN_EXPRESSION", plan):
        plan = with_replaced(scala, plan, replace)
    return _merged(scala, plan, conditions=False)


def is_session(key: Any) -> bool:
    """Return whether a grouping key is a session window."""
    return kind_of(key) in ("AttributeReference", "Alias") and key.metadata().contains(_SESSION)


def _merged(scala: Scala, plan: Any, *, conditions: bool) -> Any:
    """Return a plan with the sessions of its aggregates below ``conditions`` marked as merged."""
    name = str(plan.nodeName())
    conditions |= name in _CONDITIONS
    plan = with_children(scala, plan, lambda child: _merged(scala, child, conditions=conditions))
    if name != "Aggregate" or not conditions:
        return plan
    sessions = [key for key in items(plan.groupingExpressions()) if is_session(key)]
    return _guarded(scala, plan, sessions) if sessions else plan


def _guarded(scala: Scala, aggregate: Any, sessions: list[Any]) -> Any:
    """Return an aggregate whose output has sessions only through an aggregate function."""
    ids = {int(key.exprId().id()) for key in sessions}
    some = scala.expression("GreaterThan", count(scala), scala.long(0))

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind == "AggregateExpression":
            return expression
        if kind != "AttributeReference" or int(expression.exprId().id()) not in ids:
            return None
        null = scala.expression("Literal", None, expression.dataType())
        return scala.expression("If", some, expression, null)

    computed, shown = [], []
    for each in items(aggregate.aggregateExpressions()):
        found = replaced(scala, each, "Aggregate", replace)
        if found is each or kind_of(each) == "Alias":
            computed.append(found)
            shown.append(found.toAttribute())
        else:
            own = scala.alias(found, str(each.name()))
            computed.append(own)
            shown.append(scala.alias(own.toAttribute(), str(each.name()), each))
    keys, child = aggregate.groupingExpressions(), aggregate.child()
    inner = scala.logical("Aggregate", keys, scala.seq(computed), child, aggregate.hint())
    return scala.logical("Project", scala.seq(shown), inner)
