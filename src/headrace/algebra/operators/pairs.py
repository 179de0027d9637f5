"""Pairs of rows with equal keys: the common part of all joins by key.

Algebra: bilinear. If both sides change, with ``ΔL = L⁺ - L⁻``, inserted minus retracted rows::

    Δ(L ⋈ R) = L⁺ ⋈ (R + ΔR) - L⁻ ⋈ R + (L - L⁻) ⋈ ΔR

Each pair in it exists before or after the epoch. ``ΔL ⋈ (R + ΔR) + L ⋈ ΔR`` has the same sum, but
pairs retracted rows with inserted ones: such a pair never exists, and evaluating an expression on
it may raise an error that the query does not have.

A *side* is an input of a join and the layout by which it is arranged. Both sides' keys have the
same types. NULL equals nothing, as in ``=``, unless a key column is ``null_safe``, as in ``<=>``.

Which rows of one side of a join are in the output: those with or without a partner.

The delta of the rows with and without a partner: the rule of outer, semi and anti joins.

With ``n(k)`` the number of rows of the other side with key ``k``, the rows of ``L`` with and
without a partner are ``L[n > 0]`` and ``L[n = 0]``. If both sides change, the left by the inserted
rows ``L⁺`` and the retracted rows ``L⁻``, then for either predicate ``p``::

    Δ L[p(n)] = L⁺[p(n + Δn)] - L⁻[p(n)] + (L - L⁻)[p(n + Δn)] - (L - L⁻)[p(n)]

so besides the changed rows, only those rows change whose key gains its first partner (``n`` goes
from 0 to more) or loses its last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.spine import KeyLimit, Spine
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.zset import column
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.zset.order import Bools, Ints


FLAG = "__exists"
"""The output column: whether a row has a partner."""


class Emits(Enum):
    """The rows that an operator emits, by whether they have a partner."""

    MATCHED = auto()
    """The rows with a partner: a semi join."""
    UNMATCHED = auto()
    """The rows without a partner: an anti join, and, padded with NULLs, part of an outer join."""
    FLAGGED = auto()
    """All rows, each with ``__exists``: for ``EXISTS`` inside an ``OR``."""


def counts_layout(side: Layout) -> Layout:
    """Return the layout of the number of a side's rows by key."""
    columns = pa.schema([side.columns.field(name) for name in dict.fromkeys(side.key)])
    return Layout(side.key, columns, side.summed)


def counted(rows: ZSet, layout: Layout) -> ZSet:
    """Return the delta of the number of rows by key, consolidated, for the delta of a side.

    ``layout`` is the :func:`counts_layout` of the side.
    """
    if not rows.rows:
        return ZSet.empty(layout)
    return ZSet(layout, rows.table.select([HASH, *layout.columns.names, WEIGHT])).consolidated()


@dataclass(frozen=True, slots=True)
class PartnerDeltas:
    """The deltas of the rows with and without a partner; neither is consolidated."""

    matched: ZSet
    unmatched: ZSet


def partner_deltas(
    change: ZSet, rows: Spine, counts_change: ZSet, counts: Spine, seen: Ints | None = None
) -> PartnerDeltas:
    """Return the deltas of one side's rows with and without a partner.

    ``change`` is the delta of the side, ``counts_change`` that of the other side's row counts by
    key, both consolidated; ``rows`` and ``counts`` are the state before. ``seen`` are the counts of
    the partners of the changed rows, if they are known. Raises ``internal`` if
    the other side would have a negative number of rows for a key.
    """
    _, retracted = change.by_sign()
    if seen is None:
        seen = _partners(change, counts_change, counts)
    present = seen > 0
    matched, unmatched = [change.filter(present)], [change.filter(~present)]
    # The other rows are affected only if the count of their key becomes zero or positive.
    old = counts.weights_under(counts_change.hashes, counts_change.keys)
    new = old + counts_change.weights
    if (new < 0).any():
        raise HeadraceError(
            Code.INTERNAL,
            "a side of a join has a negative number of rows",
            detail="The input of the join deletes a row that was never inserted.",
        )
    crossing = np.flatnonzero((old > 0) != (new > 0))
    touched = counts_change.take(crossing)
    probes, stored = rows.plus(retracted).lookup(touched.hashes, touched.keys)
    present = new[crossing][probes] > 0
    matched += [stored.filter(present), stored.filter(~present).negated()]
    unmatched += [stored.filter(~present), stored.filter(present).negated()]
    layout = change.layout
    return PartnerDeltas(ZSet.sum_of(layout, matched), ZSet.sum_of(layout, unmatched))


def _partners(change: ZSet, counts_change: ZSet, counts: Spine) -> Ints:
    """Return the number of partners of each row: after the change if inserted, else before."""
    seen = counts.weights_under(change.hashes, change.keys)
    if counts_change.rows:
        added = Spine(counts.layout).plus(counts_change)
        seen += np.where(change.weights > 0, added.weights_under(change.hashes, change.keys), 0)
    return seen


Output = tuple[tuple[str, str], ...]
"""Identity columns to emit: pairs of the name in the input and the name in the output."""


