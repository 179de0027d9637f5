"""The nodes of plans that run in this process, since a job costs more than processing few rows.

Leaves and operators are the tasks that Spark's workers would call. Projections, conditions, windows
and aggregates between them are evaluated as :mod:`headrace.execution.engine.narrow.evaluated` and
:mod:`headrace.execution.engine.narrow.calls` say. Other nodes run as a small Spark job over the
rows that the tasks below have computed.

Elements of arrays as rows, as ``explode`` and ``posexplode`` return them.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.scope import needs_spark
from headrace.execution.engine.jobs.worker import OperatorTask
from headrace.execution.engine.narrow.evaluated import ComputedColumns, UnplannedError, with_schema
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.execution.runtime.ports import MoreRowsError
from headrace.execution.runtime.spent import Activity, Spending
from headrace.planning.catalyst.evaluation import relation
from headrace.planning.catalyst.scala import Numbers, collect_arrow, items, with_children
from headrace.planning.catalyst.vectors import DoubtError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from headrace.execution.engine.narrow.evaluated import ColumnValues
    from headrace.planning.catalyst.transplant import Mapped, Transplant
    from headrace.types import RelationId


MOST_ROWS: Final = 50_000
"""The most rows of a leaf with which a program runs in this process."""

MOST_FLOWING: Final = 500_000
"""The most rows that a node of a narrow step may have."""

MOST_FILLING: Final = 1_000_000
"""The most rows that a node of a step of a fill may have in this process."""

_LESS_IN_JOBS: Final = 10
"""A job reads this many times fewer rows than a node may have: in one task, it is no faster."""

Key: TypeAlias = "tuple[int, int]"
"""The number of a node of a plan: its hash, and its index among nodes with that hash."""


class DeltaSource(Protocol):
    """Where leaves read the deltas of relations."""

    def read(self, leaf: DeltaLeaf) -> pa.Table:
        """Return the columns of a leaf."""
        ...


class NoDeltas:
    """Programs whose leaves are tasks read no deltas."""

    def read(self, leaf: DeltaLeaf) -> pa.Table:
        """Refuse a leaf."""
        raise HeadraceError(Code.INTERNAL, f"no delta of relation {leaf.relation} is given")


@dataclass(slots=True)
class StepRun:
    """One run of a program: the rows of its nodes so far, and the number of jobs it took.

    ``deltas`` are the rows that :class:`DeltaLeaf` nodes read. A node with more than ``most`` rows
    ends the run.
    """

    deltas: DeltaSource = field(default_factory=NoDeltas)
    most: int = sys.maxsize
    jobs: int = 0
    found: dict[RowsNode, pa.Table] = field(default_factory=dict)

    def put(self, node: RowsNode, rows: pa.Table) -> None:
        """Keep the rows of a node.

        Raises:
            MoreRowsError: there are too many.
        """
        self.found[node] = rows
        if rows.num_rows > self.most:
            raise MoreRowsError


@dataclass(frozen=True, slots=True, eq=False)
class RowsNode(ABC):
    """A node of a plan; the columns of its rows are in the order of its output."""

    activity: ClassVar = Activity.EXPRESSIONS
    """What the time counts for that is spent on computing the rows."""

    def rows(self, run: StepRun) -> pa.Table:
        """Return the rows, computed at most once in a run."""
        found = run.found.get(self)
        if found is None:
            check_cancelled()
            with Spending(self.activity):
                found = self.computed(run)
            run.put(self, found)
        return found

    def parts(self, run: StepRun) -> list[pa.Table]:
        """Return the rows in tables of any number."""
        return [self.rows(run)]

    @abstractmethod
    def computed(self, run: StepRun) -> pa.Table:
        """Compute the rows from those of the nodes below."""

    @property
    def below(self) -> tuple[RowsNode, ...]:
        """The nodes below."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class OverOneNode(RowsNode):
    """A node over the rows of one other."""

    child: RowsNode

    @property
    def below(self) -> tuple[RowsNode, ...]:
        """The nodes below."""
        return (self.child,)


@dataclass(frozen=True, slots=True, eq=False)
class DeltaLeaf(RowsNode):
    """Columns of a relation's delta, with the weight and, if wanted, the offset."""

    relation: RelationId
    columns: tuple[str, ...]
    offsets: bool
    schema: pa.Schema

    activity: ClassVar = Activity.READING

    def computed(self, run: StepRun) -> pa.Table:
        """Read the delta of the run."""
        return run.deltas.read(self)


@dataclass(frozen=True, slots=True, eq=False)
class Range(RowsNode):
    """A row for each partition, with the partition's number."""

    count: int

    def computed(self, _run: StepRun) -> pa.Table:
        """Number the rows."""
        return pa.table({"id": np.arange(self.count, dtype=np.int64)})


