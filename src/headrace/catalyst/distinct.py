"""Keeps DISTINCT in aggregates from being rewritten by Spark's optimiser.

Spark rewrites several ``DISTINCT`` aggregates of one query into two levels of grouping, numbered in
an order that differs from one planning to the next. Headrace counts distinct values in one
operator, and stored state must have the same meaning when the query is planned again. So before the
query is optimised, the ``DISTINCT`` of a call is replaced by a mark around its first argument,
which is removed when the call is read. The mark is a Catalyst expression with the value of its
argument that no rule creates or removes once a query is analysed, and that is never folded into a
constant: ``1`` twice is one value with ``DISTINCT``, and two without. To Spark its value is
nullable, since ``count`` of an expression that is not nullable drops its argument.
"""

from __future__ import annotations

from typing import Any

from headrace.catalyst.scala import Scala, items, kind_of, within
from headrace.catalyst.walk import with_children, with_replaced

_MARK, _MAY_BE_NULL = "NamedArgumentExpression", "KnownNullable"


def marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with marks in place of ``DISTINCT``, subqueries included."""
    if not scala.may_hold("AGGREGATE_EXPRESSION", plan):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind != "AggregateExpression" or not expression.isDistinct():
            return None
        function = expression.aggregateFunction()
        first, *others = items(function.children())
        arguments = [_marked(scala, first), *others]
        return _call(
            scala, expression, function.withNewChildren(scala.seq(arguments)), distinct=False
        )

    return with_replaced(scala, plan, replace)


def unmarked(scala: Scala, call: Any) -> Any:
    """Return an aggregate call with its ``DISTINCT`` restored, if it had one."""
    function = call.aggregateFunction()
    if not any(kind_of(each) == _MARK for each in within(function)):
        return call
    return _call(scala, call, _without_marks(scala, function), distinct=True)


def _marked(scala: Scala, argument: Any) -> Any:
    return scala.expression(_MAY_BE_NULL, scala.expression(_MARK, "DISTINCT", argument))


def _without_marks(scala: Scala, expression: Any) -> Any:
    if kind_of(expression) in {_MAY_BE_NULL, _MARK}:
        return _without_marks(scala, items(expression.children())[0])
    return with_children(scala, expression, lambda child: _without_marks(scala, child))


def _call(scala: Scala, call: Any, function: Any, *, distinct: bool) -> Any:
    parts = (function, call.mode(), distinct, call.filter(), call.resultId())
    return scala.expression("aggregate.AggregateExpression", *parts)