@dataclass(frozen=True)
class Pairs:
    """Two sides whose keys are compared, and the columns of a pair of their rows."""

    left: Layout
    right: Layout
    left_output: Output
    right_output: Output
    null_safe: tuple[bool, ...]

    def __post_init__(self) -> None:
        """Check that the keys of the sides have equal types."""
        sides = (self.left, self.right)
        types = [[side.columns.field(n).type for n in side.key] for side in sides]
        if types[0] != types[1] or len(types[0]) != len(self.null_safe):
            raise HeadraceError(Code.INTERNAL, "the two keys of a join do not have the same types")
        if any(side.summed.names != [WEIGHT] for side in sides):
            raise HeadraceError(Code.INTERNAL, "an input of a join has accumulators")

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a pair: ``__hash``, left columns, right columns, ``__weight``."""
        return pa.schema(
            [
                pa.field(HASH, pa.int64(), nullable=False),
                *(self.left.columns.field(name).with_name(to) for name, to in self.left_output),
                *(self.right.columns.field(name).with_name(to) for name, to in self.right_output),
                pa.field(WEIGHT, pa.int64(), nullable=False),
            ]
        )

    def matchable(self, rows: ZSet) -> Bools:
        """Return for each row of a side whether its key can equal another: no NULL prevents it."""
        kept = np.ones(rows.rows, np.bool_)
        for key, null_safe in zip(rows.keys, self.null_safe, strict=True):
            if not null_safe and key.null_count:
                kept &= key.is_valid().to_numpy(zero_copy_only=False)
        return kept

    def change(self, left: ZSet, right: ZSet, before: tuple[Spine, Spine]) -> tuple[pa.Table, Ints]:
        """Return the delta of the pairs, with the columns of ``schema``, and counts of partners.

        ``left`` and ``right`` are the sides' deltas, consolidated and matchable. The counts are
        those of the partners of each row of ``left``: that it has if inserted, or had if retracted.
        """
        inserted, retracted = left.by_sign()
        looked = ((inserted, before[1].plus(right)), (retracted, before[1]))
        parts, counts = [], []
        for rows, others in looked if right.rows else ((left, before[1]),):
            probes, partners = self.partners(rows, others, of_left=True)
            parts.append(self._combined(rows.take(probes), partners))
            count = np.zeros(rows.rows, np.int64)
            np.add.at(count, probes, partners.weights)
            counts.append(count)
        probes, partners = self.partners(right, before[0].plus(retracted), of_left=False)
        parts.append(self._combined(partners, right.take(probes)))
        if right.rows:
            seen = np.zeros(left.rows, np.int64)
            is_inserted = left.weights > 0
            seen[is_inserted], seen[~is_inserted] = counts
        else:
            (seen,) = counts
        return self.joined(parts), seen

    def partners(self, rows: ZSet, others: Spine, *, of_left: bool) -> tuple[Ints, ZSet]:
        """Return the rows of the other side with the keys of some rows, and whose key each has.

        ``of_left``: the given rows are of the left.
        """
        del of_left
        return others.lookup(rows.hashes, rows.keys)

    def joined(self, parts: list[pa.Table]) -> pa.Table:
        """Return all rows of tables with the columns of ``schema``."""
        parts = [part for part in parts if part.num_rows]
        return pa.concat_tables(parts) if parts else self.no_pairs

    @cached_property
    def no_pairs(self) -> pa.Table:
        """A table of ``schema`` without rows."""
        return self.schema.empty_table()

    def alone(self, rows: ZSet, *, is_left: bool) -> pa.Table:
        """Return rows of one side with the columns of a pair: NULL in those of the other side."""
        if not rows.rows:
            return self.no_pairs
        output = self.left_output if is_left else self.right_output
        given = {to: rows.table[name] for name, to in output}
        given |= {HASH: rows.table[HASH], WEIGHT: rows.table[WEIGHT]}
        columns = [
            given[field.name] if field.name in given else pa.nulls(rows.rows, field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _combined(self, left: ZSet, right: ZSet) -> pa.Table:
        """Return pairs of the rows of two Z-sets, position by position."""
        if not left.rows:
            return self.no_pairs
        try:
            weights = pc.multiply_checked(left.table[WEIGHT], right.table[WEIGHT])
        except pa.ArrowInvalid as error:
            raise HeadraceError(Code.INVALID, "the weight of a joined row overflowed") from error
        columns = [
            left.table[HASH],
            *(left.table[name] for name, _ in self.left_output),
            *(right.table[name] for name, _ in self.right_output),
            weights,
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class Within:
    """A bound of the partners of a row, in their order: not before, or not after, a value.

    ``value`` is a column of the row itself, to which ``shift`` is added. An ``is_open`` bound does
    not bound where it is NULL.
    """

    value: str
    is_low: bool
    shift: int = 0
    is_open: bool = False


@dataclass(frozen=True)
class RangePairs(Pairs):
    """Pairs that a further condition restricts to ranges of a value within each key.

    The layouts have an order, of one column of numbers, dates or timestamps. ``of_left`` bounds the
    partners of a row of the left, and ``of_right`` those of a row of the right. With ``nearest``, a
    row of the left can only have a pair with the last row within its bounds. Pairs out of the
    ranges may be among the output: the condition is still to be applied.
    """

    of_left: tuple[Within, ...] = ()
    of_right: tuple[Within, ...] = ()
    nearest: bool = False

    def partners(self, rows: ZSet, others: Spine, *, of_left: bool) -> tuple[Ints, ZSet]:
        """Return the rows of the other side with equal keys and within the bounds of each row."""
        bounds, by = self.of_left if of_left else self.of_right, others.layout.order[0]
        limits = [
            KeyLimit.of(
                by,
                column(rows.table, each.value),
                each.shift,
                is_low=each.is_low,
                is_open=each.is_open,
            )
            for each in bounds
        ]
        if of_left and self.nearest:
            return others.last_within(rows.hashes, rows.keys, limits)
        return others.between(rows.hashes, rows.keys, limits)
