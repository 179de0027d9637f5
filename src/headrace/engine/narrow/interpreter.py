"""Runs the plan of a program in this process, since a job costs more than processing few rows.

The plan is the one that Spark would run. Its leaves and operators are the tasks that Spark's
workers would call; its projections and conditions are evaluated by Catalyst's own expressions in
the driver's JVM. Other nodes between tasks, such as windows, run as a small Spark job over the rows
that the tasks below have computed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.types import MapType, StructField, StructType, VariantType

from headrace.catalyst.collect import collect_arrow
from headrace.catalyst.evaluation import Evaluation, relation
from headrace.catalyst.resolved import columns_of, passed_on, type_of
from headrace.catalyst.scala import Numbers, items, node_name, part
from headrace.catalyst.walk import topmost, with_children
from headrace.engine.jobs.reports import in_this_process
from headrace.runtime.cancelling import check_cancelled
from headrace.runtime.ports import MoreRowsError
from headrace.types import holds, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from headrace.catalyst.evaluation import BoundExpressions
    from headrace.catalyst.scala import Scala
    from headrace.catalyst.transplant import Mapped, Transplant
    from headrace.runtime.step import Report, Step

MOST_ROWS: Final = 50_000
"""The most rows of a leaf with which a program runs in this process."""

_PLANNED = (
    "AGGREGATE_EXPRESSION",
    "CURRENT_LIKE",
    "GENERATOR",
    "PLAN_EXPRESSION",
    "PYTHON_UDF",
    "RUNTIME_REPLACEABLE",
    "UPDATE_FIELDS",
    "WINDOW_EXPRESSION",
    "WITH_EXPRESSION",
)
"""Spark's tree patterns of expressions that its planner replaces or runs in a separate node."""

Key: TypeAlias = "tuple[int, int]"
"""The number of a node of a plan: its hash, and its index among nodes with that hash."""

_BATCH_ROWS: Final = 100_000


_Run: TypeAlias = "dict[_Node, pa.Table]"
"""One run of a program: the rows of its nodes so far."""


@dataclass(frozen=True, slots=True, eq=False)
class _Node(ABC):
    """A node of a plan; the columns of its rows are in the order of its output."""

    def rows(self, run: _Run) -> pa.Table:
        """Return the rows, computed at most once in a run."""
        if self not in run:
            check_cancelled()
            run[self] = self.computed(run)
        return run[self]

    @abstractmethod
    def computed(self, run: _Run) -> pa.Table:
        """Compute the rows from those of the nodes below."""

    @property
    def below(self) -> tuple[_Node, ...]:
        """The nodes below."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class _Range(_Node):
    """A row for each partition, with the partition's number."""

    count: int

    def computed(self, _run: _Run) -> pa.Table:
        return pa.table({"id": np.arange(self.count, dtype=np.int64)})


@dataclass(frozen=True, slots=True, eq=False)
class _Task(_Node):
    """The output of a Python task over the rows of another node."""

    child: _Node
    names: tuple[str, ...]
    mapped: Mapped
    schema: pa.Schema

    def computed(self, run: _Run) -> pa.Table:
        given = self.child.rows(run).rename_columns(list(self.names))
        found, count, is_leaf = [], 0, isinstance(self.child, _Range)
        for batch in self.mapped.task(iter(given.to_batches(max_chunksize=_BATCH_ROWS))):
            check_cancelled()
            count += batch.num_rows
            if is_leaf and count > MOST_ROWS:
                raise MoreRowsError
            found.append(batch.rename_columns(self.schema.names))
        if not found:
            return self.schema.empty_table()
        return pa.Table.from_batches(found).cast(self.schema).combine_chunks()

    @property
    def below(self) -> tuple[_Node, ...]:
        return (self.child,)


