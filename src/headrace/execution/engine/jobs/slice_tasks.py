"""The tasks of a replay: finding a slice of an arrangement, and replacing it.

Both read the rows of an arrangement that may be in the slice, as stored and as recomputed, in the
same order. The first yields the columns that the slice's conditions use, and the place of each row.
Spark keeps the places of the rows that meet the conditions. The second writes the difference
between these rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.spine import Spine, merge, ranges, remove_packs, write_parts
from headrace.algebra.spine.candidates import candidates
from headrace.algebra.zset import ZSet
from headrace.execution.engine.jobs.reports import leave_nothing, leave_report, write_run_of
from headrace.execution.engine.jobs.worker import BATCH_ROWS, current_step
from headrace.execution.runtime.step import Report, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.algebra.spine import RunFile
    from headrace.algebra.zset import Restriction
    from headrace.algebra.zset.order import Ints
    from headrace.types import ArrangementId


_AT_ONCE: Final = 1 << 18
"""The most rows of a difference that is computed in memory."""

PARTITION, VERSION, PLACE = "__partition", "__version", "__place"
"""The columns that identify a row in the next task."""


class _Version(IntEnum):
    STORED = 0
    RECOMPUTED = 1


@dataclass(frozen=True, slots=True)
class SliceTask:
    """Yield the place and some columns of the rows of an arrangement that may be in a slice."""

    arrangement: ArrangementId
    columns: tuple[str, ...]
    restriction: Restriction
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the input has one row, the number of the partition."""
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for version in _Version:
                    yield from self._rows(index, version)

    def _rows(self, index: int, version: _Version) -> Iterator[pa.RecordBatch]:
        at = 0
        names = [PARTITION, VERSION, PLACE, *(f"c{i}" for i in range(len(self.columns)))]
        spine = _opened(current_step(), self.arrangement, index, version)
        for part in candidates(spine, self.restriction):
            places = np.arange(at, at + part.rows, dtype=np.int64)
            at += part.rows
            numbers = [np.full(part.rows, n, np.int64) for n in (index, int(version))]
            columns = [*map(pa.array, numbers), pa.array(places)]
            columns += [part.table[name] for name in self.columns]
            yield from pa.table(columns, names=names).to_batches(max_chunksize=BATCH_ROWS)


@dataclass(frozen=True, slots=True)
class ReplaceTask:
    """Write the run that turns the stored rows of a slice into the recomputed ones.

    The input is the places of these rows. If the slice is ``whole``, it has all rows that meet the
    restriction, and the input is the numbers of partitions.
    """

    arrangement: ArrangementId
    restriction: Restriction
    whole: bool

    @property
    def name(self) -> str:
        """The name under which each call leaves a note."""
        return f"replacing {self.arrangement}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a run and a report for each partition; yield nothing."""
        step = current_step()
        if self.whole:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    leave_report(replaced(step, self.arrangement, self.restriction, index))
        else:
            places = _Places(batches)
            while (index := places.partition()) is not None:
                report = replaced(step, self.arrangement, self.restriction, index, places)
                leave_report(report)
        leave_nothing(self.name)
        yield from ()


def replaced(
    step: Step,
    id_: ArrangementId,
    restriction: Restriction,
    index: int,
    places: _Places | None = None,
) -> Report:
    """Write the run that turns the stored rows of a slice in a partition into the recomputed ones.

    The slice has the rows that meet the restriction and, with ``places``, are at these places.
    """
    begun, rows = time.perf_counter(), [0, 0]

    def parts() -> Iterator[tuple[_Version, ZSet]]:
        for version in _Version:
            spine = _opened(step, id_, index, version)
            for part in _kept(spine, restriction, index, version, places):
                rows[version] += part.rows
                yield version, part.negated() if version is _Version.STORED else part

    change = _written(step, id_, parts())
    runs = {} if change is None else {id_: change}
    changed = 0 if change is None else change.rows
    seconds = time.perf_counter() - begun
    return Report(f"replaced {id_}", index, runs, rows[1], changed, rows[0], seconds)


def _written(
    step: Step, id_: ArrangementId, parts: Iterator[tuple[_Version, ZSet]]
) -> RunFile | None:
    """Write the sum of parts, which ascend within each version; return None if the sum is empty."""
    directory, layout = step.runs_directory, step.arrangements[id_].layout
    few: list[tuple[_Version, ZSet]] = []
    rows = 0
    for version, part in parts:
        few.append((version, part))
        rows += part.rows
        if rows > _AT_ONCE:
            break
    else:
        change = ZSet.sum_of(layout, [part for _, part in few]).consolidated()
        return write_run_of(step, change) if change.rows else None
    written: list[RunFile] = []
    try:
        for _, found in groupby(chain(few, parts), key=lambda each: each[0]):
            run = write_parts(directory, layout, (part for _, part in found))
            written += [] if run is None else [run]
        return merge(directory, layout, written)
    finally:
        remove_packs(directory, [run.pack for run in written])


def _kept(
    spine: Spine,
    restriction: Restriction,
    index: int,
    version: _Version,
    places: _Places | None,
) -> Iterator[ZSet]:
    at = 0
    for part in candidates(spine, restriction):
        if places is None:
            yield part
            continue
        here = places.taken(index, version, at + part.rows) - at
        at += part.rows
        if len(here):
            yield part.take(here)


class _Places:
    """The places of rows, read in their order: by partition, version and place."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._columns: Sequence[Ints] = ()
        self._at = 0

    def partition(self) -> int | None:
        """Return the partition of the next place, or None at the end."""
        return int(self._columns[0][self._at]) if self._fill() else None

    def taken(self, partition: int, version: int, end: int) -> Ints:
        """Consume and return the places of a version in a partition that are before ``end``."""
        found = [np.zeros(0, np.int64)]
        while self._fill():
            at = self._at
            partitions, versions, places = (column[at:] for column in self._columns)
            mine = (partitions == partition) & (versions == version) & (places < end)
            count = len(mine) if mine.all() else int(np.argmin(mine))
            found.append(places[:count])
            self._at += count
            if count < len(mine):
                break
        return np.concatenate(found)

    def _fill(self) -> bool:
        while not self._columns or self._at == len(self._columns[0]):
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._columns = [batch.column(i).to_numpy() for i in range(3)]
            self._at = 0
        return True


def _opened(step: Step, id_: ArrangementId, index: int, version: _Version) -> Spine:
    stored = step.arrangements[id_]
    runs = stored.runs if version is _Version.STORED else step.recomputed.get(id_, ())
    low, high = ranges(step.partitions)[index]
    return Spine.open(step.runs_directory, stored.layout, runs, low, high)
