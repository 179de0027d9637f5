"""Which rows the values of a window's functions depend on, where these are not all of a group.

``lag``, ``lead`` and functions over bounded frames depend on rows nearby; ``row_number``, ``rank``
and counts from the first row on depend on those before only by how many they are. Where each
function of a window is one of these, a change is followed by reading the rows near it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DateType, DayTimeIntervalType, IntegerType

from headrace.catalyst.exact import INTEGERS
from headrace.catalyst.plan import NearFrames, SortKey
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, kind_of, within
from headrace.catalyst.vectors import UnprovedError
from headrace.catalyst.vectors.reader import FLOATS, TIMES, int_argument, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.catalyst.pieces import Pieces
    from headrace.catalyst.plan import Expression
    from headrace.catalyst.scala import Scala

_MOST: Final = 100_000
"""The most rows of a frame with which it counts as bounded."""
_FIRST, _LAST = "UnboundedPreceding$", "UnboundedFollowing$"


def near_rows(
    pieces: Pieces, node: Any, order: tuple[SortKey, ...] | None, ties: tuple[SortKey, ...]
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
    return NearFrames(
        (*order, *ties),
        found.before,
        found.after,
        tuple(found.lowers),
        tuple(found.uppers),
        frozenset(found.counted),
        len(order) if found.peers else 0,
    )


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
    peers: bool = False

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
            elif self._counts(kind, function, frame):
                require(function, when=named.child().equals(window))
                self.counted.add(int(named.exprId().id()))
                self.peers |= kind == "Rank" or _is_by_value(frame)
            else:
                require(function, when=kind in ("AggregateExpression", "NthValue"))
                self._framed(frame)

    def _neighbour(self, function: Any, *, later: bool) -> None:
        require(function, when=not function.ignoreNulls())
        offset = int_argument(function, function.offset() if later else function.inputOffset())
        offset = offset if later else -offset
        self._reach(function, -offset, offset)

    def _counts(self, kind: str, function: Any, frame: Any) -> bool:
        """Whether a function's value is a number of rows from the first one on."""
        if kind in ("RowNumber", "Rank"):
            return True
        if kind != "AggregateExpression" or kind_of(function.aggregateFunction()) != "Count":
            return False
        ends = kind_of(frame.lower()), kind_of(frame.upper())
        of = items(function.aggregateFunction().children())
        return (
            ends == (_FIRST, "CurrentRow$")
            and not function.isDistinct()
            and function.filter().isEmpty()
            and not any(each.nullable() for each in of)
        )

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


def _is_by_value(frame: Any) -> bool:
    return kind_of(frame.frameType()) == "RangeFrame$"


def _rows(frame: Any, bound: Any) -> int:
    """Return the number of rows to a bound: negative before the row."""
    if kind_of(bound) == "CurrentRow$":
        return 0
    require(frame, when=isinstance(type_of(bound), IntegerType))
    return int_argument(frame, bound)
