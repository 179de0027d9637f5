"""Outer, semi and anti joins ``ON`` any condition: rows by the number of their pairs.

Where a condition is more than equalities, which rows have a partner is not told by their key. An
inner join pairs them, Spark applies the rest of the condition, and here the pairs are counted.

Algebra: with ``w(l)`` how often a row is there and ``m(l)`` the weight of all its pairs, both
linear, the rows without a partner are::

    U(l) = w(l) [m(l) = 0]        Δ U = U(w + Δw, m + Δm) - U(w, m), at the rows touched

State: ``w`` and ``m`` of each row, by the whole row.
Cost per epoch: O(|Δ| log n), where Δ has the changed rows and the changed pairs.
NULL: a value like any other; a condition that is NULL has made no pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.operators.emits import FLAG, Emits
from headrace.operators.protocol import StatefulOperator, Step
from headrace.operators.row_kinds import ROW, RowKind
from headrace.zset import HASH, WEIGHT, Layout, ZSet
from headrace.zset.zset import column, numbers

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Bools, Ints

MATCHES = "__matches"
"""The sum that tells how many pairs a row has, weights multiplied."""


@dataclass(frozen=True)
class Matches(StatefulOperator):
    """Hold the rows of one side of a join against their pairs.

    ``layout``: the identity and the key are all columns of the side; the sums are ``__weight`` and
    ``__matches``. The input has the columns of ``schema``, ``__hash`` being that of the side's
    columns: pairs, and rows of the kind ``alone`` with this side's columns. The output has the
    columns of ``schema``: with ``passes`` the pairs, always the rows of other kinds as they came,
    and then, as ``settled``, the rows of the side that ``emits`` asks for, other columns NULL. For
    ``FLAGGED`` there is ``__exists`` as well.
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

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:
        """Return the rows that come and go, and how weights and pairs have changed."""
        given = inputs[0].select(self.schema.names).cast(self.schema)
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
        passed = given.filter(pa.array((~pairs & ~own) | (pairs & self.passes)))
        matched = weights * (matches > 0) - old_weights * (old_matches > 0)
        lone = weights * (matches == 0) - old_weights * (old_matches == 0)
        return Step(self._answer(passed, change, matched, lone), (change,))

    def _change(self, given: pa.Table, pairs: Bools, own: Bools) -> ZSet:
        """Return the change of the sums: from rows of the side, and from pairs."""
        ours = given.filter(pa.array(pairs | own))
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
        """Return weight and pairs of each row before."""
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
        """Return rows of the side with the given weights, where these are not 0."""
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
