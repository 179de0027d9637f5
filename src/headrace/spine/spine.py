"""Spines: arrangements as sums of runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.spine.first_rows import FIRST_READ, Rank, Ranked, heads, ranked
from headrace.spine.narrowing import narrowed
from headrace.spine.open_runs import open_run
from headrace.spine.ranges import HIGHEST, LOWEST
from headrace.spine.run import Run
from headrace.zset import Layout, ZSet, same_rows
from headrace.zset.zset import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.spine.run_file import RunFile
    from headrace.zset.equality import Ints


@dataclass(slots=True)
class Reads:
    """What lookups have cost so far: the physical rows that they took out of runs."""

    rows: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Spine:
    """The sum of runs of one layout, restricted to the hashes in ``[low, high]``.

    The order of the runs does not matter. A spine without runs is empty. ``reads`` counts the
    lookups in this spine and in those made from it by :meth:`plus`. Where it is not ``distinct``,
    a run may have one row several times. Rows with NULL in one of ``present`` are passed over.
    """

    layout: Layout
    runs: tuple[Run, ...] = ()
    low: int = LOWEST
    high: int = HIGHEST
    reads: Reads = field(default_factory=Reads)
    distinct: bool = True
    present: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        directory: Path,
        layout: Layout,
        files: Sequence[RunFile],
        low: int = LOWEST,
        high: int = HIGHEST,
    ) -> Spine:
        """Open those run files that reach into the range; see :func:`open_run` for errors."""
        near = [file for file in files if file.rows and file.low <= high and file.high >= low]
        return cls(layout, tuple(open_run(directory, file, layout) for file in near), low, high)

    @property
    def rows_upper_bound(self) -> int:
        """The number of physical rows in the range: at least the number of rows of the sum."""
        return sum(
            max(0, run.position(self.high, "right") - run.position(self.low, "left"))
            for run in self.runs
        )

    def plus(self, change: ZSet) -> Spine:
        """Return the spine after a consolidated change, which stays in memory."""
        if change.rows == 0:
            return self
        return replace(self, runs=(*self.runs, Run.of(change)))

    def below(self, hash_: int) -> Spine:
        """Return the rows with hashes below the given one, in a spine of the same range."""
        if hash_ <= LOWEST:
            return replace(self, runs=())
        return replace(self, runs=tuple(Run.of(r.between(LOWEST, hash_ - 1)) for r in self.runs))

    def excerpt(
        self, layout: Layout, columns: tuple[str, ...], present: tuple[str, ...] = ()
    ) -> Spine:
        """Return the rows with some columns only, under the names that another layout has for them.

        ``columns`` are aligned with the layout's. Its key is that of the spine, under its names.
        Rows that have NULL in one of its columns ``present`` are left out.
        """
        key = tuple(dict(zip(layout.columns.names, columns, strict=True))[n] for n in layout.key)
        if key != self.layout.key or layout.summed != self.layout.summed or layout.order:
            raise HeadraceError(Code.INTERNAL, "an excerpt is arranged by something else")
        runs = tuple(run.excerpt(layout, columns) for run in self.runs)
        distinct = self.distinct and set(columns) == set(self.layout.columns.names)
        return replace(self, layout=layout, runs=runs, distinct=distinct, present=present)

    def lookup(self, hashes: Ints, keys: Sequence[pa.Array]) -> tuple[Ints, ZSet]:
        """Return the rows that have the given keys, each with the position of its key.

        ``keys`` are aligned with ``hashes``, in the order and of the types of ``layout.key``. NULL
        finds NULL. A key that is asked for twice is answered twice. For each key and row there is
        one pair with the row's total; rows whose sums are all zero are left out. Pairs ascend by
        hash. O(d log n) for d keys in each of the runs, plus the rows found.
        """
        return self._find(hashes, self.layout.key, keys)

    def rows_of(self, rows: ZSet) -> tuple[Ints, ZSet]:
        """Return those of the given rows that are here, as :meth:`lookup` does by key.

        Where the layout has an order, O(log n) for each row and run, however many rows have its
        hash; otherwise all of these are read.
        """
        return self._find(rows.hashes, tuple(self.layout.columns.names), rows.identity, rows)

    def weights_of(self, rows: ZSet) -> Ints:
        """Return the weight that each of the given rows has here; 0 where it is absent."""
        weights = np.zeros(rows.rows, np.int64)
        probes, found = self.rows_of(rows)
        weights[probes] = found.weights
        return weights

    def first_rows(
        self, hashes: Ints, keys: Sequence[pa.Array], count: int, rank: Rank = Rank.ROW_NUMBER
    ) -> Ranked:
        """Return the rows of the given keys whose rank is at most ``count``, without the others.

        Keys are asked for as in :meth:`lookup`. With ``ROW_NUMBER`` these are the first rows that
        have ``count`` copies together, the last of them perhaps more than are needed; with
        ``RANK`` also those that tie with the last of them, and with ``DENSE_RANK`` the rows of the
        first ``count`` values of the order. Copies of a row with a negative weight are none.
        Probes ascend by hash; the rows of each are in the order of the layout, which has one.
        About O(r log n + r c) for each key, with r runs and c rows returned, whatever the key has.
        """
        if not self.layout.order:
            raise HeadraceError(Code.INTERNAL, "the first rows of an arrangement without order")
        order, hashes = _ascending(hashes)
        if order is not None:
            keys = [values.take(pa.array(order)) for values in keys]
        start = np.searchsorted(hashes, self.low)
        pending = np.arange(start, max(start, np.searchsorted(hashes, self.high, "right")))
        # One more than asked for: it shows whether others tie, and makes up for one deleted.
        most = min(count + 1, FIRST_READ)
        found = Ranked.none(self.layout)
        while len(pending):
            probes, rows, read = heads(self.runs, self.layout, hashes[pending], most)
            self.reads.rows += read
            asked = [values.take(pa.array(pending)) for values in keys]
            part, short = ranked(self.layout, probes, rows, asked, rank, count)
            unanswered = np.zeros(len(pending), np.bool_)
            unanswered[short] = True
            part = part.where(~unanswered[part.probes])
            found = found.plus(Ranked(pending[part.probes], part.rows, part.ranks))
            pending = pending[short]
            most *= 2
        rows = found.rows.with_hashes(hashes[found.probes])
        probes = found.probes if order is None else order[found.probes]
        return Ranked(probes, rows, found.ranks)

    def scan(self, batch_rows: int) -> Iterator[ZSet]:
        """Yield the contents, consolidated, in parts of ascending hash; no part is empty.

        Equal hashes are never split. Each part is made of at most ``batch_rows`` physical rows,
        or of all those with one hash where they are more.
        """
        cursors = [run.position(self.low, "left") for run in self.runs]
        ends = [run.position(self.high, "right") for run in self.runs]
        while any(cursor < end for cursor, end in zip(cursors, ends, strict=True)):
            stops = self._stops(cursors, ends, batch_rows)
            parts = [
                run.slice(cursor, stop)
                for run, cursor, stop in zip(self.runs, cursors, stops, strict=True)
                if cursor < stop
            ]
            cursors = stops
            part = parts[0]
            if len(parts) > 1 or not self.distinct:
                part = ZSet.sum_of(self.layout, parts).consolidated()
            for name in self.present:
                valid = column(part.table, name).is_valid()
                part = part.filter(valid.to_numpy(zero_copy_only=False))
            if part.rows:
                yield part

    def _stops(self, cursors: list[int], ends: list[int], batch_rows: int) -> list[int]:
        """Return where the next part ends in each run: after the greatest hash that fits."""
        live = [i for i in range(len(cursors)) if cursors[i] < ends[i]]
        if sum(ends[i] - cursors[i] for i in live) <= batch_rows:
            return ends

        def stops_after(hash_: int) -> list[int]:
            stops = list(cursors)
            for i in live:
                stops[i] = min(ends[i], self.runs[i].position(hash_, "right"))
            return stops

        fits = min(self.runs[i].hash_at(cursors[i]) for i in live)
        exceeds = self.high
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            if sum(stops_after(middle)) - sum(cursors) <= batch_rows:
                fits = middle
            else:
                exceeds = middle
        return stops_after(fits)

    def _find(
        self,
        hashes: Ints,
        names: tuple[str, ...],
        wanted: Sequence[pa.Array],
        whole: ZSet | None = None,
    ) -> tuple[Ints, ZSet]:
        """Find rows by some of their columns; ``whole`` are those looked for if by all of them."""
        order, hashes = _ascending(hashes)
        start = np.searchsorted(hashes, self.low)
        stop = np.searchsorted(hashes, self.high, "right")
        found = []
        runs = self.runs if start < stop else ()
        if runs and whole is not None and self.layout.order:
            within = np.arange(start, stop)
            asked = whole.take(within if order is None else order[within])
            pairs, read = narrowed(runs, asked)
            self.reads.rows += read
        else:
            pairs = [run.matches(hashes[start:stop]) for run in runs]
        for run, candidates in zip(runs, pairs, strict=True):
            probes, rows = candidates
            if len(probes) == 0:
                continue
            self.reads.rows += len(probes)
            probes = probes + start
            positions = pa.array(probes if order is None else order[probes])
            part = ZSet(self.layout, run.take(rows))
            equal = same_rows(
                [column(part.table, name) for name in names],
                [values.take(positions) for values in wanted],
                len(probes),
            )
            for name in self.present:
                equal &= column(part.table, name).is_valid().to_numpy(zero_copy_only=False)
            if not equal.all():
                probes, part = probes[equal], part.filter(equal)
            found.append((probes, part))
        probes, total = self._total(found)
        total = total.with_hashes(hashes[probes])
        return (probes if order is None else order[probes]), total

    def _total(self, found: list[tuple[Ints, ZSet]]) -> tuple[Ints, ZSet]:
        """Add up what the runs answered, per probe and row."""
        if not found:
            return np.zeros(0, np.int64), ZSet.empty(self.layout)
        if len(found) == 1 and self.distinct:
            return found[0]
        # The position of the probe stands in for the hash: it groups rows by probe.
        parts = [part.with_hashes(probes) for probes, part in found]
        total = ZSet.sum_of(self.layout, parts).consolidated()
        return total.hashes, total


def _ascending(hashes: Ints) -> tuple[Ints | None, Ints]:
    """Return the hashes in ascending order, with the order unless it is theirs already."""
    if bool((hashes[1:] >= hashes[:-1]).all()):
        return None, hashes
    order = np.argsort(hashes, kind="stable")
    return order, hashes[order]
