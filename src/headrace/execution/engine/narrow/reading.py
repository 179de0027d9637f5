"""Reading the plan of a program, node by node, into nodes that run in this process.

How narrow epochs run what is between the operators of a view, for EXPLAIN.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from headrace.algebra.operators import NearRows, TouchedGroups
from headrace.errors import HeadraceError
from headrace.execution.engine.jobs.reports import in_this_process
from headrace.execution.engine.jobs.worker import Chain, GuardTask, LeafTask, OperatorTask
from headrace.execution.engine.narrow.evaluated import ComputedColumns, InCatalyst, of_catalyst
from headrace.execution.engine.narrow.nodes import (
    Concatenated,
    Cut,
    DeltaLeaf,
    DoubtfulNode,
    Exchanged,
    Exploded,
    Exploding,
    Filtered,
    JobNode,
    Key,
    Projected,
    Range,
    RowsNode,
    StepRun,
    Task,
    leaves,
)
from headrace.execution.engine.narrow.windows import aggregated, windowed
from headrace.planning.catalyst.resolved import columns_of, id_of, names_and_ids, passed_on, type_of
from headrace.planning.catalyst.scala import (
    OPTIMIZER,
    Numbers,
    items,
    kind_of,
    node_name,
    part,
    references,
    topmost,
)
from headrace.planning.catalyst.vectors import UnprovedError, reader_over
from headrace.types import holds, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from headrace.execution.runtime.step import Report, Step
    from headrace.planning.catalyst.scala import Scala
    from headrace.planning.catalyst.transplant import Transplant


@dataclass(frozen=True, slots=True)
class Way:
    """What of an operator, and of what prepares its rows, leaves this process in a narrow epoch.

    ``crossings`` are the classes of expressions that Catalyst evaluates in the JVM, ``jobs`` what
    only Spark's own operators do; both without repetitions, in order.
    """

    crossings: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    def words(self) -> str:
        """Return a line, such as "in this process, with a crossing to the JVM for SoundEx"."""
        left = []
        if self.crossings:
            left.append(f"a crossing to the JVM for {_listed(self.crossings)}")
        if self.jobs:
            left.append(f"a Spark job for {_listed(self.jobs)}")
        return f"in this process, with {' and '.join(left)}" if left else "in this process"


def ways(node: RowsNode) -> dict[str, Way]:
    """Return the way of each operator in the program of a view, by the operator's name.

    An expression belongs to the operator that gets its values. A job that recomputes groups belongs
    to the operator that finds them.
    """
    found = _Found()
    found.visit(node, None)
    return {name: Way(tuple(found.crossings[name]), tuple(found.jobs[name])) for name in found.jobs}


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of each operator; the dictionaries of texts are sets that keep their order."""

    crossings: dict[str, dict[str, None]] = field(default_factory=dict)
    jobs: dict[str, dict[str, None]] = field(default_factory=dict)
    seen: set[RowsNode] = field(default_factory=set)

    def visit(self, node: RowsNode, above: str | None) -> None:
        """Visit a node and those below; ``above`` is the operator that gets its rows."""
        if node in self.seen:
            return
        self.seen.add(node)
        match node:
            case Task():
                names = [task.name for task in operators_of(node.mapped.task)]
                for name in names:
                    self._known(name)
                above = names[0] if names else above
            case Projected(evaluated=columns) | Filtered(condition=columns) if columns is not None:
                self._crossed(node, above, (columns,))
            case Exploded():
                self._crossed(node, above, of_catalyst(node.exploding.array))
            case DoubtfulNode():
                self._crossed(node, above, node.evaluated)
            case JobNode():
                owner = _recomputed(node) or above or _nearest(node)
                if owner is not None:
                    self._known(owner)
                    self.jobs[owner][node.why] = None
            case _:
                pass
        for below in node.below:
            self.visit(below, above)

    def _crossed(
        self, node: RowsNode, above: str | None, evaluated: Iterable[ComputedColumns]
    ) -> None:
        owner = above or _nearest(node)
        if owner is not None:
            self._known(owner)
            for columns in evaluated:
                self.crossings[owner].update(dict.fromkeys(columns.catalyst.classes()))

    def _known(self, name: str) -> None:
        self.crossings.setdefault(name, {})
        self.jobs.setdefault(name, {})


def operators_of(task: Any) -> Iterator[OperatorTask | GuardTask]:
    """Yield the operators that a task steps, the first one first."""
    match task:
        case OperatorTask() | GuardTask():
            yield task
        case Chain():
            yield from operators_of(task.first)
            yield task.second
        case _:
            pass


def _recomputed(node: JobNode) -> str | None:
    """Return the operator that has found the groups that a job recomputes."""
    for below in node.below:
        for task in operators_of(below.mapped.task) if isinstance(below, Task) else ():
            if isinstance(task.operator, TouchedGroups | NearRows):
                return task.name
    return None


