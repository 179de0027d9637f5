"""The parts of an aggregate with a state of their own: ``DISTINCT``, ``min``, ``max_by``, floats.

A part has its own arrangement: the values of its arguments, by group, with the number of rows that
have them. It has no NULLs: a row counts for a part with the weight in the part's own input column,
which is 0 if an argument is NULL or the ``FILTER`` is not true. Floats with ``DISTINCT`` must be
normalised in the input (one NaN, no -0.0).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet, orderable
from headrace.algebra.zset.sums import (
    digits_of,
    float_sums,
    halves,
    is_zero,
    negated,
    segment_sums_int64,
)
from headrace.algebra.zset.zset import column, fresh, numbers
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.algebra.spine import Around, Spine
    from headrace.algebra.zset.order import Ints


ROWS = "__rows"
"""The output column with the number of rows of a group."""

INIT = "__init"
"""The sum that is 1 once a global aggregate has emitted its row; before, the state has no row."""

_WEIGHTS = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False)])
_NO_GROUPS = Layout((), pa.schema([]), _WEIGHTS)


@dataclass(frozen=True)
class Distinct:
    """``count(DISTINCT a, b)``, ``sum(DISTINCT a)``: feed accumulators once per value.

    ``arguments`` are input columns; ``weight`` is the input column with the weight of a row for
    this part. When a value appears or disappears, each accumulator in ``counts`` changes by one,
    and each one in ``sums`` by the argument it is paired with; of each triple in ``halves``, the
    first changes by the upper and the second by the lower half of the int64 argument that is the
    third. Those accumulators have no input column.

    Cost per epoch: O(|Δ| log n), one lookup per value touched.
    """

    arguments: pa.Schema
    weight: str
    counts: tuple[str, ...] = ()
    sums: tuple[tuple[str, str], ...] = ()
    halves: tuple[tuple[str, str, str], ...] = ()

    @property
    def fed(self) -> tuple[str, ...]:
        """The accumulators that this part feeds."""
        split = (name for upper, lower, _ in self.halves for name in (upper, lower))
        return (*self.counts, *(name for name, _ in self.sums), *split)

    def layout(self, groups: Layout) -> Layout:
        """Return the layout of the values: by group, ordered, so that one is found fast."""
        columns = pa.schema([*groups.columns, *self.arguments])
        order = tuple(OrderBy(field.name) for field in self.arguments if orderable(field.type))
        return Layout(groups.key, columns, _WEIGHTS, order)

    def change(self, given: ZSet, totals: Layout, before: Spine) -> tuple[ZSet, ZSet]:
        """Return the consolidated delta of the values, and the increments of the totals."""
        change = counted(before.layout, self.weight, given)
        old = before.weights_of(change)
        new = old + change.weights
        check_counts(new)
        sign = np.sign(new) - np.sign(old)
        crossed = change.filter(sign != 0)
        sign = sign[sign != 0]
        added = {name: column(crossed.table, name) for name in (HASH, *totals.columns.names)}
        added |= dict.fromkeys(self.counts, pa.array(sign))
        for name, argument in self.sums:
            kind = totals.summed.field(name).type
            values = column(crossed.table, argument).cast(kind)
            added[name] = negated(values, sign < 0)
        for upper, lower, argument in self.halves:
            parts = halves(numbers(crossed.table, argument))
            added[upper], added[lower] = (pa.array(part * sign) for part in parts)
        return change, with_zeros(totals, added, crossed.rows)


@dataclass(frozen=True, slots=True)
class PartStep:
    """What an epoch changes of a part: the deltas of its arrangements, and its results.

    The deltas are consolidated. ``old`` and ``new`` have the columns of the results, with a value
    for each group, before and after the epoch.
    """

    deltas: tuple[ZSet, ...]
    old: tuple[pa.Array, ...]
    new: tuple[pa.Array, ...]


class ValuePart(ABC):
    """A part with results of its own, by group, which feeds no accumulators."""

    weight: str
    arguments: pa.Schema

    @property
    def fed(self) -> tuple[str, ...]:
        """The accumulators that this part feeds: none."""
        return ()

    @property
    @abstractmethod
    def fields(self) -> tuple[pa.Field, ...]:
        """The output columns: NULL if no row of the group counts."""

    @abstractmethod
    def layout(self, groups: Layout) -> Layout:
        """Return the layout of the values, or of what is kept of them."""

    def further(self, _groups: Layout) -> tuple[Layout, ...]:
        """Return the layouts of what else is kept: mostly nothing."""
        return ()

    @abstractmethod
    def change(self, given: ZSet, groups: ZSet, before: Sequence[Spine]) -> PartStep:
        """Return the deltas and the results; ``before`` has the part's arrangements.

        ``groups`` has one row for each group of ``given``, sorted by hash.
        """


class OfOne(ValuePart):
    """A part of one argument."""

    argument: pa.Field

    @cached_property
    def arguments(self) -> pa.Schema:
        """The input columns."""
        return pa.schema([self.argument])


class End(Enum):
    """The end of the order that an :class:`Extremum` returns."""

    MIN = auto()
    MAX = auto()


@dataclass(frozen=True)
class Extremum(OfOne):
    """``min(a)`` or ``max(a)``: the first value in its order.

    ``argument`` is an input column of an orderable type; ``weight`` is the input column with the
    weight of a row for this part; ``result`` is the output column. With ``append_only``, no row is
    ever retracted, and only the extremum itself is kept.

    Cost per epoch: O(log n) per group and value touched; never the whole group, except values in
    front that were retracted since runs were last merged.
    """

    argument: pa.Field
    weight: str
    result: str
    end: End
    append_only: bool = False

    @property
    def fields(self) -> tuple[pa.Field]:
        """The output column."""
        return (pa.field(self.result, self.argument.type),)

    def layout(self, groups: Layout) -> Layout:
        """Return the layout of the values: by group, the extremum first."""
        columns = pa.schema([*groups.columns, self.argument])
        order = OrderBy(self.argument.name, self.end is End.MAX, nulls_first=False)
        return Layout(groups.key, columns, _WEIGHTS, (order,))

    def change(self, given: ZSet, groups: ZSet, before: Sequence[Spine]) -> PartStep:
        """Return the delta of the values, and the extremum of each group before and after."""
        return _first_values(self, given, groups, before[0])


@dataclass(frozen=True)
class SignedExtremum(Extremum):
    """An extremum of floats, or of values that have floats, which come as they are.

    Rows must not be added up by their values before: that makes -0.0 a 0.0, which is another value
    where it is retracted.
    """


@dataclass(frozen=True)
class Picked(ValuePart):
    """``max_by(a, b)``, ``min_by(a, b)``, ``first(a)``, ``last(a)``: the value of the first row.

    ``arguments`` are input columns: the value, then the columns of the ``order`` that are not it,
    which settle which row is the first. ``weight`` is the input column with the weight of a row for
    this part; ``result`` is the output column. With ``append_only``, no row is ever retracted, and
    only the first one is kept.

    Cost per epoch: as that of an :class:`Extremum`.
    """

    arguments: pa.Schema
    order: tuple[OrderBy, ...]
    weight: str
    result: str
    append_only: bool = False

    @property
    def argument(self) -> pa.Field:
        """The input column of the value."""
        return self.arguments.field(0)

    @property
    def fields(self) -> tuple[pa.Field]:
        """The output column."""
        return (pa.field(self.result, self.argument.type),)

    def layout(self, groups: Layout) -> Layout:
        """Return the layout of the values: by group, in the order."""
        columns = pa.schema([*groups.columns, *self.arguments])
        return Layout(groups.key, columns, _WEIGHTS, self.order)

    def change(self, given: ZSet, groups: ZSet, before: Sequence[Spine]) -> PartStep:
        """Return the delta of the values, and the one picked of each group before and after."""
        return _first_values(self, given, groups, before[0])


@dataclass(frozen=True)
class FloatSum(OfOne):
    """``sum(a)`` of floats, exact: the float nearest to the sum, whatever the order of the rows.

    ``argument`` is an input column of floats; ``weight`` is the input column with the weight of a
    row for this part; ``result`` is the output column. State: the digits of the sum, by group.

    Cost per epoch: O(log n) per group and value touched, and the digits of the groups: as many as
    the exponents of the values are apart, at most 69 however many rows there are.
    """

    argument: pa.Field
    weight: str
    result: str

    @property
    def fields(self) -> tuple[pa.Field]:
        """The output column: NULL if all rows of the group that count are zero."""
        return (pa.field(self.result, pa.float64()),)

    def layout(self, groups: Layout) -> Layout:
        """Return the layout of the digits: by group, with the number of values that have one."""
        columns = pa.schema([*groups.columns, pa.field(_PLACE, pa.int64())])
        return Layout(groups.key, columns, pa.schema([*_WEIGHTS, pa.field(_DIGIT, pa.int64())]))

    def change(self, given: ZSet, groups: ZSet, before: Sequence[Spine]) -> PartStep:
        """Return the delta of the digits, and the sum of each group before and after."""
        probes, rows = before[0].stored(groups.hashes, groups.keys)
        places, digits = numbers(rows.table, _PLACE), numbers(rows.table, _DIGIT)
        old = _Digits.sum_of(probes, places, rows.weights, digits)
        new = self._digits(given, groups)
        check_counts(old.weights_of(new) + new.weights)
        sums = _float_sums(groups.rows, old, new)
        delta = new.by_group(groups, before[0].layout)
        return PartStep((delta,), (sums[0],), (sums[1],))

    def _digits(self, given: ZSet, groups: ZSet) -> _Digits:
        """Return the digits of the rows that count, added up."""
        weights = numbers(given.table, self.weight)
        values = column(given.table, self.argument.name)
        floats = values.to_numpy(zero_copy_only=False).astype(np.float64)
        counted = weights.nonzero()[0]
        if len(counted) < len(weights):
            floats, weights = floats[counted], weights[counted]
        rows, places, digits = digits_of(floats)
        weights, group = weights[rows], groups.places_of(given)[counted][rows]
        return _Digits.sum_of(group, places, weights, digits * weights)


@dataclass(frozen=True, slots=True)
class _Digits:
    """Digits of sums of floats by group and place: ``codes`` are of both, and ascend strictly."""

    codes: Ints
    weights: Ints
    digits: Ints

    @classmethod
    def sum_of(cls, groups: Ints, places: Ints, weights: Ints, digits: Ints) -> _Digits:
        """Return the sum of digits, given with the positions of their groups; codes ascend."""
        codes = groups * _PLACES + places
        order = codes.argsort(kind="stable")
        codes = codes[order]
        starts = fresh(codes).nonzero()[0]
        counts = segment_sums_int64(weights[order], starts)
        sums = segment_sums_int64(digits[order], starts)
        kept = (counts != 0) | (sums != 0)
        return cls(codes[starts][kept], counts[kept], sums[kept])

    def weights_of(self, others: _Digits) -> Ints:
        """Return the weights that these have at the codes of others; 0 where there is none."""
        if not len(self.codes):
            return np.zeros(len(others.codes), np.int64)
        at = self.codes.searchsorted(others.codes).clip(max=len(self.codes) - 1)
        return np.where(self.codes[at] == others.codes, self.weights[at], 0)

    def by_group(self, groups: ZSet, layout: Layout) -> ZSet:
        """Return the digits as rows with the keys of their groups, consolidated."""
        group, places = np.divmod(self.codes, _PLACES)
        own = {_PLACE: places, WEIGHT: self.weights, _DIGIT: self.digits}
        keys = groups.take(group).table
        columns = [
            pa.array(own[name]) if name in own else column(keys, name) for name in layout.names
        ]
        return ZSet(layout, pa.Table.from_arrays(columns, schema=layout.schema))


Part: TypeAlias = Distinct | ValuePart

_PLACE, _DIGIT = "__place", "__digit"
"""The columns of a digit of a sum of floats."""
_PLACES = 128
"""More than the greatest place of a digit."""


def _first_values(part: Extremum | Picked, given: ZSet, groups: ZSet, before: Spine) -> PartStep:
    """Return the delta of the values of a part, and the first of each group before and after."""
    layout = before.layout
    change = counted(layout, part.weight, given)
    retracted = change.filter(change.weights < 0)
    if retracted.rows and part.append_only:
        raise _miscounted("The input of the aggregate is append-only, but deletes a row.")
    check_counts(before.weights_of(retracted) + retracted.weights)
    around = before.first_rows_around(change, groups.hashes, groups.keys, 1)
    old, new = around.before.weights, around.after.weights
    if part.append_only:
        change = around.weighed(layout, (new != 0) - old)
    values = column(around.source.table, part.argument.name)
    first = [_values(values, around, each, groups.rows) for each in (old, new)]
    return PartStep((change,), (first[0],), (first[1],))


def _values(values: pa.Array, around: Around, weights: Ints, groups: int) -> pa.Array:
    """Return the value found for each group, NULL if none was found."""
    shown = weights.nonzero()[0]
    positions = np.full(groups, -1, np.int64)
    positions[around.probes[shown]] = around.at[shown]
    return values.take(pa.array(positions, mask=positions < 0))


def _float_sums(groups: int, old: _Digits, new: _Digits) -> tuple[pa.Array, pa.Array]:
    """Return the sum of each group as a float before and after, NULL without digits."""
    before, place = np.divmod(old.codes, _PLACES)
    after, more = np.divmod(new.codes, _PLACES)
    of = np.concatenate([before, before + groups, after + groups])
    places = np.concatenate([place, place, more])
    counts = np.zeros(2 * groups, np.int64)
    np.add.at(counts, of, np.concatenate([old.weights, old.weights, new.weights]))
    sums = float_sums(2 * groups, of, places, np.concatenate([old.digits, old.digits, new.digits]))
    empty = counts == 0
    return (
        pa.array(sums[:groups], mask=empty[:groups]),
        pa.array(sums[groups:], mask=empty[groups:]),
    )


def with_zeros(layout: Layout, given: dict[str, pa.Array], rows: int) -> ZSet:
    """Return a Z-set of the given columns; columns of the layout that are not given are zero."""
    columns = [
        given[field.name] if field.name in given else pa.repeat(pa.scalar(0, field.type), rows)
        for field in layout.schema
    ]
    return ZSet(layout, pa.Table.from_arrays(columns, schema=layout.schema))


def counted(layout: Layout, weight: str, given: ZSet) -> ZSet:
    """Return the rows with the weights of the column ``weight``, consolidated."""
    weights = numbers(given.table, weight)
    counted = given.filter(weights != 0).table
    columns = [counted.column(name) for name in (HASH, *layout.columns.names)]
    table = pa.Table.from_arrays([*columns, counted.column(weight)], schema=layout.schema)
    return ZSet(layout, table).consolidated()


def check_counts(weights: Ints) -> None:
    """Raise ``internal`` if a value is in a group a negative number of times."""
    if (weights < 0).any():
        raise _miscounted("The input of the aggregate deletes a value that was never inserted.")


def _miscounted(detail: str) -> HeadraceError:
    return HeadraceError(
        Code.INTERNAL, "a group has a value a negative number of times", detail=detail
    )


def increments_of(layout: Layout, parts: Sequence[Part]) -> Layout:
    """Return the layout of an aggregate's input; see :class:`GroupAggregate`."""
    if not parts:
        return layout
    fed = {name for part in parts for name in part.fed}
    arguments = {field.name: field for part in parts for field in part.arguments}
    weights = {part.weight: pa.field(part.weight, pa.int64(), nullable=False) for part in parts}
    linear = [field for field in layout.summed if field.name not in fed]
    return Layout(
        layout.key,
        pa.schema([*layout.columns, *arguments.values()]),
        pa.schema([*linear, *weights.values()]),
    )


