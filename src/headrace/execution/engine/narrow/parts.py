"""Narrow steps: programs in this process, composed of a part for each view and each table.

A part computes the delta of one relation from the deltas of the relations that it reads. It is
built when a step first reaches the relation, or read from disk if an earlier process has built it
(:mod:`headrace.execution.engine.narrow.stored`). It is kept until the relation or one of its inputs
is declared again: a step over any set of changed relations is composed of the same parts.

The jobs that the parts of a narrow step need, as one: starting a job costs more than few rows.

Their plans become branches of a union, in which each has columns of its own.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType

from headrace.execution.engine.jobs.reports import in_this_process
from headrace.execution.engine.lowering.assembly import ShareScan
from headrace.execution.engine.narrow.evaluated import UnplannedError, with_schema
from headrace.execution.engine.narrow.nodes import DeltaLeaf, JobNode, Range, StepRun, nodes_of
from headrace.execution.engine.narrow.reach import Deltas
from headrace.execution.engine.narrow.reading import node_of
from headrace.execution.engine.narrow.stored import StoredProgram
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.execution.runtime.ports import Stepped, StepPlan
from headrace.execution.runtime.spent import Activity, Spending
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import collect_arrow, items

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headrace.algebra.zset import Layout
    from headrace.execution.engine.jobs.worker import LogReader
    from headrace.execution.engine.lowering.programs import Lowering
    from headrace.execution.engine.narrow.nodes import RowsNode
    from headrace.execution.engine.narrow.stored import ProgramFiles
    from headrace.execution.runtime.step import Step
    from headrace.planning.catalog import Relation, Table
    from headrace.planning.circuit import Circuit
    from headrace.types import ArrangementId, RelationId


@dataclass(frozen=True, slots=True)
class DueJob:
    """A node whose rows need a job, in the run of a part; all jobs below it have run."""

    node: JobNode
    run: StepRun


def run_jobs(due: Sequence[DueJob]) -> None:
    """Compute the rows of some nodes, with one job for all of them; it counts for the first run.

    If that fails, each has a job of its own: what fails then is the node's own failure.

    Raises:
        MoreRowsError: a node has too many rows.
        PySparkException, Py4JError: an expression fails on a row.
    """
    check_cancelled()
    if len(due) > 1:
        due[0].run.jobs += 1
        with Spending(Activity.JOBS), suppress(PySparkException, Py4JError):
            _run_as_one(due)
        check_cancelled()
    for each in due:
        each.node.rows(each.run)


def _run_as_one(due: Sequence[DueJob]) -> None:
    found = _union(due[0].node, [each.node.filled(each.run) for each in due])
    which, first = found.column(0), 1
    for number, each in enumerate(due):
        schema = each.node.schema
        own = found.columns[first : first + len(schema)]
        first += len(schema)
        rows = pa.Table.from_arrays(own, names=schema.names).filter(pc.equal(which, number))
        each.run.put(each.node, with_schema(rows.columns, schema).combine_chunks())


def _union(node: JobNode, plans: Sequence[Any]) -> pa.Table:
    """Return the rows of some plans: the number of the plan, then the columns of all of them."""
    transplant = node.transplant
    outputs = [items(plan.output()) for plan in plans]
    branches = []
    for number, plan in enumerate(plans):
        named = [transplant.alias(transplant.literal(number, LongType()), "which")]
        named += [
            transplant.alias(
                column if other == number else transplant.literal(None, type_of(column)),
                f"x{other}_{place}",
            )
            for other, output in enumerate(outputs)
            for place, column in enumerate(output)
        ]
        branches.append(transplant.project(named, plan))
    whole = transplant.finished(transplant.union(branches))
    return collect_arrow(transplant.frame(whole))


@dataclass(frozen=True, slots=True)
class Variant:
    """How a view takes part in a step: whether time passes, and whether its recursions go on."""

    ticks: bool = False
    loops: bool = False

    @property
    def runs_without_changes(self) -> bool:
        """Whether the view may change although none of its inputs does."""
        return self.ticks or self.loops

    @property
    def name(self) -> str:
        """A short text, safe in the name of a file."""
        words = ("ticks" if self.ticks else "", "loops" if self.loops else "")
        return "-".join(filter(None, words)) or "plain"


@dataclass(frozen=True, slots=True)
class StepPart:
    """The program of one relation: ``node`` yields its delta.

    ``circuit`` is that of a view, unless the part was ``stored``; ``relations`` are its inputs when
    the part was built, and itself if it was stored.
    """

    relation: RelationId
    variant: Variant
    circuit: Circuit | None
    relations: Mapping[RelationId, Relation]
    node: RowsNode
    leaves: tuple[DeltaLeaf, ...]
    needs: StepPlan
    jobs: tuple[tuple[JobNode, frozenset[JobNode]], ...] = ()
    """The nodes that need jobs even without a doubt, each with those below it."""
    stored: bool = False

    def is_idle(self, deltas: Deltas) -> bool:
        """Whether nothing can change: no input has changed, and time does not matter."""
        if self.variant.runs_without_changes or deltas.step.initialise & self.needs.globals:
            return False
        return not deltas.has_rows(self.needs.reads)


@dataclass(slots=True)
class StepParts:
    """The parts that have been built; ``planning`` is held while one is built.

    ``lowering`` returns a new lowering for one partition, over these relations. ``files`` are the
    programs on disk, if there are any.
    """

    lowering: Callable[[Mapping[RelationId, Relation]], Lowering]
    planning: threading.RLock
    files: ProgramFiles | None = None
    _known: dict[tuple[RelationId, Variant], StepPart] = field(default_factory=dict)
    _sought: dict[tuple[RelationId, Variant], Relation] = field(default_factory=dict)
    """The relations whose programs were looked for on disk."""
    _locks: dict[RelationId, Lock] = field(default_factory=dict)

    @contextmanager
    def held(self, parts: Iterable[StepPart]) -> Iterator[None]:
        """Let no other thread run some parts during a block: expressions have mutable state."""
        with ExitStack() as stack:
            for id_ in sorted({part.relation for part in parts}):
                stack.enter_context(self._locks.setdefault(id_, Lock()))
            yield

    def stored(
        self, relation: Relation, variant: Variant, relations: Mapping[RelationId, Relation]
    ) -> StepPart | None:
        """Return the part of a relation that was stored; None if there is none, or another one."""
        key = relation.id, variant
        known = self._known.get(key)
        if known is not None and known.stored and _same(known.relations, relations):
            return known
        if self.files is None or self._sought.get(key) is relation:
            return None
        self._sought[key] = relation
        found = self.files.find(relation, variant.name, relations)
        if found is None:
            return None
        own = {id_: relations[id_] for id_ in (*found.reads, relation.id)}
        leaves = _leaves(found.node)
        part = StepPart(
            relation.id, variant, None, own, found.node, leaves, found.needs, stored=True
        )
        self._known[key] = part
        return part

    def plan(self, relation: RelationId) -> None:
        """Forget the parts of a relation that were read from disk: they are built from now on."""
        for key in [key for key, part in self._known.items() if key[0] == relation and part.stored]:
            del self._known[key]

    def add(self, part: StepPart, relations: Mapping[RelationId, Relation]) -> None:
        """Add a part that was built over some relations, its own among them, and store it."""
        relation = relations[part.relation]
        self._known[part.relation, part.variant] = part
        self._sought[part.relation, part.variant] = relation
        if self.files is not None:
            program = StoredProgram(part.node, part.needs, tuple(part.relations))
            self.files.store(relation, part.variant.name, relations, program)

    def of_view(
        self, circuit: Circuit, variant: Variant, relations: Mapping[RelationId, Relation]
    ) -> StepPart:
        """Return the part of a view."""
        key = circuit.view, variant
        known = self._known.get(key)
        if known is not None and known.circuit is circuit and _same(known.relations, relations):
            return known
        with self.planning:
            lowering = self.lowering(relations)
            program = lowering.alone(circuit, ticks=variant.ticks, loops=variant.loops)
            own = {id_: relations[id_] for id_ in circuit.reads}
            node, needs = node_in(lowering, circuit.view), program.needs([circuit])
            part = part_over(node, circuit.view, variant, circuit, own, needs)
            self.add(part, relations)
            return part

    def of_table(self, table: Table) -> StepPart:
        """Return the part that keeps the rows of a table."""
        stored = self.stored(table, Variant(), {table.id: table})
        if stored is not None:
            return stored
        key = table.id, Variant()
        known = self._known.get(key)
        if known is not None and known.relations[table.id] is table:
            return known
        with self.planning:
            relations = {table.id: table}
            lowering = self.lowering(relations)
            program = lowering.rows_of(table)
            node, needs = node_in(lowering, table.id), program.needs([])
            part = part_over(node, table.id, Variant(), None, relations, needs)
            self.add(part, relations)
            return part

    def forget(self, relation: RelationId) -> None:
        """Forget the parts of a relation."""
        for key in [key for key in self._known if key[0] == relation]:
            del self._known[key]
        if self.files is not None:
            self.files.delete(relation)


class UnplannedPartError(Exception):
    """The stored part of a ``relation`` cannot go on without its circuit."""

    def __init__(self, relation: RelationId) -> None:
        super().__init__(relation)
        self.relation = relation


def _rows_of(part: StepPart, run: StepRun) -> pa.Table:
    try:
        return part.node.rows(run)
    except UnplannedError:
        raise UnplannedPartError(part.relation) from None


def _same(known: Mapping[RelationId, Relation], relations: Mapping[RelationId, Relation]) -> bool:
    return all(relations.get(id_) is relation for id_, relation in known.items())


def part_over(
    node: RowsNode,
    relation: RelationId,
    variant: Variant,
    circuit: Circuit | None,
    relations: Mapping[RelationId, Relation],
    needs: StepPlan,
) -> StepPart:
    """Return the program of a relation, whose node is known, as a part."""
    jobs = tuple((job, frozenset(_jobs_in(job)) - {job}) for job in _jobs_in(node))
    return StepPart(relation, variant, circuit, relations, node, _leaves(node), needs, jobs)


def _jobs_in(node: RowsNode) -> list[JobNode]:
    return [each for each in nodes_of(node) if isinstance(each, JobNode)]


def node_in(lowering: Lowering, relation: RelationId) -> RowsNode:
    """Return the program of a relation whose plan a lowering has built.

    A view that reads no rows, as where all conditions are false, has no plan: it never changes.
    """
    frame = lowering.assembly.frames.get(relation)
    return Range(0) if frame is None else node_of(lowering.transplant, frame.plan)


def _leaves(node: RowsNode) -> tuple[DeltaLeaf, ...]:
    return tuple(each for each in nodes_of(node) if isinstance(each, DeltaLeaf))


def together(parts: Sequence[StepPart]) -> StepPlan:
    """Return what a step of some parts needs."""
    needs = [part.needs for part in parts]
    arrangements: dict[ArrangementId, Layout] = {}
    shared: dict[ArrangementId, RelationId] = {}
    for each in needs:
        arrangements.update(each.arrangements)
        shared.update(each.shared)
    return StepPlan(
        frozenset().union(*(each.reads for each in needs)),
        arrangements,
        frozenset().union(*(each.globals for each in needs)),
        shared,
        tuple(loop for each in needs for loop in each.loops),
        guards=frozenset().union(*(each.guards for each in needs)),
    )


def scans(parts: Iterable[StepPart]) -> dict[RelationId, ShareScan]:
    """Return the columns that some parts read of each relation."""
    columns: dict[RelationId, dict[str, None]] = {}
    places: set[RelationId] = set()
    for part in parts:
        for leaf in part.leaves:
            columns.setdefault(leaf.relation, {}).update(dict.fromkeys(leaf.columns))
            if leaf.offsets:
                places.add(leaf.relation)
    return {id_: ShareScan(tuple(names), id_ in places) for id_, names in columns.items()}


def run_parts(
    step: Step,
    parts: Sequence[StepPart],
    relations: Mapping[RelationId, Relation],
    log: LogReader,
    most: int,
    *,
    apart: bool = False,
) -> Stepped:
    """Run parts in this process, each after those that it reads.

    With ``apart``, large runs have packs of their own.

    Raises:
        MoreRowsError: a share or a delta has more than ``most`` rows.
        Py4JError: an expression fails on a row.
        UnplannedPartError: a stored part has to be planned; nothing was written.
    """
    with in_this_process(step, apart=apart) as reports:
        deltas = Deltas(step, log, relations, scans(parts), most)
        runs = [(part, StepRun(deltas, most)) for part in parts]
        left = runs
        while left:
            left, due = _advanced(left, deltas)
            if due:
                run_jobs(due)
    return Stepped(tuple(reports), sum(run.jobs for _, run in runs))


_Running: TypeAlias = tuple[StepPart, StepRun]


def _advanced(running: Sequence[_Running], deltas: Deltas) -> tuple[list[_Running], list[DueJob]]:
    """Run parts, inputs first, as far as they go without jobs; return the others and their jobs."""
    left: list[_Running] = []
    due: list[DueJob] = []
    unknown: set[RelationId] = set()
    for part, run in running:
        if unknown.isdisjoint(part.needs.reads):
            if part.is_idle(deltas):
                continue
            jobs = [
                DueJob(job, run)
                for job, below in part.jobs
                if job not in run.found and below <= run.found.keys()
            ]
            if not jobs:
                deltas.add(part.relation, _rows_of(part, run))
                run.found.clear()
                continue
            due += jobs
        left.append((part, run))
        unknown.add(part.relation)
    return left, due
