"""Aggregates as sums: the sums per group from which every result can be computed.

``count`` needs the number of rows that count; ``sum`` and ``avg`` also the sum of their argument,
over exact types: integers in 64 bits, decimals with ten more digits, as Spark widens them. Sums of
BIGINT, which may need more, are two of 64 bits each: of the upper and of the lower halves of the
values. With ``DISTINCT``, the same sums are over values instead of rows. ``min``, ``max``, what is
picked by an order, and exact sums of floats are parts of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.algebra.operators import (
    Distinct,
    End,
    Extremum,
    FloatSum,
    Part,
    Picked,
    Quantile,
    QuantileColumn,
    Quantiles,
    SignedExtremum,
)
from headrace.algebra.zset import OrderBy
from headrace.planning.catalyst.plan import SortKey
from headrace.types import ArrayType, DecimalType, DoubleType, LongType, to_arrow

if TYPE_CHECKING:
    from headrace.planning.catalyst.plan import AggregateFunction, Expression, Percentiles, Pick
    from headrace.types import DataType


_MOST_DIGITS = 38
_SUM_DIGITS = 10


class SumKind(Enum):
    """What an accumulator sums over the rows of a group."""

    COUNT = auto()
    """The number of rows in which no argument is NULL and the condition is true."""
    SUM = auto()
    """The argument of those rows."""
    UPPER = auto()
    """The upper 32 bits of the argument, with its sign."""
    LOWER = auto()
    """The lower 32 bits of the argument, not negative."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One summed column of a group."""

    column: str
    kind: SumKind
    arguments: tuple[Expression, ...]
    condition: Expression | None
    type: LongType | DecimalType

    @property
    def field(self) -> pa.Field:
        """The Arrow field of the accumulator."""
        return pa.field(self.column, to_arrow(self.type))


@dataclass(frozen=True, slots=True)
class Argument:
    """A column of values, which are NULL where the condition is not true.

    The value is computed only where the condition is true: elsewhere, computing it may fail.
    """

    column: str
    value: Expression
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate function with the columns that feed it.

    Each call has a ``count``. ``value`` is the sum or the extremum of the functions that have one;
    if a sum is kept in two halves, ``value`` is the lower half and ``upper`` the upper one.
    """

    function: AggregateFunction
    value: str | None
    count: str
    upper: str | None = None


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The distinct accumulators of one GROUP BY, and the calls that use them.

    ``summed`` are sums over rows; ``fed`` are sums that parts compute from their values. The weight
    of each part is among ``weights``, and its arguments are among ``arguments``.
    """

    summed: tuple[Accumulator, ...]
    fed: tuple[Accumulator, ...]
    parts: tuple[Part, ...]
    weights: tuple[Accumulator, ...]
    arguments: tuple[Argument, ...]
    calls: tuple[Call, ...]

    @property
    def columns(self) -> tuple[Accumulator, ...]:
        """All sums of a group."""
        return self.summed + self.fed

    @property
    def increments(self) -> tuple[Accumulator, ...]:
        """The accumulators that have an increment in each row."""
        return self.summed + self.weights

    @property
    def values(self) -> tuple[tuple[str, DataType], ...]:
        """The result columns of parts, each with its type."""
        types = {argument.column: argument.value.type for argument in self.arguments}
        found: list[tuple[str, DataType]] = []
        for part in self.parts:
            if isinstance(part, Extremum | Picked):
                found.append((part.result, types[part.argument.name]))
            elif isinstance(part, FloatSum):
                found.append((part.result, DoubleType()))
            elif isinstance(part, Quantiles):
                double = DoubleType()
                lists = ArrayType(double, containsNull=False)
                found += [(each.name, lists if each.is_list else double) for each in part.shown]
        return tuple(found)

    @property
    def picks(self) -> bool:
        """Whether a value of a row is shown as it is."""
        shown = Picked | Quantiles | SignedExtremum
        return any(isinstance(part, shown) for part in self.parts)


ROWS = "__rows"
"""The number of rows in a group: always stored, since a group without rows is removed."""


def accumulators_of(
    functions: tuple[AggregateFunction, ...],
    ties: tuple[Expression, ...] = (),
    *,
    append_only: bool = False,
) -> Accumulators:
    """Return the accumulators that the functions need; equal ones are shared.

    ``ties`` orders rows that tie. ``append_only``: no row of the input is ever retracted.
    """
    collected = _Collected(append_only, ties)
    calls = tuple(collected.call(function) for function in functions)
    of_values = [*collected.valued.values(), *collected.sorted_values.values()]
    parts = (*collected.distinct_parts(), *of_values)
    return Accumulators(
        tuple(collected.summed.values()),
        tuple(collected.fed.values()),
        parts,
        tuple(collected.weights.values()),
        tuple(collected.arguments.values()),
        calls,
    )