@dataclass(frozen=True, slots=True, eq=False)
class Task(OverOneNode):
    """The output of a Python task over the rows of another node."""

    names: tuple[str, ...]
    mapped: Mapped
    schema: pa.Schema

    activity: ClassVar = Activity.OPERATORS

    def computed(self, run: StepRun) -> pa.Table:
        """Step an operator over all rows, or call another task batch by batch."""
        task, names = self.mapped.task, list(self.names)
        if isinstance(task, OperatorTask):
            parts = [rows.rename_columns(names) for rows in self.child.parts(run)]
            output = task.over(parts)
            columns = [] if output is None else output.combine_chunks().columns
        else:
            columns = self._yielded(self.child.rows(run).rename_columns(names))
        return with_schema(columns, self.schema) if columns else self.schema.empty_table()

    def _yielded(self, given: pa.Table) -> list[pa.ChunkedArray]:
        """Return the columns of the batches that the task yields."""
        found, count, is_leaf = [], 0, isinstance(self.child, Range)
        for batch in self.mapped.task(iter(given.to_batches())):
            check_cancelled()
            count += batch.num_rows
            if is_leaf and count > MOST_ROWS:
                raise MoreRowsError
            found.append(batch)
        return pa.Table.from_batches(found).combine_chunks().columns if found else []


@dataclass(frozen=True, slots=True, eq=False)
class Projected(OverOneNode):
    """Columns of another node and values over it, ``taken`` by position: columns come first."""

    taken: tuple[int, ...]
    evaluated: ComputedColumns | None

    def computed(self, run: StepRun) -> pa.Table:
        """Take the columns, and evaluate the values."""
        rows = self.child.rows(run)
        names = [f"x{i}" for i in range(len(self.taken))]
        if self.evaluated is None:
            return rows.select(list(self.taken)).rename_columns(names)
        columns = [*rows.columns, *self.evaluated.columns(rows)]
        return pa.Table.from_arrays([columns[i] for i in self.taken], names=names)


@dataclass(frozen=True, slots=True, eq=False)
class Filtered(OverOneNode):
    """The rows for which a condition is true."""

    condition: ComputedColumns

    def computed(self, run: StepRun) -> pa.Table:
        """Keep the rows for which the condition holds."""
        rows = self.child.rows(run)
        (passes,) = self.condition.columns(rows)
        return rows.filter(passes).combine_chunks()


@dataclass(frozen=True, slots=True, eq=False)
class Concatenated(RowsNode):
    """All rows of several nodes, with the columns of the first."""

    children: tuple[RowsNode, ...]

    def computed(self, run: StepRun) -> pa.Table:
        """Append the rows of all nodes."""
        return pa.concat_tables(self.parts(run))

    def parts(self, run: StepRun) -> list[pa.Table]:
        """Return the rows of each node, with the names and types of the first one's."""
        parts = [child.rows(run) for child in self.children]
        if sum(part.num_rows for part in parts) > run.most:
            raise MoreRowsError
        names = [f"x{i}" for i in range(parts[0].num_columns)]
        first, *others = [part.rename_columns(names) for part in parts]
        return [first, *(with_schema(each.columns, first.schema) for each in others)]

    @property
    def below(self) -> tuple[RowsNode, ...]:
        """The nodes below."""
        return self.children


@dataclass(frozen=True, slots=True, eq=False)
class Exchanged(OverOneNode):
    """The rows of another node in the partitions that own their hashes, which are at a position."""

    hash: int

    def computed(self, run: StepRun) -> pa.Table:
        """Return the rows: this process has one partition."""
        return self.child.rows(run)


@dataclass(frozen=True, slots=True, eq=False)
class JobNode(RowsNode):
    """The rows of a part of a plan that Spark runs, over the rows of the tasks below it."""

    transplant: Transplant
    plan: Any
    cuts: Mapping[Key, Cut]
    numbers: Numbers
    schema: pa.Schema
    why: str
    """What needs Spark: a node or an expression."""

    activity: ClassVar = Activity.JOBS

    def computed(self, run: StepRun) -> pa.Table:
        """Run the job."""
        whole = self.transplant.finished(self.filled(run))
        run.jobs += 1
        found = collect_arrow(self.transplant.frame(whole))
        return with_schema(found.columns, self.schema).combine_chunks()

    def filled(self, run: StepRun) -> Any:
        """Return the plan over the rows of the nodes below.

        Raises:
            MoreRowsError: they are too many for one task.
        """
        below = {key: cut.node.rows(run) for key, cut in self.cuts.items()}
        if sum(rows.num_rows for rows in below.values()) > run.most // _LESS_IN_JOBS:
            raise MoreRowsError
        needs_spark()
        transplant = self.transplant
        leaves = {
            key: transplant.gather(
                transplant.project(
                    [
                        transplant.alias(column, str(a.name()), a)
                        for column, a in zip(items(made.output()), cut.columns, strict=True)
                    ],
                    made,
                )
            )
            for key, cut in self.cuts.items()
            for made in (relation(transplant.scala, transplant.spark, below[key], cut.schema),)
        }
        return self._over(self.plan, leaves)

    def _over(self, plan: Any, leaves: Mapping[Key, Any]) -> Any:
        """Return a plan with the rows of its tasks in place of these."""
        found = leaves.get(self.numbers.of(plan))
        if found is not None:
            return found
        return with_children(self.transplant.scala, plan, lambda child: self._over(child, leaves))

    @property
    def below(self) -> tuple[RowsNode, ...]:
        """The nodes below."""
        return tuple(cut.node for cut in self.cuts.values())


