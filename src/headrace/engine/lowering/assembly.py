"""The pieces that programs are put together from: leaves, exchanges and operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import LongType, MapType, StructField, StructType, VariantType

from headrace.catalog import logged
from headrace.engine.jobs.worker import (
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
from headrace.operators import OFFSET, StatefulOperator
from headrace.runtime.ports import LoopPlan, StepPlan
from headrace.types import holds
from headrace.zset import HASH, WEIGHT, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.catalog import Relation
    from headrace.catalyst import plan
    from headrace.catalyst.transplant import Transplant
    from headrace.circuit import Circuit, Shared
    from headrace.engine.jobs.guard_tasks import GuardTask
    from headrace.engine.narrow.interpreter import Interpreted
    from headrace.types import ArrangementId, DataType, RelationId


Operating: TypeAlias = "OperatorTask | Chain | GuardTask"
"""What is stepped over rows that are in their partition."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The operator that a plan ends with: its task, the rows that it takes, and what it yields.

    ``columns`` maps ids of attributes to columns of the operator's output.
    """

    task: OperatorTask
    below: Any
    columns: Mapping[int, str]

    def then(self, task: OperatorTask, ids: list[int]) -> Chain:
        """Return the task that goes on with another operator, over the columns with these ids."""
        return Chain(self.task, (HASH, *(self.columns[id_] for id_ in ids), WEIGHT), task)


@dataclass(frozen=True, slots=True)
class Frame:
    """A plan whose rows are a delta: its weight column and, where it has one, its hash column.

    With ``hash``, rows are in the partition that owns it; it is the hash of the columns that
    :func:`headrace.circuit.properties.partitioning` tells. With ``tail``, the plan does no
    more than name the output of an operator. ``row`` is the kind of a row between the operators of
    a join whose condition is more than equalities.
    """

    plan: Any
    weight: Any
    hash: Any | None = None
    tail: Tail | None = None
    row: Any | None = None


@dataclass(frozen=True, slots=True)
class PublishedDelta:
    """The consolidated delta of a relation, which ``task`` yields, with the columns ``fields``.

    ``plan`` is its plan in the job that computes it; later jobs read it from its run. ``size`` is
    the number of nodes of circuits in the plan, each counted once per use. A delta that is
    ``stored`` is not to be repeated in its own job.
    """

    plan: Any
    task: OperatorTask
    fields: list[tuple[str, DataType]]
    job: int
    size: int
    stored: bool


@dataclass(frozen=True, slots=True)
class Program:
    """Spark jobs, ready to run one after the other: their plans, and what is in them.

    It is one job, unless plans would repeat a part so often that they grow out of bounds.
    """

    jobs: tuple[Any, ...]
    operators: tuple[str, ...]
    constants: tuple[str, ...]
    arrangements: Mapping[ArrangementId, Layout]
    shares: frozenset[RelationId]
    shared: Mapping[ArrangementId, RelationId]
    scans: Mapping[RelationId, int] = field(default_factory=dict)
    """How often the share of a relation is read."""
    guards: frozenset[ArrangementId] = frozenset()
    """The quarantines among the arrangements."""
    reporting: tuple[str, ...] = ()
    """The tasks that leave a note in each partition."""
    interpreted: Interpreted | None = None
    """The same plans for few rows, which run without a job, if they can."""

    def needs(self, circuits: Iterable[Circuit]) -> StepPlan:
        """Return what a step of these circuits has to be given to run the program."""
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
        )


@dataclass(frozen=True, slots=True)
class ShareScan:
    """What is read of the share of a relation: columns, and maybe the offset of each row."""

    columns: tuple[str, ...]
    offsets: bool


@dataclass(slots=True)
class Assembly:
    """One program in the making: what is in it so far, and how to add to it."""

    transplant: Transplant
    partitions: int
    relations: Mapping[RelationId, Relation]
    log: LogReader
    frames: dict[RelationId, PublishedDelta] = field(default_factory=dict)
    """The consolidated delta of relations that others take theirs from."""
    job: int = 0
    """The number of the job that is being put together."""
    _used: set[RelationId] = field(default_factory=set)
    """The relations whose delta is used in the job that computes it."""
    operators: list[str] = field(default_factory=list)
    initial: list[str] = field(default_factory=list)
    """The constants of views that are being made."""
    arrangements: dict[ArrangementId, Layout] = field(default_factory=dict)
    scans: Counter[RelationId] = field(default_factory=Counter)
    read_once: dict[RelationId, ShareScan] = field(default_factory=dict)
    """The relations whose shares are read once for all who use them, and what they use."""
    _read: dict[tuple[RelationId, int], Any] = field(default_factory=dict)
    """The plans of these shares, by job."""
    shared: dict[ArrangementId, RelationId] = field(default_factory=dict)
    """The contents of relations that operators read in place of a copy."""
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
        # Without any terminal, what has changed is named by a view, but makes no difference to it.
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
        """Return a plan of a relation's share, and what it has: at least what is wanted."""
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

        Of a slice, rows that do not meet the restriction of that name are left out, and the others
        are counted.
        """
        schema = logged(relation)
        read = pa.schema([schema.arrow.field(name) for name in columns])
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
        """Project columns with a weight of its own, so that no two frames share its id."""
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
        """Name the columns, hash the keys, and send rows to their partition if need be.

        With ``totals``, the columns to add up, a large step adds up before it sends.
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
        """Name one input of an operator that has several, so that all can be one plan.

        ``columns`` are those of all inputs; None stands for one that this input has not.
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
        """Return a plan of a frame's rows that several plans may use: what lies below runs once.

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

        ``there``: rows are where the hash of the frame that it was made of says.
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

        ``clocked``: its last input is the clock of the step. ``shared``: which of its arrangements
        are the contents of relations.
        """
        for i, (id_, layout) in enumerate(zip(arrangements, operator.layouts, strict=True)):
            self.arrangements[id_] = shared[i].layout if i in shared else layout
        self.shared |= {each.id: each.relation for each in shared.values()}
        self.operators.append(name)
        names = tuple(n for n, _ in output)
        read = {i: Excerpt(each.columns, each.present) for i, each in shared.items()}
        return OperatorTask(name, operator, arrangements, inputs, names, clocked, read)

    def guard(self, name: str, arrangement: ArrangementId, layout: Layout) -> None:
        """Have a quarantine be part of the program."""
        self.arrangements[arrangement] = layout
        self.guards.add(arrangement)
        self.operators.append(name)

    def seeded(
        self, name: str, layout: Layout, keyed: Any, fields: list[tuple[str, DataType]]
    ) -> Any:
        """Add a row of weight 0 for an operator that has an answer before there is any input."""
        types = dict(fields)
        names = tuple(self.transplant.output(keyed))
        schema = spark_schema([(n, types[n]) for n in names])
        seed = SeedTask(name, layout, names)
        row = self.transplant.mapped(self.transplant.range(1), seed, schema)
        return self.exchange(self.transplant.union([keyed, row]))

    def constant(self, name: str, rows: pa.Table, fields: list[tuple[str, DataType]]) -> Any:
        """Return rows that are there in the first step of a view, as ``c0``, ``c1``, ..."""
        renamed = rows.rename_columns([n for n, _ in fields[:-1]])
        task = ConstantTask(name, renamed)
        self.initial.append(name)
        return self.transplant.mapped(self.transplant.range(1), task, spark_schema(fields))

    def handed(self, arrangement: ArrangementId, fields: list[tuple[str, DataType]]) -> Any:
        """Read what the round before has handed to a recursion, with its weight."""
        task = HandedTask(arrangement, self.partitions)
        return self.transplant.mapped(
            self.transplant.range(self.partitions), task, spark_schema(fields)
        )

    def stepped(self, task: Operating, below: Any, output: list[tuple[str, DataType]]) -> Any:
        """Step an operator, or two in a row, over rows that are in their partition."""
        return self.transplant.mapped(below, task, spark_schema(output))


def spark_schema(fields: list[tuple[str, DataType]]) -> StructType:
    """Return the schema with these columns; all may be NULL."""
    return StructType([StructField(name, type_) for name, type_ in fields])
