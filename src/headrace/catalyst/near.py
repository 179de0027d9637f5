"""Which rows the values of a window's functions depend on, where these are not all of a group.

``lag``, ``lead`` and functions over bounded frames depend on rows nearby; ``row_number``, ``rank``,
counts and sums from the first row on depend on those before only by how many they are, or what
their values add up to, and ``dense_rank`` by how many values of the order they have. Where each
function of a window is one of these, a change is followed by reading the rows near it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
)

from headrace.catalyst.editions import Edition
from headrace.catalyst.exact import INTEGERS
from headrace.catalyst.plan import NearFrames, SortKey
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, kind_of, within
from headrace.catalyst.vectors import UnprovedError
from headrace.catalyst.vectors.reader import FLOATS, TIMES, int_argument, require
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType

    from headrace.catalyst.pieces import Pieces
    from headrace.catalyst.plan import Expression
    from headrace.catalyst.scala import Scala

_MOST: Final = 100_000
"""The most rows of a frame with which it counts as bounded."""
_DIGITS: Final = 18
"""The most digits of decimals that are added up from the first row of a group on."""
_FIRST, _LAST = "UnboundedPreceding$", "UnboundedFollowing$"


def near_rows(
    pieces: Pieces,
    node: Any,
    order: tuple[SortKey, ...] | None,
    ties: tuple[SortKey, ...],
    edition: Edition,
) -> NearFrames | None:
    """Return how the rows that a change reaches are found; None if they may be all of a group."""
    if not order:
        return None
    found = _Frames(pieces, items(node.orderSpec()))
    try:
        for named in items(node.windowExpressions()):
            found.add(named)
    except UnprovedError:
        return None
    types = [key.expression.type for key in order]
    if found.dense and (edition < Edition.ORDERS_COUNTED or not all(map(_is_one_value, types))):
        return None
    return NearFrames(
        (*order, *ties),
        found.before,
        found.after,
        tuple(found.lowers),
        tuple(found.uppers),
        frozenset(found.counted),
        len(order) if found.peers else 0,
        tuple(found.sums),
        found.dense,
    )


class Carry(Enum):
    """What a running function adds of the rows before: their number, or that of its values."""

    ROWS = auto()
    VALUES = auto()
    SUM = auto()
    """The sum of its values."""
    ORDERS = auto()
    """How many values of the order these rows have."""


def carried(window: Any) -> tuple[Carry, Any | None] | None:
    """Return what a ``WindowExpression`` adds of the rows before, and its argument if it needs it.

    None if its value does not follow from that and the rows nearby.
    """
    call = window.windowFunction()
    if kind_of(call) in ("RowNumber", "Rank"):
        return Carry.ROWS, None
    if kind_of(call) == "DenseRank":
        return Carry.ORDERS, None
    frame = window.windowSpec().frameSpecification()
    if kind_of(call) != "AggregateExpression" or call.isDistinct() or call.filter().isDefined():
        return None
    if (kind_of(frame.lower()), kind_of(frame.upper())) != (_FIRST, "CurrentRow$"):
        return None
    function = call.aggregateFunction()
    of = items(function.children())
    if kind_of(function) == "Count":
        if not any(each.nullable() for each in of):
            return Carry.ROWS, None
        return (Carry.VALUES, of[0]) if len(of) == 1 else None
    if kind_of(function) == "Sum" and not str(function.prettyName()).startswith("try_"):
        type_ = type_of(of[0])
        exact = type(type_) in INTEGERS or (
            isinstance(type_, DecimalType) and type_.precision <= _DIGITS
        )
        return (Carry.SUM, of[0]) if exact else None
    return None


@dataclass(slots=True)
class _Frames:
    """The union of the frames of the functions of a window, as far as they have been added."""

    pieces: Pieces
    orders: list[Any]
    before: int = 0
    after: int = 0
    lowers: list[Expression] = field(default_factory=list)
    uppers: list[Expression] = field(default_factory=list)
    counted: set[int] = field(default_factory=set)
    sums: list[Expression] = field(default_factory=list)
    peers: bool = False
    dense: bool = False

    def add(self, named: Any) -> None:
        """Add the frames of the functions in a column.

        Raises:
            UnprovedError: one is not bounded, and its value more than a number of rows.
        """
        windows = [each for each in within(named) if kind_of(each) == "WindowExpression"]
        for window in windows:
            function, frame = window.windowFunction(), window.windowSpec().frameSpecification()
            kind = kind_of(function)
            if kind in ("Lag", "Lead"):
                self._neighbour(function, later=kind == "Lead")
            elif (carry := carried(window)) is not None:
                self.counted.add(int(named.exprId().id()))
                self.peers |= kind in ("Rank", "DenseRank") or _is_by_value(frame)
                self.dense |= carry[0] is Carry.ORDERS
                if carry[1] is not None:
                    value = self.pieces.expression(carry[1])
                    if value.identity not in [each.identity for each in self.sums]:
                        self.sums.append(value)
            else:
                require(function, when=kind in ("AggregateExpression", "NthValue"))
                self._framed(frame)

    def _neighbour(self, function: Any, *, later: bool) -> None:
        require(function, when=not function.ignoreNulls())
        offset = int_argument(function, function.offset() if later else function.inputOffset())
        offset = offset if later else -offset
        self._reach(function, -offset, offset)

    def _framed(self, frame: Any) -> None:
        lower, upper = frame.lower(), frame.upper()
        require(frame, when=kind_of(lower) != _FIRST and kind_of(upper) != _LAST)
        if not _is_by_value(frame):
            self._reach(frame, -_rows(frame, lower), _rows(frame, upper))
            return
        require(frame, when=len(self.orders) == 1)
        for bound, found in ((lower, self.lowers), (upper, self.uppers)):
            value = self.orders[0].child()
            if kind_of(bound) != "CurrentRow$":
                value = bound_by_distance(self.pieces.scala, self.orders, bound)
            found.append(self.pieces.expression(value))

    def _reach(self, node: Any, before: int, after: int) -> None:
        require(node, when=max(before, after) <= _MOST)
        self.before, self.after = max(self.before, before), max(self.after, after)


def bound_by_distance(scala: Scala, orders: Sequence[Any], offset: Any) -> Any:
    """Return the bound of a frame by value: a value of the ORDER BY and an offset.

    Raises:
        UnprovedError: the bound is not one that Spark computes as such.
    """
    require(offset, when=len(orders) == 1)
    (order,) = orders
    value = order.child()
    if str(order.direction().sql()) == "DESC":
        offset = scala.expression("UnaryMinus", offset)
    match type_of(value), type_of(offset):
        case of, other if of == other and type(of) in (*INTEGERS, *FLOATS):
            return scala.expression("Add", value, offset)
        case DateType(), IntegerType():
            return scala.expression("DateAdd", value, offset)
        case of, DayTimeIntervalType() if isinstance(of, TIMES):
            utc = scala.once("UTC", lambda: scala.option("UTC"))
            return scala.expression("TimestampAddInterval", value, offset, utc)
        case of, _:
            raise UnprovedError(f"a distance of type {of.simpleString()}")


def _is_one_value(type_: DataType) -> bool:
    """Whether values that are equal in order are the same; not those of floats and collations."""
    return not (holds(type_, (FloatType, DoubleType)) or is_collated(type_))


def _is_by_value(frame: Any) -> bool:
    return kind_of(frame.frameType()) == "RangeFrame$"


def _rows(frame: Any, bound: Any) -> int:
    """Return the number of rows to a bound: negative before the row."""
    if kind_of(bound) == "CurrentRow$":
        return 0
    require(frame, when=isinstance(type_of(bound), IntegerType))
    return int_argument(frame, bound)
