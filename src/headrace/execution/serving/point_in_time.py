"""The rows that keys had at given times: by the time of commit, or by a time in the rows.

Both find, for each asked key and time, the last row of the key that is not after the time. What
differs is what gives a row its time: :class:`CommittedRows` the epoch in which it became the row of
its key, :class:`DatedRows` a column. Rows are read in parts, and what is kept between parts is
one row for each asked key or pair, so memory does not grow with the history.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.spine import Spine, matches_of_runs
from headrace.algebra.zset import WEIGHT, row_codes
from headrace.algebra.zset.order import valid
from headrace.algebra.zset.zset import column
from headrace.execution.serving.values import micros
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.algebra.zset import Layout
    from headrace.algebra.zset.order import Bools, Ints
    from headrace.execution.serving.contents import AskedKeys, Contents, History
    from headrace.storage.ledger import RunRecord


PART_ROWS: Final = 1 << 18
"""About how many rows of a history are looked at together."""
_WINDOW_EPOCHS: Final = 1 << 13
"""Of how many epochs the names of deltas are read together."""
_KEYS_OF_A_LOOKUP: Final = 1 << 10
_ROWS_OF_A_LOOKUP: Final = 64
"""A scan of so many rows takes about as long as looking up a key that has few."""
_NEVER: Final = np.iinfo(np.int64).max

_Answers: TypeAlias = "tuple[Ints, pa.Table]"
"""Positions of pairs, and the row of each."""


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """The row of each key as of an epoch, of a relation in which the keys are unique.

    Rows are found by hash if the keys are given in the order of the layout's key.
    ``columns`` are those returned. ``restarts`` are epochs, ascending, whose contents are not those
    of the epoch before plus a delta.
    """

    history: History
    asked: AskedKeys
    columns: tuple[str, ...]
    restarts: tuple[Epoch, ...] = ()
    part_rows: int = PART_ROWS

    def at(self, epochs: Ints) -> pa.Table:
        """Return a row for each asking row: that of its key at the epoch, NULLs if there is none.

        ``epochs`` is aligned with the asking rows; a negative one has no row. The caller keeps the
        smallest one readable.

        Raises:
            HeadraceError: INVALID if an epoch is older than the oldest readable one.
        """
        places = ((self.asked.of >= 0) & (epochs >= 0)).nonzero()[0]
        order = places[epochs[places].argsort(kind="stable")]
        bounds = epochs[order].searchsorted([*self.restarts, _NEVER])
        answers: list[_Answers] = []
        start = 0
        for stop in bounds.tolist():
            if start < stop:
                own = order[start:stop]
                answers += self._between(own, epochs[own])
            start = stop
        schema = pa.schema([self.history.layout.columns.field(name) for name in self.columns])
        return _in_order(answers, len(epochs), schema)

    def _between(self, pairs: Ints, epochs: Ints) -> Iterator[_Answers]:
        """Yield answers to pairs by ascending epoch, in a range of epochs without a restart."""
        first, last = Epoch(int(epochs[0])), Epoch(int(epochs[-1]))
        keys, done = self.asked.of[pairs], 0
        current = self._rows_at(first)
        for upto, events in self._events(first, last):
            stop = int(epochs.searchsorted(upto))
            yield pairs[done:stop], current.answers(events, keys[done:stop], epochs[done:stop])
            done = stop
            current.follow(events)
        yield pairs[done:], current.taken(current.at[keys[done:]])

    def _is_arranged_by_keys(self) -> bool:
        """Whether rows are found by the hash of their keys; otherwise they are scanned."""
        return bool(self.asked.names) and self.history.layout.key == self.asked.names

    def _rows_at(self, epoch: Epoch) -> _Current:
        """Return the row of each key at an epoch."""
        spine, asked = self.history.at(epoch).spine, self.asked
        if self._is_arranged_by_keys():
            probes, rows = spine.lookup(asked.hashes, asked.values)
            parts = [(probes, rows.table.select(list(self.columns)))]
        else:
            parts = []
            for part in spine.scan(self.part_rows):
                probes, places = asked.found_in(part.table)
                taken = part.table.select(list(self.columns)).take(pa.array(places))
                parts.append((probes, taken))
        at = np.full(len(asked), -1, np.int64)
        count, tables = 0, [_nothing(self.history, self.columns)]
        for probes, table in parts:
            at[probes] = np.arange(count, count + len(probes))
            count += len(probes)
            tables.append(table)
        return _Current(at, pa.concat_tables(tables))

    def _events(self, after: Epoch, upto: Epoch) -> Iterator[tuple[int, _Events]]:
        """Yield the changes of the keys' rows after an epoch, in parts of whole epochs.

        Each with the first epoch that it does not cover.
        """
        for part, following in self._parts(after, upto):
            files = [run.file for run in part]
            spine = Spine.open(self.history.directory / "runs", self.history.layout, files)
            yield following, self._events_of(spine, np.array([run.added for run in part], np.int64))

    def _parts(self, after: Epoch, upto: Epoch) -> Iterator[tuple[list[RunRecord], int]]:
        """Yield the runs of deltas of whole epochs, each time with the epoch that follows."""
        part: list[RunRecord] = []
        rows, most = 0, max(self.part_rows, 2 * len(self.asked))
        ledger, id_ = self.history.ledger, self.history.id
        for start in range(after, upto, _WINDOW_EPOCHS):
            stop = Epoch(min(start + _WINDOW_EPOCHS, upto))
            found = ledger.spines.delta_runs(id_, Epoch(start), stop)
            for epoch, runs in groupby(found, lambda run: run.added):
                own = [run for run in runs if run.file.rows]
                count = sum(run.file.rows for run in own)
                if part and rows + count > most:
                    yield part, epoch
                    part, rows = [], 0
                part += own
                rows += count
        if part:
            yield part, _NEVER

    def _events_of(self, spine: Spine, epochs: Ints) -> _Events:
        """Return the last change of each key in each epoch; ``epochs`` are those of the runs."""
        asked, layout = self.asked, spine.layout
        if self._is_arranged_by_keys():
            probes, run_of, table = matches_of_runs(layout, spine.runs, asked.hashes)
            probes, kept = asked.equal(probes, table)
            table, run_of = table.take(pa.array(kept)), run_of[kept]
        else:
            found = [run.slice(0, run.rows).table for run in spine.runs]
            pairs = [(*asked.found_in(each), each) for each in found]
            probes = np.concatenate([probe for probe, _, _ in pairs])
            run_of = np.repeat(np.arange(len(pairs)), [len(probe) for probe, _, _ in pairs])
            table = pa.concat_tables([each.take(pa.array(at)) for _, at, each in pairs])
        changes = _Changes(probes, epochs[run_of], run_of, table)
        order, weights = changes.added(self.history.layout)
        keys, when = changes.keys[order], changes.epochs[order]
        last = _ends(keys, when)
        rows = np.where(weights > 0, order, -1)[last]
        return _Events(keys[last], when[last], rows, table.select(list(self.columns)))


@dataclass(frozen=True, slots=True)
class _Changes:
    """Rows of deltas, each with its key, its epoch and the number of its run."""

    keys: Ints
    epochs: Ints
    runs: Ints
    table: pa.Table

    def added(self, layout: Layout) -> tuple[Ints, Ints]:
        """Return the positions of the changes and their weights, by key, epoch and weight.

        A row that several runs of one epoch have counts once, with the sum of its weights.
        """
        weights = column(self.table, WEIGHT).to_numpy()
        order = np.lexsort((weights, self.epochs, self.keys))
        keys, epochs, runs = self.keys[order], self.epochs[order], self.runs[order]
        together = ~_ends(keys, epochs)[:-1]
        if not (together & (runs[1:] != runs[:-1])).any():
            return order, weights[order]
        identity = [column(self.table, name) for name in layout.columns.names]
        both = [pa.array(self.keys), pa.array(self.epochs), *identity]
        codes = row_codes(both, len(order))
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, group, weights)
        first, sums = first[sums != 0], sums[sums != 0]
        order = np.lexsort((sums, self.epochs[first], self.keys[first]))
        return first[order], sums[order]


def _ends(keys: Ints, epochs: Ints) -> Bools:
    """Return where the last row of each key and epoch is, in rows by key and epoch."""
    last = np.ones(len(keys), np.bool_)
    last[:-1] = (keys[1:] != keys[:-1]) | (epochs[1:] != epochs[:-1])
    return last


@dataclass(frozen=True, slots=True)
class _Events:
    """Rows that keys have from a time on, by key and time; a row of -1 stands for none.

    ``table`` has the rows at these positions, and may have others.
    """

    keys: Ints
    times: Ints
    rows: Ints
    table: pa.Table

    def before(self, keys: Ints, times: Ints) -> Ints:
        """Return the position of the last event of each key up to a time; -1 without one.

        A binary search within the events of its key, for all keys at once.
        """
        start = self.keys.searchsorted(keys)
        low, high = start.copy(), self.keys.searchsorted(keys, "right")
        searched = (low < high).nonzero()[0]
        while len(searched):
            middle = (low[searched] + high[searched]) // 2
            later = self.times[middle] > times[searched]
            high[searched[later]] = middle[later]
            low[searched[~later]] = middle[~later] + 1
            searched = searched[low[searched] < high[searched]]
        return np.where(low > start, low - 1, -1)


@dataclass(slots=True)
class _Current:
    """The present row of each key: ``at`` are positions in ``rows``, -1 for none."""

    at: Ints
    rows: pa.Table

    def taken(self, at: Ints) -> pa.Table:
        """Return the rows at some positions; NULLs for negative ones."""
        return _taken(self.rows, at)

    def answers(self, events: _Events, keys: Ints, times: Ints) -> pa.Table:
        """Return the row of each key at a time that is not after the events."""
        found = events.before(keys, times)
        base = self.rows.num_rows
        changed = events.rows[found] if len(events.rows) else found
        at = np.where(found < 0, self.at[keys], np.where(changed < 0, -1, base + changed))
        return _taken(pa.concat_tables([self.rows, events.table]), at)

    def follow(self, events: _Events) -> None:
        """Go on to the state after some events."""
        if not len(events.keys):
            return
        last = np.append(events.keys[1:] != events.keys[:-1], True)
        changed, base = events.rows[last], self.rows.num_rows
        self.at[events.keys[last]] = np.where(changed < 0, -1, base + changed)
        there = (self.at >= 0).nonzero()[0]
        whole = pa.concat_tables([self.rows, events.table])
        self.rows = whole.take(pa.array(self.at[there])).combine_chunks()
        self.at[there] = np.arange(len(there))


@dataclass(frozen=True, slots=True)
class DatedRows:
    """The last row of each key whose date, in the column ``dated``, is not after a time.

    The keys and the column are unique together. Rows without a date are left out. ``columns`` are
    those returned. If the contents are arranged by the keys, in their order, those of few keys are
    looked up; otherwise all rows are scanned.
    """

    contents: Contents
    asked: AskedKeys
    dated: str
    columns: tuple[str, ...]
    part_rows: int = PART_ROWS

    def at(self, times: Ints, known: Ints) -> pa.Table:
        """Return a row for each asking row: the last of its key, NULLs if there is none.

        ``times`` are in microseconds UTC, aligned with the asking rows; only the rows at the
        positions ``known`` have one.
        """
        asked = self.asked
        pairs = known[asked.of[known] >= 0]
        keys, own = asked.of[pairs], times[pairs]
        best = _Best(np.zeros(len(pairs), np.int64), np.full(len(pairs), -1, np.int64))
        rows = _nothing_of(self.contents.spine.layout.columns, self.columns)
        for events in self._parts() if len(pairs) else ():
            at = events.before(keys, own)
            found = (at >= 0).nonzero()[0]
            found = found[best.improved(found, events.times[at[found]])]
            if len(found):
                best.times[found] = events.times[at[found]]
                best.rows[found] = rows.num_rows + events.rows[at[found]]
                rows = best.compacted(pa.concat_tables([rows, events.table]))
        schema = rows.schema
        return _in_order([(pairs, _taken(rows, best.rows))], len(times), schema)

    def is_looked_up(self) -> bool:
        """Whether rows are found by the hash of their keys; otherwise all are scanned."""
        spine, asked = self.contents.spine, self.asked
        few = len(asked) * _ROWS_OF_A_LOOKUP < spine.rows_upper_bound
        return few and bool(asked.names) and spine.layout.key == asked.names

    def _parts(self) -> Iterator[_Events]:
        """Yield the rows that have asked keys and a date, in parts."""
        spine, asked = self.contents.spine, self.asked
        if not self.is_looked_up():
            for part in spine.scan(self.part_rows):
                yield self._events(part.table, *asked.found_in(part.table))
            return
        for start in range(0, len(asked), _KEYS_OF_A_LOOKUP):
            own = slice(start, start + _KEYS_OF_A_LOOKUP)
            keys = [values[own] for values in asked.values]
            probes, rows = spine.lookup(asked.hashes[own], keys)
            yield self._events(rows.table, probes + start, np.arange(len(probes)))

    def _events(self, part: pa.Table, probes: Ints, places: Ints) -> _Events:
        """Return rows with dates; ``probes`` are the keys of those at ``places`` of a part."""
        dated = valid(column(part, self.dated))[places]
        probes, places = probes[dated], places[dated]
        dates = micros(column(part, self.dated))[places]
        order = _by_key(probes, dates)
        table = part.select(list(self.columns)).take(pa.array(places[order]))
        return _Events(probes[order], dates[order], np.arange(len(order)), table)


@dataclass(slots=True)
class _Best:
    """The latest row found for each pair: its time, and its position; -1 for none."""

    times: Ints
    rows: Ints

    def improved(self, pairs: Ints, times: Ints) -> Ints:
        """Return which of some pairs have a later row at these times, as positions."""
        earlier = (self.rows[pairs] < 0) | (self.times[pairs] < times)
        return np.asarray(earlier.nonzero()[0])

    def compacted(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are still the latest of a pair, each once."""
        there = (self.rows >= 0).nonzero()[0]
        kept, at = np.unique(self.rows[there], return_inverse=True)
        self.rows[there] = at
        return rows.take(pa.array(kept)).combine_chunks()


