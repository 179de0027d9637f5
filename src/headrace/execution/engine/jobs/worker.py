"""The tasks that run in Spark's Python workers: reading a share, and stepping an operator.

Tasks are built once per circuit and serialised with it. The inputs of an epoch are in its step,
which is a local property of the Spark job.

The task of a quarantine, in Spark's Python workers.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from headrace.algebra.operators import held_back
from headrace.algebra.spine import HIGHEST, LOWEST, Spine, partition_of, ranges
from headrace.algebra.spine.candidates import candidates
from headrace.algebra.zset import EVERY_ROW, HASH, WEIGHT, Restriction, ZSet
from headrace.algebra.zset.zset import in_one_piece
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.reports import (
    STEP,
    STORE,
    leave_nothing,
    leave_report,
    one_pack,
    step_of_this_thread,
    write_run_of,
)
from headrace.execution.runtime.quarantine import Guarded, candidates_of, refusals
from headrace.execution.runtime.step import Report, RowsShare, Step
from headrace.files.mounts import Mounted
from headrace.storage.log import LogShare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.algebra.operators import Quarantine, StatefulOperator
    from headrace.algebra.zset import Layout
    from headrace.types import ArrangementId, RelationId


BATCH_ROWS = 10_000
SIDE = "__side"
"""The column with the side of a row in the input of a join: 0 is the left one."""


class LogReader(Protocol):
    """Reads changes of a relation's log; picklable, since it is sent to the workers."""

    def read(
        self,
        directory: Path,
        share: LogShare,
        columns: pa.Schema,
        *,
        offsets: bool,
        restriction: Restriction = EVERY_ROW,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, then ``__weight``, then, with ``offsets``, ``__offset``.

        A column that was added after a change was appended is NULL in it. Rows that do not meet
        the restriction are left out: only the columns that it tests are read of them.
        """
        ...


def current_step() -> Step:
    """Return the step that this task belongs to."""
    here = step_of_this_thread()
    if here is not None:
        return here
    _spare_what_stays()
    context = TaskContext.get()
    text = context.getLocalProperty(STEP) if context is not None else None
    if text is None:
        raise HeadraceError(Code.INTERNAL, "a task runs outside of a step")
    return _received(text, context.getLocalProperty(STORE))


@lru_cache(maxsize=1)
def _spare_what_stays() -> None:
    """Exclude the imported modules of this process from garbage collections.

    Spark's worker runs a full garbage collection after every task. Traversing all modules was most
    of the processor time of small epochs in workers. Runs once per process, so later garbage is
    still collected.
    """
    gc.collect()
    gc.freeze()


@lru_cache(maxsize=4)
def _received(text: str, store: str | None) -> Step:
    """Return the step of a job, with the directory that its files are in on this machine."""
    step = Step.received(text)
    if store is None:
        return step
    value = json.loads(store)
    mounted = Mounted.of_json(value["mounted"])
    directory = _own_cache(mounted) if value["directory"] is None else Path(value["directory"])
    mounted.mount(directory)
    return replace(step, directory=directory)


def _own_cache(mounted: Mounted) -> Path:
    """Return the directory of this executor's cache of a store."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
    return Mounted.place(mounted.store, Path(mounted.elsewhere or local))


@dataclass(frozen=True, slots=True)
class LeafTask:
    """Yield this partition's part of a relation's share of the step.

    ``columns`` have the names under which they are stored, and the types to yield. With a
    ``slice``, only rows that meet the step's restriction of that name, if any, are read; a report
    under the name counts them.
    """

    relation: RelationId
    columns: pa.Schema
    offsets: bool
    partitions: int
    log: LogReader
    slice: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the input has one row, the number of the partition."""
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from self._part(current_step(), index)

    def _part(self, step: Step, index: int) -> Iterator[pa.RecordBatch]:
        share = step.shares[self.relation]
        restriction = (
            EVERY_ROW if self.slice is None else step.restrictions.get(self.slice, EVERY_ROW)
        )
        match share:
            case LogShare():
                rows, count = share.rows, self.partitions
                part = share.between(rows * index // count, rows * (index + 1) // count)
                found = self.log.read(
                    step.log_directory,
                    part,
                    self.columns,
                    offsets=self.offsets,
                    restriction=restriction,
                )
                among = part.rows
            case RowsShare():
                low, high = ranges(self.partitions)[index]
                low, high = max(low, share.low), min(high, share.high)
                spine = Spine.open(step.runs_directory, share.layout, share.runs, low, high)
                among = spine.rows_upper_bound
                found = self._of_rows(spine, restriction)
        names = [f"c{i}" for i in range(len(self.columns))]
        names += [WEIGHT, "__offset"] if self.offsets else [WEIGHT]
        begun, rows = time.perf_counter(), 0
        for batch in found:
            rows += batch.num_rows
            yield batch.rename_columns(names)
        if self.slice is not None:
            seconds = time.perf_counter() - begun
            leave_report(Report(self.slice, index, {}, among, rows, rows, seconds))

    def _of_rows(self, spine: Spine, restriction: Restriction) -> Iterator[pa.RecordBatch]:
        """Yield the columns of stored rows, whose layout may be newer than the plan of the task."""
        layout, names = spine.layout, tuple(self.columns.names)
        if not layout.stored:
            yield from _columns_of(spine, names, restriction)
            return
        names = tuple(map(layout.shown, names))
        found = _columns_of(spine, names, restriction.named(layout.shown))
        pairs = zip(names, self.columns.types, strict=True)
        others = [
            i for i, (name, type_) in enumerate(pairs) if layout.schema.field(name).type != type_
        ]
        if not others:
            yield from found
            return
        for batch in found:
            arrays = batch.columns
            for i in others:
                arrays[i] = arrays[i].cast(self.columns.types[i])
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _columns_of(
    spine: Spine, columns: tuple[str, ...], restriction: Restriction = EVERY_ROW
) -> Iterator[pa.RecordBatch]:
    for part in candidates(spine, restriction):
        yield from batches_of(part.table.select([*columns, WEIGHT]))


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Return what a task yields: small batches for Spark, whole chunks in this process."""
    most = None if step_of_this_thread() is not None else BATCH_ROWS
    return list(table.to_batches(max_chunksize=most))


@dataclass(frozen=True, slots=True)
class HandedTask:
    """Yield this partition's part of a recursion's feedback from the previous round."""

    arrangement: ArrangementId
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the input has one row, the number of the partition."""
        for batch in batches:
            for index in batch.column(0).to_pylist():
                step = current_step()
                given = step.arrangements[self.arrangement]
                low, high = ranges(self.partitions)[index]
                spine = Spine.open(step.runs_directory, given.layout, given.runs, low, high)
                yield from _columns_of(spine, tuple(given.layout.columns.names))


@dataclass(frozen=True, slots=True)
class DeltaTask:
    """Yield this partition's part of a delta that an operator wrote in an earlier job of the step.

    ``columns`` are the columns of ``layout`` to yield.
    """

    arrangement: ArrangementId
    layout: Layout
    columns: tuple[str, ...]
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the input has one row, the number of the partition."""
        for batch in batches:
            for index in batch.column(0).to_pylist():
                step = current_step()
                runs = step.written.get(self.arrangement, ())
                low, high = ranges(self.partitions)[index]
                spine = Spine.open(step.runs_directory, self.layout, runs, low, high)
                yield from _columns_of(spine, self.columns)


@dataclass(frozen=True, slots=True)
class SeedTask:
    """Yield one row of weight 0 for a global aggregate that must be initialised."""

    operator: str
    layout: Layout
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Ignore the input."""
        for _ in batches:
            pass
        if self.operator in current_step().initialise:
            absent = set(self.layout.columns.names)
            row = {
                field.name: pa.array([None if field.name in absent else 0], field.type)
                for field in self.layout.schema
            }
            batch = pa.RecordBatch.from_pydict(row, schema=self.layout.schema)
            yield batch.select(list(self.names))


@dataclass(frozen=True, slots=True)
class ConstantTask:
    """Yield the constant rows of a query, each once, in the first step of its view."""

    name: str
    rows: pa.Table

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Ignore the input."""
        for _ in batches:
            pass
        if self.name in current_step().initialise:
            ones = pa.array([1] * self.rows.num_rows, pa.int64())
            yield from self.rows.append_column(WEIGHT, ones).to_batches()


@dataclass(frozen=True, slots=True)
class TickTask:
    """Yield a row of weight 0 that belongs to this partition, with NULL in all other columns."""

    schema: pa.Schema
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the input has one row, the number of the partition."""
        for batch in batches:
            for index in batch.column(0).to_pylist():
                low, _ = ranges(self.partitions)[index]
                yield pa.RecordBatch.from_pylist([{HASH: low, WEIGHT: 0}], schema=self.schema)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The columns of shared contents that an operator reads, without rows NULL in ``present``."""

    columns: tuple[str, ...]
    present: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperatorTask:
    """Step one operator in the partition that owns the hashes of the incoming rows.

    ``inputs`` are the columns of each input in the incoming rows, in the physical order of the
    operator's layouts; ``output`` are the columns to yield, in order. With ``clocked``, the step's
    clock is the last input. ``read`` has the columns to read of shared arrangements, by position;
    other operators write these arrangements.
    """

    name: str
    operator: StatefulOperator
    arrangements: tuple[ArrangementId, ...]
    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    clocked: bool = False
    read: Mapping[int, Excerpt] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Collect the partition's delta, step, write the runs and a report, yield the output."""
        found = arrived(self.name, batches)
        if found is None:
            leave_nothing(self.name)
            return
        step, change, partition, hashes = found
        yield from batches_of(self._stepped(step, [change], partition, hashes))

    def over(self, parts: Sequence[pa.Table]) -> pa.Table | None:
        """Step over the rows of one partition; return the output, or None without rows.

        Each part has all columns. The rows of a part usually are of one side.
        """
        step, parts = current_step(), [part for part in parts if part.num_rows]
        if not parts:
            leave_nothing(self.name)
            return None
        partition, hashes = owner_of(self.name, step, parts)
        return self._stepped(step, parts, partition, hashes)

    def _stepped(
        self, step: Step, parts: Sequence[pa.Table], partition: int, hashes: tuple[int, int]
    ) -> pa.Table:
        begun = time.perf_counter()
        before = tuple(self._spine(step, i, *hashes) for i in range(len(self.arrangements)))
        inputs = self._split(parts)
        if self.clocked:
            inputs = (*inputs, step.clock.table())
        taken = self.operator.step(inputs, before)
        with one_pack(step):
            runs = {
                id_: write_run_of(step, update)
                for i, (id_, update) in enumerate(
                    zip(self.arrangements, taken.updates, strict=True)
                )
                if update.rows and i not in self.read
            }
        rows, read = sum(p.num_rows for p in parts), sum(spine.reads.rows for spine in before)
        seconds, output = time.perf_counter() - begun, taken.output
        leave_report(Report(self.name, partition, runs, rows, output.num_rows, read, seconds))
        return output.select(list(self.output))

    def _spine(self, step: Step, index: int, low: int, high: int) -> Spine:
        arranged = step.arrangements[self.arrangements[index]]
        spine = Spine.open(step.runs_directory, arranged.layout, arranged.runs, low, high)
        if index not in self.read:
            return spine
        if arranged.below is not None:
            spine = spine.below(arranged.below)
        seen = self.read[index]
        return spine.excerpt(self.operator.layouts[index], seen.columns, seen.present)

    def _split(self, parts: Sequence[pa.Table]) -> tuple[pa.Table, ...]:
        """Return the columns of each input in the rows of its side."""
        sides: list[list[pa.Table]] = [[] for _ in self.inputs]
        for part in parts:
            if len(self.inputs) == 1:
                sides[0].append(part)
                continue
            of_row = part[SIDE].to_numpy()
            for side, found in enumerate(sides):
                own = of_row == side
                if own.all():
                    found.append(part)
                elif own.any() or not found:
                    found.append(part.filter(pa.array(own)))
        return tuple(
            found[0].select(list(names))
            if len(found) == 1
            else pa.concat_tables([part.select(list(names)) for part in found])
            for names, found in zip(self.inputs, sides, strict=True)
        )


def arrived(
    name: str, batches: Iterator[pa.RecordBatch]
) -> tuple[Step, pa.Table, int, tuple[int, int]] | None:
    """Return the step, and the incoming rows, the number and the range of hashes of a partition.

    None if there are no rows.
    """
    collected = [batch for batch in batches if batch.num_rows]
    if not collected:
        return None
    step = current_step()
    change = in_one_piece(pa.Table.from_batches(collected))  # else each step copies it again
    return step, change, *owner_of(name, step, [change])


def owner_of(name: str, step: Step, parts: Sequence[pa.Table]) -> tuple[int, tuple[int, int]]:
    """Return the number and the range of hashes of the partition that owns some rows.

    Raises:
        HeadraceError: ``internal`` if they are of several partitions.
    """
    if step.partitions == 1:
        return 0, (LOWEST, HIGHEST)
    hashes = np.concatenate([part[HASH].to_numpy() for part in parts])
    partition = int(partition_of(hashes[:1], step.partitions)[0])
    low, high = ranges(step.partitions)[partition]
    if hashes.min() < low or hashes.max() > high:
        raise HeadraceError(Code.INTERNAL, f"{name} got rows of another partition")
    return partition, (low, high)


@dataclass(frozen=True, slots=True)
class Chain:
    """Two operators in one worker: rows are passed between them without crossing to the JVM.

    ``columns`` are the columns of the first operator's output that the second one reads, in order.
    """

    first: OperatorTask
    columns: tuple[str, ...]
    second: OperatorTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Step the first operator, and the second one over its output."""
        (names,) = self.second.inputs
        between = (
            batch.select(list(self.columns)).rename_columns(list(names))
            for batch in self.first(batches)
        )
        yield from self.second(between)


@dataclass(frozen=True, slots=True)
class GuardTask:
    """Divide a partition's rows between a view and its quarantine, as the step says."""

    name: str
    operator: Quarantine
    arrangement: ArrangementId

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Collect the partition's delta, write the quarantine's run and a report, yield the rest.

        In a trial, insertions may be held back, and the hashes of all of them are written.
        """
        found = arrived(self.name, batches)
        if found is None:
            leave_nothing(self.name)
            return
        begun = time.perf_counter()
        step, change, partition, (low, high) = found
        guarded = step.guards.get(self.arrangement, Guarded())
        stored = step.arrangements[self.arrangement]
        kept, known = (
            Spine.open(step.runs_directory, stored.layout, runs, low, high)
            for runs in (stored.runs, guarded.known)
        )
        taken = self.operator.step((change, refusals(guarded.refused)), (kept, known))
        (update,) = taken.updates
        runs = {}
        if update.rows:
            runs[self.arrangement] = write_run_of(step, update)
        output, inserted = held_back(taken.output, guarded.below)
        if guarded.listed and inserted.num_rows:
            rows = ZSet.of(self.operator.rows, inserted)
            listed = write_run_of(step, rows)
            runs[candidates_of(self.arrangement)] = listed
        read = kept.reads.rows + known.reads.rows
        seconds = time.perf_counter() - begun
        counts = change.num_rows, output.num_rows
        leave_report(Report(self.name, partition, runs, *counts, read, seconds))
        yield from batches_of(output.select(self.operator.rows.schema.names))