@dataclass(frozen=True, slots=True, eq=False)
class _Evaluated:
    """Expressions over some columns of a node, given by position, and their result columns."""

    bound: BoundExpressions
    columns: tuple[int, ...]
    schema: pa.Schema

    def over(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return self.schema.empty_table()
        given = rows.select(list(self.columns)) if self.columns else _numbered(rows)
        names = [f"i{i}" for i in range(given.num_columns)]
        found = self.bound.over(given.rename_columns(names))
        return found.rename_columns(self.schema.names).cast(self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class _Project(_Node):
    """Columns of another node and values over it, ``taken`` by position: columns come first."""

    child: _Node
    taken: tuple[int, ...]
    evaluated: _Evaluated | None

    def computed(self, run: _Run) -> pa.Table:
        rows = self.child.rows(run)
        columns = rows.columns
        if self.evaluated is not None:
            columns = [*columns, *self.evaluated.over(rows).columns]
        names = [f"x{i}" for i in range(len(self.taken))]
        return pa.Table.from_arrays([columns[i] for i in self.taken], names=names)

    @property
    def below(self) -> tuple[_Node, ...]:
        return (self.child,)


@dataclass(frozen=True, slots=True, eq=False)
class _Filter(_Node):
    """The rows for which a condition is true."""

    child: _Node
    condition: _Evaluated

    def computed(self, run: _Run) -> pa.Table:
        rows = self.child.rows(run)
        return rows.filter(self.condition.over(rows).column(0)).combine_chunks()

    @property
    def below(self) -> tuple[_Node, ...]:
        return (self.child,)


@dataclass(frozen=True, slots=True, eq=False)
class _Union(_Node):
    """All rows of several nodes, with the columns of the first."""

    children: tuple[_Node, ...]

    def computed(self, run: _Run) -> pa.Table:
        parts = [child.rows(run) for child in self.children]
        names = [f"x{i}" for i in range(parts[0].num_columns)]
        return pa.concat_tables([part.rename_columns(names) for part in parts]).combine_chunks()

    @property
    def below(self) -> tuple[_Node, ...]:
        return self.children


@dataclass(frozen=True, slots=True, eq=False)
class _Planned(_Node):
    """The rows of a part of a plan that Spark runs, over the rows of the tasks below it."""

    transplant: Transplant
    plan: Any
    cuts: Mapping[Key, _Cut]
    numbers: Numbers
    schema: pa.Schema

    def computed(self, run: _Run) -> pa.Table:
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
            for made in (self._relation(cut, run),)
        }
        whole = transplant.finished(self._over(self.plan, leaves))
        found = collect_arrow(transplant.frame(whole))
        return found.rename_columns(self.schema.names).cast(self.schema).combine_chunks()

    def _relation(self, cut: _Cut, run: _Run) -> Any:
        spark = self.transplant.spark
        return relation(self.transplant.scala, spark, cut.node.rows(run), cut.schema)

    def _over(self, plan: Any, leaves: Mapping[Key, Any]) -> Any:
        """Return a plan with the rows of its tasks in place of these."""
        found = leaves.get(self.numbers.of(plan))
        if found is not None:
            return found
        return with_children(self.transplant.scala, plan, lambda child: self._over(child, leaves))

    @property
    def below(self) -> tuple[_Node, ...]:
        return tuple(cut.node for cut in self.cuts.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """A task below a part that Spark runs: its node, its columns in the plan, and their types."""

    node: _Node
    columns: tuple[Any, ...]
    schema: StructType


@dataclass(frozen=True, slots=True)
class Interpreted:
    """Plans of one partition that can be run in this process, one after the other."""

    scala: Scala
    session: SparkSession
    plans: tuple[_Node, ...]
    _alone: threading.Lock = field(default_factory=threading.Lock)
    """Held while a program runs: expressions have mutable state."""

    def run(self, step: Step) -> tuple[Report, ...]:
        """Run the plans for the effects of their tasks; return the tasks' reports.

        Raises:
            MoreRowsError: the leaves have too many rows; no operator was run.
            Py4JError: an expression fails on a row.
        """
        reports: tuple[Report, ...] = ()
        with self._alone, self.scala.active(self.session):
            for plan in self.plans:
                with in_this_process(step.after(reports)) as found:
                    run: _Run = {}
                    for leaf in _leaves(plan):
                        leaf.rows(run)
                    plan.rows(run)
                    reports = (*reports, *found)
        return reports


def interpreted(transplant: Transplant, jobs: tuple[Any, ...]) -> Interpreted:
    """Convert plans that a transplant has built to a form that runs in this process."""
    reading = _Reading(transplant)
    with transplant.scala.active(transplant.spark):
        plans = tuple(reading.node(job) for job in jobs)
    return Interpreted(transplant.scala, transplant.spark, plans)


class _NeedsSparkError(Exception):
    """An expression cannot be evaluated in this process."""


@dataclass(frozen=True, slots=True)
class _Reading:
    transplant: Transplant
    numbers: Numbers = field(default_factory=Numbers)
    known: dict[Key, _Node] = field(default_factory=dict)

    @property
    def scala(self) -> Scala:
        return self.transplant.scala

    def node(self, plan: Any) -> _Node:
        """Return the node of a plan; equal plans have one node, which Spark would run once."""
        number = self.numbers.of(plan)
        if number not in self.known:
            try:
                self.known[number] = self._read(plan)
            except _NeedsSparkError:
                self.known[number] = self._planned(plan)
        return self.known[number]

    def _read(self, plan: Any) -> _Node:
        match node_name(plan):
            case "Range":
                return _Range(int(plan.end()))
            case "MapInArrow":
                return self._task(plan)
            case "Project":
                return self._project(plan)
            case "Filter":
                condition = self.scala.alias(plan.condition(), "passes")
                return _Filter(self.node(plan.child()), self._evaluated([condition], plan.child()))
            case "Union":
                return _Union(tuple(self.node(child) for child in items(plan.children())))
            case "Repartition" | "RepartitionByExpression" if plan.numPartitions() == 1:
                return self.node(plan.child())
            case _:
                raise _NeedsSparkError

    def _planned(self, plan: Any) -> _Node:
        fields = [
            pa.field(f"x{i}", to_arrow(type_of(a))) for i, a in enumerate(items(plan.output()))
        ]
        cuts = {self.numbers.of(task): self._cut(task) for task in topmost(plan, "MapInArrow")}
        return _Planned(self.transplant, plan, cuts, self.numbers, pa.schema(fields))

    def _cut(self, task: Any) -> _Cut:
        columns = tuple(items(task.output()))
        fields = [StructField(f"x{i}", type_of(a)) for i, a in enumerate(columns)]
        return _Cut(self.node(task), columns, StructType(fields))

    def _task(self, plan: Any) -> _Node:
        mapped = self.transplant.tasks[int(part(plan, 0).resultId().id())]
        names = tuple(str(a.name()) for a in items(plan.child().output()))
        fields = [pa.field(f.name, to_arrow(f.dataType)) for f in mapped.schema.fields]
        return _Task(self.node(plan.child()), names, mapped, pa.schema(fields))

    def _project(self, plan: Any) -> _Node:
        child, named = plan.child(), items(plan.projectList())
        places = _places(child)
        taken: list[int] = []
        computed: list[Any] = []
        width = len(items(child.output()))
        for each in named:
            id_ = passed_on(each)
            if id_ is not None:
                taken.append(places[id_])
            else:
                taken.append(width + len(computed))
                computed.append(each)
        evaluated = self._evaluated(computed, child) if computed else None
        return _Project(self.node(child), tuple(taken), evaluated)

    def _evaluated(self, expressions: list[Any], child: Any) -> _Evaluated:
        used: dict[int, Any] = {}
        for each in expressions:
            if not each.deterministic() or any(self.scala.may_hold(p, each) for p in _PLANNED):
                raise _NeedsSparkError
            used |= {int(a.exprId().id()): a for a in columns_of(each)}
        places, types = _places(child), [type_of(each) for each in expressions]
        if not all(_crosses(t) for t in (*types, *(type_of(a) for a in used.values()))):
            raise _NeedsSparkError
        fields = [StructField(f"e{i}", type_) for i, type_ in enumerate(types)]
        schema = pa.schema([pa.field(f.name, to_arrow(f.dataType)) for f in fields])
        inputs = self.scala.seq(used.values())
        bound = Evaluation(self.scala, expressions, inputs, StructType(fields)).bound()
        return _Evaluated(bound, tuple(places[id_] for id_ in used), schema)


def _leaves(plan: _Node) -> Iterator[_Task]:
    """Yield the tasks that read shares, inputs first."""
    for child in plan.below:
        yield from _leaves(child)
    if isinstance(plan, _Task) and isinstance(plan.child, _Range):
        yield plan


def _places(plan: Any) -> dict[int, int]:
    """Return the position of each column of a plan by its id."""
    return {int(a.exprId().id()): i for i, a in enumerate(items(plan.output()))}


def _numbered(rows: pa.Table) -> pa.Table:
    """Return the same number of rows with one column, for expressions that use no column."""
    return pa.table({"i0": pa.array(np.zeros(rows.num_rows, np.bool_))})


def _crosses(type_: DataType) -> bool:
    """Whether values of a type cross to the JVM and back as they are."""
    return not holds(type_, (MapType, VariantType))
