"""The parts of programs: leaves, exchanges and operators.

Lowering inputs of operators that are restored from the state of other builds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import LongType, MapType, VariantType

from headrace.algebra.operators import OFFSET, StatefulOperator
from headrace.algebra.zset import HASH, WEIGHT, Layout
from headrace.execution.engine.jobs.worker import (
    SIDE,
    Chain,
    ConstantTask,
    DeltaTask,
    Excerpt,
    HandedTask,
    LeafTask,
    LogReader,
    OperatorTask,
    SeedTask,
)
from headrace.execution.runtime.ports import LoopPlan, Reach, StepPlan
from headrace.planning.catalog import logged
from headrace.planning.catalyst.transplant import spark_schema
from headrace.planning.circuit.keys import partitioning
from headrace.types import holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.execution.engine.jobs.worker import GuardTask
    from headrace.execution.engine.narrow.nodes import RowsNode
    from headrace.execution.engine.narrow.reading import Interpreted
    from headrace.execution.engine.wide.stages import Staged
    from headrace.planning.catalog import Relation
    from headrace.planning.catalyst import plan
    from headrace.planning.catalyst.transplant import Transplant
    from headrace.planning.circuit import Circuit, Shared
    from headrace.planning.circuit.reuse import KeptState
    from headrace.types import ArrangementId, DataType, RelationId


Operating: TypeAlias = "OperatorTask | Chain | GuardTask"
"""The tasks of operators, which run over rows that are in their partition."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The operator at the top of a plan: its task, the plan of its input, and its output columns.

    ``columns`` maps ids of attributes to columns of the operator's output.
    """

    task: OperatorTask
    below: Any
    columns: Mapping[int, str]

    def then(self, task: OperatorTask, ids: list[int]) -> Chain:
        """Return a task that also steps another operator, over the columns with these ids."""
        return Chain(self.task, (HASH, *(self.columns[id_] for id_ in ids), WEIGHT), task)


@dataclass(frozen=True, slots=True)
class Frame:
    """A plan whose rows are a delta, with its weight column and, if it has one, its hash column.

    With ``hash``, rows are in the partition that owns it; it is the hash of the columns returned by
    :func:`headrace.planning.circuit.keys.partitioning`. With ``tail``, the plan only names the
    output of an operator. ``row`` is the kind of a row between the operators of a join whose
    condition is more than equalities.
    """

    plan: Any
    weight: Any
    hash: Any | None = None
    tail: Tail | None = None
    row: Any | None = None

    def is_by(self, node: plan.Plan, ids: Sequence[int | None]) -> bool:
        """Whether rows, those of a node, are in the partition that owns the hash of some columns.

        Columns are given by id; None is no column of the node.
        """
        found = partitioning(node)
        return (
            self.hash is not None
            and found is not None
            and len(found) == len(ids)
            and all(id_ in column for id_, column in zip(ids, found, strict=True))
        )


@dataclass(frozen=True, slots=True)
class PublishedDelta:
    """The consolidated delta of a relation, yielded by ``task``, with the columns ``fields``.

    ``plan`` is its plan in the job that computes it; later jobs read it from its run. ``size`` is
    the number of circuit nodes in the plan, each counted once per use. A ``stored`` delta is read
    from its run by further users, instead of being repeated in its job.
    """

    plan: Any
    task: OperatorTask
    fields: list[tuple[str, DataType]]
    job: int
    size: int
    stored: bool


@dataclass(frozen=True, slots=True)
class Program:
    """The plans of Spark jobs that run one after the other, and what they read and write.

    There is one job, unless repeated parts would make its plan too large.
    """

    jobs: tuple[Any, ...]
    operators: tuple[str, ...]
    constants: tuple[str, ...]
    arrangements: Mapping[ArrangementId, Layout]
    shares: frozenset[RelationId]
    shared: Mapping[ArrangementId, RelationId]
    scans: Mapping[RelationId, int] = field(default_factory=dict)
    """The number of times that each relation's share is read."""
    guards: frozenset[ArrangementId] = frozenset()
    """The quarantines among the arrangements."""
    reporting: tuple[str, ...] = ()
    """The names of the tasks that leave a note in each partition."""
    interpreted: Interpreted | None = None
    """The same plans, to be run in this process for few rows, or None."""
    here: RowsNode | None = None
    """The same plan, to be run in this process for the steps of a fill, or None."""
    reach: Reach = Reach.NONE
    """How much of a fill is done in this process."""
    staged: Staged | None = None
    """The same plans in stages; None where only Spark runs them."""

    def needs(self, circuits: Iterable[Circuit]) -> StepPlan:
        """Return what a step of these circuits must provide to run the program."""
        initial: set[str] = set()
        loops = []
        for circuit in circuits:
            initial |= circuit.initial()
            loops += [
                LoopPlan(circuit.view, *node.arrangements, node.operator.layout, node.plan.limit)
                for node in circuit.loops()
                if node.name in self.operators
            ]
        temporary = {id_ for loop in loops for id_ in (loop.feedback, loop.over_limit)}
        return StepPlan(
            self.shares,
            {id_: layout for id_, layout in self.arrangements.items() if id_ not in temporary},
            frozenset(initial & {*self.operators, *self.constants}),
            self.shared,
            tuple(loops),
            len(self.jobs),
            self.scans,
            self.guards,
            self.interpreted is not None,
            reach=self.reach,
        )


