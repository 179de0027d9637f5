"""Rewrites Catalyst nodes to equivalent nodes that are cheaper to maintain.

Applies conditions on session windows to whole sessions.

Spark moves a condition on grouping columns below the aggregate. But the aggregate itself computes
sessions: below it, the column has the window of a single row, so that a session would lose the rows
whose own windows do not meet the condition. Conditions on columns with an aggregate function stay
above, so sessions become ``if(count(*) > 0, session, NULL)``.
"""

from __future__ import annotations

from typing import Any

from headrace.planning.catalyst.scala import (
    EXPRESSIONS,
    SUBQUERIES,
    Scala,
    items,
    kind_of,
    maybe,
    part,
    replaced,
    with_children,
    with_replaced,
)

_PLANS = "org.apache.spark.sql.catalyst.plans"


def not_in(scala: Scala, node: Any) -> Any | None:
    """Return ``x NOT IN (SELECT y ...)`` without a condition that is not an equality, or None.

    Spark's anti join on ``x = y OR isnull(x = y)`` would compare every row with every other. The
    equivalent is a filter by two facts about the subquery, which rarely change, and a plain anti
    join: the row is in the result if the subquery is empty, or if the subquery has no NULL, ``x``
    is not NULL, and no ``y`` equals ``x``.
    """
    single = scala.module(
        "org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin"
    )
    found = maybe(single.unapply(node))
    if found is None:
        return None
    (wanted,), (given,) = items(part(found, 0)), items(part(found, 1))
    left, right = node.left(), node.right()
    rows = scala.alias(count(scala), "rows")
    values = scala.alias(count(scala, given), "values")
    counted = scala.logical(
        "Aggregate", scala.seq([]), scala.seq([rows, values]), right, scala.none
    )
    n, m = rows.toAttribute(), values.toAttribute()
    empty = scala.alias(scala.expression("EqualTo", n, scala.long(0)), "empty")
    whole = scala.alias(scala.expression("EqualTo", n, m), "whole")
    facts = scala.logical("Project", scala.seq([empty, whole]), counted)
    both = join(scala, left, facts, "Inner")
    sound = scala.expression("And", whole.toAttribute(), scala.expression("IsNotNull", wanted))
    kept = scala.logical("Filter", scala.expression("Or", empty.toAttribute(), sound), both)
    bare = scala.logical("Project", left.output(), kept)
    return join(scala, bare, right, "LeftAnti", scala.expression("EqualTo", wanted, given))


def join(scala: Scala, left: Any, right: Any, kind: str, condition: Any | None = None) -> Any:
    """Return a Catalyst join of two plans; ``kind`` names the object of its type."""
    type_ = scala.module(f"{_PLANS}.{kind}")
    hint = scala.module("org.apache.spark.sql.catalyst.plans.logical.JoinHint").NONE()
    on = scala.option(condition)
    return scala.logical("Join", left, right, type_, on, hint)


def count(scala: Scala, value: Any | None = None) -> Any:
    """Return the call of ``count`` for a value, or for all rows."""
    counted = scala.module(f"{EXPRESSIONS}.Literal").apply(1) if value is None else value
    function = scala.named(f"{EXPRESSIONS}.aggregate.Count")(scala.seq([counted]))
    return function.toAggregateExpression()


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
