"""Quarantine: rows of a relation on which the query of a view fails, kept out of its input.

Algebra: the input is divided between the output and the quarantine, and nothing is lost::

    Δ output + Δ quarantine = Δ input

An inserted row goes into quarantine if its hash is refused, or if equal rows are there already. A
retracted row is removed from there first. So both parts are bags whenever the input is one.

State: the rows in quarantine by all of their columns, with the error and the time of each.
Cost per epoch: O(|Δ| log n) for n rows in quarantine; rows that pass are not stored.
NULL: a value like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Bools, Ints


ERROR: Final = "__error"
"""The column of the error with which the query failed on a row (string)."""
SINCE: Final = "__since"
"""The column of the clock when it did: microseconds, UTC (int64)."""

REFUSED: Final = pa.schema([(HASH, pa.int64()), (ERROR, pa.string()), (SINCE, pa.int64())])
"""The columns of the input with the refused hashes, each once."""

_SUMMED: Final = pa.schema([pa.field(WEIGHT, pa.int64())])


@dataclass(frozen=True)
class Quarantine(StatefulOperator):
    """Divide the rows of a relation, which have the given columns.

    A step has two inputs, the delta and the refused hashes (:data:`REFUSED`), and two spines of the
    same layout: the quarantine, and further rows to refuse. Equal rows have equal hashes; rows that
    share one by chance are refused together.
    """

    columns: pa.Schema
    stored: tuple[str, ...] = field(default=(), metadata={"digest": False})
    """The names of the columns in run files, if some have others; see :class:`Layout`."""

    @cached_property
    def rows(self) -> Layout:
        """The layout of the input and of the output."""
        return Layout(tuple(self.columns.names), self.columns, _SUMMED)

    @cached_property
    def layouts(self) -> tuple[Layout]:
        """The quarantine."""
        why = [pa.field(ERROR, pa.string()), pa.field(SINCE, pa.int64())]
        columns = pa.schema([*self.columns, *why])
        stored = (*self.stored, ERROR, SINCE) if self.stored else ()
        return (Layout(tuple(self.columns.names), columns, _SUMMED, stored=stored),)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the consolidated rows that pass, and the delta of the quarantine."""
        change, refused = inputs
        kept, known = before
        rows = ZSet.of(self.rows, change).consolidated()
        weights = rows.weights
        probes, there = kept.lookup(rows.hashes, rows.keys)
        asked, said = known.lookup(rows.hashes, rows.keys)
        if not (refused.num_rows or there.rows or said.rows):
            return StepResult(rows.table, (ZSet.empty(self.layouts[0]),))
        copies = np.zeros(rows.rows, np.int64)
        np.add.at(copies, probes, there.weights)
        taken = np.where(weights < 0, np.minimum(-weights, copies), 0)
        place = _places(refused[HASH].to_numpy(), rows.hashes)
        refuses = (copies > 0) | _among(rows, asked) | (place >= 0)
        entering = np.flatnonzero((weights > 0) & refuses)
        # The reason of an equal row in quarantine, else of a known one, else the given reason.
        reasons = [
            _reasons(there.table, _first(probes, rows.rows)),
            _reasons(said.table, _first(asked, rows.rows)),
            _reasons(refused, place),
        ]
        entered = self._entered(rows, entering, reasons)
        shares = _shares(probes, there.weights, taken)
        left = _weighted(there, -shares).filter(shares > 0)
        passed = weights + taken
        passed[entering] = 0
        output = _weighted(rows, passed).filter(passed != 0)
        return StepResult(output.table, (entered.plus(left).consolidated(),))

    def _entered(self, rows: ZSet, entering: Ints, reasons: list[pa.Table]) -> ZSet:
        found = rows.take(entering).table
        places = pa.array(entering)
        for name in (ERROR, SINCE):
            column = pc.coalesce(*(each[name] for each in reasons))
            found = found.append_column(name, column.take(places))
        return ZSet.of(self.layouts[0], found)


def held_back(rows: pa.Table, below: int | None) -> tuple[pa.Table, pa.Table]:
    """Return the rows without insertions whose hash is at least ``below``; None lets all pass.

    Also return all inserted rows.
    """
    hashes, inserted = rows[HASH].to_numpy(), rows[WEIGHT].to_numpy() > 0
    passing = rows
    if below is not None:
        passing = rows.filter(pa.array(~inserted | (hashes < below)))
    return passing, rows.filter(pa.array(inserted))


def arrived_in(quarantine: Layout) -> Layout:
    """Return the layout of the rows that reach a quarantine, without its added columns."""
    return Quarantine(pa.schema(list(quarantine.columns)[:-2])).rows


def _weighted(rows: ZSet, weights: Ints) -> ZSet:
    """Return rows with other weights."""
    index = rows.table.schema.get_field_index(WEIGHT)
    field = rows.table.schema.field(index)
    return ZSet(rows.layout, rows.table.set_column(index, field, pa.array(weights, pa.int64())))


def _places(known: Ints, hashes: Ints) -> Ints:
    """Return the index of each hash in ``known``; -1 if absent."""
    if not len(known):
        return np.full(len(hashes), -1, np.int64)
    order = np.argsort(known, kind="stable")
    found = np.minimum(np.searchsorted(known[order], hashes), len(known) - 1)
    return np.where(known[order][found] == hashes, order[found], -1)


def _first(probes: Ints, count: int) -> Ints:
    """Return, for each number below ``count``, its first index in ``probes``; -1 if absent."""
    found = np.full(count, -1, np.int64)
    found[probes[::-1]] = np.arange(len(probes))[::-1]
    return found


def _among(rows: ZSet, probes: Ints) -> Bools:
    found = np.zeros(rows.rows, np.bool_)
    found[probes] = True
    return found


def _reasons(table: pa.Table, places: Ints) -> pa.Table:
    """Return the reasons at some places of a table; NULL where a place is -1."""
    return table.select([ERROR, SINCE]).take(pa.array(places, mask=places < 0))


def _shares(probes: Ints, weights: Ints, taken: Ints) -> Ints:
    """Return how many copies of each found row are taken, in the order found."""
    order = np.argsort(probes, kind="stable")
    own, mine = weights[order], probes[order]
    before = np.cumsum(own) - own
    starts = np.searchsorted(mine, mine)
    before = before - before[starts] if len(order) else before
    shares = np.zeros(len(weights), np.int64)
    shares[order] = np.clip(taken[mine] - before, 0, own)
    return shares