@dataclass(frozen=True, slots=True)
class ShareScan:
    """The columns that are read of a relation's share, and whether offsets are."""

    columns: tuple[str, ...]
    offsets: bool


@dataclass(slots=True)
class Assembly:
    """Builds one program: its parts so far, and methods that add to it."""

    transplant: Transplant
    partitions: int
    relations: Mapping[RelationId, Relation]
    log: LogReader
    frames: dict[RelationId, PublishedDelta] = field(default_factory=dict)
    """The consolidated deltas of relations that are computed in the program."""
    job: int = 0
    """The number of the job that is being built."""
    _used: set[RelationId] = field(default_factory=set)
    """The relations whose delta is used in the job that computes it."""
    operators: list[str] = field(default_factory=list)
    initial: list[str] = field(default_factory=list)
    """The names of constants, whose rows are inserted when their view is created."""
    arrangements: dict[ArrangementId, Layout] = field(default_factory=dict)
    scans: Counter[RelationId] = field(default_factory=Counter)
    read_once: dict[RelationId, ShareScan] = field(default_factory=dict)
    """The relations whose shares are read once for all leaves, and what the leaves read."""
    _read: dict[tuple[RelationId, int], Any] = field(default_factory=dict)
    """The plans of these shares, by relation and job."""
    shared: dict[ArrangementId, RelationId] = field(default_factory=dict)
    """The arrangements of relations that operators read instead of a copy of their own."""
    guards: set[ArrangementId] = field(default_factory=set)
    """The quarantines."""
    slices: list[str] = field(default_factory=list)
    """The names of leaves that read a slice."""

    def program(self) -> Program:
        """Return the program: one plan per job, which runs every terminal."""
        terminals: dict[int, list[Any]] = {}
        for relation, published in self.frames.items():
            if relation not in self._used:
                terminals.setdefault(published.job, []).append(published.plan)
        # No terminals: views name the changed relations, but do not depend on the changes.
        jobs = [terminals[job] for job in sorted(terminals)] or [[]]
        return Program(
            tuple(map(self._job, jobs)),
            tuple(self.operators),
            tuple(self.initial),
            dict(self.arrangements),
            frozenset(self.scans),
            dict(self.shared),
            dict(self.scans),
            frozenset(self.guards),
            (*self.operators, *self.slices),
        )

    def _job(self, terminals: list[Any]) -> Any:
        """Return one plan that runs every terminal."""
        transplant = self.transplant
        empty = [
            transplant.project([transplant.alias(transplant.literal(0, LongType()), "x")], terminal)
            for terminal in terminals
        ]
        return transplant.finished(transplant.union(empty or [transplant.range(1)]))

    def delta(self, relation: RelationId) -> Any:
        """Return the delta of a relation that is part of the program, for the current job."""
        published = self.frames[relation]
        if published.job == self.job:
            self._used.add(relation)
            return published.plan
        task = published.task
        (arrangement,) = task.arrangements
        (layout,) = task.operator.layouts
        read = DeltaTask(arrangement, layout, task.output[1:-1], self.partitions)
        return self.transplant.mapped(
            self.transplant.range(self.partitions), read, spark_schema(published.fields[1:])
        )

    def scan(self, relation: Relation, wanted: ShareScan) -> tuple[Any, ShareScan]:
        """Return a plan of a relation's share, and its contents: at least what is wanted."""
        every = self.read_once.get(relation.id)
        if every is None:
            return self.leaf(relation, wanted.columns, offsets=wanted.offsets), wanted
        place = relation.id, self.job
        if place not in self._read:
            leaf = self.leaf(relation, every.columns, offsets=every.offsets)
            types = {c.name: c.type for c in logged(relation).columns}
            columns = self.transplant.output(leaf)
            hashed = [
                columns[f"c{i}"]
                for i, name in enumerate(every.columns)
                if not holds(types[name], (MapType, VariantType))
            ]
            hash_ = self.transplant.alias(self.transplant.hash(hashed), HASH)
            named = self.transplant.project([hash_, *columns.values()], leaf)
            self._read[place] = self.transplant.exchange(named, HASH, self.partitions)
        return self._read[place], every

    def leaf(
        self,
        relation: Relation,
        columns: tuple[str, ...],
        *,
        offsets: bool,
        slice_: str | None = None,
    ) -> Any:
        """Read columns of a relation's share, as ``c0``, ``c1``, ... with its weight.

        For a slice, rows that do not meet the restriction of that name are skipped, and the others
        are counted.
        """
        schema = logged(relation)
        read = pa.schema([schema.stored.field(schema.names.index(name)) for name in columns])
        if slice_ is not None:
            self.slices.append(slice_)
        task = LeafTask(relation.id, read, offsets, self.partitions, self.log, slice_)
        types = {c.name: c.type for c in schema.columns}
        fields = [(f"c{i}", types[name]) for i, name in enumerate(columns)]
        fields.append((WEIGHT, LongType()))
        if offsets:
            fields.append((OFFSET, LongType()))
        self.scans[relation.id] += 1
        return self.transplant.mapped(
            self.transplant.range(self.partitions), task, spark_schema(fields)
        )

    def weighted(self, named: list[Any], weight: Any, below: Any) -> Frame:
        """Project columns with a new weight column, so that its id is unique to the frame."""
        own = self.transplant.alias(weight, WEIGHT)
        return Frame(self.transplant.project([*named, own], below), own.toAttribute())

    def keyed(
        self,
        frame: Frame,
        keys: list[Any],
        columns: list[tuple[str, Any]],
        summed: list[tuple[str, Any]],
        *,
        there: bool,
        totals: list[tuple[str, DataType]] | None = None,
    ) -> Any:
        """Name the columns, hash the keys, and send rows to their partition.

        ``there``: rows are in their partition already. With ``totals``, the types of columns to add
        up, steps with several partitions add up before rows are sent.
        """
        transplant = self.transplant
        hash_ = frame.hash if there else transplant.hash(keys)
        named = [transplant.alias(hash_, HASH)]
        named += [transplant.alias(value, name) for name, value in columns]
        named.append(transplant.alias(frame.weight, WEIGHT))
        named += [transplant.alias(value, name) for name, value in summed]
        projected = transplant.project(named, frame.plan)
        if there:
            return projected
        if totals is not None and columns and self.partitions > 1:
            identity = [HASH, *(name for name, _ in columns)]
            projected = transplant.added_up(projected, identity, totals)
        return self.exchange(projected)

    def side(
        self, which: int, hash_: Any, columns: Iterable[tuple[str, DataType, Any]], frame: Frame
    ) -> Any:
        """Name the columns of one input of an operator, so that all its inputs have equal columns.

        ``columns`` are those of all inputs, with None as the value of columns that this one lacks.
        """
        transplant = self.transplant
        named = [transplant.alias(hash_, HASH)]
        named.append(transplant.alias(transplant.literal(which, LongType()), SIDE))
        named += [
            transplant.alias(transplant.literal(None, type_) if value is None else value, name)
            for name, type_, value in columns
        ]
        named.append(transplant.alias(frame.weight, WEIGHT))
        return transplant.project(named, frame.plan)

    def exchange(self, below: Any) -> Any:
        """Send rows to the partition that owns their hash; with one partition, just gather."""
        if self.partitions == 1:
            return self.transplant.gather(below)
        return self.transplant.exchange(below, HASH, self.partitions)

    def reusable(self, frame: Frame, attributes: tuple[plan.Attribute, ...]) -> Any:
        """Return a plan of a frame's rows for use in several plans: what is below runs once.

        Spark runs an exchange once however often it is used, and a stage once per use. The columns
        are called ``x0``, ``x1``, ... by the position of the attributes: ids end at an exchange.
        """
        transplant = self.transplant
        hash_ = transplant.hash_of_row(attributes) if frame.hash is None else frame.hash
        named = [transplant.alias(a.handle, f"x{i}") for i, a in enumerate(attributes)]
        named += [transplant.alias(frame.weight, WEIGHT), transplant.alias(hash_, HASH)]
        below = transplant.project(named, frame.plan)
        return transplant.exchange(below, HASH, self.partitions)

    def used(self, reused: Any, attributes: tuple[plan.Attribute, ...], *, there: bool) -> Frame:
        """Return one use of a plan that :meth:`reusable` made.

        ``there``: rows are in the partition that owns the hash of the original frame.
        """
        transplant = self.transplant
        columns = transplant.output(reused)
        named = [
            transplant.alias(columns[f"x{i}"], a.name, a.handle) for i, a in enumerate(attributes)
        ]
        if there:
            named.append(transplant.alias(columns[HASH], HASH))
        frame = self.weighted(named, columns[WEIGHT], reused)
        return replace(frame, hash=named[-1].toAttribute() if there else None)

    def task(
        self,
        name: str,
        operator: StatefulOperator,
        arrangements: tuple[ArrangementId, ...],
        inputs: tuple[tuple[str, ...], ...],
        output: list[tuple[str, DataType]],
        *,
        clocked: bool = False,
        shared: Mapping[int, Shared] = MappingProxyType({}),
    ) -> OperatorTask:
        """Return the task of an operator that is part of the program.

        ``clocked``: its last input is the clock of the step. ``shared`` are the arrangements, by
        position, that are the contents of relations.
        """
        for i, (id_, layout) in enumerate(zip(arrangements, operator.layouts, strict=True)):
            self.arrangements[id_] = shared[i].layout if i in shared else layout
        self.shared |= {each.id: each.relation for each in shared.values()}
        self.operators.append(name)
        names = tuple(n for n, _ in output)
        read = {i: Excerpt(each.columns, each.present) for i, each in shared.items()}
        return OperatorTask(name, operator, arrangements, inputs, names, clocked, read)

    def guard(self, name: str, arrangement: ArrangementId, layout: Layout) -> None:
        """Add a quarantine to the program."""
        self.arrangements[arrangement] = layout
        self.guards.add(arrangement)
        self.operators.append(name)

    def seeded(
        self, name: str, layout: Layout, keyed: Any, fields: list[tuple[str, DataType]]
    ) -> Any:
        """Add a row of weight 0 for an operator that has a result before any input."""
        types = dict(fields)
        names = tuple(self.transplant.output(keyed))
        schema = spark_schema([(n, types[n]) for n in names])
        seed = SeedTask(name, layout, names)
        row = self.transplant.mapped(self.transplant.range(1), seed, schema)
        return self.exchange(self.transplant.union([keyed, row]))

    def constant(self, name: str, rows: pa.Table, fields: list[tuple[str, DataType]]) -> Any:
        """Return rows that are inserted in the first step of a view, as ``c0``, ``c1``, ..."""
        renamed = rows.rename_columns([n for n, _ in fields[:-1]])
        task = ConstantTask(name, renamed)
        self.initial.append(name)
        return self.transplant.mapped(self.transplant.range(1), task, spark_schema(fields))

    def handed(self, arrangement: ArrangementId, fields: list[tuple[str, DataType]]) -> Any:
        """Read the feedback of a recursion from its previous round, with its weight."""
        task = HandedTask(arrangement, self.partitions)
        return self.transplant.mapped(
            self.transplant.range(self.partitions), task, spark_schema(fields)
        )

    def stepped(self, task: Operating, below: Any, output: list[tuple[str, DataType]]) -> Any:
        """Step an operator, or two in a row, over rows that are in their partition."""
        return self.transplant.mapped(below, task, spark_schema(output))