def _nearest(node: RowsNode) -> str | None:
    """Return an operator below a node."""
    for below in node.below:
        tasks = operators_of(below.mapped.task) if isinstance(below, Task) else ()
        names = [task.name for task in tasks]
        found = names[-1] if names else _nearest(below)
        if found is not None:
            return found
    return None


def _listed(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


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


@dataclass(frozen=True, slots=True)
class Interpreted:
    """Plans of one partition that can be run in this process, one after the other."""

    scala: Scala
    session: SparkSession
    plans: tuple[RowsNode, ...]
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
                    run = StepRun()
                    for leaf in leaves(plan):
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


def node_of(transplant: Transplant, plan: Any) -> RowsNode:
    """Convert a plan that a transplant has built; its leaves read the deltas of a run."""
    with transplant.scala.active(transplant.spark):
        collapsed = transplant.scala.module(f"{OPTIMIZER}.CollapseProject").apply(plan)
        return _Reading(transplant, deltas=True).node(collapsed)


def staged_nodes(transplant: Transplant, jobs: tuple[Any, ...]) -> tuple[RowsNode, ...]:
    """Convert plans of several partitions, with their exchanges as nodes; see :class:`Exchanged`.

    What needs Spark is a :class:`JobNode`, or has expressions without a vector.
    """
    reading = _Reading(transplant, exchanges=True)
    with transplant.scala.active(transplant.spark):
        collapse = transplant.scala.module(f"{OPTIMIZER}.CollapseProject")
        return tuple(reading.node(collapse.apply(job)) for job in jobs)


_EXPLODES = frozenset({"Explode", "PosExplode"})


class _NeedsSparkError(Exception):
    """A node or an expression needs a job; the text says which."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads one plan. With ``deltas``, tasks that read shares are read as leaves.

    With ``exchanges``, rows that are sent to the partition of their hash are a node of their own.
    """

    transplant: Transplant
    deltas: bool = False
    exchanges: bool = False
    numbers: Numbers = field(default_factory=Numbers)
    known: dict[Key, RowsNode] = field(default_factory=dict)

    @property
    def scala(self) -> Scala:
        return self.transplant.scala

    def node(self, plan: Any) -> RowsNode:
        """Return the node of a plan; equal plans have one node, which Spark would run once."""
        number = self.numbers.of(plan)
        if number not in self.known:
            try:
                self.known[number] = self._read(plan)
            except (_NeedsSparkError, UnprovedError) as why:
                self.known[number] = self.planned(plan, str(why))
        return self.known[number]

    def _read(self, plan: Any) -> RowsNode:
        match node_name(plan):
            case "Range":
                return Range(int(plan.end()))
            case "MapInArrow":
                return self._task(plan)
            case "Project":
                return self._project(plan.child(), items(plan.projectList()))
            case "Expand":
                return Concatenated(
                    tuple(self._project(plan.child(), items(p)) for p in items(plan.projections()))
                )
            case "Filter":
                condition = self.scala.alias(plan.condition(), "passes")
                return Filtered(self.node(plan.child()), self._over([condition], plan.child()))
            case "Union":
                return Concatenated(tuple(self.node(child) for child in items(plan.children())))
            case "Generate" if kind_of(plan.generator()) in _EXPLODES:
                return self._exploded(plan)
            case "RepartitionByExpression" if self.exchanges:
                return self._exchanged(plan)
            case "Repartition" | "RepartitionByExpression" if plan.numPartitions() == 1:
                return self.node(plan.child())
            case "Aggregate" if self.exchanges and self._only_adds_up(plan):
                columns = self.transplant.output(plan.child())
                names = [str(each.name()) for each in items(plan.output())]
                return self._project(plan.child(), [columns[name] for name in names])
            case "Aggregate":
                return aggregated(self, plan)
            case "Window":
                return windowed(self, plan)
            case other:
                raise _NeedsSparkError(other)

    def _exchanged(self, plan: Any) -> RowsNode:
        """Read an exchange by the hash of a row; one by keys has its groups in one place already.

        The rows of :func:`~headrace.execution.engine.lowering.groups.recomputed` are in the
        partition that owns their group, and Spark needs to know only that they are together.
        """
        (owner,) = items(plan.partitionExpressions())[:1]
        if kind_of(owner) != "DirectShufflePartitionID":
            return self.node(plan.child())
        (hash_,) = references(owner)
        return Exchanged(self.node(plan.child()), _places(plan.child())[hash_])

    def _only_adds_up(self, plan: Any) -> bool:
        """Whether an aggregate adds up rows before they are sent, which operators do anyway."""
        return int(id_of(items(plan.output())[-1])) in self.transplant.sums

    def planned(self, plan: Any, why: str) -> JobNode:
        """Return the node that runs a plan as a job, for a reason."""
        cuts = {self.numbers.of(task): self._cut(task) for task in topmost(plan, "MapInArrow")}
        return JobNode(self.transplant, plan, cuts, self.numbers, _schema_of(plan), why)

    def _cut(self, task: Any) -> Cut:
        columns = tuple(items(task.output()))
        fields = [StructField(f"x{i}", type_of(a)) for i, a in enumerate(columns)]
        return Cut(self.node(task), columns, StructType(fields))

    def _task(self, plan: Any) -> RowsNode:
        mapped = self.transplant.tasks[int(part(plan, 0).resultId().id())]
        names = tuple(name for name, _ in names_and_ids(plan.child()))
        schema = pa.schema([pa.field(f.name, to_arrow(f.dataType)) for f in mapped.schema.fields])
        task = mapped.task
        if self.deltas and isinstance(task, LeafTask) and task.slice is None:
            return DeltaLeaf(task.relation, tuple(task.columns.names), task.offsets, schema)
        return Task(self.node(plan.child()), names, mapped, schema)

    def _project(self, child: Any, named: Sequence[Any]) -> RowsNode:
        columns = names_and_ids(child)
        places = {id_: i for i, (_, id_) in enumerate(columns)}
        taken: list[int] = []
        computed: list[Any] = []
        for each in named:
            id_ = passed_on(each)
            if id_ is not None:
                taken.append(places[id_])
            else:
                taken.append(len(columns) + len(computed))
                computed.append(each)
        evaluated = self._over(computed, child, places) if computed else None
        return Projected(self.node(child), tuple(taken), evaluated)

    def _exploded(self, plan: Any) -> RowsNode:
        child, generator = plan.child(), plan.generator()
        if not isinstance(type_of(generator.child()), ArrayType):
            raise _NeedsSparkError(f"{node_name(generator)} of a map")
        array = self.scala.alias(generator.child(), "array")
        places = _places(child)
        kept = tuple(places[id_of(each)] for each in items(plan.requiredChildOutput()))
        positions = kind_of(generator) == "PosExplode"
        evaluated = self._over([array], child)
        given = Exploding(evaluated, kept, bool(plan.outer()), positions, _schema_of(plan))
        return Exploded(self.node(child), given)

    def _over(
        self, expressions: list[Any], child: Any, places: Mapping[int, int] | None = None
    ) -> ComputedColumns:
        # Those of the child, and not of the expressions: only they say which may be NULL here.
        return self.evaluated(expressions, items(child.output()), places or _places(child))

    def evaluated(
        self,
        expressions: list[Any],
        attributes: Sequence[Any],
        places: Mapping[int, int] | None = None,
    ) -> ComputedColumns:
        """Return expressions over columns with some attributes, at ``places`` by their ids."""
        if places is None:
            places = {id_of(each): i for i, each in enumerate(attributes)}
        reader = reader_over(places)
        vectors = tuple(map(reader.vector_of, expressions))
        types = []
        for each, vector in zip(expressions, vectors, strict=True):
            if vector is None:
                self._require_crossing(each)
            types.append(to_arrow(type_of(each)) if vector is None else vector.type)
        schema = pa.schema([pa.field(f"e{i}", type_) for i, type_ in enumerate(types)])
        crossed = tuple(vector is None for vector in vectors)
        catalyst = InCatalyst(self.scala, tuple(expressions), tuple(attributes), crossed)
        if any(crossed):  # prepare what each evaluation needs
            catalyst.crossing(every=False)
        return ComputedColumns(vectors, schema, catalyst)

    def _require_crossing(self, expression: Any) -> None:
        """Raise if an expression cannot be evaluated in the driver's JVM without a job."""
        for pattern in _PLANNED:
            if self.scala.may_hold(pattern, expression):
                raise _NeedsSparkError(pattern.capitalize().replace("_", " "))
        if not expression.deterministic():
            raise _NeedsSparkError(f"{node_name(expression)}, which is not deterministic")
        for type_ in map(type_of, (expression, *columns_of(expression))):
            if not _crosses(type_):
                raise _NeedsSparkError(f"values of type {type_.simpleString()}")


def _schema_of(plan: Any) -> pa.Schema:
    """Return the types of a plan's columns, named ``x0``, ``x1``, ... by position.

    Raises:
        _NeedsSparkError: values of one of them cannot leave Spark, so what is above needs it too.
    """
    try:
        types = [to_arrow(type_of(each)) for each in items(plan.output())]
    except HeadraceError as error:
        raise _NeedsSparkError(f"{node_name(plan)}: {error.primary}") from None
    return pa.schema([pa.field(f"x{i}", type_) for i, type_ in enumerate(types)])


def _places(plan: Any) -> dict[int, int]:
    """Return the position of each column of a plan by its id."""
    return {id_: i for i, (_, id_) in enumerate(names_and_ids(plan))}


def _crosses(type_: DataType) -> bool:
    """Whether values of a type cross to the JVM and back as they are."""
    return not holds(type_, (MapType,))
