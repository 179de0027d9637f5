"""DISTINCT in aggregates, kept from Spark's optimiser.

Spark rewrites several ``DISTINCT`` aggregates of one query into two levels of grouping, numbered in
an order that differs from one planning to the next. Neither suits us: values that come and go are
counted by one operator, and what is stored must mean the same when it is planned again. So calls
lose their ``DISTINCT`` before the query is optimised, and their arguments carry a mark instead: two
of Catalyst's tags, which compute nothing, and which no rule removes or adds in this order.
"""

from __future__ import annotations

from typing import Any

from headrace.catalyst.scala import Scala, items, kind_of, within
from headrace.catalyst.walk import with_replaced

_OUTER, _INNER = "KnownNullable", "KnownFloatingPointNormalized"


def marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with marks in place of ``DISTINCT``, subqueries included."""

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind != "AggregateExpression" or not expression.isDistinct():
            return None
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

    return with_replaced(scala, plan, replace)


def is_marked(function: Any) -> bool:
    """Say whether an aggregate function lost its ``DISTINCT``."""
    return any(
        kind_of(each) == _OUTER and kind_of(items(each.children())[0]) == _INNER
        for each in within(function)
    )


def _tagged(scala: Scala, argument: Any) -> Any:
    return scala.expression(_OUTER, scala.expression(_INNER, argument))
