"""The nodes of a stage, which run in Spark's Python workers: rows flow through them in tables.

They are what the nodes of :mod:`headrace.execution.engine.narrow.nodes` become where Spark's JVM
cannot be asked: expressions are vectors, and a value that is in doubt ends the task. Whoever runs
the step then has Spark evaluate all of it.

Parcels: columns of rows as bytes, which the stages of a wide step send each other.

Spark moves a row for each parcel, with the number of the partition that it is for. So rows are not
converted between Arrow's columns and Spark's rows on their way.

The task of a stage in Spark's Python workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.spine import partition_of
from headrace.algebra.zset.zset import column, in_one_piece, numbers
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.reports import leave_spent, one_pack
from headrace.execution.engine.jobs.worker import current_step
from headrace.execution.engine.narrow.evaluated import with_schema
from headrace.execution.runtime.spent import Activity, Spending, Spent, measured
from headrace.planning.catalyst.vectors import DoubtError, InputRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.execution.engine.narrow.nodes import Exploding
    from headrace.execution.engine.narrow.windows import Aggregating, Windowing
    from headrace.planning.catalyst.vectors import Vector


PARTITION, ROWS = "partition", "rows"
"""The columns of a parcel: the number of the partition, and the rows as an Arrow stream."""

MOST_ROWS: Final = 1 << 16
"""About the most rows that parcels are made of at once."""
MOST_BYTES: Final = 1 << 25
"""About the most bytes of rows that parcels are made of at once."""

_SCHEMA: Final = pa.schema([pa.field(PARTITION, pa.int32()), pa.field(ROWS, pa.binary())])


@dataclass(frozen=True, slots=True)
class Sending:
    """Where rows go: to the partition, of so many, that owns the hash at the position ``hash_``."""

    hash_: int
    partitions: int

    def parcels(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of some rows, each in a batch of its own."""
        for table in gathered(tables):
            rows = in_one_piece(table.rename_columns([f"x{i}" for i in range(table.num_columns)]))
            owners = partition_of(numbers(rows, f"x{self.hash_}"), self.partitions)
            for partition in range(self.partitions):
                own = np.flatnonzero(owners == partition)
                if len(own):
                    whole = len(own) == rows.num_rows
                    yield _packed(partition, rows if whole else rows.take(pa.array(own)))


