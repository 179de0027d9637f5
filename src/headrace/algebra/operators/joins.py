"""Joins by equal keys: inner, semi, anti and outer; and rows without pairs for any condition.

``SELECT ... FROM left JOIN right ON left.key = right.key``: all pairs with equal keys.

Algebra: bilinear. Both sides may change in one epoch; with ``ΔL = L⁺ - L⁻``::

    Δ(L ⋈ R) = L⁺ ⋈ (R + ΔR) - L⁻ ⋈ R + (L - L⁻) ⋈ ΔR

State: both inputs, each arranged by its key.
Cost per epoch: O((|ΔL| + |ΔR|) log n), plus the pairs added and removed.
NULL: equals nothing, as in ``=``, so rows with a NULL key are not stored; a key column that is
``null_safe`` compares as in ``<=>``. Float keys must be normalised (one NaN, no -0.0).

``WHERE [NOT] EXISTS (...)``, ``IN (...)``: rows by whether the other side has their key.

Algebra: a row of the left occurs once, however many partners it has::

    L ⋉ R = L[n_R > 0]        L ▷ R = L[n_R = 0]

State: the left input by key, and how many rows the right one has under each key.
Cost per epoch: O((|ΔL| + |ΔR|) log n), plus the rows whose key gets its first partner or loses its
last one.
NULL: equals nothing, so a row with a NULL key has no partner: it is emitted, but not stored.

``left LEFT | RIGHT | FULL JOIN right ON left.key = right.key``: pairs, and rows without one.

Algebra: the inner part is bilinear; a row without a partner occurs once, padded with NULLs::

    L ⟕ R = L ⋈ R + L[n_R = 0], padded

State: both inputs by key, and how many rows the other side has under each key.
Cost per epoch: O((|ΔL| + |ΔR|) log n), plus the pairs added and removed, plus the rows whose key
gets its first partner or loses its last one.
Which rows gain or lose their partner is computed in ``pairs.py``. A join ON more than equalities is
an inner join, whose pairs :class:`Matches` counts; which of the two a query gets is decided in
:mod:`headrace.planning.circuit.differentiate`.
NULL: equals nothing, so a row with a NULL key has no partner: it is emitted, but not stored.

Outer, semi and anti joins ``ON`` any condition: a row is unmatched while it has no pairs.

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
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.pairs import FLAG, Emits, counted, counts_layout, partner_deltas
from headrace.algebra.operators.protocol import ROW, RowKind, StatefulOperator, StepResult
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.zset import column, numbers, take
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.operators.pairs import Pairs
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Bools, Ints


@dataclass(frozen=True)
class InnerJoin(StatefulOperator):
    """Pair the rows of two inputs whose key columns are equal, multiplying their weights.

    The inputs are tables with the physical schemas of ``pairs.left`` and ``pairs.right``. The
    output has the columns of ``pairs.schema``; it is not consolidated. If ``alone`` asks for the
    rows of the left or the right side, the output also has ``__row`` and, besides the pairs, the
    changed rows of these sides, not paired. With them, once a further condition has been applied
    to the pairs, :class:`Matches` finds the rows without a pair.
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


@dataclass(frozen=True)
class OuterJoin(StatefulOperator):
    """Pair rows as an inner join does, and emit the rows without a partner of one or both sides.

    The inputs are as in :class:`InnerJoin`. The output has the
    columns of ``pairs.schema``; the hash of a row without a partner is that of its own key.
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
