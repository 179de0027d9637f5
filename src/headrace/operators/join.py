"""``SELECT ... FROM left JOIN right ON left.key = right.key``: all pairs with equal keys.

Algebra: bilinear. Both sides may change in one epoch; with ``ΔL = L⁺ - L⁻``::

    Δ(L ⋈ R) = L⁺ ⋈ (R + ΔR) - L⁻ ⋈ R + (L - L⁻) ⋈ ΔR

State: both inputs, each arranged by its key.
Cost per epoch: O((|ΔL| + |ΔR|) log n), plus the pairs added and removed.
NULL: equals nothing, as in ``=``, so rows with a NULL key are not stored; a key column that is
``null_safe`` compares as in ``<=>``. Float keys must be normalised (one NaN, no -0.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.operators.row_kinds import ROW, RowKind
from headrace.zset import Layout, ZSet

if TYPE_CHECKING:
    from headrace.operators.pairs import Pairs
    from headrace.spine import Spine


@dataclass(frozen=True)
class InnerJoin(StatefulOperator):
    """Pair the rows of two inputs whose key columns are equal, multiplying their weights.

    The inputs are tables with the physical schemas of ``pairs.left`` and ``pairs.right``. The
    output has the columns of ``pairs.schema``; it is not consolidated. If ``alone`` asks for the
    rows of the left or the right side, the output also has ``__row`` and, besides the pairs, the
    changed rows of these sides, not paired. With them, once a further condition has been applied
    to the pairs, :class:`~headrace.operators.matches.Matches` finds the rows without a pair.
    """

    pairs: Pairs
    alone: tuple[bool, bool] = (False, False)

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """The left input and the right input, by key."""
        return self.pairs.left, self.pairs.right

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the delta of the pairs, and the consolidated inputs."""
        changes = [
            ZSet.of(layout, given).consolidated()
            for layout, given in zip(self.layouts, inputs, strict=True)
        ]
        left, right = (rows.filter(self.pairs.matchable(rows)) for rows in changes)
        output, _ = self.pairs.change(left, right, (before[0], before[1]))
        if any(self.alone):
            parts = [_marked(output, RowKind.PAIR)]
            if self.alone[0]:
                parts.append(_marked(self.pairs.alone(changes[0], is_left=True), RowKind.LEFT))
            if self.alone[1]:
                parts.append(_marked(self.pairs.alone(changes[1], is_left=False), RowKind.RIGHT))
            output = pa.concat_tables(parts)
        return StepResult(output, (left, right))


def _marked(rows: pa.Table, kind: RowKind) -> pa.Table:
    return rows.append_column(ROW, pa.array(np.full(rows.num_rows, kind, np.int64)))