def opened(parcels: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of parcels, without a copy."""
    for batch in parcels:
        for data in column(pa.Table.from_batches([batch]), ROWS):
            with pa.ipc.open_stream(data.as_buffer()) as stream:
                yield stream.read_all()


def gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of small tables in larger ones, and of very large ones in parts; no copy."""
    pending: list[pa.Table] = []
    rows = size = 0
    for table in (part for each in tables for part in _parts(each)):
        more = table.nbytes
        if pending and (rows + table.num_rows > MOST_ROWS or size + more > MOST_BYTES):
            yield pa.concat_tables(pending)
            pending, rows, size = [], 0, 0
        pending.append(table)
        rows += table.num_rows
        size += more
    if pending:
        yield pa.concat_tables(pending)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in parts of about ``MOST_BYTES``: a parcel is one value."""
    step = max(1, MOST_BYTES * table.num_rows // max(MOST_BYTES, table.nbytes))
    for first in range(0, table.num_rows, step):
        yield table.slice(first, step)


def _packed(partition: int, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    data = sink.getvalue()
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    packed = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    return pa.RecordBatch.from_arrays([pa.array([partition], pa.int32()), packed], schema=_SCHEMA)


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Expressions over the columns of a node, and their result columns."""

    vectors: tuple[Vector, ...]
    schema: pa.Schema

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the values for some rows.

        Raises:
            DoubtError: a value may differ from Spark's.
        """
        given = InputRows.of(rows)
        return with_schema([each.column(given) for each in self.vectors], self.schema)


@dataclass(slots=True)
class StageRun:
    """One run of a stage: the rows that have arrived, or the number of the partition to read."""

    arrived: Iterator[pa.Table]
    partition: int | None
    repeated: frozenset[StageNode]
    """The nodes whose rows are read more than once, and kept."""
    _kept: dict[StageNode, list[pa.Table]] = field(default_factory=dict)

    def rows(self, node: StageNode) -> Iterator[pa.Table]:
        """Yield the rows of a node in tables; it is computed once."""
        if node not in self.repeated:
            return _spending(node.activity, node.tables(self))
        if node not in self._kept:
            self._kept[node] = list(_spending(node.activity, node.tables(self)))
        return iter(self._kept[node])


def _spending(activity: Activity, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables with rows; the time of computing them counts for an activity."""
    while True:
        with Spending(activity):
            table = next(tables, None)
        if table is None:
            return
        if table.num_rows:
            yield table


@dataclass(frozen=True, slots=True, eq=False)
class StageNode(ABC):
    """A node of a stage; the columns of its rows are in the order of its output."""

    activity: ClassVar = Activity.EXPRESSIONS
    """What the time counts for that is spent on computing the rows."""

    @abstractmethod
    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Compute the rows from those of the nodes below."""

    @property
    def below(self) -> tuple[StageNode, ...]:
        """The nodes below."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class ArrivedTables(StageNode):
    """The rows that were sent to the partition."""

    activity: ClassVar = Activity.CROSSINGS

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Read them."""
        return run.arrived


@dataclass(frozen=True, slots=True, eq=False)
class SourceTables(StageNode):
    """The rows that a task reads, for partitions with a number below ``count``."""

    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    count: int
    schema: pa.Schema

    activity: ClassVar = Activity.READING

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Call the task with the number of the partition."""
        if run.partition is not None and run.partition < self.count:
            number = pa.record_batch({"id": pa.array([run.partition], pa.int64())})
            for batch in self.task(iter([number])):
                yield with_schema(batch.columns, self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class OverOne(StageNode):
    """A node over the rows of one other."""

    child: StageNode

    @property
    def below(self) -> tuple[StageNode, ...]:
        """The nodes below."""
        return (self.child,)


@dataclass(frozen=True, slots=True, eq=False)
class TaskTables(OverOne):
    """The output of a task over all rows of another node, with the columns ``names``."""

    names: tuple[str, ...]
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    schema: pa.Schema

    activity: ClassVar = Activity.OPERATORS

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Call the task."""
        given = aligned(table.rename_columns(list(self.names)) for table in run.rows(self.child))
        for batch in self.task(batch for table in given for batch in table.to_batches()):
            yield with_schema(batch.columns, self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedTables(OverOne):
    """Columns of another node and values over it, ``taken`` by position: columns come first."""

    taken: tuple[int, ...]
    values: Vectors | None

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Take the columns, and evaluate the values."""
        names = [f"x{i}" for i in range(len(self.taken))]
        for rows in run.rows(self.child):
            values = [] if self.values is None else self.values.over(rows).columns
            columns = [*rows.columns, *values]
            yield pa.Table.from_arrays([columns[i] for i in self.taken], names=names)


@dataclass(frozen=True, slots=True, eq=False)
class FilteredTables(OverOne):
    """The rows for which a condition is true."""

    condition: Vectors

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Keep the rows for which the condition holds."""
        for rows in run.rows(self.child):
            yield rows.filter(self.condition.over(rows).column(0))


@dataclass(frozen=True, slots=True, eq=False)
class ExplodedTables(OverOne):
    """The rows of another node, one for each element of an array."""

    exploding: Exploding

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Repeat the rows."""
        for rows in run.rows(self.child):
            yield self.exploding.over(rows)


@dataclass(frozen=True, slots=True, eq=False)
class GroupedTables(OverOne):
    """What is computed of whole groups of rows, such as windows."""

    computing: Windowing | Aggregating

    activity: ClassVar = Activity.OPERATORS

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Compute it, over all rows of the partition; an error of Arrow is a doubt."""
        found = list(aligned(run.rows(self.child)))
        if not found:
            return
        try:
            yield self.computing.over(pa.concat_tables(found).combine_chunks())
        except pa.ArrowException as error:
            raise DoubtError from error


@dataclass(frozen=True, slots=True, eq=False)
class ConcatenatedTables(StageNode):
    """All rows of several nodes, with the columns of the first."""

    children: tuple[StageNode, ...]

    def tables(self, run: StageRun) -> Iterator[pa.Table]:
        """Yield the rows of all nodes."""
        return aligned(table for child in self.children for table in run.rows(child))

    @property
    def below(self) -> tuple[StageNode, ...]:
        """The nodes below."""
        return self.children


def aligned(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables with columns of the same meaning, all with the schema of the first."""
    schema: pa.Schema | None = None
    for table in tables:
        if schema is None:
            schema = pa.schema([pa.field(f.name, f.type) for f in table.schema])
        yield table if table.schema.equals(schema) else with_schema(table.columns, schema)


IN_DOUBT: Final = "a value is in doubt, so Spark evaluates the expressions"
"""The message of a stage that cannot tell Spark's value of an expression."""


@dataclass(frozen=True, slots=True)
class StageTask:
    """Run one partition of a stage: compute the rows of ``node``, and send them on.

    With ``reads``, the input are numbers of partitions, else parcels. ``repeated`` are the nodes
    that several others read. Without ``sending``, the rows are not needed: what the tasks within
    write is.
    """

    node: StageNode
    reads: bool
    repeated: frozenset[StageNode]
    sending: Sending | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield parcels. The runs that the stage writes are in one pack, durable at the end."""
        spent = Spent()
        with measured(spent), one_pack(current_step()):
            try:
                if not self.reads:
                    yield from self._sent(StageRun(opened(batches), None, self.repeated))
                else:
                    for batch in batches:
                        for index in batch.column(0).to_pylist():
                            yield from self._sent(StageRun(iter(()), index, self.repeated))
            except DoubtError as doubt:
                raise HeadraceError(Code.INTERNAL, IN_DOUBT) from doubt
        leave_spent(spent)

    def _sent(self, run: StageRun) -> Iterator[pa.RecordBatch]:
        rows = run.rows(self.node)
        if self.sending is not None:
            yield from self.sending.parcels(rows)
        else:
            for _ in rows:
                pass
