"""DISTINCT in aggregates, kept from Spark's optimiser.

Spark rewrites several ``DISTINCT`` aggregates of one query into two levels of grouping, numbered in
an order that differs from one planning to the next. Neither suits us: values that come and go are
counted by one operator, and what is stored must mean the same when it is planned again. So calls
lose their ``DISTINCT`` before the query is optimised, and their first argument carries a mark
instead, until they are read. The mark is a Catalyst expression that has the value of what it holds,
that no rule makes or removes once a query is analysed, and that is never folded into a constant:
``1`` twice is one value with ``DISTINCT``, and two without. For all that Spark knows, its value may
be NULL, since ``count`` of what cannot be NULL forgets its argument.
"""

from __future__ import annotations

from typing import Any

from headrace.catalyst.scala import Scala, items, kind_of, within
from headrace.catalyst.walk import with_replaced

_MARK, _MAY_BE_NULL = "NamedArgumentExpression", "KnownNullable"


def marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with marks in place of ``DISTINCT``, subqueries included."""

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
    """Return an aggregate call with its ``DISTINCT`` back, if it had one."""
    function = call.aggregateFunction()
    if not any(kind_of(each) == _MARK for each in within(function)):
        return call
    return _call(scala, call, _without_marks(scala, function), distinct=True)


def _marked(scala: Scala, argument: Any) -> Any:
    return scala.expression(_MAY_BE_NULL, scala.expression(_MARK, "DISTINCT", argument))


def _without_marks(scala: Scala, expression: Any) -> Any:
    children = [_without_marks(scala, child) for child in items(expression.children())]
    if kind_of(expression) in {_MAY_BE_NULL, _MARK}:
        return children[0]
    return expression.withNewChildren(scala.seq(children)) if children else expression


def _call(scala: Scala, call: Any, function: Any, *, distinct: bool) -> Any:
    parts = (function, call.mode(), distinct, call.filter(), call.resultId())
    return scala.expression("aggregate.AggregateExpression", *parts)