@dataclass(frozen=True, slots=True, eq=False)
class UnplannedNode(RowsNode):
    """Stands for a job of a stored program, which is not stored."""

    schema: pa.Schema

    activity: ClassVar = Activity.JOBS

    def computed(self, _run: StepRun) -> pa.Table:
        """Raise, since the program has to be planned."""
        raise UnplannedError


@dataclass(frozen=True, slots=True, eq=False)
class DoubtfulNode(OverOneNode):
    """Values over the rows of another node, computed here unless one of them is in doubt.

    ``job`` computes the same rows by Spark, with its own values or its own error.
    """

    job: JobNode | UnplannedNode

    activity: ClassVar = Activity.OPERATORS

    def computed(self, run: StepRun) -> pa.Table:
        """Compute the values here, or by the job if one of them is in doubt."""
        rows = self.child.rows(run)
        if not rows.num_rows:
            return self.job.schema.empty_table()
        try:
            return self.computed_here(rows)
        except (DoubtError, Py4JError, PySparkException, pa.ArrowException):
            return self.job.rows(run)

    @abstractmethod
    def computed_here(self, rows: pa.Table) -> pa.Table:
        """Compute the values over some rows, with the names of the columns of the job.

        Raises:
            DoubtError, Py4JError, PySparkException, ArrowException: a value is in doubt.
        """

    @property
    @abstractmethod
    def evaluated(self) -> tuple[ComputedColumns, ...]:
        """The expressions over rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A task below a part that Spark runs: its node, its columns in the plan, and their types."""

    node: RowsNode
    columns: tuple[Any, ...]
    schema: StructType


def nodes_of(plan: RowsNode) -> tuple[RowsNode, ...]:
    """Return the nodes of a plan, each once, inputs first."""
    found: dict[RowsNode, None] = {}

    def visit(node: RowsNode) -> None:
        if node not in found:
            for below in node.below:
                visit(below)
            found[node] = None

    visit(plan)
    return tuple(found)


def leaves(plan: RowsNode) -> Iterator[Task]:
    """Yield the tasks that read shares, inputs first."""
    for child in plan.below:
        yield from leaves(child)
    if isinstance(plan, Task) and isinstance(plan.child, Range):
        yield plan


@dataclass(frozen=True, slots=True, eq=False)
class Exploding:
    """How rows become one for each element of an ``array``.

    They have the columns ``kept``, by place, then the position of the element with ``positions``,
    then the element. With ``outer``, a row whose array is NULL or empty becomes one with NULL.
    """

    array: ColumnValues
    kept: tuple[int, ...]
    outer: bool
    positions: bool
    schema: pa.Schema

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the elements of some rows, in order."""
        arrays = self.array.over(rows).column(0).combine_chunks()
        counts = pc.fill_null(pc.list_value_length(arrays), 0).to_numpy().astype(np.int64)
        elements = pc.list_flatten(arrays)
        alone = counts == 0
        made = np.maximum(counts, 1) if self.outer else counts
        parents = np.repeat(np.arange(len(counts)), made)
        starts = np.cumsum(made) - made
        within = np.arange(len(parents)) - starts[parents]
        taken = (np.cumsum(counts) - counts)[parents] + within
        absent = alone[parents]
        chosen = elements.take(pa.array(taken, mask=absent))
        columns = [rows.column(i).take(pa.array(parents)) for i in self.kept]
        if self.positions:
            columns.append(pa.array(within.astype(np.int32), mask=absent))
        columns.append(chosen)
        return with_schema(columns, self.schema).combine_chunks()


@dataclass(frozen=True, slots=True, eq=False)
class Exploded(OverOneNode):
    """The rows of another node, one for each element of an array."""

    exploding: Exploding

    def computed(self, run: StepRun) -> pa.Table:
        """Repeat the rows."""
        rows = self.child.rows(run)
        return self.exploding.over(rows) if rows.num_rows else self.exploding.schema.empty_table()
