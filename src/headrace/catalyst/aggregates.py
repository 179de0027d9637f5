"""Calls of Catalyst's aggregate functions: what they need, sums or all rows of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    VariantType,
)

from headrace.catalyst.distinct import is_marked
from headrace.catalyst.plan import AggregateFunction
from headrace.catalyst.scala import items, kind_of, maybe
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from headrace.catalyst.pieces import Pieces

KEPT = {"Count": "count", "Sum": "sum", "Average": "avg", "Min": "min", "Max": "max"}
"""The functions that can be kept without the rows of a group, by Catalyst's name for them."""

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


def is_distinct(call: Any) -> bool:
    """Say whether a call looks at each value once, by Spark's word or by our mark."""
    return bool(call.isDistinct()) or is_marked(call.aggregateFunction())


def function_of(call: Any) -> str:
    """Return Catalyst's name of the function of an ``AggregateExpression``."""
    return kind_of(call.aggregateFunction())


def needs_rows(call: Any, arguments: tuple[DataType, ...]) -> str | None:
    """Say why the value of a call has to be computed from all rows of its group, if it has.

    Sums over rows or over distinct values, and the least or greatest value, need no rows.
    """
    function, kind = call.aggregateFunction(), function_of(call)
    if kind not in KEPT or str(function.prettyName()).startswith("try_"):
        return "needs all rows of its group"
    if kind in ("Sum", "Average") and not isinstance(arguments[0], _EXACT):
        return "adds inexact numbers, which would drift if they were taken away again"
    if kind in ("Min", "Max") or is_distinct(call):
        for type_ in arguments:
            if is_collated(type_):
                return "compares texts by a collation"
            if holds(type_, (MapType, VariantType)):
                return f"compares values of type {type_.simpleString().upper()}"
    return None


def is_ordered(call: Any, arguments: tuple[DataType, ...]) -> bool:
    """Say whether the value of a call may depend on the order in which it sees the rows."""
    kind = function_of(call)
    if kind in ("Sum", "Average"):
        return not isinstance(arguments[0], _EXACT)
    return kind not in _UNORDERED


def has_no_order(call: Any, results: list[Any]) -> bool:
    """Say whether the results show a list whose order nobody has stated."""
    kind = function_of(call)
    if kind == "ListAgg":
        return not items(call.aggregateFunction().orderExpressions())
    if kind not in _LISTS:
        return False
    id_ = call.resultId().id()
    return any(_shown(result, id_, "") for result in results)


def _shown(expression: Any, id_: int, above: str) -> bool:
    kind = kind_of(expression)
    if kind == "AttributeReference" and expression.exprId().id() == id_:
        return above not in _ORDER_FORGOTTEN
    return any(_shown(child, id_, kind) for child in items(expression.children()))


def condition_of(call: Any) -> Any | None:
    """Return the condition of ``FILTER (WHERE ...)``, if there is one."""
    return maybe(call.filter())


def called(pieces: Pieces, call: Any, results: list[Any]) -> AggregateFunction:
    """Return a call of an aggregate function as ours; ``results`` are what it stands in.

    Raises:
        HeadraceError: ``unsupported`` where its value depends on an order that is not stated.
    """
    function = call.aggregateFunction()
    text = str(call.sql())
    if has_no_order(call, results):
        raise pieces.unsupported(
            f"the order of {text} is not stated",
            "Sort it: sort_array(collect_list(x)), or listagg(x) WITHIN GROUP (ORDER BY x).",
            function,
        )
    values = items(function.children())
    distinct = is_distinct(call)
    if distinct:
        values = [pieces.normalised(value) for value in values]
    arguments = tuple(pieces.expression(e) for e in values)
    types = tuple(argument.type for argument in arguments)
    condition = condition_of(call)
    name = KEPT.get(function_of(call), str(function.prettyName()))
    counts_rows = (
        name == "count"
        and condition is None
        and not distinct
        and all(not argument.handle.nullable() for argument in arguments)
    )
    return AggregateFunction(
        name,
        text,
        arguments,
        pieces.expression(condition) if condition is not None else None,
        counts_rows,
        distinct,
        needs_rows(call, types),
        is_ordered(call, types),
        call,
    )
