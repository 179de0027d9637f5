"""The parts of an aggregate that are not sums: ``DISTINCT`` arguments, ``min``, ``max``.

A part has its own arrangement: the values of its arguments, by group, with the number of rows that
have them. It has no NULLs: a row counts for a part with the weight in the part's own input column,
which is 0 if an argument is NULL or the ``FILTER`` is not true. Floats with ``DISTINCT`` must be
normalised in the input (one NaN, no -0.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.zset import HASH, WEIGHT, Layout, OrderBy, ZSet, orderable
from headrace.zset.sums import halves, negated
from headrace.zset.zset import column, numbers

if TYPE_CHECKING:
    from headrace.spine import Around, Spine
    from headrace.zset.equality import Ints

_WEIGHTS = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False)])


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
        change = _counted(before.layout, self.weight, given)
        old = before.weights_of(change)
        new = old + change.weights
        _check_counts(new)
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


class End(Enum):
    """The end of the order that an :class:`Extremum` returns."""

    MIN = auto()
    MAX = auto()


@dataclass(frozen=True)
class Extremum:
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
    def field(self) -> pa.Field:
        """The output column: NULL if no row of the group counts."""
        return pa.field(self.result, self.argument.type)

    @property
    def arguments(self) -> pa.Schema:
        """The input columns."""
        return pa.schema([self.argument])

    @property
    def fed(self) -> tuple[str, ...]:
        """The accumulators that this part feeds: none."""
        return ()

    def layout(self, groups: Layout) -> Layout:
        """Return the layout of the values: by group, the extremum first."""
        columns = pa.schema([*groups.columns, self.argument])
        order = OrderBy(self.argument.name, self.end is End.MAX, nulls_first=False)
        return Layout(groups.key, columns, _WEIGHTS, (order,))

    def change(self, given: ZSet, groups: ZSet, before: Spine) -> tuple[ZSet, pa.Array, pa.Array]:
        """Return the delta of the values, and the extremum of each group before and after.

        ``groups`` has one row for each group of ``given``, sorted by hash. The delta is
        consolidated.
        """
        layout = before.layout
        change = _counted(layout, self.weight, given)
        retracted = change.filter(change.weights < 0)
        if retracted.rows and self.append_only:
            raise _miscounted("The input of the aggregate is append-only, but deletes a row.")
        _check_counts(before.weights_of(retracted) + retracted.weights)
        around = before.first_rows_around(change, groups.hashes, groups.keys, 1)
        old, new = around.before.weights, around.after.weights
        if self.append_only:
            change = around.weighed(layout, (new != 0) - old)
        return (
            change,
            self._values(around, old, groups.rows),
            self._values(around, new, groups.rows),
        )

    def _values(self, around: Around, weights: Ints, groups: int) -> pa.Array:
        """Return the value found for each group, NULL if none was found."""
        shown = weights.nonzero()[0]
        positions = np.full(groups, -1, np.int64)
        positions[around.probes[shown]] = around.at[shown]
        values = column(around.source.table, self.argument.name)
        return values.take(pa.array(positions, mask=positions < 0))


Part: TypeAlias = Distinct | Extremum


def with_zeros(layout: Layout, given: dict[str, pa.Array], rows: int) -> ZSet:
    """Return a Z-set of the given columns; columns of the layout that are not given are zero."""
    columns = [
        given[field.name] if field.name in given else pa.repeat(pa.scalar(0, field.type), rows)
        for field in layout.schema
    ]
    return ZSet(layout, pa.Table.from_arrays(columns, schema=layout.schema))


def _counted(layout: Layout, weight: str, given: ZSet) -> ZSet:
    """Return the rows with the weights of the column ``weight``, consolidated."""
    weights = numbers(given.table, weight)
    counted = given.filter(weights != 0).table
    columns = [counted.column(name) for name in (HASH, *layout.columns.names)]
    table = pa.Table.from_arrays([*columns, counted.column(weight)], schema=layout.schema)
    return ZSet(layout, table).consolidated()


def _check_counts(weights: Ints) -> None:
    if (weights < 0).any():
        raise _miscounted("The input of the aggregate deletes a value that was never inserted.")


def _miscounted(detail: str) -> HeadraceError:
    return HeadraceError(
        Code.INTERNAL, "a group has a value a negative number of times", detail=detail
    )