@dataclass(frozen=True, slots=True)
class StateShare:
    """A share of the step with the rows of a kept arrangement. Its name is no relation's id."""

    name: RelationId
    kept: KeptState

    def read(self, assembly: Assembly, types: Mapping[str, DataType]) -> Any:
        """Return a plan of its hashes, columns and weights, with the names of the input."""
        transplant, long, columns = assembly.transplant, LongType(), self.kept.columns
        schema = self.kept.layout.schema
        read = pa.schema([schema.field(HASH), *(schema.field(name) for name in columns.values())])
        task = LeafTask(self.name, read, False, assembly.partitions, assembly.log)  # noqa: FBT003
        assembly.scans[self.name] += 1
        fields = [("c0", long), *((f"c{i + 1}", types[name]) for i, name in enumerate(columns))]
        below = transplant.mapped(
            transplant.range(assembly.partitions), task, spark_schema([*fields, (WEIGHT, long)])
        )
        given = transplant.output(below)
        names = zip((HASH, *columns, self.kept.weight), (*dict(fields), WEIGHT), strict=True)
        return transplant.project([transplant.alias(given[c], name) for name, c in names], below)


def restored_increments(
    assembly: Assembly, shares: tuple[StateShare, ...], fields: list[tuple[str, DataType]]
) -> Any:
    """Return increments with all ``fields`` that add up to the state of an aggregate.

    Those of the totals have no values of parts; those of a part count no rows, only its values.
    Fields before the weight are values, and NULL where a share lacks them; the others are sums.
    """
    transplant, types = assembly.transplant, dict(fields)
    names = list(types)
    sums = {*names[names.index(WEIGHT) :]}
    branches = []
    for share in shares:
        rows = share.read(assembly, types)
        given = transplant.output(rows)
        named = [transplant.alias(given[HASH], HASH)]
        for name, type_ in fields:
            none = transplant.zero(type_) if name in sums else transplant.literal(None, type_)
            named.append(transplant.alias(given.get(name, none), name))
        branches.append(transplant.project(named, rows))
    below = branches[0] if len(branches) == 1 else transplant.union(branches)
    return assembly.exchange(below)