def _by_key(keys: Ints, times: Ints) -> Ints:
    """Return the order of rows by key and time; faster where both fit one number."""
    if not len(keys):
        return np.zeros(0, np.int64)
    least, width = int(times.min()), int(times.max()) - int(times.min()) + 1
    if width * (int(keys.max()) + 1) < _NEVER:
        return np.asarray((keys * width + (times - least)).argsort())
    return np.lexsort((times, keys))


def _nothing(history: History, columns: Sequence[str]) -> pa.Table:
    return _nothing_of(history.layout.columns, columns)


def _nothing_of(schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    return pa.schema([schema.field(name) for name in columns]).empty_table()


def _taken(rows: pa.Table, at: Ints) -> pa.Table:
    """Return the rows at some positions; NULLs for negative ones."""
    schema = pa.schema([each.with_nullable(nullable=True) for each in rows.schema])
    if not rows.num_columns:
        return rows
    taken = rows.combine_chunks().take(pa.array(at, mask=at < 0))
    return pa.Table.from_arrays(taken.columns, schema=schema)


def _in_order(answers: Sequence[_Answers], rows: int, schema: pa.Schema) -> pa.Table:
    """Return answers in the order of the asking rows; NULLs for those without one."""
    nullable = pa.schema([each.with_nullable(nullable=True) for each in schema])
    places = np.concatenate([np.zeros(0, np.int64), *(at for at, _ in answers)])
    whole = pa.concat_tables([nullable.empty_table(), *(table for _, table in answers)])
    at = np.full(rows, -1, np.int64)
    at[places] = np.arange(len(places))
    return _taken(whole, at)
