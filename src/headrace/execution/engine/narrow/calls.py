"""Functions of windows and aggregates, as calls over sorted rows.

A function is read if it is in an allow-list: its values are exactly Spark's, or in doubt. Whoever
runs a call that is in doubt has Spark compute the whole node.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, NumericType, StructType

from headrace.algebra.zset import OrderBy
from headrace.execution.engine.narrow import frames
from headrace.execution.engine.narrow.frames import Distance, FrameBounds, Frames, Groups, Order
from headrace.planning.catalyst.allowed import INTEGERS, is_plain_text
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import Scala, items, kind_of, maybe, replaced
from headrace.planning.catalyst.vectors import UnprovedError
from headrace.planning.catalyst.vectors.reader import (
    FLOATS,
    int_argument,
    is_comparable,
    is_constant,
    require,
    text_argument,
)
from headrace.planning.catalyst.windows import bound_by_distance
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import DataType

    from headrace.execution.engine.narrow.evaluated import ComputedColumns
    from headrace.execution.engine.narrow.nodes import JobNode, RowsNode


_WHOLE: Final = FrameBounds(None, None)
_FROM_START: Final = FrameBounds(None, 0)
_PEERS_FROM_START: Final = FrameBounds(None, 0, peers=True)


class ReadsPlans(Protocol):
    """What reads the other nodes of a plan, and expressions over their columns."""

    @property
    def scala(self) -> Scala:
        """The JVM."""
        ...

    def node(self, plan: Any) -> RowsNode:
        """Return the node of a plan."""
        ...

    def evaluated(self, expressions: list[Any], attributes: Sequence[Any]) -> ComputedColumns:
        """Return expressions over columns with some attributes."""
        ...

    def planned(self, plan: Any, why: str) -> JobNode:
        """Return the node that runs a plan as a job, for a reason."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A function over frames or groups, and over ``arguments`` by position.

    Of an aggregate, it is over those rows for which the argument ``where`` is true, and, if it is
    ``distinct``, over the first of those with equal arguments.
    """

    function: Callable[..., pa.Array]
    arguments: tuple[int, ...]
    parameters: Mapping[str, Any]
    frame: FrameBounds | None
    """None for functions of the group."""
    type: pa.DataType
    where: int | None = None
    distinct: bool = False

    def over(self, groups: Groups, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the values for sorted rows; see :mod:`headrace.execution.engine.narrow.frames`."""
        given = groups if self.frame is None else groups.frames(self.frame, columns)
        arguments = [columns[i] for i in self.arguments]
        return self._called(given, arguments)

    def of_groups(self, groups: Frames, columns: Sequence[pa.Array]) -> pa.Array:
        """Return a value for each group of sorted rows."""
        arguments = [columns[i] for i in self.arguments]
        if self.where is not None:
            true = columns[self.where].fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
            groups, arguments = frames.only(groups, arguments, true)
        if self.distinct:
            groups, arguments = frames.only(groups, arguments, frames.firsts(groups, arguments))
        return self._called(groups, arguments)

    def _called(self, given: Groups | Frames, arguments: Sequence[pa.Array]) -> pa.Array:
        found = self.function(given, *arguments, **self.parameters)
        return found if found.type == self.type else found.cast(self.type)


def order_of(orders: list[Any], grouped: int, peers: int, *, stable: bool = False) -> Order:
    """Return an order whose first keys, up to ``grouped``, are those of groups.

    Rows that are equal by the first ``peers`` of them are peers. With ``stable``, equal rows keep
    their order; so they do if some may differ by the sign of a 0.0.

    Raises:
        UnprovedError: values are not ordered, or not grouped, as Spark does.
    """
    types = [type_of(each.child()) for each in orders]
    for each, type_ in zip(orders, types, strict=True):
        require(each, when=_is_ordered(type_), of=type_)
    for each, type_ in zip(orders[:grouped], types[:grouped], strict=True):
        normalised = kind_of(each.child()) == "KnownFloatingPointNormalized"
        require(each, when=normalised or not _holds_float(type_), of=type_)
    by = tuple(OrderBy("", *_direction(each)) for each in orders)
    return Order(by, grouped, peers - grouped, stable or any(map(_holds_float, types)))


