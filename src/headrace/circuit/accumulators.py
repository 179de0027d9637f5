"""Linear aggregates as sums: what is added up per group so that every result can be computed.

``count`` needs the number of rows that count; ``sum`` and ``avg`` also the sum of their argument,
over exact types: integers in 64 bits, decimals with ten more digits, as Spark widens them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.types import DecimalType, LongType, to_arrow

if TYPE_CHECKING:
    from headrace.catalyst.plan import AggregateFunction, Expression

_MOST_DIGITS = 38
_SUM_DIGITS = 10


class Kind(Enum):
    """What is added up over the rows of a group."""

    COUNT = auto()
    """The rows in which no argument is NULL and the condition is true."""
    SUM = auto()
    """The argument of those rows."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One summed column of a group."""

    column: str
    kind: Kind
    arguments: tuple[Expression, ...]
    condition: Expression | None
    type: LongType | DecimalType

    @property
    def field(self) -> pa.Field:
        """The Arrow field that stores it."""
        return pa.field(self.column, to_arrow(self.type))


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate function with the columns that feed it: ``total`` is None for ``count``."""

    function: AggregateFunction
    total: str | None
    count: str


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The accumulators of one GROUP BY, each kept once, and which calls use which."""

    columns: tuple[Accumulator, ...]
    calls: tuple[Call, ...]


ROWS = "__rows"
"""The number of rows in a group: always kept, since a group without rows vanishes."""


def accumulators_of(functions: tuple[AggregateFunction, ...]) -> Accumulators:
    """Return what has to be kept for the functions; equal needs share one accumulator."""
    kept: dict[tuple[object, ...], Accumulator] = {}

    def keep(kind: Kind, call: AggregateFunction, type_: LongType | DecimalType) -> str:
        condition = call.condition
        identities = tuple(argument.identity for argument in call.arguments)
        slot = (kind, identities, condition.identity if condition else None)
        if slot not in kept:
            column = f"a{len(kept)}"
            kept[slot] = Accumulator(column, kind, call.arguments, condition, type_)
        return kept[slot].column

    calls = []
    for function in functions:
        if function.counts_rows:
            calls.append(Call(function, None, ROWS))
            continue
        count = keep(Kind.COUNT, function, LongType())
        total = None
        if function.name != "count":
            total = keep(Kind.SUM, function, _sum_type(function.arguments[0]))
        calls.append(Call(function, total, count))
    return Accumulators(tuple(kept.values()), tuple(calls))


def _sum_type(argument: Expression) -> LongType | DecimalType:
    if isinstance(argument.type, DecimalType):
        digits = min(_MOST_DIGITS, argument.type.precision + _SUM_DIGITS)
        return DecimalType(digits, argument.type.scale)
    return LongType()
