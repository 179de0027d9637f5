"""Spark's window nodes, including those that it makes of ``LIMIT`` in correlated subqueries.

Spark computes such a subquery for all outer rows at once, and selects its first rows by
``row_number()``.

Which rows the values of a window's functions depend on, where these are not all of a group.

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

from headrace.planning.catalyst.allowed import INTEGERS
from headrace.planning.catalyst.clock import conjuncts
from headrace.planning.catalyst.plan import NearFrames, SortKey
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import items, kind_of, part, references, within
from headrace.planning.catalyst.select import Edition
from headrace.planning.catalyst.vectors import UnprovedError
from headrace.planning.catalyst.vectors.reader import FLOATS, TIMES, int_argument, require
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType

    from headrace.errors import HeadraceError
    from headrace.planning.catalyst.pieces import Pieces
    from headrace.planning.catalyst.plan import Expression
    from headrace.planning.catalyst.scala import Scala


def functions_alone(pieces: Pieces, node: Any) -> Any:
    """Return a ``Window`` without the input columns that Spark lists among its functions.

    Columns by which a correlated subquery is joined occur twice.

    Raises:
        HeadraceError: ``unsupported`` if rows are numbered without an order.
    """
    given = items(node.windowExpressions())
    functions = [each for each in given if kind_of(each) == "Alias"]
    if _leaves_to_chance(node, functions):
        raise without_order(pieces, node)
    if len(functions) == len(given):
        return node
    others = [part(node, position) for position in range(1, node.productArity())]
    return pieces.scala.logical("Window", pieces.scala.seq(functions), *others)


def numbers_all_rows(node: Any) -> bool:
    """Return whether a node only numbers all rows, in an order, by ``row_number()``.

    Spark limits such a node if a filter above it keeps the first numbers.
    """
    return (
        kind_of(node) == "Window"
        and not node.partitionSpec().length()
        and node.orderSpec().length() > 0
        and all(kind_of(e) == "Alias" and _is_number(e) for e in items(node.windowExpressions()))
    )


def first_without_numbers(node: Any) -> Any | None:
    """Return the window below a projection that shows the first rows of groups, or None.

    Spark limits the rows below such a window to the first ones. The function that numbers them is
    then needed only by the filter, which is true for all of them.
    """
    filtered = node.child()
    window = filtered.child() if kind_of(filtered) == "Filter" else filtered
    limited = window.child() if kind_of(window) == "Window" else window
    if tuple(map(kind_of, (filtered, window, limited))) != ("Filter", "Window", "WindowGroupLimit"):
        return None
    function, *others = items(window.windowExpressions())
    if others or kind_of(function) != "Alias":
        return None
    called, ranked = function.child(), kind_of(limited.rankLikeFunction())
    if kind_of(called) != "WindowExpression" or kind_of(called.windowFunction()) != ranked:
        return None
    same = window.partitionSpec().equals(limited.partitionSpec())
    if not same or not window.orderSpec().equals(limited.orderSpec()):
        return None
    number, most = int(function.exprId().id()), int(limited.limit())
    shown = any(number in references(each) for each in items(node.projectList()))
    conditions = conjuncts(filtered.condition())
    if shown or not all(_holds_up_to(each, number, most) for each in conditions):
        return None
    return window


_FLIPPED = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "EqualTo": "EqualTo",
}


def _holds_up_to(condition: Any, number: int, most: int) -> bool:
    """Whether a condition only compares a number, and holds from 1 to ``most``."""
    name = kind_of(condition)
    if name not in _FLIPPED:
        return False
    left, right = condition.left(), condition.right()
    if kind_of(left) == "Literal":
        left, right, name = right, left, _FLIPPED[name]
    is_column = _is_column(left) and int(left.exprId().id()) == number
    if not is_column or kind_of(right) != "Literal" or right.value() is None:
        return False
    bound = int(right.value())
    return {
        "LessThan": most < bound,
        "LessThanOrEqual": most <= bound,
        "EqualTo": most == bound == 1,
    }.get(name, False)


def without_order(pieces: Pieces, node: Any) -> HeadraceError:
    """Return the refusal of a ``LIMIT`` without an order."""
    return pieces.unsupported(
        "LIMIT without ORDER BY is not supported in a view",
        "Without an order, any of the rows could be chosen. Add ORDER BY with columns whose values"
        " can be compared.",
        node,
    )


def _leaves_to_chance(node: Any, functions: list[Any]) -> bool:
    """Return whether rows are numbered without an order, and those of a partition may differ."""
    if not any(map(_is_number, functions)) or node.orderSpec().length():
        return False
    partition = {e.exprId().id() for e in items(node.partitionSpec()) if _is_column(e)}
    unique = [items(keys.toSeq()) for keys in items(node.child().distinctKeys().toSeq())]
    return not any(
        {e.exprId().id() for e in columns if _is_column(e)} <= partition
        for columns in (items(node.child().output()), *unique)
    )


def _is_number(function: Any) -> bool:
    """Return whether a column is ``row_number()``; decimals may add functions around it."""
    window = function.child()
    return kind_of(window) == "WindowExpression" and kind_of(window.windowFunction()) == "RowNumber"


def _is_column(expression: Any) -> bool:
    return kind_of(expression) == "AttributeReference"


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
