"""Walks trees of Catalyst, and replaces parts of plans and expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.catalyst.scala import Scala, items, kind_of, maybe, node_name

Replace = Callable[[Any, str, str], Any | None]
"""Returns a replacement for an expression, given its class and the kind of its node.

None keeps the expression and continues with its children.
"""

SUBQUERIES = frozenset(
    {
        "Exists",
        "FunctionTableSubqueryArgumentExpression",
        "LateralSubquery",
        "ListQuery",
        "ScalarSubquery",
    }
)
"""The expressions that contain a plan."""

READ_BY_TASK = "MapInArrow"
"""The node that runs a Python task; the nodes below it have no columns of a query."""


def with_replaced(scala: Scala, plan: Any, replace: Replace) -> Any:
    """Return a plan with expressions replaced, including subqueries, or the plan itself.

    The expressions of projections, conditions, aggregates and LATERAL joins are visited.
    """
    plan = with_children(scala, plan, lambda child: with_replaced(scala, child, replace))
    node = node_name(plan)

    def of_all(expressions: list[Any]) -> list[Any]:
        return [replaced(scala, each, node, replace) for each in expressions]

    match node:
        case "Filter":
            condition = plan.condition()
            (found,) = of_all([condition])
            return plan if found is condition else scala.logical("Filter", found, plan.child())
        case "Join":
            given = [c] if (c := maybe(plan.condition())) is not None else []
            new = of_all(given)
            if _same(given, new):
                return plan
            condition = scala.option(new[0])
            parts = (plan.left(), plan.right(), plan.joinType())
            return scala.logical("Join", *parts, condition, plan.hint())
        case "LateralJoin":
            given = [plan.right()]
            (lateral,) = of_all(given)
            if lateral is given[0]:
                return plan
            left, how, condition = plan.left(), plan.joinType(), plan.condition()
            return scala.logical("LateralJoin", left, lateral, how, condition)
        case "Project":
            given = items(plan.projectList())
            new = of_all(given)
            if _same(given, new):
                return plan
            return scala.logical("Project", scala.seq(new), plan.child())
        case "Aggregate":
            keys, given = items(plan.groupingExpressions()), items(plan.aggregateExpressions())
            new_keys, new = of_all(keys), of_all(given)
            if _same([*keys, *given], [*new_keys, *new]):
                return plan
            by, shown = scala.seq(new_keys), scala.seq(new)
            return scala.logical("Aggregate", by, shown, plan.child(), plan.hint())
        case _:
            return plan


def replaced(scala: Scala, expression: Any, node: str, replace: Replace) -> Any:
    """Return an expression with its children replaced, including subqueries."""
    kind = kind_of(expression)
    other = replace(expression, kind, node)
    if other is not None:
        return other
    if kind in SUBQUERIES:
        plan = expression.plan()
        new = with_replaced(scala, plan, replace)
        return expression if new is plan else expression.withNewPlan(new)
    return with_children(scala, expression, lambda child: replaced(scala, child, node, replace))


def with_nodes(scala: Scala, plan: Any, rewritten: Callable[[Any], Any]) -> Any:
    """Return a plan with the nodes rewritten, in itself and in its subqueries."""

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind not in SUBQUERIES:
            return None
        inner = expression.plan()
        new = rewritten(with_replaced(scala, inner, replace))
        return expression if new is inner else expression.withNewPlan(new)

    if scala.may_hold("PLAN_EXPRESSION", plan):
        plan = with_replaced(scala, plan, replace)
    return rewritten(plan)


def with_children(scala: Scala, tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return a plan or an expression with its children changed; itself if no child changes."""
    below = items(tree.children())
    new = [change(child) for child in below]
    return tree if _same(below, new) else tree.withNewChildren(scala.seq(new))


def topmost(plan: Any, kind: str) -> Iterator[Any]:
    """Yield the topmost nodes of a kind in a plan."""
    if node_name(plan) == kind:
        yield plan
        return
    for child in items(plan.children()):
        yield from topmost(child, kind)


def _same(before: list[Any], after: list[Any]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))
