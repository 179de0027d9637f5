"""The nodes of a stage, which run in Spark's Python workers: rows flow through them in tables.

They are what the nodes of :mod:`headrace.engine.narrow.nodes` become where Spark's JVM cannot be
asked: expressions are vectors, and a value that is in doubt ends the task. Whoever runs the step
then has Spark evaluate all of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from headrace.catalyst.vectors import DoubtError, InputRows
from headrace.engine.narrow.evaluated import with_schema
from headrace.runtime.spent import Activity, Spending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.catalyst.vectors import Vector
    from headrace.engine.narrow.aggregates import Aggregating
    from headrace.engine.narrow.exploded import Exploding
    from headrace.engine.narrow.windows import Windowing


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
