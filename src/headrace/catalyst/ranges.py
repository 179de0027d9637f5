"""Which range of values the condition of a join asks for, besides the equality of keys.

A conjunct such as ``r.at >= l.at - INTERVAL '5' MINUTES`` compares a column of the left with one
of the right, each perhaps plus a constant. In the order of the one, the rows that it allows for a
row of the other side are those after some place, or before it. The condition itself is still
applied to each pair, so what is not recognised here only costs time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DateType, DayTimeIntervalType

from headrace.catalyst.clock import conjuncts
from headrace.catalyst.exact import INTEGERS
from headrace.catalyst.plan import PartnerBound, Ranges, SortKey
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, kind_of
from headrace.catalyst.vectors.reader import TIMES, is_constant

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql.types import DataType

    from headrace.catalyst.pieces import Pieces

_LOW: Final = frozenset({"GreaterThan", "GreaterThanOrEqual"})
_COMPARED: Final = _LOW | {"LessThan", "LessThanOrEqual"}
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


@dataclass(frozen=True, slots=True)
class _Compared:
    """A conjunct: a column of the left plus a number, compared with a column of the right.

    ``greater``: the left is the greater one. ``is_open``: it is also true where the column of the
    right is NULL.
    """

    left: Any
    right: Any
    shift: int
    greater: bool
    is_open: bool = False


def ranges_of(
    pieces: Pieces,
    condition: Any | None,
    sides: tuple[AbstractSet[int], AbstractSet[int]],
    nearest: AbstractSet[int],
) -> Ranges | None:
    """Return the ranges that a condition asks for; None if it does not.

    ``sides`` are the ids of the columns of the left and of the right. ``nearest`` are those of the
    right that have the value of the next row, as as-of joins have it.
    """
    every = [] if condition is None else [_compared(each, sides) for each in conjuncts(condition)]
    found = [each for each in every if each is not None]
    closed = [each for each in found if not each.is_open]
    if not closed:
        return None
    first = closed[0]
    bounds = [each for each in closed if _is_one(each.left, first.left)]
    bounds = [each for each in bounds if _is_one(each.right, first.right)]
    following = [each for each in found if each.is_open and _id(each.right) in nearest]
    descending = bool(following) and not first.greater
    left, right = pieces.expression(first.left), pieces.expression(first.right)
    of_left = [PartnerBound(left, each.greater is descending, each.shift) for each in bounds]
    of_right = [PartnerBound(right, each.greater is not descending, -each.shift) for each in bounds]
    for each in following if all(_is_one(each.left, first.left) for each in following) else ():
        value = pieces.expression(each.right)
        is_low = each.greater is not descending
        of_right.append(PartnerBound(value, is_low, -each.shift, is_open=True))
    return Ranges(
        SortKey(left, descending, nulls_first=True),
        SortKey(right, descending, nulls_first=True),
        tuple(of_left),
        tuple(of_right),
        bool(following),
    )


def _compared(condition: Any, sides: tuple[AbstractSet[int], AbstractSet[int]]) -> _Compared | None:
    """Return a conjunct that compares a column of each side; None if it does not."""
    kind = kind_of(condition)
    if kind == "Or":
        null, other = items(condition.children())
        found = _compared(other, sides) if kind_of(null) == "IsNull" else None
        if found is None or found.shift or not null.child().semanticEquals(found.right):
            return None
        return replace(found, is_open=True)
    if kind not in _COMPARED:
        return None
    first, second = (_shifted(each) for each in items(condition.children()))
    if first is None or second is None:
        return None
    greater, shift = kind in _LOW, first[1] - second[1]
    own = _side(first[0], sides), _side(second[0], sides)
    if own == (0, 1):
        return _Compared(first[0], second[0], shift, greater)
    return _Compared(second[0], first[0], -shift, not greater) if own == (1, 0) else None


def _side(column: Any, sides: tuple[AbstractSet[int], AbstractSet[int]]) -> int | None:
    return next((side for side, columns in enumerate(sides) if _id(column) in columns), None)


def _id(column: Any) -> int:
    return int(column.exprId().id())


def _is_one(one: Any, other: Any) -> bool:
    return _id(one) == _id(other)


def _shifted(value: Any) -> tuple[Any, int] | None:
    """Return the column that a value is, and the number that is added to it; None if it is not.

    The number is in units of the type: 1, a day or a microsecond.
    """
    type_ = type_of(value)
    match kind_of(value):
        case "AttributeReference" if _is_ordinal(type_):
            return value, 0
        case "KnownNotNull":
            return _shifted(value.child())
        case "Cast" if type(type_) in INTEGERS and type(type_of(value.child())) in INTEGERS:
            wider = type_of(value.child()).jsonValue()
            return _shifted(value.child()) if _BITS[wider] <= _BITS[type_.jsonValue()] else None
        case "Add" | "Subtract" as kind if type(type_) in INTEGERS:
            return _moved(value.left(), value.right(), -1 if kind == "Subtract" else 1)
        case "DateAdd":
            return _moved(value.startDate(), value.days(), 1)
        case "DateSub":
            return _moved(value.startDate(), value.days(), -1)
        case "TimestampAddInterval" if _is_in_utc(value):
            return _moved(value.left(), value.right(), 1)
        case _:
            return None


def _moved(value: Any, by: Any, sign: int) -> tuple[Any, int] | None:
    found = _shifted(value)
    constant = is_constant(by) and type(type_of(by)) in (*INTEGERS, DayTimeIntervalType)
    return (found[0], found[1] + sign * int(by.value())) if found and constant else None


def _is_in_utc(value: Any) -> bool:
    zone = value.timeZoneId()
    return bool(zone.isDefined()) and str(zone.get()) == "UTC"


def _is_ordinal(type_: DataType) -> bool:
    return type(type_) in INTEGERS or isinstance(type_, (DateType, *TIMES))