def placed(parts: Sequence[Part]) -> list[tuple[Part, tuple[int, ...]]]:
    """Return each part with the positions of its arrangements: first one of each, then others."""
    found, next_ = [], len(parts)
    for i, part in enumerate(parts):
        more = len(part.further(_NO_GROUPS)) if isinstance(part, ValuePart) else 0
        found.append((part, (i, *range(next_, next_ + more))))
        next_ += more
    return found


def layouts_of(parts: Sequence[Part], groups: Layout) -> list[Layout]:
    """Return the layouts of the arrangements of parts, by position; see :func:`placed`."""
    further = [part.further(groups) for part in parts if isinstance(part, ValuePart)]
    return [part.layout(groups) for part in parts] + [each for more in further for each in more]


def answer_schema(layout: Layout, parts: Sequence[Part]) -> pa.Schema:
    """Return the schema of an aggregate's output; see :class:`GroupAggregate`."""
    whole = pa.int64()
    return pa.schema(
        [
            layout.schema.field(HASH),
            *layout.columns,
            pa.field(WEIGHT, whole, nullable=False),
            pa.field(ROWS, whole, nullable=False),
            *(f.with_nullable(nullable=False) for f in layout.summed if f.name != WEIGHT),
            *(each for part in parts if isinstance(part, ValuePart) for each in part.fields),
        ]
    )


def check_groups(totals: ZSet) -> None:
    """Raise ``internal`` for totals that no bag of rows has."""
    if (totals.weights < 0).any():
        raise HeadraceError(
            Code.INTERNAL,
            "a group has a negative number of rows",
            detail="The input of the aggregate deletes a row that was never inserted.",
        )
    if totals.weights.all():
        return
    empty = totals.filter(totals.weights == 0)
    accumulators = [name for name in empty.layout.summed.names if name not in {WEIGHT, INIT}]
    if not all(is_zero(column(empty.table, name)).all() for name in accumulators):
        raise leftover("a group without rows has a total other than zero")


def leftover(primary: str) -> HeadraceError:
    """Return the error of totals that no bag of rows has."""
    return HeadraceError(
        Code.INTERNAL,
        primary,
        detail="The input of the aggregate deletes a row with other values than it had.",
    )
