"""Counts the rows that pass a node of a circuit, and keeps some of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import LongType

from headrace.algebra.operators import ROW
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.execution.engine.jobs.reports import leave_nothing, leave_report, write_run_of
from headrace.execution.engine.jobs.worker import current_step
from headrace.execution.runtime.step import Report
from headrace.planning.catalyst.transplant import spark_schema
from headrace.types import ArrangementId, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.execution.engine.lowering.assembly import Assembly, Frame
    from headrace.planning.catalyst import plan
    from headrace.types import DataType


MOST_ROWS: Final = 100_000
"""The most distinct rows of a node that a task keeps."""


@dataclass(frozen=True, slots=True)
class WatchTask:
    """Pass rows on unchanged, and report their number and a run with some of them."""

    name: str
    layout: Layout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        begun, rows, kept, partition = time.perf_counter(), 0, ZSet.empty(self.layout), None
        for batch in batches:
            yield batch
            weights = batch.column(WEIGHT).to_numpy()
            rows += int(weights.sum())
            table = pa.Table.from_batches([batch]).select([*self.layout.columns.names, WEIGHT])
            zeros = pa.array(np.zeros(batch.num_rows, np.int64))
            part = ZSet.of(self.layout, table.add_column(0, HASH, zeros))
            if kept.rows <= MOST_ROWS:
                kept = kept.plus(part).consolidated()
            if partition is None:
                partition = _partition()
        if partition is None:
            leave_nothing(self.name)
            return
        step = current_step()
        runs = {}
        if kept.rows:
            kept_in = write_run_of(step, kept)
            runs = {ArrangementId(self.name): kept_in}
        seconds = time.perf_counter() - begun
        leave_report(Report(self.name, partition, runs, rows, rows, 0, seconds))


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def watched(
    assembly: Assembly, name: str, attributes: tuple[plan.Attribute, ...], frame: Frame
) -> Frame:
    """Return a frame whose rows are counted and kept under a name as they are computed."""
    transplant = assembly.transplant
    carried = {WEIGHT: frame.weight, HASH: frame.hash, ROW: frame.row}
    there = {key: value for key, value in carried.items() if value is not None}
    named = [transplant.alias(a.handle, f"x{i}") for i, a in enumerate(attributes)]
    named += [transplant.alias(value, key) for key, value in there.items()]
    types: list[tuple[str, DataType]] = [(f"x{i}", a.type) for i, a in enumerate(attributes)]
    types += [(key, LongType()) for key in there]
    task = WatchTask(name, watched_layout(attributes))
    below = transplant.project(named, frame.plan)
    rows = transplant.mapped(below, task, spark_schema(types))
    found = transplant.output(rows)
    again = [transplant.alias(found[f"x{i}"], a.name, a.handle) for i, a in enumerate(attributes)]
    passed: dict[str, Any] = {key: transplant.alias(found[key], key) for key in there}
    whole = transplant.project([*again, *passed.values()], rows)
    own = {key: value.toAttribute() for key, value in passed.items()}
    return replace(
        frame, plan=whole, weight=own[WEIGHT], hash=own.get(HASH), row=own.get(ROW), tail=None
    )


def watched_layout(attributes: tuple[plan.Attribute, ...]) -> Layout:
    """Return the layout of the kept rows of a node."""
    columns = [pa.field(f"x{i}", to_arrow(a.type)) for i, a in enumerate(attributes)]
    return Layout((), pa.schema(columns), pa.schema([pa.field(WEIGHT, pa.int64())]))