def is_same(left: list[Any], right: list[Any]) -> bool:
    """Whether two lists of expressions are equal."""
    if len(left) != len(right):
        return False
    return all(a.equals(b) for a, b in zip(left, right, strict=True))


def _direction(order: Any) -> tuple[bool, bool]:
    """Return whether an order descends, and whether its NULLs are first."""
    return (
        str(order.direction().sql()) == "DESC",
        str(order.nullOrdering().sql()) == "NULLS FIRST",
    )


def _is_ordered(type_: DataType) -> bool:
    """Whether values of a type are ordered here as Spark orders them."""
    match type_:
        case ArrayType():
            return _is_ordered(type_.elementType)
        case StructType():
            return all(_is_ordered(each.dataType) for each in type_.fields)
        case _:
            return is_comparable(type_) or type(type_) in FLOATS


def _is_grouped(type_: DataType) -> bool:
    """Whether equal values of a type are identical."""
    return _is_ordered(type_) and not _holds_float(type_)


def _holds_float(type_: DataType) -> bool:
    match type_:
        case ArrayType():
            return _holds_float(type_.elementType)
        case StructType():
            return any(_holds_float(each.dataType) for each in type_.fields)
        case _:
            return type(type_) in FLOATS


@dataclass(slots=True)
class WindowCalls:
    """Reads functions over rows in an order.

    ``arguments`` are the expressions to evaluate, ``made`` the calls, and ``attributes`` those of
    the values of the calls.
    """

    scala: Scala
    orders: list[Any]
    arguments: list[Any] = field(default_factory=list)
    made: list[Call] = field(default_factory=list)
    attributes: list[Any] = field(default_factory=list)
    regroups: bool = False
    """Whether Spark first groups rows by distinct values, so that their order is lost."""
    sees_order: bool = False
    """Whether the value of a function may depend on the order of rows."""

    def window(self, named: Any) -> Any:
        """Return a column that a window adds, over the values of calls."""

        def value(expression: Any, kind: str, _node: str) -> Any | None:
            return self._value(expression) if kind == "WindowExpression" else None

        return replaced(self.scala, named, "Window", value)

    def aggregate(self, named: Any) -> Any:
        """Return a result of an aggregate, over its keys and the values of calls."""

        def value(expression: Any, kind: str, _node: str) -> Any | None:
            return self._of_group(expression) if kind == "AggregateExpression" else None

        return replaced(self.scala, named, "Aggregate", value)

    def _of_group(self, aggregate: Any) -> Any:
        call, where, distinct = aggregate.aggregateFunction(), None, bool(aggregate.isDistinct())
        kind, given = kind_of(call), items(call.children())
        exact = all(_is_grouped(type_of(each)) for each in given)
        if distinct:
            require(call, when=kind in _DISTINCT and exact and not any(map(is_constant, given)))
        self.regroups |= distinct
        self.sees_order |= not exact or kind not in (*_DISTINCT, "Max", "Min")
        if maybe(aggregate.filter()) is not None:
            where = self.column(aggregate.filter().get())
        made = len(self.made)
        found = _known(_OF_GROUPS, call)(self, call, _WHOLE)
        self.made[made:] = [
            replace(each, where=where, distinct=distinct or kind == "CollectSet")
            for each in self.made[made:]
        ]
        return found

    def _value(self, window: Any) -> Any:
        frame = window.windowSpec().frameSpecification()
        function = window.windowFunction()
        kind = kind_of(function)
        if kind == "AggregateExpression":
            require(function, when=not function.isDistinct() and not maybe(function.filter()))
            call = function.aggregateFunction()
            return _known(_AGGREGATES, call)(self, call, self.frame(frame))
        return _known(_FUNCTIONS, function)(self, function, frame)

    def frame(self, handle: Any) -> FrameBounds:
        """Return a frame of rows, peers, or rows within a distance."""
        ranged = kind_of(handle.frameType()) == "RangeFrame$"
        lower, upper = self._bound(handle.lower(), ranged), self._bound(handle.upper(), ranged)
        return FrameBounds(lower, upper, peers=ranged and 0 in (lower, upper))

    def _bound(self, handle: Any, ranged: bool) -> int | Distance | None:  # noqa: FBT001
        match kind_of(handle):
            case "UnboundedPreceding$" | "UnboundedFollowing$":
                return None
            case "CurrentRow$":
                return 0
            case _ if ranged:
                return self._distance(handle)
            case _:
                require(handle, when=isinstance(type_of(handle), IntegerType))
                return int_argument(handle, handle)

    def _distance(self, offset: Any) -> Distance:
        """Return a bound by value, which Spark computes: a value of the ORDER BY and an offset."""
        bound = bound_by_distance(self.scala, self.orders, offset)
        (order,) = self.orders
        by = OrderBy("", *_direction(order))
        return Distance(self.column(order.child()), self.column(bound), by)

    def column(self, expression: Any) -> int:
        """Return the position, among arguments, of an expression's column."""
        for position, known in enumerate(self.arguments):
            if known.equals(expression):
                return position
        self.arguments.append(expression)
        return len(self.arguments) - 1

    def call(
        self,
        handle: Any,
        function: Callable[..., pa.Array],
        arguments: Sequence[Any],
        frame: FrameBounds | None,
        **parameters: Any,
    ) -> Any:
        """Add a call with the type of an expression; return the attribute of its value."""
        positions = tuple(map(self.column, arguments))
        type_ = to_arrow(type_of(handle))
        self.made.append(Call(function, positions, parameters, frame, type_))
        value = self.scala.expression("Literal", None, handle.dataType())
        attribute = self.scala.alias(value, f"w{len(self.attributes)}").toAttribute()
        self.attributes.append(attribute)
        return attribute


