"""Outer, semi and anti joins ``ON`` any condition: a row is unmatched while it has no pairs.

If a condition is more than equalities, the key does not decide whether a row has a partner. An
inner join pairs the rows, Spark applies the rest of the condition, and this operator counts the
remaining pairs.

Algebra: with ``w(l)`` the weight of a row and ``m(l)`` the weight of all its pairs, both linear,
the rows without a partner are::

    U(l) = w(l) [m(l) = 0]        Δ U = U(w + Δw, m + Δm) - U(w, m), at the rows touched

State: ``w`` and ``m`` of each row, by the whole row.
Cost per epoch: O(|Δ| log n), where Δ are the changed rows and the changed pairs.
NULL: a value like any other; a pair whose condition is NULL is not in the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.operators.emits import FLAG, Emits
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.operators.row_kinds import ROW, RowKind
from headrace.zset import HASH, WEIGHT, Layout, ZSet
from headrace.zset.zset import column, numbers, take

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Bools, Ints

MATCHES = "__matches"
"""The sum of the weights of a row's pairs."""


@dataclass(frozen=True)
class Matches(StatefulOperator):
    """Find the rows of one side of a join that have pairs, and those that have none.

    ``layout``: the identity and the key are all columns of the side; the sums are ``__weight`` and
    ``__matches``. The input has the columns of ``schema``, where ``__hash`` is the hash of the
    side's columns; its rows are pairs, rows of the kind ``alone`` (this side's rows), and rows of
    other kinds. The output has the columns of ``schema``. It contains the pairs (only with
    ``passes``), the rows of other kinds, and, with the kind ``SETTLED``, the rows of the side that
    ``emits`` selects, with NULL in the other side's columns. For ``FLAGGED``, the output has only
    these last rows, and the column ``__exists``.
    """

    layout: Layout
    schema: pa.Schema
    alone: RowKind
    emits: Emits
    passes: bool

    @property
    def layouts(self) -> tuple[Layout]:
        """The rows of the side, with their weights and those of their pairs."""
        return (self.layout,)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the output delta, and the deltas of the rows' weights and pairs."""
        given = inputs[0].select(self.schema.names)
        if not given.schema.equals(self.schema):
            given = given.cast(self.schema)
        kinds = numbers(given, ROW)
        pairs, own = kinds == RowKind.PAIR, kinds == self.alone
        change = self._change(given, pairs, own)
        old_weights, old_matches = self._sums(change, before[0])
        weights = old_weights + change.weights
        matches = old_matches + numbers(change.table, MATCHES)
        if (weights < 0).any() or (matches < 0).any() or (matches[weights == 0] > 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "a row of a join has a negative number of copies or pairs",
                detail="The input of the join deletes a row that was never inserted.",
            )
        passed = take(given, ((~pairs & ~own) | (pairs & self.passes)).nonzero()[0])
        matched = weights * (matches > 0) - old_weights * (old_matches > 0)
        lone = weights * (matches == 0) - old_weights * (old_matches == 0)
        return StepResult(self._answer(passed, change, matched, lone), (change,))

    def _change(self, given: pa.Table, pairs: Bools, own: Bools) -> ZSet:
        """Return the delta of the sums: weights from rows of the side, matches from pairs."""
        ours = take(given, (pairs | own).nonzero()[0])
        is_pair = pairs[pairs | own]
        weights = numbers(ours, WEIGHT)
        sums = {WEIGHT: np.where(is_pair, 0, weights), MATCHES: np.where(is_pair, weights, 0)}
        columns = [
            pa.array(sums[name]) if name in sums else column(ours, name)
            for name in self.layout.schema.names
        ]
        table = pa.Table.from_arrays(columns, schema=self.layout.schema)
        return ZSet(self.layout, table).consolidated()

    def _sums(self, change: ZSet, before: Spine) -> tuple[Ints, Ints]:
        """Return the old weight and the old matches of each row."""
        weights, matches = np.zeros(change.rows, np.int64), np.zeros(change.rows, np.int64)
        probes, found = before.rows_of(change)
        weights[probes] = found.weights
        matches[probes] = numbers(found.table, MATCHES)
        return weights, matches

    def _answer(self, passed: pa.Table, change: ZSet, matched: Ints, lone: Ints) -> pa.Table:
        match self.emits:
            case Emits.MATCHED:
                return pa.concat_tables([passed, self._rows(change, matched)])
            case Emits.UNMATCHED:
                return pa.concat_tables([passed, self._rows(change, lone)])
            case Emits.FLAGGED:
                flagged = [
                    rows.append_column(FLAG, pa.array(np.full(rows.num_rows, exists)))
                    for rows, exists in (
                        (self._rows(change, matched), True),
                        (self._rows(change, lone), False),
                    )
                ]
                return pa.concat_tables(flagged)

    def _rows(self, change: ZSet, weights: Ints) -> pa.Table:
        """Return the rows of the side whose given weight is not 0, with that weight."""
        kept = np.flatnonzero(weights)
        rows = change.take(kept)
        given = {name: rows.table[name] for name in (HASH, *self.layout.columns.names)}
        given[WEIGHT] = pa.array(weights[kept])
        given[ROW] = pa.array(np.full(len(kept), RowKind.SETTLED, np.int64))
        columns = [
            given[field.name] if field.name in given else pa.nulls(len(kept), field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)
