"""``WHERE [NOT] EXISTS (...)``, ``IN (...)``: rows by whether the other side has their key.

Algebra: a row of the left occurs once, however many partners it has::

    L ⋉ R = L[n_R > 0]        L ▷ R = L[n_R = 0]

State: the left input by key, and how many rows the right one has under each key.
Cost per epoch: O((|ΔL| + |ΔR|) log n), plus the rows whose key gets its first partner or loses its
last one.
NULL: equals nothing, so a row with a NULL key has no partner: it is emitted, but not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.operators.emits import FLAG, Emits
from headrace.operators.presence import counts_layout, partner_deltas
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.zset import Layout, ZSet

if TYPE_CHECKING:
    from headrace.operators.pairs import Pairs
    from headrace.spine import Spine


@dataclass(frozen=True)
class SemiJoin(StatefulOperator):
    """Emit rows of the left by whether the right has a row with an equal key.

    The inputs are tables with the physical schemas of :attr:`layouts`: the rows of the left, and
    the key columns of the right. The output has the columns of ``pairs.schema``, which are all of
    the left, followed by ``__exists`` for ``FLAGGED``.
    """

    pairs: Pairs
    emits: Emits

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """The left input by key, and the number of rows of the right by key."""
        return self.pairs.left, counts_layout(self.pairs.right)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the output delta of the left's rows, and each arrangement's delta."""
        rows = ZSet.of(self.layouts[0], inputs[0]).consolidated()
        others = ZSet.of(self.layouts[1], inputs[1]).consolidated()
        matchable = self.pairs.matchable(rows)
        left, right = rows.filter(matchable), others.filter(self.pairs.matchable(others))
        found = partner_deltas(left, before[0], right, before[1])
        lone = ZSet.sum_of(rows.layout, [found.unmatched, rows.filter(~matchable)])
        return StepResult(emitted(self.pairs, self.emits, found.matched, lone), (left, right))


def emitted(pairs: Pairs, emits: Emits, matched: ZSet, unmatched: ZSet) -> pa.Table:
    """Return the output rows that ``emits`` asks for, with the flag for ``FLAGGED``."""
    with_partner = pairs.alone(matched, is_left=True)
    without = pairs.alone(unmatched, is_left=True)
    match emits:
        case Emits.MATCHED:
            return with_partner
        case Emits.UNMATCHED:
            return without
        case Emits.FLAGGED:
            flagged = [
                rows.append_column(FLAG, pa.array(np.full(rows.num_rows, exists)))
                for rows, exists in ((with_partner, True), (without, False))
            ]
            return pa.concat_tables(flagged)
