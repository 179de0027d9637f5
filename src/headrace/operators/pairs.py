"""Pairs of rows with equal keys: what all joins by key have in common.

Algebra: bilinear. Where both sides change, with ``ΔL = L⁺ - L⁻``, the rows that come and those that
go, the pairs that come and go are::

    Δ(L ⋈ R) = L⁺ ⋈ (R + ΔR) - L⁻ ⋈ R + (L - L⁻) ⋈ ΔR

Each is one that is there after the change, or was there before it. ``ΔL ⋈ (R + ΔR) + L ⋈ ΔR`` has
the same sum, but rows that go are beside rows that have come, and what is computed from such a
pair, which never was, may be an error.

A *side* is an input of a join and the layout by which it is arranged. Both sides' keys have the
same types. NULL equals nothing, as in ``=``, unless a key column is ``null_safe``, as in ``<=>``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Bools

Output = tuple[tuple[str, str], ...]
"""Identity columns to emit: the name in the input, the name in the output."""


@dataclass(frozen=True)
class Pairs:
    """The equality of two sides, and which of their columns a pair of rows has."""

    left: Layout
    right: Layout
    left_output: Output
    right_output: Output
    null_safe: tuple[bool, ...]

    def __post_init__(self) -> None:
        """Check that the sides can be compared."""
        sides = (self.left, self.right)
        types = [[side.columns.field(n).type for n in side.key] for side in sides]
        if types[0] != types[1] or len(types[0]) != len(self.null_safe):
            raise HeadraceError(Code.INTERNAL, "the two keys of a join do not have the same types")
        if any(side.summed.names != [WEIGHT] for side in sides):
            raise HeadraceError(Code.INTERNAL, "an input of a join has accumulators")

    @property
    def schema(self) -> pa.Schema:
        """The columns of a pair: ``__hash``, those of the left, those of the right, weight."""
        return pa.schema(
            [
                pa.field(HASH, pa.int64(), nullable=False),
                *(self.left.columns.field(name).with_name(to) for name, to in self.left_output),
                *(self.right.columns.field(name).with_name(to) for name, to in self.right_output),
                pa.field(WEIGHT, pa.int64(), nullable=False),
            ]
        )

    def matchable(self, rows: ZSet) -> Bools:
        """Say which rows of a side have no NULL that equals nothing in their key."""
        kept = np.ones(rows.rows, np.bool_)
        for key, null_safe in zip(rows.keys, self.null_safe, strict=True):
            if not null_safe and key.null_count:
                kept &= key.is_valid().to_numpy(zero_copy_only=False)
        return kept

    def change(self, left: ZSet, right: ZSet, before: tuple[Spine, Spine]) -> pa.Table:
        """Return the pairs that come and go as both sides change.

        The changes are consolidated and matchable. The answer has the columns of ``schema``.
        """
        comes, goes = left.by_sign()
        parts = []
        for rows, others in ((comes, before[1].plus(right)), (goes, before[1])):
            probes, partners = others.lookup(rows.hashes, rows.keys)
            parts.append(self._combined(rows.take(probes), partners))
        probes, partners = before[0].plus(goes).lookup(right.hashes, right.keys)
        parts.append(self._combined(partners, right.take(probes)))
        return pa.concat_tables(parts)

    def alone(self, rows: ZSet, *, is_left: bool) -> pa.Table:
        """Return rows of one side in the columns of a pair, NULL for the other side's."""
        output = self.left_output if is_left else self.right_output
        given = {to: rows.table[name] for name, to in output}
        given |= {HASH: rows.table[HASH], WEIGHT: rows.table[WEIGHT]}
        columns = [
            given[field.name] if field.name in given else pa.nulls(rows.rows, field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _combined(self, left: ZSet, right: ZSet) -> pa.Table:
        """Combine the rows of two Z-sets position by position."""
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
