"""``left LEFT | RIGHT | FULL JOIN right ON left.key = right.key``: pairs, and rows without one.

Algebra: the inner part is bilinear; a row without a partner occurs once, padded with NULLs::

    L ⟕ R = L ⋈ R + L[n_R = 0], padded

State: both inputs by key, and how many rows the other side has under each key.
Cost per epoch: O((|ΔL| + |ΔR|) log n), plus the pairs added and removed, plus the rows whose key
gets its first partner or loses its last one.
Which rows gain or lose their partner is computed in :mod:`~headrace.operators.presence`. A join ON
more than equalities is an inner join, whose pairs :mod:`~headrace.operators.matches` counts; which
of the two a query gets is decided in :mod:`headrace.circuit.differentiate`.
NULL: equals nothing, so a row with a NULL key has no partner: it is emitted, but not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.operators.presence import counted, counts_layout, partner_deltas
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.zset import Layout, ZSet

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.operators.pairs import Pairs
    from headrace.spine import Spine


@dataclass(frozen=True)
class OuterJoin(StatefulOperator):
    """Pair rows as an inner join does, and emit the rows without a partner of one or both sides.

    The inputs are as in :class:`~headrace.operators.join.InnerJoin`. The output has the columns of
    ``pairs.schema``; the hash of a row without a partner is that of its own key.
    """

    pairs: Pairs
    keeps_left: bool
    keeps_right: bool

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """Both inputs, then, for each kept side, the counts of the other side's rows by key."""
        counts = [counts_layout(self.pairs.right)] if self.keeps_left else []
        counts += [counts_layout(self.pairs.left)] if self.keeps_right else []
        return (self.pairs.left, self.pairs.right, *counts)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the delta of pairs and rows without partner, and each arrangement's delta."""
        sides = (self.pairs.left, self.pairs.right)
        changes = [
            ZSet.of(side, given).consolidated() for side, given in zip(sides, inputs, strict=True)
        ]
        matchable = [self.pairs.matchable(rows) for rows in changes]
        left, right = (rows.filter(kept) for rows, kept in zip(changes, matchable, strict=True))
        paired, seen = self.pairs.change(left, right, (before[0], before[1]))
        output = [paired]
        counts = list(before[2:])
        updates = [left, right]
        for index, keeps in enumerate((self.keeps_left, self.keeps_right)):
            if not keeps:
                continue
            other = counted((right, left)[index], self.layouts[len(updates)])
            changed, stored = (left, right)[index], before[index]
            known = seen if index == 0 else None
            lone = partner_deltas(changed, stored, other, counts.pop(0), known).unmatched
            null_keys = changes[index].filter(~matchable[index])
            output += [self.pairs.alone(rows, is_left=index == 0) for rows in (lone, null_keys)]
            updates.append(other)
        return StepResult(self.pairs.joined(output), tuple(updates))
