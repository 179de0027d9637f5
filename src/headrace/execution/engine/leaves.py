"""Rows of relations as DataFrames: contents, logs, and the events of corrected streams.

What a DataFrame reads is the share of a step, which is chosen when its job runs.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from headrace.algebra.zset import WEIGHT
from headrace.execution.engine.jobs.scope import jobs_of
from headrace.execution.engine.jobs.worker import BATCH_ROWS, LeafTask, LogReader
from headrace.execution.runtime.step import Share, Step
from headrace.planning.catalog import Stream, Table, View, logged
from headrace.planning.catalyst.select import CHANGES, CONTENTS
from headrace.planning.dialects import OFFSET, log_of
from headrace.planning.sql import quote
from headrace.storage.log import CORRECTION
from headrace.types import Column, RelationId, Schema, of_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.execution.engine.jobs.lease import SparkSource


@dataclass(frozen=True, slots=True)
class ContentsTask:
    """Yield a relation's rows, each repeated by its weight."""

    leaf: LeafTask
    names: tuple[str, ...]

    @property
    def __name__(self) -> str:
        """The name of the task in Spark's plan, which identifies the relation that it reads."""
        return f"{CONTENTS}{self.leaf.relation}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the partition's number as the only row of the input."""
        for batch in self.leaf(batches):
            weights = batch.column(len(self.names)).to_numpy()
            rows = pa.RecordBatch.from_arrays(
                [batch.column(i) for i in range(len(self.names))], names=list(self.names)
            )
            if (weights == 1).all():
                yield rows
                continue
            repeated = np.repeat(np.arange(len(weights)), weights.clip(0))
            for start in range(0, len(repeated), BATCH_ROWS):
                yield rows.take(pa.array(repeated[start : start + BATCH_ROWS]))


@dataclass(frozen=True, slots=True)
class ChangesTask(LeafTask):
    """Yield the changes of a relation's log."""

    @property
    def __name__(self) -> str:
        """The name of the task in Spark's plan, which identifies the log that it reads."""
        return f"{CHANGES}{self.relation}"


@dataclass(frozen=True, slots=True)
class Leaves:
    """Creates DataFrames in any session of a Spark; ``directory`` is the data directory."""

    source: SparkSource
    directory: Path
    partitions: int
    log: LogReader

    def contents(
        self, session: SparkSession, relation: Stream | Table | View, share: RelationId
    ) -> DataFrame:
        """Return the rows of a relation, read from the share of the step named ``share``.

        The share of a stream is read as corrected; see :meth:`LogShare.as_corrected`.
        """
        names = relation.schema.names
        columns = relation.schema.stored
        leaf = LeafTask(share, columns, False, self.partitions, self.log)  # noqa: FBT003
        return self._frame(session, ContentsTask(leaf, names), relation.schema.spark)

    def changes(self, session: SparkSession, relation: Stream | Table) -> DataFrame:
        """Return the changes of a relation's log, as ``c0``, ..., with weights and positions.

        The last column of a corrected stream is the number of the correction, or NULL.
        """
        schema = logged(relation)
        if isinstance(relation, Stream) and relation.corrected:
            schema = Schema((*schema.columns, Column(CORRECTION, LongType())))
        return self._changes(session, relation.id, schema)

    def _changes(self, session: SparkSession, share: RelationId, schema: Schema) -> DataFrame:
        task = ChangesTask(share, schema.stored, True, self.partitions, self.log)  # noqa: FBT003
        renamed = StructType(
            [
                *(StructField(f"c{i}", c.type) for i, c in enumerate(schema.columns)),
                StructField(WEIGHT, LongType()),
                StructField(OFFSET, LongType()),
            ]
        )
        return self._frame(session, task, renamed)

    def weighted(self, session: SparkSession, columns: Schema, share: RelationId) -> DataFrame:
        """Return the rows of a share as ``c0``, ..., each with its weight."""
        leaf = LeafTask(share, columns.stored, False, self.partitions, self.log)  # noqa: FBT003
        fields = [StructField(f"c{i}", c.type) for i, c in enumerate(columns.columns)]
        return self._frame(session, leaf, StructType([*fields, StructField(WEIGHT, LongType())]))

    def declare_log(self, session: SparkSession, stream: Stream) -> None:
        """Declare a stream together with the offset and the time of each row in its log.

        Its share is read as corrected.
        """
        names = stream.logged.names
        renamed = [f"c{i} AS {quote(name)}" for i, name in enumerate(names)]
        changes = self._changes(session, stream.id, stream.logged)
        changes.selectExpr(*renamed, OFFSET).createOrReplaceTempView(log_of(stream.id))

    def events(self, session: SparkSession, stream: Stream) -> DataFrame:
        """Return the current events of a corrected stream with their offsets, by its whole log."""
        names = stream.logged.names
        raw = f"__raw_{stream.id}"
        self.changes(session, stream).createOrReplaceTempView(raw)
        renamed = ", ".join(f"c{i} AS {quote(name)}" for i, name in enumerate(names))
        newest = f"c{len(names)} DESC NULLS LAST, {WEIGHT} DESC"
        last = (
            f"SELECT *, row_number() OVER (PARTITION BY {OFFSET} ORDER BY {newest}) AS nth "
            f"FROM {raw}"
        )
        kept = f"nth = 1 AND {WEIGHT} > 0"
        found = session.sql(f"SELECT {renamed}, {OFFSET} FROM ({last}) WHERE {kept}")
        session.catalog.dropTempView(raw)
        return found

    @contextmanager
    def reading(self, shares: Mapping[RelationId, Share]) -> Iterator[None]:
        """Set the shares that the jobs of this thread read, for the duration of a block."""
        step = Step(f"read-{uuid4().hex}", self.directory, self.partitions, shares, {})
        with jobs_of(self.source.for_jobs, step):
            yield

    def _frame(self, session: SparkSession, task: Any, schema: StructType) -> DataFrame:
        count = self.partitions
        return session.range(0, count, 1, count).mapInArrow(task, of_task(schema))