def _list(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
    type_ = type_of(handle)
    require(handle, when=isinstance(type_, ArrayType) and not type_.containsNull)
    require(handle, when=kind_of(handle) == "CollectList" or _is_grouped(type_), of=type_)
    arrow = to_arrow(type_)
    return calls.call(handle, frames.collected, (handle.child(),), frame, type_=arrow)


def _joined(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
    require(handle, when=is_plain_text(type_of(handle.child())))
    delimiter, orders = handle.delimiter(), items(handle.orderExpressions())
    is_null = kind_of(delimiter) == "Literal" and delimiter.value() is None
    between = "" if is_null else text_argument(handle, delimiter)
    by = order_of(orders, 0, len(orders)).by
    given = (handle.child(), *(each.child() for each in orders))
    return calls.call(handle, frames.joined, given, frame, delimiter=between, by=by)


def _known(table: Mapping[str, Callable[..., Any]], handle: Any) -> Callable[..., Any]:
    """Return what reads a function of a class."""
    known = table.get(kind_of(handle))
    if known is None:
        raise UnprovedError(kind_of(handle))
    return known


def _number(function: Callable[..., pa.Array], bounds: FrameBounds) -> Callable[..., Any]:
    """Read a function of the group, whose frame has some bounds."""

    def read(calls: WindowCalls, handle: Any, frame: Any) -> Any:
        require(handle, when=calls.frame(frame) == bounds)
        if kind_of(handle) in ("Rank", "DenseRank", "PercentRank"):
            require(handle, when=_ranks_by(calls, handle))
        return calls.call(handle, function, (), None)

    return read


def _ranks_by(calls: WindowCalls, handle: Any) -> bool:
    return is_same(items(handle.children()), [each.child() for each in calls.orders])


def _ntile(calls: WindowCalls, handle: Any, frame: Any) -> Any:
    require(handle, when=calls.frame(frame) == _FROM_START)
    buckets = int_argument(handle, handle.buckets())
    require(handle, when=buckets > 0)
    return calls.call(handle, frames.ntile, (), None, count=buckets)


def _neighbour(*, later: bool) -> Callable[..., Any]:
    def read(calls: WindowCalls, handle: Any, _frame: Any) -> Any:
        value, default = handle.input(), handle.default()
        offset = int_argument(handle, handle.offset() if later else handle.inputOffset())
        offset = offset if later else -offset
        skip = bool(handle.ignoreNulls())
        require(handle, when=offset != 0 or not skip)
        given = [value]
        if not (kind_of(default) == "Literal" and default.value() is None):
            require(handle, when=to_arrow(type_of(default)) == to_arrow(type_of(value)))
            given.append(default)
        return calls.call(handle, frames.neighbour, given, None, offset=offset, skip_nulls=skip)

    return read


def _nth_value(calls: WindowCalls, handle: Any, frame: Any) -> Any:
    position = int_argument(handle, handle.offset())
    require(handle, when=position > 0)
    skip = bool(handle.ignoreNulls())
    bounds, values = calls.frame(frame), (handle.input(),)
    return calls.call(handle, frames.nth, values, bounds, position=position - 1, skip_nulls=skip)


def _end(position: int) -> Callable[..., Any]:
    def read(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
        skip = bool(handle.ignoreNulls())
        values = (handle.child(),)
        return calls.call(handle, frames.nth, values, frame, position=position, skip_nulls=skip)

    return read


def _count(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
    given = [each for each in items(handle.children()) if not is_constant(each)]
    return calls.call(handle, frames.count, given, frame)


def _sum(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
    of, type_ = type_of(handle.child()), to_arrow(type_of(handle))
    given = (handle.child(),)
    if isinstance(of, DecimalType):
        require(handle, when=type_.scale == of.scale)
        return calls.call(handle, frames.decimal_sum, given, frame, type_=type_)
    if type(of) in INTEGERS:
        return calls.call(handle, frames.integer_sum, given, frame, type_=type_)
    require(handle, when=isinstance(of, NumericType), of=of)
    return calls.call(handle, frames.float_sum, given, frame, type_=type_)


def _average(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
    """Read ``avg`` as Spark's own result over its sum and its count."""
    child = handle.child()
    of = type_of(child)
    require(handle, when=isinstance(of, NumericType), of=of)
    found = {}
    for buffer in items(handle.aggBufferAttributes()):
        name, type_ = str(buffer.name()), to_arrow(type_of(buffer))
        if name == "count":
            given = () if is_constant(child) else (child,)
            made = calls.call(buffer, frames.count, given, frame)
        elif isinstance(of, DecimalType):
            require(handle, when=name == "sum" and type_.scale == of.scale)
            made = calls.call(buffer, frames.decimal_total, (child,), frame, type_=type_)
        else:
            require(handle, when=name == "sum" and type_ == pa.float64())
            made = calls.call(buffer, frames.float_total, (child,), frame)
        found[int(buffer.exprId().id())] = made

    def value(expression: Any, kind: str, _node: str) -> Any | None:
        if kind != "AttributeReference":
            return None
        return found[int(expression.exprId().id())]

    return replaced(calls.scala, handle.evaluateExpression(), "Window", value)


def _extreme(*, largest: bool) -> Callable[..., Any]:
    def read(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
        of = type_of(handle.child())
        require(handle, when=_is_ordered(of), of=of)
        return calls.call(handle, frames.extreme, (handle.child(),), frame, largest=largest)

    return read


def _of_extreme(*, largest: bool) -> Callable[..., Any]:
    def read(calls: WindowCalls, handle: Any, frame: FrameBounds) -> Any:
        by = handle.orderingExpr()
        require(handle, when=_is_ordered(type_of(by)))
        given = (handle.valueExpr(), by)
        return calls.call(handle, frames.of_extreme, given, frame, largest=largest)

    return read


_DISTINCT: Final = ("Average", "CollectList", "CollectSet", "Count", "Sum")
"""The functions that are read with DISTINCT: their values do not depend on the order of rows."""

_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "CumeDist": _number(frames.cume_dist, _PEERS_FROM_START),
    "DenseRank": _number(frames.dense_rank, _FROM_START),
    "Lag": _neighbour(later=False),
    "Lead": _neighbour(later=True),
    "NTile": _ntile,
    "NthValue": _nth_value,
    "PercentRank": _number(frames.percent_rank, _FROM_START),
    "Rank": _number(frames.rank, _FROM_START),
    "RowNumber": _number(frames.row_number, _FROM_START),
}
"""What reads each class of functions that only windows have."""

_AGGREGATES: Final[Mapping[str, Callable[..., Any]]] = {
    "Average": _average,
    "Count": _count,
    "First": _end(0),
    "Last": _end(-1),
    "Max": _extreme(largest=True),
    "MaxBy": _of_extreme(largest=True),
    "Min": _extreme(largest=False),
    "MinBy": _of_extreme(largest=False),
    "Sum": _sum,
}
"""What reads each class of aggregate functions."""

_OF_GROUPS: Final[Mapping[str, Callable[..., Any]]] = {
    **_AGGREGATES,
    "CollectList": _list,
    "CollectSet": _list,
    "ListAgg": _joined,
}
"""What reads each class of aggregate functions outside of windows."""
