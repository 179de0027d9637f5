"""``SELECT ... FROM left JOIN right ON left.key = right.key``: all pairs with equal keys.

Algebra: bilinear. Both sides may change in one epoch::

    Δ(L ⋈ R) = ΔL ⋈ (R + ΔR) + L ⋈ ΔR

State: both inputs, each arranged by its key.
Cost per epoch: O((|ΔL| + |ΔR|) log n), plus the pairs that come and go.
NULL: equals nothing, as in ``=``, so rows with a NULL key are not even kept; a key column that is
``null_safe`` compares as in ``<=>``. Float keys must arrive normalised (one NaN, no -0.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, Step
from headrace.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.spine import Spine

Output = tuple[tuple[str, str], ...]
"""Identity columns to emit: the name in the input, the name in the output."""


@dataclass(frozen=True)
class InnerJoin(StatefulOperator):
    """Pair the rows of two inputs whose key columns are equal, multiplying their weights.

    The inputs are tables in the physical order of ``left`` and ``right``, whose keys have the same
    types. The output has ``__hash`` (of the key), the columns of ``left_output``, those of
    ``right_output``, then ``__weight``; it is not consolidated.
    """

    left: Layout
    right: Layout
    left_output: Output
    right_output: Output
    null_safe: tuple[bool, ...]

    def __post_init__(self) -> None:
        types = [[side.columns.field(n).type for n in side.key] for side in self.layouts]
        if types[0] != types[1] or len(types[0]) != len(self.null_safe):
            raise HeadraceError(Code.INTERNAL, "the two keys of a join do not have the same types")
        if any(side.summed.names != [WEIGHT] for side in self.layouts):
            raise HeadraceError(Code.INTERNAL, "an input of a join has accumulators")

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """The left input and the right input, by key."""
        return self.left, self.right

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return pa.schema(
            [
                pa.field(HASH, pa.int64(), nullable=False),
                *(self.left.columns.field(name).with_name(to) for name, to in self.left_output),
                *(self.right.columns.field(name).with_name(to) for name, to in self.right_output),
                pa.field(WEIGHT, pa.int64(), nullable=False),
            ]
        )

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:
        """Return the pairs that come and go, and the consolidated inputs."""
        left = self._matchable(ZSet.of(self.left, inputs[0])).consolidated()
        right = self._matchable(ZSet.of(self.right, inputs[1])).consolidated()
        probes, partners = before[1].plus(right).lookup(left.hashes, left.keys)
        new_left = self._pairs(left.take(probes), partners)
        probes, partners = before[0].lookup(right.hashes, right.keys)
        new_right = self._pairs(partners, right.take(probes))
        return Step(pa.concat_tables([new_left, new_right]), (left, right))

    def _matchable(self, rows: ZSet) -> ZSet:
        """Leave out the rows with a NULL that equals nothing."""
        kept = np.ones(rows.rows, np.bool_)
        for key, null_safe in zip(rows.keys, self.null_safe, strict=True):
            if not null_safe and key.null_count:
                kept &= key.is_valid().to_numpy(zero_copy_only=False)
        return rows.filter(kept)

    def _pairs(self, left: ZSet, right: ZSet) -> pa.Table:
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
