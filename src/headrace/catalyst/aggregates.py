"""What Catalyst's aggregate functions need: sums, or all rows of the group."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
)

from headrace.catalyst.scala import items, maybe

LINEAR = {"Count": "count", "Sum": "sum", "Average": "avg"}
"""The functions that are sums over the rows of a group, by Catalyst's name for them."""

_EXACT = (ByteType, ShortType, IntegerType, LongType, DecimalType)

_UNORDERED = frozenset(
    """
    ApproxCountDistinctForIntervals BitAndAgg BitOrAgg BitXorAgg BitmapConstructAgg BitmapOrAgg
    Count HyperLogLogPlusPlus Max Min Percentile PercentileCont PercentileDisc PivotFirst
    """.split()  # noqa: SIM905
)
"""The functions whose result is the same in whatever order they see the rows."""

_LISTS = ("CollectList", "CollectSet")
_ORDER_FORGOTTEN = frozenset({"SortArray", "Size", "ArrayMax", "ArrayMin", "ArrayContains"})


def kind_of(call: Any) -> str:
    """Return Catalyst's name of the function of an ``AggregateExpression``."""
    return str(call.aggregateFunction().getClass().getSimpleName())


def not_a_sum(call: Any, arguments: tuple[DataType, ...]) -> str | None:
    """Say why the value of a call does not follow from sums over its rows, or None if it does."""
    function, kind = call.aggregateFunction(), kind_of(call)
    if kind not in LINEAR or str(function.prettyName()).startswith("try_"):
        return "needs all rows of its group"
    if call.isDistinct():
        return "counts each value once"
    if kind != "Count" and not isinstance(arguments[0], _EXACT):
        return "adds inexact numbers, which would drift if they were taken away again"
    return None


def is_ordered(call: Any, arguments: tuple[DataType, ...]) -> bool:
    """Say whether the value of a call may depend on the order in which it sees the rows."""
    kind = kind_of(call)
    if kind in ("Sum", "Average"):
        return not isinstance(arguments[0], _EXACT)
    return kind not in _UNORDERED


def has_no_order(call: Any, results: list[Any]) -> bool:
    """Say whether the results show a list whose order nobody has stated."""
    kind = kind_of(call)
    if kind == "ListAgg":
        return not items(call.aggregateFunction().orderExpressions())
    if kind not in _LISTS:
        return False
    id_ = call.resultId().id()
    return any(_shown(result, id_, "") for result in results)


def _shown(expression: Any, id_: int, above: str) -> bool:
    kind = str(expression.getClass().getSimpleName())
    if kind == "AttributeReference" and expression.exprId().id() == id_:
        return above not in _ORDER_FORGOTTEN
    return any(_shown(child, id_, kind) for child in items(expression.children()))


def condition_of(call: Any) -> Any | None:
    """Return the condition of ``FILTER (WHERE ...)``, if there is one."""
    return maybe(call.filter())