_Slot = tuple[object, ...]


@dataclass(slots=True)
class _Collected:
    """The accumulators collected for one GROUP BY, by slot: equal slots share an accumulator."""

    append_only: bool
    ties: tuple[Expression, ...]
    summed: dict[_Slot, Accumulator] = field(default_factory=dict)
    fed: dict[_Slot, Accumulator] = field(default_factory=dict)
    weights: dict[str, Accumulator] = field(default_factory=dict)
    arguments: dict[_Slot, Argument] = field(default_factory=dict)
    valued: dict[_Slot, Extremum | FloatSum | Picked] = field(default_factory=dict)
    sorted_values: dict[_Slot, Quantiles] = field(default_factory=dict)
    _weights_of: dict[_Slot, str] = field(default_factory=dict)
    _values_of: dict[_Slot, list[Accumulator]] = field(default_factory=dict)

    def call(self, function: AggregateFunction) -> Call:
        if function.counts_rows:
            return Call(function, None, ROWS)
        if function.name in ("min", "max"):
            return self._extremum(function)
        if function.pick is not None:
            return self._picked(function, function.pick)
        if function.percentiles is not None:
            return self._percentiles(function, function.percentiles)
        if function.distinct:
            return self._distinct(function)
        count = self._sum(SumKind.COUNT, function, LongType())
        if function.name == "count":
            return Call(function, None, count)
        if function.adds_floats:
            return Call(function, self._float_sum(function), count)
        type_ = _sum_type(function.arguments[0])
        if _has_halves(function.arguments[0]):
            lower = self._sum(SumKind.LOWER, function, type_)
            return Call(function, lower, count, self._sum(SumKind.UPPER, function, type_))
        return Call(function, self._sum(SumKind.SUM, function, type_), count)

    def distinct_parts(self) -> list[Part]:
        """Return a part for each list of distinct arguments."""
        parts: list[Part] = []
        for slot, fed in self._values_of.items():
            first = fed[0]
            names = [self._argument(argument, first.condition) for argument in first.arguments]
            types = [to_arrow(argument.type) for argument in first.arguments]
            arguments = pa.schema(list(dict(zip(names, types, strict=True)).items()))
            columns = {accumulator.kind: accumulator.column for accumulator in fed}
            part = Distinct(arguments, self._weights_of[slot], (columns[SumKind.COUNT],))
            if SumKind.SUM in columns:
                part = replace(part, sums=((columns[SumKind.SUM], names[0]),))
            if SumKind.UPPER in columns:
                split = (columns[SumKind.UPPER], columns[SumKind.LOWER], names[0])
                part = replace(part, halves=(split,))
            parts.append(part)
        return parts

    def _sum(self, kind: SumKind, call: AggregateFunction, type_: LongType | DecimalType) -> str:
        slot = (kind, *_slot(call))
        if slot not in self.summed:
            column = f"a{len(self.summed)}"
            self.summed[slot] = Accumulator(column, kind, call.arguments, call.condition, type_)
        return self.summed[slot].column

    def _distinct(self, function: AggregateFunction) -> Call:
        count = self._feed(SumKind.COUNT, function, LongType())
        if function.name == "count":
            return Call(function, None, count)
        type_ = _sum_type(function.arguments[0])
        if _has_halves(function.arguments[0]):
            lower = self._feed(SumKind.LOWER, function, type_)
            return Call(function, lower, count, self._feed(SumKind.UPPER, function, type_))
        return Call(function, self._feed(SumKind.SUM, function, type_), count)

    def _feed(self, kind: SumKind, call: AggregateFunction, type_: LongType | DecimalType) -> str:
        slot = (kind, *_slot(call))
        if slot not in self.fed:
            column = f"d{len(self.fed)}"
            fed = Accumulator(column, kind, call.arguments, call.condition, type_)
            self.fed[slot] = fed
            self._values_of.setdefault(_slot(call), []).append(fed)
            self._weight(call.arguments, call.condition)
        return self.fed[slot].column

    def _extremum(self, function: AggregateFunction) -> Call:
        slot = (function.name, *_slot(function))
        if slot not in self.valued:
            (argument,) = function.arguments
            kind = SignedExtremum if function.keeps_signs else Extremum
            self.valued[slot] = kind(
                self._field(argument, function.condition),
                self._weight(function.arguments, function.condition),
                f"e{len(self.valued)}",
                End.MIN if function.name == "min" else End.MAX,
                self.append_only,
            )
        return Call(function, self.valued[slot].result, ROWS)

    def _float_sum(self, function: AggregateFunction) -> str:
        slot = ("float sum", *_slot(function))
        if slot not in self.valued:
            (argument,) = function.arguments
            self.valued[slot] = FloatSum(
                self._field(argument, function.condition),
                self._weight(function.arguments, function.condition),
                f"e{len(self.valued)}",
            )
        return self.valued[slot].result

    def _picked(self, function: AggregateFunction, pick: Pick) -> Call:
        key = pick.by and (pick.by.expression.identity, pick.by.descending)
        slot = ("picked", key, pick.last, pick.skips_nulls, *_slot(function))
        if slot not in self.valued:
            counted = [] if pick.by is None else [pick.by.expression]
            counted += [pick.value] if pick.skips_nulls else []
            value = self._field(pick.value, function.condition)
            order = [] if pick.by is None else [pick.by]
            order += [SortKey(tie, pick.last, not pick.last) for tie in self.ties]
            order = order or [SortKey(pick.value, pick.last, not pick.last)]
            fields = {value.name: value}
            by: dict[str, OrderBy] = {}
            for key in order:
                own = self._field(key.expression, function.condition)
                fields[own.name] = own
                by.setdefault(own.name, OrderBy(own.name, key.descending, key.nulls_first))
            self.valued[slot] = Picked(
                pa.schema(list(fields.values())),
                tuple(by.values()),
                self._weight(tuple(counted), function.condition),
                f"e{len(self.valued)}",
                self.append_only,
            )
        return Call(function, self.valued[slot].result, ROWS)

    def _percentiles(self, function: AggregateFunction, wanted: Percentiles) -> Call:
        """Add a call to those of the same values, and its shares to those of these calls."""
        value = function.arguments[0]
        slot = _key((value,), function.condition)
        found = self.sorted_values.get(slot)
        if found is None:
            weight = self._weight((value,), function.condition)
            found = Quantiles(self._field(value, function.condition), weight, (), ())
        asked = [Quantile(at, wanted.discrete, wanted.descending) for at in wanted.shares]
        every = tuple(dict.fromkeys([*found.quantiles, *asked]))
        number = sum(len(part.shown) for part in self.sorted_values.values())
        shown = QuantileColumn(f"q{number}", tuple(map(every.index, asked)), wanted.is_list)
        same = [each for each in found.shown if replace(each, name=shown.name) == shown]
        if not same:
            self.sorted_values[slot] = replace(found, quantiles=every, shown=(*found.shown, shown))
        return Call(function, (same or [shown])[0].name, ROWS)

    def _field(self, value: Expression, condition: Expression | None) -> pa.Field:
        return pa.field(self._argument(value, condition), to_arrow(value.type))

    def _argument(self, value: Expression, condition: Expression | None) -> str:
        if value.passes is not None:
            condition = None  # reading a column cannot fail
        slot = (value.identity, condition and condition.identity)
        column = f"v{len(self.arguments)}"
        return self.arguments.setdefault(slot, Argument(column, value, condition)).column

    def _weight(self, arguments: tuple[Expression, ...], condition: Expression | None) -> str:
        """Return the weight of a row for a part: 0 if an argument is NULL."""
        slot = _key(arguments, condition)
        if slot not in self._weights_of:
            column = f"w{len(self.weights)}"
            self._weights_of[slot] = column
            self.weights[column] = Accumulator(
                column, SumKind.COUNT, arguments, condition, LongType()
            )
        return self._weights_of[slot]


def _slot(call: AggregateFunction) -> _Slot:
    return _key(call.arguments, call.condition)


def _key(arguments: tuple[Expression, ...], condition: Expression | None) -> _Slot:
    identities = tuple(argument.identity for argument in arguments)
    return (identities, condition and condition.identity)


def _sum_type(argument: Expression) -> LongType | DecimalType:
    if isinstance(argument.type, DecimalType):
        digits = min(_MOST_DIGITS, argument.type.precision + _SUM_DIGITS)
        return DecimalType(digits, argument.type.scale)
    return LongType()


def _has_halves(argument: Expression) -> bool:
    """Whether the sum of an argument may need more than 64 bits.

    Sums of narrower integers fit as long as there are fewer than 2**32 rows.
    """
    return isinstance(argument.type, LongType)
