"""Spines: arrangements as sums of runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.spine.first_rows import (
    FIRST_READ,
    Around,
    AskedRows,
    CountedRuns,
    Heads,
    Rank,
    Ranked,
    Reads,
    answered,
    around,
    heads_of,
)
from headrace.algebra.spine.near_rows import (
    KeyLimit,
    Neighbours,
    counted_before,
    first_after,
    first_not_before,
    in_order,
    in_range,
    narrowed,
    near,
    pairs_of,
)
from headrace.algebra.spine.open_runs import open_all
from headrace.algebra.spine.pack import HIGHEST, LOWEST, in_blocks_of_runs
from headrace.algebra.spine.run import Run, matches_in, runs_near, take_of
from headrace.algebra.spine.stored import StoredBatch
from headrace.algebra.zset import EVERY_ROW, WEIGHT, Layout, Restriction, ZSet, same_pairs
from headrace.algebra.zset.order import valid
from headrace.algebra.zset.sums import segment_sums_int64
from headrace.algebra.zset.zset import column, fresh, in_one_piece
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.algebra.spine.near_rows import InRange
    from headrace.algebra.spine.pack import Flat
    from headrace.algebra.spine.run import RunFile
    from headrace.algebra.spine.stored import Batch
    from headrace.algebra.zset.order import Bools, Ints


_LAST_READ = 4
"""How many of the last rows of a key are read from a run at first."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows of the runs of a spine, not added yet, one run after the other.

    ``probes`` has the position of each row's key among the keys by ascending hash, and ``runs`` the
    number of its run. ``order`` is the order of the keys by hash; None if they were sorted.
    """

    probes: Ints
    runs: Ints
    rows: ZSet
    order: Ints | None


@dataclass(frozen=True, slots=True, eq=False)
class Spine:
    """The sum of runs of one layout, restricted to the hashes in ``[low, high]``.

    The order of the runs does not matter. A spine without runs is empty. ``reads`` counts the
    lookups in this spine and in the spines made from it by :meth:`plus`. If the spine is not
    ``distinct``, a run may have the same row several times. Rows with NULL in one of the columns
    ``present`` are ignored.
    """

    layout: Layout
    runs: tuple[Run, ...] = ()
    low: int = LOWEST
    high: int = HIGHEST
    reads: Reads = field(default_factory=Reads)
    distinct: bool = True
    present: tuple[str, ...] = ()
    flattened: list[Flat | None] = field(default_factory=list, init=False, repr=False)
    """The cache of :func:`headrace.algebra.spine.columns.flat`."""

    @classmethod
    def open(
        cls,
        directory: Path,
        layout: Layout,
        files: Sequence[RunFile],
        low: int = LOWEST,
        high: int = HIGHEST,
    ) -> Spine:
        """Open the run files that have rows in the range; see :func:`open_run` for errors."""
        near = [file for file in files if file.rows and file.low <= high and file.high >= low]
        runs = open_all(directory, near, layout)
        return cls(layout, runs, low, high, distinct=all(run.distinct for run in runs))

    @property
    def rows_upper_bound(self) -> int:
        """The number of physical rows in the range: not less than the number of rows of the sum."""
        return sum(max(0, end - start) for start, end in zip(*self._bounds(), strict=True))

    @property
    def weight(self) -> int:
        """The sum of all weights: the number of rows of the sum, counting copies.

        The weights of a run are summed once. The spine must cover the whole range of hashes.
        """
        return sum(run.weight for run in self.runs)

    def plus(self, change: ZSet) -> Spine:
        """Return the spine plus a consolidated delta, which is kept in memory."""
        if change.rows == 0:
            return self
        return replace(self, runs=(*self.runs, Run.of(change)))

    def below(self, hash_: int) -> Spine:
        """Return the spine of the rows with hashes below the given one; its range is the same."""
        if hash_ <= LOWEST:
            return replace(self, runs=())
        return replace(self, runs=tuple(Run.of(r.between(LOWEST, hash_ - 1)) for r in self.runs))

    def excerpt(
        self, layout: Layout, columns: tuple[str, ...], present: tuple[str, ...] = ()
    ) -> Spine:
        """Return the spine with only some columns, under the names of another layout.

        ``columns`` are aligned with the layout's columns. The layout's key is that of the spine,
        under the layout's names. Rows with NULL in one of its columns ``present`` are left out.
        """
        key = tuple(dict(zip(layout.columns.names, columns, strict=True))[n] for n in layout.key)
        if key != self.layout.key or layout.summed != self.layout.summed or layout.order:
            raise HeadraceError(Code.INTERNAL, "an excerpt has another key than its arrangement")
        runs = tuple(run.excerpt(layout, columns) for run in self.runs)
        distinct = self.distinct and set(columns) == set(self.layout.columns.names)
        return replace(self, layout=layout, runs=runs, distinct=distinct, present=present)

    def lookup(self, hashes: Ints, keys: Sequence[pa.Array]) -> tuple[Ints, ZSet]:
        """Return the rows that have the given keys, each with the position of its key.

        ``keys`` are aligned with ``hashes``, in the order and of the types of ``layout.key``. NULL
        matches NULL. A key that is given twice is answered twice. For each key and row there is
        one pair, with the row's sums; rows whose sums are all zero are left out. Pairs ascend by
        hash. O(d log n) for d keys in each of the runs, plus the rows found.
        """
        return self._total(self._find(hashes, self.layout.key, keys), self.layout.key)

    def stored(self, hashes: Ints, keys: Sequence[pa.Array]) -> tuple[Ints, ZSet]:
        """Return the rows of :meth:`lookup` as runs have them, not added up, in any order."""
        found = self._find(hashes, self.layout.key, keys)
        order = found.order
        return (found.probes if order is None else order[found.probes]), found.rows

    def between(
        self, hashes: Ints, keys: Sequence[pa.Array], limits: Sequence[KeyLimit]
    ) -> tuple[Ints, ZSet]:
        """Return :meth:`lookup` of the rows within limits, reading few others of large keys.

        Rows that are not within them may be returned too. O(log n) for each key, limit and run,
        plus the rows returned.
        """
        order, hashes = _ascending(hashes)
        if order is not None:
            keys = [values.take(pa.array(order)) for values in keys]
            limits = [each.at(order) for each in limits]
        found, read = in_range(self.layout, self.runs, hashes, limits, None)
        self.reads.rows += read
        own = same_pairs(found.rows.keys, None, keys, found.probes)
        rows = found.rows.filter(own)
        return self._total(_Found(found.probes[own], found.runs[own], rows, order), self.layout.key)

    def last_within(
        self, hashes: Ints, keys: Sequence[pa.Array], limits: Sequence[KeyLimit]
    ) -> tuple[Ints, ZSet]:
        """Return :meth:`between`, but of each key only the last row, and perhaps some before it.

        The last one has the greatest value of the first column of the order; all that have it are
        returned.
        """
        order, hashes = _ascending(hashes)
        if order is not None:
            keys = [values.take(pa.array(order)) for values in keys]
            limits = [each.at(order) for each in limits]
        pending, most = np.arange(len(hashes)), _LAST_READ
        probes, parts = [np.zeros(0, np.int64)], [ZSet.empty(self.layout)]
        while len(pending):
            at = pa.array(pending)
            asked = [each.at(pending) for each in limits]
            count = np.full(len(pending), most)
            found, read = in_range(self.layout, self.runs, hashes[pending], asked, count)
            self.reads.rows += read
            whole, own, rows = self._last(found, [values.take(at) for values in keys])
            answered = whole[own]
            probes.append(pending[own[answered]])
            parts.append(rows.filter(answered))
            pending, most = pending[~whole], 4 * most
        found_probes = np.concatenate(probes)
        rows = ZSet.sum_of(self.layout, parts)
        by_probe = np.argsort(found_probes, kind="stable")
        rows = ZSet(self.layout, in_one_piece(rows.table)).take(by_probe)
        found_probes = found_probes[by_probe]
        return (found_probes if order is None else order[found_probes]), rows

    def _last(self, found: InRange, keys: Sequence[pa.Array]) -> tuple[Bools, Ints, ZSet]:
        """Add up rows read from the end of keys, as far as they are complete.

        Returns whether the last row of each key is among them, and the rows with their keys.
        """
        by, count = self.layout.order[0], found.cut.shape[1]
        own = same_pairs(found.rows.keys, None, keys, found.probes)
        every = _Found(found.probes[own], found.runs[own], found.rows.filter(own), None)
        probes, rows = self._total(every, self.layout.key)
        values = in_order(column(found.rows.table, by.name), by)
        edge, is_cut = np.full(count, LOWEST, np.int64), np.asarray(found.cut.any(axis=0))
        for cut, first in zip(found.cut, found.first, strict=True):
            edge[cut] = np.maximum(edge[cut], values[first[cut]])
        own_values = in_order(column(rows.table, by.name), by)
        certain = ~is_cut[probes] | (own_values > edge[probes])
        whole = ~is_cut
        whole[probes[certain & (rows.weights > 0)]] = True
        return whole, probes[certain], rows.filter(certain)

    def weights_under(self, hashes: Ints, keys: Sequence[pa.Array]) -> Ints:
        """Return the sum of the weights of all rows of each key; keys as for :meth:`lookup`."""
        return _weights(self._find(hashes, self.layout.key, keys), len(hashes))

    def places(self, hash_: int) -> list[tuple[Batch, int]]:
        """Return the batch, and the position in it, of every physical row of one hash.

        The range of the spine, and its columns ``present``, do not restrict them. See
        :meth:`Run.places` for when this is faster than :meth:`lookup`.
        """
        return [(run.batches[i], row) for run in self.runs for i, row in run.places(hash_)]

    def rows_of(self, rows: ZSet) -> tuple[Ints, ZSet]:
        """Return the given rows that the spine has, in the form that :meth:`lookup` returns.

        If the layout has an order, O(log n) for each row and run, however many rows have its hash;
        otherwise all rows of its hash are read.
        """
        return self._total(self._copies(rows), tuple(self.layout.columns.names))

    def weights_of(self, rows: ZSet) -> Ints:
        """Return the weight of each of the given rows in the spine; 0 for absent rows."""
        return _weights(self._copies(rows), rows.rows)

    def first_rows(
        self,
        hashes: Ints,
        keys: Sequence[pa.Array],
        count: int,
        rank: Rank = Rank.ROW_NUMBER,
        since: Ints | None = None,
    ) -> Ranked:
        """Return the rows of the given keys whose rank is at most ``count``, reading few others.

        Keys are given as for :meth:`lookup`. With ``ROW_NUMBER`` these are the first rows that
        have ``count`` copies together, the last of them perhaps more than are needed; with
        ``RANK`` also the rows that tie with the last of them, and with ``DENSE_RANK`` the rows of
        the first ``count`` values of the order. A row with a negative weight has no copies.
        Probes ascend by hash; the rows of each are in the order of the layout, which must have one.
        About O(r log n + r c) per key, with r runs and c rows returned, however many rows it has.

        With ``since``, rows before that value of the first column of the order, which is a whole
        number or a time, do not count; a key may be given with several of these.
        """
        if not self.layout.order:
            raise HeadraceError(Code.INTERNAL, "an arrangement without order has no first rows")
        asked = self._asked(hashes, keys, count, rank)
        if since is not None:
            asked = replace(asked, since=since if asked.order is None else since[asked.order])
        return answered(CountedRuns(self.layout, self.runs, self.reads), asked)

    def rows_between(
        self, hashes: Ints, keys: Sequence[pa.Array], lows: Ints, highs: Ints
    ) -> tuple[Ints, ZSet]:
        """Return the rows of the given keys whose place in the order is in ``[low, high]``.

        That is the value of the first column of the order, which ascends and is a whole number or
        a time. Keys are given, and rows returned, as by :meth:`lookup`; a key may be given with
        several ranges. O(log n) for each key and run, plus the rows found.
        """
        if not len(hashes):
            return hashes, ZSet.empty(self.layout)
        order, hashes = _ascending(hashes)
        if order is not None:
            lows, highs = lows[order], highs[order]
        start, stop = self._within(hashes)
        asked, runs = hashes[start:stop], self.runs if start < stop else ()
        pairs = []
        for run in runs:
            firsts, stops = run.blocks(asked)
            by = self.layout.order[0]
            firsts, read = first_not_before(run, by, firsts, stops, lows[start:stop])
            stops, more = first_after(run, by, firsts, stops, highs[start:stop])
            self.reads.rows += read + more
            pairs.append(pairs_of(firsts, stops - firsts))
        probes = np.concatenate([hashes[:0], *(probe for probe, _ in pairs)])
        run_of = np.repeat(np.arange(len(pairs)), [len(probe) for probe, _ in pairs])
        table = take_of(self.layout, runs, [row for _, row in pairs])
        found = self._matching(probes + start, run_of, table, self.layout.key, keys, order)
        return self._total(found, self.layout.key)

    def first_rows_around(
        self,
        change: ZSet,
        hashes: Ints,
        keys: Sequence[pa.Array],
        count: int,
        rank: Rank = Rank.ROW_NUMBER,
        known: Heads | None = None,
    ) -> Around:
        """Return the rows of :meth:`first_rows` before and after a consolidated change is added.

        The rows of this spine, which has no sums but the weight, are read and added once for both;
        those :meth:`read_first` of the same keys may be ``known``.
        """
        if self.layout.summed.names != [WEIGHT]:
            raise HeadraceError(Code.INTERNAL, "an arrangement with sums has no first rows around")
        asked = self._asked(hashes, keys, count, rank)
        added, most, pending = Run.of(change), asked.most, asked.within
        found: Around | None = None
        while found is None or len(pending):
            own = asked.hashes[pending]
            if known is None or found is not None:
                runs = runs_near(self.runs, own)
                read = heads_of(self.layout, (*runs, added), own, most)
                changed = read.runs == len(runs)
                self.reads.rows += len(changed)
            else:
                read = known.then(heads_of(self.layout, (added,), own, most))
                changed = np.arange(len(read.probes)) >= len(known.probes)
            part, short = around(read, changed, asked.keys_of(pending), rank, count)
            part = replace(part, probes=pending[part.probes])
            found = part if found is None else found.plus(part)
            pending, most = pending[short], 2 * most
        if asked.order is None:
            return found
        return replace(found, probes=asked.order[found.probes])

    def near(self, probes: ZSet, back: Ints, ahead: Ints) -> Neighbours:
        """Return the rows of the same hashes that are near some rows, in the order of the layout.

        Of each run, these are ``back`` rows before each of the consolidated rows, and ``ahead``
        after it. O(log n) for each row and run, plus the rows returned.
        """
        if not self.layout.order:
            raise HeadraceError(Code.INTERNAL, "an arrangement without order has no rows nearby")
        found, read = near(self.runs, probes, back, ahead)
        self.reads.rows += read
        return found

    def count_before(self, probes: ZSet) -> Ints:
        """Return the sum of the weights of the rows before each row, in the order of the layout.

        That is of the rows of its hash; the probes are consolidated, and need not be in the spine.
        O(log n) for each row and run.
        """
        found, read = counted_before(self.runs, probes)
        self.reads.rows += read
        return found

    def read_first(self, hashes: Ints, count: int) -> Heads:
        """Return the first rows of some hashes, which ascend and are in the range.

        Those of one hash have at least ``count`` copies, unless it has fewer, or more rows have to
        be read.
        """
        source = CountedRuns(self.layout, self.runs, self.reads)
        return source.first(hashes, min(count + 1, FIRST_READ))

    def _asked(self, hashes: Ints, keys: Sequence[pa.Array], count: int, rank: Rank) -> AskedRows:
        order, hashes = _ascending(hashes)
        if order is not None:
            keys = [values.take(pa.array(order)) for values in keys]
        start, stop = self._within(hashes)
        pending = np.arange(start, max(start, stop))
        return AskedRows(hashes, keys, order, pending, count, rank)

    def scan(
        self,
        batch_rows: int,
        restriction: Restriction = EVERY_ROW,
        batch_bytes: int | None = None,
    ) -> Iterator[ZSet]:
        """Yield the contents, consolidated, in parts of ascending hash; no part is empty.

        Rows of one hash are never split. Each part is the sum of at most ``batch_rows`` physical
        rows, with at most ``batch_bytes`` in memory if that is given, or of all rows of one hash if
        they are more. Rows that do not meet the restriction are left out: of these, only the
        columns that it tests are read.
        """
        cursors, ends = self._bounds()
        if batch_bytes is not None and self._has_at_most(batch_bytes):
            batch_bytes = None
        while any(cursor < end for cursor, end in zip(cursors, ends, strict=True)):
            stops = self._stops(cursors, ends, batch_rows)
            if batch_bytes is not None and self._bytes(cursors, stops) > batch_bytes:
                stops = self._narrower(cursors, stops, batch_bytes)
            parts = [
                found
                for run, cursor, stop in zip(self.runs, cursors, stops, strict=True)
                if cursor < stop and (found := run.met(cursor, stop, restriction)).rows
            ]
            cursors = stops
            if not parts:
                continue
            part = parts[0]
            if len(parts) > 1 or not self.distinct:
                part = ZSet.sum_of(self.layout, parts).consolidated()
            for name in self.present:
                valid = column(part.table, name).is_valid()
                part = part.filter(valid.to_numpy(zero_copy_only=False))
            if part.rows:
                yield part

    def rows_upto(self, hash_: int) -> int:
        """Return how many physical rows in the range have a hash not above the given one."""
        return sum(
            max(0, run.position(min(hash_, self.high), "right") - run.position(self.low, "left"))
            for run in self.runs
        )

    def _stops(self, cursors: list[int], ends: list[int], batch_rows: int) -> list[int]:
        """Return the end of the next part in each run: after the greatest hash that fits."""
        if sum(ends) - sum(cursors) <= batch_rows:
            return ends
        return self._last_stops(
            cursors, ends, lambda stops: sum(stops) - sum(cursors) <= batch_rows
        )

    def _narrower(self, cursors: list[int], ends: list[int], batch_bytes: int) -> list[int]:
        """Return ends before the given ones, between which there are fewer bytes."""
        return self._last_stops(
            cursors, ends, lambda stops: self._bytes(cursors, stops) <= batch_bytes
        )

    def _bounds(self) -> tuple[list[int], list[int]]:
        """Return the positions at which the range starts and ends in each run."""
        runs = self.runs
        starts = [0 if self.low == LOWEST else run.position(self.low, "left") for run in runs]
        whole = self.high == HIGHEST
        return starts, [run.rows if whole else run.position(self.high, "right") for run in runs]

    def _has_at_most(self, most: int) -> bool:
        """Whether all rows of the runs are sure to have at most so many bytes in memory."""
        size = 0
        for batch in (batch for run in self.runs for batch in run.batches):
            if isinstance(batch, StoredBatch):
                return False  # it has more bytes once it is restored
            size += int(batch.get_total_buffer_size())
        return size <= most

    def _bytes(self, cursors: list[int], stops: list[int]) -> int:
        places = zip(self.runs, cursors, stops, strict=True)
        return sum(run.slice_bytes(at, stop) for run, at, stop in places if at < stop)

    def _last_stops(
        self, cursors: list[int], ends: list[int], fit: Callable[[list[int]], bool]
    ) -> list[int]:
        """Return the stops after the greatest hash that ``fit``, at least after the first hash.

        All rows up to ``ends`` do not fit.
        """
        live = [i for i in range(len(cursors)) if cursors[i] < ends[i]]

        def stops_after(hash_: int) -> list[int]:
            stops = list(cursors)
            for i in live:
                stops[i] = min(ends[i], self.runs[i].position(hash_, "right"))
            return stops

        fits = min(self.runs[i].hash_at(cursors[i]) for i in live)
        exceeds = max(self.runs[i].hash_at(ends[i] - 1) for i in live)
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            if fit(stops_after(middle)):
                fits = middle
            else:
                exceeds = middle
        return stops_after(fits)

    def _copies(self, rows: ZSet) -> _Found:
        """Find the copies of the given rows in each run."""
        return self._find(rows.hashes, tuple(self.layout.columns.names), rows.identity, rows)

    def _find(
        self,
        hashes: Ints,
        names: tuple[str, ...],
        wanted: Sequence[pa.Array],
        whole: ZSet | None = None,
    ) -> _Found:
        """Find rows by the columns ``names``; ``whole`` are the wanted rows if these are all."""
        if not len(hashes):
            return _Found(hashes, hashes, ZSet.empty(self.layout), None)
        order, hashes = _ascending(hashes)
        start, stop = self._within(hashes)
        runs = self.runs if start < stop else ()
        if runs and whole is not None and self.layout.order:
            within = np.arange(start, stop)
            asked = whole.take(within if order is None else order[within])
            probes, run_of, table = self._narrowed(runs_near(runs, hashes[start:stop]), asked)
        else:
            probes, run_of, table = matches_in(self.layout, runs, hashes[start:stop])
        return self._matching(
            probes + start if start else probes, run_of, table, names, wanted, order
        )

    def _matching(
        self,
        probes: Ints,
        run_of: Ints,
        table: pa.Table,
        names: tuple[str, ...],
        wanted: Sequence[pa.Array],
        order: Ints | None,
    ) -> _Found:
        """Return those of the rows found by hash that have the wanted values."""
        rows = ZSet(self.layout, table)
        if not rows.rows:
            return _Found(probes, run_of, rows, order)
        self.reads.rows += len(probes)
        equal = same_pairs(
            [column(rows.table, name) for name in names],
            None,
            wanted,
            probes if order is None else order[probes],
        )
        for name in self.present:
            equal &= valid(column(rows.table, name))
        if not equal.all():
            probes, run_of, rows = probes[equal], run_of[equal], rows.filter(equal)
        return _Found(probes, run_of, rows, order)

    def _narrowed(self, runs: Sequence[Run], asked: ZSet) -> tuple[Ints, Ints, pa.Table]:
        """Return candidates for rows in each run, in the form that :func:`matches_in` does."""
        if not runs:
            return asked.hashes[:0], asked.hashes[:0], self.layout.no_rows
        pairs, read = narrowed(runs, asked)
        self.reads.rows += read
        probes = np.concatenate([probe for probe, _ in pairs])
        run_of = np.repeat(np.arange(len(pairs)), [len(probe) for probe, _ in pairs])
        return probes, run_of, take_of(self.layout, runs, [row for _, row in pairs])

    def _total(self, found: _Found, names: tuple[str, ...]) -> tuple[Ints, ZSet]:
        """Return the sum of the rows found by the columns ``names``, per probe and row."""
        probes, runs, rows = found.probes, found.runs, found.rows
        if not self.distinct or (len(runs) and runs[0] != runs[-1]):
            # Without other columns, the rows of one probe are the same row.
            alike = set(names).issuperset(self.layout.columns.names)
            if alike or not self.distinct:
                order, first = rows.in_blocks(probes, alike=alike)
            else:
                order, first = in_blocks_of_runs(rows, probes, runs)
            heads, rows = rows.added(order, first)
            probes = probes[heads]
        return (probes if found.order is None else found.order[probes]), rows

    def _within(self, hashes: Ints) -> tuple[int, int]:
        """Return the start and the stop of the ascending hashes that are in the range."""
        if len(hashes) and self.low <= int(hashes[0]) and int(hashes[-1]) <= self.high:
            return 0, len(hashes)
        start, stop = hashes.searchsorted(self.low), hashes.searchsorted(self.high, "right")
        return int(start), int(stop)


def _weights(found: _Found, probes: int) -> Ints:
    """Return the sum of the weights of the rows found, for each of so many probes."""
    weights = np.zeros(probes, np.int64)
    if found.rows.rows:
        order = found.probes.argsort(kind="stable")
        ascending = found.probes[order]
        starts = fresh(ascending).nonzero()[0]
        sums = segment_sums_int64(found.rows.weights[order], starts)
        own = ascending[starts]
        weights[own if found.order is None else found.order[own]] = sums
    return weights


def _ascending(hashes: Ints) -> tuple[Ints | None, Ints]:
    """Return the hashes in ascending order, and that order; None if they are sorted already."""
    if bool((hashes[1:] >= hashes[:-1]).all()):
        return None, hashes
    order = np.argsort(hashes, kind="stable")
    return order, hashes[order]
