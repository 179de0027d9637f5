"""Runs in memory: sorted rows that are searched by hash and taken by position.

The batches of a run usually are views of a memory-mapped file, so an access reads only the pages
that it needs. Those of large runs are stored in narrower types: see
:mod:`headrace.algebra.spine.stored`.

Where a run is: a range of a pack, as the ledger names it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.spine.stored import Batch, StoredBatch
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.order import Ints
from headrace.algebra.zset.zset import in_one_piece, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.algebra.zset import Restriction


Place: TypeAlias = "tuple[str, int]"
"""What identifies a run: the name of its pack, and its position there in bytes."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """The ledger's description of a run: the range of a pack that has it.

    The name of a ``pack`` is never reused. The run begins at ``position`` in it and has ``bytes``;
    ``checksum`` is the XXH3 of these (64 bits, in hexadecimal). ``low`` and ``high`` are the least
    and the greatest hash. Only without rows, ``low > high``.
    """

    pack: str
    position: int
    rows: int
    bytes: int
    checksum: str
    low: int
    high: int

    @property
    def place(self) -> Place:
        """What identifies the run."""
        return self.pack, self.position

    @property
    def name(self) -> str:
        """The run's name in messages: that of its pack, and its position there."""
        return f"{self.pack}@{self.position}"

    @property
    def end(self) -> int:
        """The position in the pack after the run's last byte."""
        return self.position + self.bytes

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        return {
            "pack": self.pack,
            "position": self.position,
            "rows": self.rows,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "low": self.low,
            "high": self.high,
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> RunFile:
        """Return the run file that :meth:`to_json` wrote."""
        return cls(**value)


Pairs = tuple[Ints, Ints]

_SMALL = 4096
"""The rows of a run up to which the set of its hashes is kept in memory, and it may be copied."""

_COPIED = 512
"""The rows of a run that are copied rather than taken from it, ..."""
_MANY = 8
"""... and how many more for each row that is taken."""
_ADDED_UP = 1 << 18
"""The most rows of a run that are added up in memory when it is opened."""
_TOGETHER = 3
"""From so many small runs on they are searched together, ..."""
_SEVERAL = 16
"""... if there are at least so many hashes."""

_NOTHING: Ints = np.zeros(0, np.int64)
_NONE: Pairs = (_NOTHING, _NOTHING)
"""No pairs."""

_OTHER: dict[str, Literal["left", "right"]] = {"left": "right", "right": "left"}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consolidated rows in batches; batch ``i`` starts at row ``offsets[i]``.

    ``lows`` and ``highs`` are the first and the last hash of each batch. No batch is empty; a run
    without rows has no batches. If the run is not ``distinct``, it may have the same row several
    times.
    """

    layout: Layout
    batches: tuple[Batch, ...]
    hashes: tuple[Ints, ...]
    offsets: Ints
    lows: Ints
    highs: Ints
    distinct: bool = True
    _members: list[frozenset[int]] = field(default_factory=list, repr=False)
    """The hashes of a small run, cached by the first lookup."""
    _repeated: list[Ints] = field(default_factory=list, repr=False)
    _weight: list[int] = field(default_factory=list, init=False, repr=False)
    due_blocks: list[list[tuple[int, int]]] = field(default_factory=list, init=False, repr=False)
    """The cache of ``due_rows``: the start and stop position of each hash, made
    once."""
    first_due: list[tuple[tuple[int, int], int, int | None]] = field(
        default_factory=list, init=False, repr=False
    )
    """Another: for a range of hashes and a time, the next one at which a row in it is due."""
    running: dict[str, Ints] = field(default_factory=dict, init=False, repr=False)
    """The cache of :func:`headrace.algebra.spine.near_rows.sums_between`, by column."""
    flattened: list[Any] = field(default_factory=list, init=False, repr=False)
    """The cache of :func:`headrace.algebra.spine.columns.flat` for this run and others."""

    @classmethod
    def of_batches(cls, layout: Layout, batches: Sequence[Batch]) -> Run:
        """Return the run of these batches, which together must be consolidated."""
        kept = tuple(batch for batch in batches if batch.num_rows)
        if len(kept) == 1:
            own = _integers(kept[0].column(HASH))
            return cls(layout, kept, (own,), np.array([0, len(own)]), own[:1], own[-1:])
        hashes = tuple(_integers(batch.column(HASH)) for batch in kept)
        offsets = np.zeros(len(kept) + 1, np.int64)
        np.cumsum([len(own) for own in hashes], out=offsets[1:])
        lows = np.array([own[0] for own in hashes], np.int64)
        highs = np.array([own[-1] for own in hashes], np.int64)
        return cls(layout, kept, hashes, offsets, lows, highs)

    @classmethod
    def of(cls, rows: ZSet) -> Run:
        """Return a consolidated Z-set as a run in memory, without a file."""
        return cls.of_batches(rows.layout, rows.table.to_batches())

    def added_up(self) -> Run:
        """Return the run of a file whose rows may be equal, since it has columns that were dropped.

        Small ones are consolidated in memory. Large ones mostly have one row of each hash.
        """
        if self._has_single_rows():
            return self
        if self.rows > _ADDED_UP:
            return replace(self, distinct=False)
        return Run.of(self.slice(0, self.rows).consolidated())

    def _has_single_rows(self) -> bool:
        """Whether no hash has several rows."""
        between = self.lows[1:] != self.highs[:-1]
        within = (bool((own[1:] != own[:-1]).all()) for own in self.hashes)
        return bool(between.all()) and all(within)

    def excerpt(self, layout: Layout, columns: tuple[str, ...]) -> Run:
        """Return some columns under the names of another layout, without a copy.

        The number of rows stays: several of them may now be the same row.
        """
        names = (HASH, *columns, *layout.summed.names)
        batches = tuple(
            each.excerpt(names, layout.schema)
            if isinstance(each, StoredBatch)
            else pa.RecordBatch.from_arrays(
                [each.column(name) for name in names], schema=layout.schema
            )
            for each in self.batches
        )
        return replace(self, layout=layout, batches=batches)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.offsets[-1])

    @property
    def only_batch(self) -> pa.RecordBatch | None:
        """The only batch, if there is one and it is as it is."""
        if len(self.batches) != 1 or isinstance(self.batches[0], StoredBatch):
            return None
        return self.batches[0]

    @property
    def weight(self) -> int:
        """The sum of the weights, computed once."""
        if not self._weight:
            weights = (batch.column(WEIGHT).to_numpy() for batch in self.batches)
            self._weight.append(sum(int(own.sum()) for own in weights))
        return self._weight[0]

    @property
    def repeated(self) -> Ints:
        """The positions of the rows whose weight is not 1, computed once."""
        if not self._repeated:
            none = np.zeros(0, np.int64)
            found = [
                np.flatnonzero(batch.column(WEIGHT).to_numpy() != 1) + offset
                for batch, offset in zip(self.batches, self.offsets, strict=False)
            ]
            self._repeated.append(np.concatenate([none, *found]))
        return self._repeated[0]

    def matches(self, hashes: Ints) -> Pairs:
        """Return all pairs of a position in ``hashes`` and the position of a row with that hash.

        O(d log n + pairs) for d hashes. Pairs ascend by hash; sorted hashes are looked up faster.
        """
        if bool((hashes[1:] < hashes[:-1]).any()):
            order = np.argsort(hashes, kind="stable")
            probes, rows = self.matches_of(hashes[order])
            return order[probes], rows
        return self.matches_of(hashes)

    def matches_of(self, hashes: Ints) -> Pairs:
        """Return :meth:`matches` of hashes that ascend."""
        if len(self.hashes) == 1:
            return _matches(self.hashes[0], hashes)
        starts = np.searchsorted(hashes, self.lows)
        stops = np.searchsorted(hashes, self.highs, "right")
        found = []
        for index in np.flatnonzero(starts < stops):
            start, stop = starts[index], stops[index]
            probes, rows = _matches(self.hashes[index], hashes[start:stop])
            if len(probes):
                found.append((probes + start, rows + self.offsets[index]))
        if len(found) == 1:
            return found[0]
        none = np.zeros(0, np.int64)
        return (
            np.concatenate([none, *(probes for probes, _ in found)]),
            np.concatenate([none, *(rows for _, rows in found)]),
        )

    def places(self, hash_: int) -> list[tuple[int, int]]:
        """Return the batch, and the position in it, of every row of one hash.

        Faster than :meth:`matches` for a single hash. It makes no call that releases Python's lock:
        many threads that look up single keys would wait for each other at every such call.
        """
        if self.has_none_of((hash_,)):
            return []
        found = []
        for index in range(bisect_left(self.highs, hash_), len(self.hashes)):
            own = self.hashes[index].data
            at = bisect_left(own, hash_)
            while at < len(own) and own[at] == hash_:
                found.append((index, at))
                at += 1
            if at < len(own):
                break
        return found

    def has_none_of(self, hashes: Iterable[int]) -> bool:
        """Whether it is known at once that no row has one of some hashes: only of a small run."""
        if self.rows > _SMALL:
            return False
        if not self._members:
            self._members.append(frozenset(h for own in self.hashes for h in own.tolist()))
        return self._members[0].isdisjoint(hashes)

    def blocks(self, hashes: Ints) -> Pairs:
        """Return the start and the stop position of the rows of each hash; ``hashes`` ascends.

        O(d log n) for d hashes. A block may span several batches.
        """
        if len(self.batches) != 1:
            return self._positions(hashes, "left"), self._positions(hashes, "right")
        own = self.hashes[0]
        starts = own.searchsorted(hashes)
        stops = starts.copy()
        here = (own.take(starts, mode="clip") == hashes).nonzero()[0]
        if len(here):
            stops[here] = own.searchsorted(hashes[here], "right")
        return starts, stops

    def take(self, rows: Ints) -> pa.Table:
        """Return the rows at the given positions, in the order of the positions."""
        if len(rows) == 0 or not self.batches:
            return self.layout.no_rows
        if len(self.batches) == 1:
            taken = _taken(self.batches[0], rows)
            return pa.Table.from_batches([taken], self.layout.schema)
        if bool((rows[1:] < rows[:-1]).any()):
            order = np.argsort(rows, kind="stable")
            return take(self.take(rows[order]), np.argsort(order))
        bounds = np.searchsorted(rows, self.offsets)
        taken = []
        for index in np.flatnonzero(bounds[:-1] < bounds[1:]):
            within = rows[bounds[index] : bounds[index + 1]] - self.offsets[index]
            taken.append(_taken(self.batches[index], within))
        return pa.Table.from_batches(taken, self.layout.schema)

    def numbers_at(self, name: str, rows: Ints) -> Ints:
        """Return a column of the order, of whole numbers or times of 64 bits, at some positions."""
        if len(self.batches) == 1:
            return _integers(self.batches[0].column(name))[rows]
        batch_of = self.offsets.searchsorted(rows, "right") - 1
        found = np.empty(len(rows), np.int64)
        for index in np.unique(batch_of):
            here = (batch_of == index).nonzero()[0]
            own = _integers(self.batches[index].column(name))
            found[here] = own[rows[here] - self.offsets[index]]
        return found

    def position(self, hash_: int, side: Literal["left", "right"]) -> int:
        """Return how many rows have a hash below ``hash_`` (left), or not above it (right)."""
        index = int(np.searchsorted(self.highs, hash_, side))
        if index == len(self.batches):
            return self.rows
        return int(self.offsets[index] + np.searchsorted(self.hashes[index], hash_, side))

    def _positions(self, hashes: Ints, side: Literal["left", "right"]) -> Ints:
        """Return :meth:`position` of ascending hashes."""
        found = np.full(len(hashes), self.rows, np.int64)
        bounds = np.searchsorted(hashes, self.highs, _OTHER[side])
        start = 0
        for own, offset, stop in zip(self.hashes, self.offsets, bounds, strict=False):
            if start < stop:
                found[start:stop] = offset + np.searchsorted(own, hashes[start:stop], side)
                start = stop
        return found

    def hash_at(self, row: int) -> int:
        """Return the hash of the row at a position."""
        index = int(np.searchsorted(self.offsets, row, "right")) - 1
        return int(self.hashes[index][row - self.offsets[index]])

    def slice(self, start: int, stop: int) -> ZSet:
        """Return the rows at the positions ``[start, stop)``; only stored batches are copied."""
        parts = [batch.slice(begin, rows) for batch, begin, rows in self._pieces(start, stop)]
        return ZSet(self.layout, pa.Table.from_batches(parts, self.layout.schema))

    def met(self, start: int, stop: int, restriction: Restriction) -> ZSet:
        """Return the rows at the positions ``[start, stop)`` that meet a restriction.

        Of the others, only the columns that it tests are read.
        """
        if not restriction.tests:
            return self.slice(start, stop)
        found = []
        for batch, begin, rows in self._pieces(start, stop):
            stored = isinstance(batch, StoredBatch)
            part = batch.part(begin, rows) if stored else batch.slice(begin, rows)
            kept = restriction.rows(part)
            if kept is not None:
                found.append(_taken(part, kept.nonzero()[0]))
            else:
                found.append(part.slice(0, rows) if stored else part)
        return ZSet(self.layout, pa.Table.from_batches(found, self.layout.schema))

    def slice_bytes(self, start: int, stop: int) -> int:
        """Return about how many bytes :meth:`slice` has."""
        return sum(
            batch.slice_bytes(begin, rows)
            if isinstance(batch, StoredBatch)
            else int(batch.slice(begin, rows).nbytes)
            for batch, begin, rows in self._pieces(start, stop)
        )

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Batch, int, int]]:
        """Yield the batches of some positions, each with the first row and the number of rows."""
        first = max(0, int(np.searchsorted(self.offsets, start, "right")) - 1)
        for index in range(first, len(self.batches)):
            offset, batch = int(self.offsets[index]), self.batches[index]
            if offset >= stop:
                break
            begin = max(start - offset, 0)
            yield batch, begin, min(stop - offset, batch.num_rows) - begin

    def between(self, low: int, high: int) -> ZSet:
        """Return the rows with hashes in ``[low, high]``; see :meth:`slice`."""
        start = self.position(low, "left")
        return self.slice(start, max(start, self.position(high, "right")))


def _taken(batch: Batch, rows: Ints) -> pa.RecordBatch:
    return batch.take(rows) if isinstance(batch, StoredBatch) else batch.take(pa.array(rows))


def runs_near(runs: Sequence[Run], hashes: Ints) -> Sequence[Run]:
    """Return runs without most of those that have no row of some hashes, if these are few."""
    if len(hashes) >= _SEVERAL:
        return runs
    asked = hashes.tolist()
    return [run for run in runs if run.rows > _COPIED or not run.has_none_of(asked)]


def take_of(layout: Layout, runs: Sequence[Run], rows: Sequence[Ints]) -> pa.Table:
    """Return the rows at positions in several runs, one run after the other, in one piece.

    Small runs are copied as a whole first: that costs less than taking rows of each.
    """
    found: list[pa.RecordBatch] = []
    small: list[pa.RecordBatch] = []
    taken: list[Ints] = []
    before = 0

    def take_small() -> None:
        nonlocal before
        if small:
            whole = small[0] if len(small) == 1 else pa.concat_batches(small)
            found.append(whole.take(pa.array(np.concatenate(taken))))
            small.clear()
            taken.clear()
            before = 0

    for run, positions in zip(runs, rows, strict=True):
        if not len(positions):
            continue
        whole = run.only_batch
        if whole is not None and run.rows <= _COPIED + _MANY * len(positions):
            small.append(whole)
            taken.append(positions + before if before else positions)
            before += run.rows
        else:
            take_small()
            found += run.take(positions).to_batches()
    take_small()
    if not found:
        return layout.no_rows
    return pa.Table.from_batches([found[0] if len(found) == 1 else pa.concat_batches(found)])


def matches_in(layout: Layout, runs: Sequence[Run], hashes: Ints) -> tuple[Ints, Ints, pa.Table]:
    """Return all pairs of a hash and a row of several runs, one run after the other.

    That is the position of the hash, the number of the run, which has no other meaning, and the
    row. ``hashes`` ascends. Small runs are searched together, as if they were one.
    """
    few: list[Run] = []
    if len(runs) >= _TOGETHER and len(hashes) >= _SEVERAL:
        few = [run for run in runs if run.rows <= _SMALL and run.only_batch is not None]
        if len(few) < _TOGETHER or sum(r.rows for r in few) > _COPIED + _MANY * len(hashes):
            few = []
    others = [run for run in runs if run not in few] if few else runs_near(runs, hashes)
    pairs = [run.matches_of(hashes) for run in others]
    found = [i for i, (probe, _) in enumerate(pairs) if len(probe)]
    if not found and not few:
        return _NOTHING, _NOTHING, layout.no_rows
    if len(found) == 1 and not few:
        probe, row = pairs[found[0]]
        return probe, np.zeros(len(probe), np.int64), others[found[0]].take(row)
    probes = [pairs[i][0] for i in found]
    numbers = [np.full(len(pairs[i][0]), i) for i in found]
    tables = [take_of(layout, [others[i] for i in found], [pairs[i][1] for i in found])]
    if few:
        own = np.concatenate([run.hashes[0] for run in few])
        order = own.argsort(kind="stable")
        probe, row = _matches(own[order], hashes)
        at = order[row]
        by_run = at.argsort(kind="stable")
        at = at[by_run]
        ends = np.cumsum([run.rows for run in few])
        probes.append(probe[by_run])
        numbers.append(ends.searchsorted(at, "right") + len(others))
        whole = [run.only_batch for run in few]
        taken = pa.concat_batches(whole).take(pa.array(at))
        tables.append(pa.Table.from_batches([taken]))
    return np.concatenate(probes), np.concatenate(numbers), in_one_piece(pa.concat_tables(tables))


def matches_of_runs(
    layout: Layout, runs: Sequence[Run], hashes: Ints
) -> tuple[Ints, Ints, pa.Table]:
    """Return all pairs of a hash and a row of several runs, one run after the other.

    That is the position of the hash, that of the run among ``runs``, and the row. ``hashes``
    ascends. O(n log d) for d hashes and n rows of runs with at most as many rows as hashes, whose
    rows are searched together among the hashes; O(d log n) for each other run of n rows.
    """
    few = [i for i, run in enumerate(runs) if 0 < run.rows <= len(hashes)]
    pairs = [_NONE if run.rows <= len(hashes) else run.matches_of(hashes) for run in runs]
    if few:
        own = np.concatenate([part for i in few for part in runs[i].hashes])
        ends = np.cumsum([runs[i].rows for i in few])
        probes, rows = pairs_among(own, hashes)
        bounds = rows.searchsorted(ends)
        start = 0
        for i, end, stop in zip(few, ends.tolist(), bounds.tolist(), strict=True):
            if start < stop:
                pairs[i] = probes[start:stop], rows[start:stop] - (end - runs[i].rows)
                start = stop
    probes = np.concatenate([_NOTHING, *(probe for probe, _ in pairs)])
    run_of = np.repeat(np.arange(len(pairs)), [len(probe) for probe, _ in pairs])
    return probes, run_of, take_of(layout, runs, [row for _, row in pairs])


def pairs_among(own: Ints, probes: Ints) -> Pairs:
    """Return all pairs of positions of equal hashes, those in ``own`` ascending.

    Only ``probes`` ascend. The first of each pair is its position among them.
    """
    left = probes.searchsorted(own)
    row = (probes.take(left, mode="clip") == own).nonzero()[0]
    if not len(row):
        return _NONE
    probe = left[row]
    again = (probes.take(probe + 1, mode="clip") == own[row]) & (probe < len(probes) - 1)
    if not again.any():
        return probe, row
    counts = probes.searchsorted(own[row], "right") - probe
    shift = probe - (np.cumsum(counts) - counts)
    return np.repeat(shift, counts) + np.arange(counts.sum()), np.repeat(row, counts)


def _single_matches(own: Ints, probes: Ints) -> Pairs | None:
    """Return all pairs by searching ``own`` in ``probes``; None if a hash has several pairs."""
    left = probes.searchsorted(own)
    row = (probes.take(left, mode="clip") == own).nonzero()[0]
    if not len(row):
        return _NONE
    probe = left[row]
    again = (probes.take(probe + 1, mode="clip") == own[row]) & (probe < len(probes) - 1)
    if again.any() or (probe[1:] == probe[:-1]).any():
        return None
    return probe, row


def _matches(own: Ints, probes: Ints) -> Pairs:
    """Return all pairs of positions with equal hashes in two sorted arrays; ``own`` has rows."""
    if len(own) < len(probes):
        found = _single_matches(own, probes)
        if found is not None:
            return found
    left = own.searchsorted(probes)
    probe = (own.take(left, mode="clip") == probes).nonzero()[0]
    if not len(probe):
        return _NONE
    left = left[probe]
    # Most keys have one row, so the end is searched only if the next row has the same hash.
    several = (own.take(left + 1, mode="clip") == probes[probe]) & (left < len(own) - 1)
    if not several.any():
        return probe, left
    counts = np.ones(len(probe), np.int64)
    counts[several] = np.searchsorted(own, probes[probe[several]], "right") - left[several]
    shift = left - (np.cumsum(counts) - counts)
    return np.repeat(probe, counts), np.repeat(shift, counts) + np.arange(counts.sum())


def _integers(values: pa.Array) -> Ints:
    """Return int64 values without NULL, without a copy.

    Arrow's own conversion imports pandas the first time, which takes longer than a lookup.
    """
    return np.frombuffer(values.buffers()[1], np.int64, len(values), 8 * values.offset)
