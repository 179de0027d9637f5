"""A fold: one row per key, computed by a function over the key's events in order.

Algebra: not linear. Only the keys touched can change, and of their events only the changed and
later ones are processed again::

    state(e1 ... en) = step(state(e1 ... en-1), en),   Δ row = row(state after) - row(state before)

State: the events by key, in descending order, and *checkpoints*: the state after some of a key's
events, with the last of these. The last state is always stored; further back, the distance between
checkpoints is about their distance from the end, so there are O(log n) of them for n events.
Cost per epoch: O(|Δ| log n) if events arrive in order: each is one step. A change before the last
event processes the events since the nearest checkpoint before it: about twice as many as follow it.
NULL: the NULLs of a key are one key; in the order, NULL comes first.
Ties: the order of the layout has all columns, so only equal events tie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.algebra.zset.order import order_keys, ordered
from headrace.algebra.zset.zset import column, numbers, take
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Bools, Ints


FOLDED = "folded"
"""The output column with the row of a key, a struct."""

SPACING = 64
"""The least distance between checkpoints, in events."""

_PLACE = "place"
_STATE = "state"
_WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)


class FoldFunction(Protocol):
    """The function of a fold; it is pickled and sent to the workers."""

    def events(self, columns: pa.Table) -> Iterator[Any]:
        """Yield the rows of a table as the events that :meth:`states` takes."""
        ...

    def states(
        self, start: bytes | None, events: Iterator[Any], stops: Sequence[int]
    ) -> tuple[bytes, ...]:
        """Process as many events as the last of ``stops``; return the state after each of these.

        ``start`` is the state before; None before the first event.
        """
        ...

    def rows(self, states: Sequence[bytes]) -> pa.StructArray:
        """Return the row of each state."""
        ...


@dataclass(frozen=True)
class Fold(StatefulOperator):
    """Emit the change of each key's row: the columns of the key, and the struct ``folded``.

    ``layout``: the events; its order is descending, and has all columns. ``names``: the function's
    names of the columns. ``row``: the type of its rows.
    """

    layout: Layout
    names: tuple[str, ...]
    row: pa.DataType
    folding: FoldFunction = field(compare=False, repr=False)
    spacing: int = SPACING

    def __post_init__(self) -> None:
        if {by.name for by in self.layout.order} != set(self.layout.columns.names):
            raise HeadraceError(Code.INTERNAL, "the events of a fold have no total order")
        if not self.layout.key:
            raise HeadraceError(Code.INTERNAL, "a fold has no key")

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """The events, and the checkpoints: the last event before each, its position, the state."""
        more = [pa.field(_PLACE, pa.int64()), pa.field(_STATE, pa.binary())]
        columns = pa.schema([*self.layout.columns, *more])
        return self.layout, Layout(self.layout.key, columns, pa.schema([_WEIGHT_FIELD]))

    @cached_property
    def answer(self) -> Layout:
        """The layout of the output."""
        columns = [self.layout.columns.field(name) for name in self.layout.key]
        columns.append(pa.field(FOLDED, self.row))
        return Layout(self.layout.key, pa.schema(columns), pa.schema([_WEIGHT_FIELD]))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return self.answer.schema

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the delta of the rows, and the deltas of the events and the checkpoints."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        if not change.rows:
            return StepResult(self.schema.empty_table(), (change, ZSet.empty(self.layouts[1])))
        heads, of_row = change.keyed()
        first = change.take(heads)
        probes, kept = before[1].lookup(first.hashes, first.keys)
        of_change, of_kept = self._places(change, of_row, kept, probes)
        earliest = np.full(first.rows, np.iinfo(np.int64).max)
        np.minimum.at(earliest, of_row, of_change)
        added = np.zeros(first.rows, np.int64)
        np.add.at(added, of_row, change.weights)
        work = _work(kept, probes, of_kept < earliest[probes], added)
        parts = self._in_order(change, of_row, of_change, work)
        parts += self._again(before[0].plus(change), first, work)
        made = [self._folded(events, keys) for events, keys in parts]
        gone = np.ones(kept.rows, np.bool_)
        gone[[row for key in work for row in key.retained]] = False
        checkpoints = ZSet.sum_of(self.layouts[1], [kept.filter(gone).negated(), *made])
        return StepResult(self._output(first, work), (change, checkpoints.consolidated()))

    def _places(self, change: ZSet, of_row: Ints, kept: ZSet, probes: Ints) -> tuple[Ints, Ints]:
        """Number changes and checkpoints: ascending by key and order, equal where they tie."""
        names = self.layout.columns.names
        groups = np.concatenate([of_row, probes])
        by_group = np.argsort(groups, kind="stable")
        both = pa.concat_tables([change.table.select(names), kept.table.select(names)])
        both = take(both, by_group)
        forwards = [
            OrderBy(by.name, not by.descending, not by.nulls_first) for by in self.layout.order
        ]
        keys = [key for by in forwards for key in order_keys(column(both, by.name), by)]
        order, codes = ordered(groups[by_group], keys)
        found = np.empty(len(groups), np.int64)
        found[by_group[order]] = codes
        return found[: change.rows], found[change.rows :]

    def _in_order(
        self, change: ZSet, of_row: Ints, places: Ints, work: list[_Key]
    ) -> list[tuple[pa.Table, list[_Key]]]:
        """Return the keys that continue from their last state, with their changes as events."""
        goes_on = np.array([key.goes_on for key in work])
        # Backwards, so that floats that differ in their bits alone are in one order everywhere.
        chosen = np.flatnonzero(goes_on[of_row])[::-1]
        if not len(chosen):
            return []
        rows = change.take(chosen[np.argsort(places[chosen], kind="stable")])
        return [(self._each(rows, rows.weights), [key for key in work if key.goes_on])]

    def _again(
        self, events: Spine, first: ZSet, work: list[_Key]
    ) -> list[tuple[pa.Table, list[_Key]]]:
        """Return the other keys, with their events since the checkpoint to resume from.

        Keys that need similar numbers of events are read together.
        """
        sizes: dict[int, list[int]] = {}
        for position, key in enumerate(work):
            if not key.goes_on:
                sizes.setdefault(key.needed.bit_length(), []).append(position)
        parts = []
        for positions in sizes.values():
            keys = [work[position] for position in positions]
            needed = np.array([key.needed for key in keys])
            given = [values.take(pa.array(positions)) for values in first.keys]
            found = events.first_rows(first.hashes[positions], given, max(1, int(needed.max())))
            # A checkpoint may be between two copies of an event: then the later one is needed.
            left = needed[found.probes] - found.ranks + 1
            rows = np.flatnonzero(left > 0)[::-1]
            taken = found.rows.take(rows)
            copies = np.minimum(taken.weights, left[rows])
            parts.append((self._each(taken, copies), keys[::-1]))
        return parts

    def _each(self, rows: ZSet, weights: Ints) -> pa.Table:
        """Return the rows as events, each as often as its weight."""
        if (weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "an event has a negative weight",
                detail="The input deletes a row that was never inserted.",
            )
        if (weights != 1).any():
            rows = rows.take(np.repeat(np.arange(rows.rows), weights))
        return rows.table

    def _folded(self, events: pa.Table, keys: list[_Key]) -> ZSet:
        """Step each key over its consecutive events; return the new checkpoints."""
        if sum(key.needed for key in keys) != events.num_rows:
            raise HeadraceError(
                Code.INTERNAL, "the number of a fold's events differs from its count"
            )
        names = self.layout.columns.names
        given = self.folding.events(events.select(names).rename_columns(list(self.names)))
        rows: list[int] = []
        places: list[int] = []
        states: list[bytes] = []
        begun = 0
        for key in keys:
            stops = key.stops(self.spacing)
            if stops:
                taken = [stop - key.place for stop in stops]
                found = self.folding.states(key.state, given, taken)
                key.after = found[-1]
                rows += [begun + count - 1 for count in taken]
                places += stops
                states += found
            begun += key.needed
        table = take(events.select([HASH, *names]), np.array(rows, np.int64))
        columns = [*table.columns, pa.array(places, pa.int64()), pa.array(states, pa.binary())]
        columns.append(pa.array(np.ones(len(rows), np.int64)))
        layout = self.layouts[1]
        return ZSet(layout, pa.Table.from_arrays(columns, schema=layout.schema))

    def _output(self, first: ZSet, work: list[_Key]) -> pa.Table:
        """Return the new rows of the keys, minus the old rows."""
        changed = [i for i, key in enumerate(work) if key.former != key.after]
        old = [i for i in changed if work[i].former is not None]
        new = [i for i in changed if work[i].after is not None]
        states = [work[i].former for i in old] + [work[i].after for i in new]
        rows = self.folding.rows([state for state in states if state is not None])
        keys = take(first.table.select([HASH, *self.layout.key]), np.array(old + new, np.int64))
        weights = np.repeat(np.array([-1, 1]), [len(old), len(new)])
        answer = self.answer
        columns = [*keys.columns, rows.cast(self.row), pa.array(weights)]
        return (
            ZSet(answer, pa.Table.from_arrays(columns, schema=answer.schema)).consolidated().table
        )


@dataclass(slots=True)
class _Key:
    """The work for one key.

    ``usable`` are its checkpoints before all changes, as pairs of position and row among the stored
    ones, ascending. ``former`` is its last state before the step, ``state`` the one to resume from,
    after ``place`` events; None is the state before the first event. ``needed`` is the number of
    events to process.
    """

    usable: list[tuple[int, int]]
    former: bytes | None
    goes_on: bool
    place: int
    state: bytes | None
    needed: int
    after: bytes | None = None
    retained: list[int] = field(default_factory=list)
    """The rows of the usable checkpoints to retain."""

    def stops(self, spacing: int) -> list[int]:
        """Return the positions of new checkpoints, ascending; mark the old ones to retain.

        An old one is retained if without it, its neighbours would be further apart than the later
        one is from the end.
        """
        if not self.needed:
            self.after = self.state
            self.retained = [row for _, row in self.usable]
            return []
        end = self.place + self.needed
        stops, back = [end], spacing
        while end - back > self.place:
            stops.append(end - back)
            back *= 2
        last = stops[-1]
        for i in reversed(range(len(self.usable))):
            place, row = self.usable[i]
            older = self.usable[i - 1][0] if i else 0
            if last - older > max(spacing, end - last):
                self.retained.append(row)
                last = place
        return stops[::-1]


def _work(kept: ZSet, probes: Ints, valid: Bools, added: Ints) -> list[_Key]:
    """Return the work for each key, whose number of events changes by ``added``."""
    places, states = numbers(kept.table, _PLACE), column(kept.table, _STATE)
    by_key = np.lexsort([places, probes])
    bounds = np.searchsorted(probes[by_key], np.arange(len(added) + 1))
    some = bounds[1:] > bounds[:-1]
    latest = np.full(len(added), -1, np.int64)
    latest[some] = by_key[bounds[1:][some] - 1]
    formers = states.take(pa.array(latest, mask=~some)).to_pylist()
    # Lists, since reading single elements of arrays is slow.
    ordered_places, rows, usables = places[by_key].tolist(), by_key.tolist(), valid[by_key].tolist()
    ends, lasts = bounds.tolist(), latest.tolist()
    work = []
    for key, more in enumerate(added.tolist()):
        begin, end, last, former = ends[key], ends[key + 1], lasts[key], formers[key]
        usable = [(ordered_places[i], rows[i]) for i in range(begin, end) if usables[i]]
        place, row = usable[-1] if usable else (0, -1)
        goes_on = row == last
        state = former if goes_on else states[row].as_py() if usable else None
        total = ordered_places[end - 1] if begin < end else 0
        work.append(_Key(usable, former, goes_on, place, state, total - place + more))
    return work
