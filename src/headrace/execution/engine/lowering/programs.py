"""From circuits to Spark jobs: what an epoch, or a fill, runs.

A *program* is the part of a connected set of views that a given set of changed relations can
reach; nodes whose inputs cannot change are left out. It is built once and run at every epoch that
has the same changed relations.

A program is one job, whose plan is a tree: the delta of a relation that is read twice is in it
twice, and Spark runs it once. Along a chain of views, each read twice by the next one, the tree
would double with each view. So a delta that is read several times and already has a large plan ends
the job: further views are in another job, and read that delta from its run.

Programs that are kept between steps.

A program is kept as long as the circuits and relations that it was built over are declared: a
CREATE or DROP discards no program of what it does not touch.

The program of an epoch is that of a set of changed relations. Where ever other sets of many
relations change, one program over all of them serves: what has not changed has an empty share.

Builds the job that replaces slices of arrangements.

Spark evaluates the conditions, over the columns that they use; no rows are moved.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import LongType

from headrace.algebra.operators import OFFSET, Integrate, Upsert
from headrace.algebra.spine.candidates import keys_of
from headrace.algebra.zset import HASH, WEIGHT, Layout
from headrace.execution.engine.jobs.slice_tasks import (
    PARTITION,
    PLACE,
    VERSION,
    ReplaceTask,
    SliceTask,
)
from headrace.execution.engine.lowering.assembly import Program, PublishedDelta, ShareScan
from headrace.execution.engine.lowering.nodes import Nodes, columns_read
from headrace.planning.catalog import Stream, Table
from headrace.planning.catalyst import plan
from headrace.planning.catalyst.predicates import Predicates
from headrace.planning.catalyst.transplant import spark_schema
from headrace.planning.circuit import Circuit, RelationDelta, inputs
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.execution.engine.jobs.worker import OperatorTask
    from headrace.execution.engine.lowering.assembly import Assembly, StateShare
    from headrace.execution.runtime.step import Step
    from headrace.planning.catalyst.transplant import Transplant
    from headrace.planning.circuit import ArrangementSlice, Node, Sliced
    from headrace.planning.circuit.reuse import Input
    from headrace.types import ArrangementId, BuildId, DataType, RelationId


if TYPE_CHECKING:
    Relations: TypeAlias = "frozenset[RelationId]"

_MOST_PROGRAMS = 64
MOST_SETS = 8
"""How many sets of changed relations have programs of their own, with all else equal."""


@dataclass(frozen=True, slots=True)
class LiveKey:
    """What the program of an epoch depends on; see :meth:`StepRunner.plan_live`."""

    changed: Relations
    without: Relations
    partitions: int
    looping: Relations
    given: Relations

    def alike(self, other: LiveKey, plain: AbstractSet[RelationId]) -> bool:
        """Whether only ``plain`` relations, streams and tables, make the difference."""
        return (
            self.changed ^ other.changed <= plain
            and self.without == other.without
            and self.partitions == other.partitions
            and self.looping == other.looping
            and self.given == other.given
        )


@dataclass(frozen=True, slots=True)
class FillKey:
    """What the program of a fill depends on; see :meth:`StepRunner.plan_fill`.

    ``known_as`` is the build that is filled, the replay of a slice, or what stands for several.
    """

    known_as: object
    build: BuildId
    partitions: int = 1
    looping: bool = False
    ticks: bool = False
    here: bool = False
    restoring: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    program: Program
    over: tuple[object, ...]


@dataclass(slots=True)
class KeptPrograms:
    """The programs, least recently used first. Not thread-safe."""

    _programs: OrderedDict[object, _Kept] = field(default_factory=OrderedDict)

    def get(self, key: object, over: Sequence[object], build: Callable[[], Program]) -> Program:
        """Return the program of a key; build it unless it was built over these same objects."""
        known = self._programs.get(key)
        if known is None or not _same(known.over, over):
            known = self._programs[key] = _Kept(build(), tuple(over))
            while len(self._programs) > _MOST_PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return known.program

    def known(self, key: object) -> Program | None:
        """Return the program of a key if there is one, whatever it was built over."""
        found = self._programs.get(key)
        return None if found is None else found.program

    def covering(self, key: LiveKey, plain: AbstractSet[RelationId]) -> Relations:
        """Return the changed relations of the program that an epoch runs: its own, or more.

        ``plain`` are the relations that may be among them without having changed.
        """
        if key in self._programs:
            return key.changed
        near = [k for k in self._programs if isinstance(k, LiveKey) and k.alike(key, plain)]
        if len(near) < MOST_SETS:
            return key.changed
        wider = [k.changed for k in near if k.changed > key.changed]
        return min(wider, key=len) if wider else key.changed.union(*(k.changed for k in near))

    def forget(self, is_over: Callable[[object], bool]) -> None:
        """Forget the programs of some keys."""
        for key in [key for key in self._programs if is_over(key)]:
            del self._programs[key]

    def clear(self) -> None:
        """Forget all programs."""
        self._programs.clear()

    def programs(self) -> list[Program]:
        """Return the programs."""
        return [kept.program for kept in self._programs.values()]


def _same(known: Sequence[object], now: Sequence[object]) -> bool:
    return len(known) == len(now) and all(a is b for a, b in zip(known, now, strict=True))


_FEW: Final = 1 << 22
"""The most rows of an arrangement whose columns are searched without a job."""


def difference_program(
    transplant: Transplant, partitions: int, sliced: Sliced, ids: Iterable[ArrangementId]
) -> Program:
    """Return the program that writes the difference between a recomputed slice and the stored rows.

    It covers the arrangements with the given ids.
    """
    kept = {id_: sliced.arrangements[id_] for id_ in ids}
    tasks, terminals = [], []
    for id_, each in kept.items():
        task, terminal = _replaced(transplant, partitions, id_, each)
        tasks.append(task.name)
        terminals.append(terminal)
    job = transplant.finished(transplant.union(terminals))
    layouts = {id_: each.layout for id_, each in kept.items()}
    return Program((job,), (), (), layouts, frozenset(), {}, reporting=tuple(tasks))


def without_spark(sliced: Sliced, step: Step) -> frozenset[ArrangementId]:
    """Return the arrangements of a step that need no job: small, or with slices given by key."""
    found = set()
    for id_, stored in step.arrangements.items():
        kept = sliced.arrangements[id_]
        runs = (*stored.runs, *step.recomputed.get(id_, ()))
        if kept.exact and (
            keys_of(kept.layout, kept.restriction) is not None
            or sum(run.rows for run in runs) <= _FEW
        ):
            found.add(id_)
    return frozenset(found)


def _replaced(
    transplant: Transplant, partitions: int, id_: ArrangementId, kept: ArrangementSlice
) -> tuple[ReplaceTask, Any]:
    """Return the task that replaces the slice of one arrangement, and its plan without rows."""
    numbers = transplant.range(partitions)
    none = spark_schema([("x", LongType())])
    met = None if kept.exact else Predicates(transplant.scala).met(kept.conditions)
    if met is None:
        task = ReplaceTask(id_, kept.restriction, whole=True)
        return task, transplant.mapped(numbers, task, none)
    used = sorted(kept.columns)
    read = SliceTask(id_, tuple(kept.names[i] for i in used), kept.restriction, partitions)
    places: list[tuple[str, DataType]] = [(n, LongType()) for n in (PARTITION, VERSION, PLACE)]
    fields = [*places, *((f"c{n}", kept.columns[i].type) for n, i in enumerate(used))]
    rows = transplant.mapped(numbers, read, spark_schema(fields))
    columns = transplant.output(rows)
    named = [columns[name] for name, _ in places]
    named += [
        transplant.alias(columns[f"c{n}"], kept.columns[i].name, kept.columns[i].handle)
        for n, i in enumerate(used)
    ]
    found = transplant.filter(met, transplant.project(named, rows))
    taken = transplant.project([columns[name] for name, _ in places], found)
    task = ReplaceTask(id_, kept.restriction, whole=False)
    return task, transplant.mapped(taken, task, none)


READ_ONCE_FROM = 4
"""The number of leaves of one share from which the share is read once, and exchanged."""

MOST_REPEATED = 300
"""The number of circuit nodes in a plan from which the plan is not repeated within a job."""


@dataclass(slots=True)
class Lowering:
    """Lowers the circuits of a connected set of views for one set of changed relations."""

    assembly: Assembly
    _uses: Counter[RelationId] = field(default_factory=Counter)

    @property
    def transplant(self) -> Transplant:
        """Builds the logical plans."""
        return self.assembly.transplant

    def live(
        self,
        circuits: tuple[Circuit, ...],
        changed: frozenset[RelationId],
        looping: frozenset[RelationId],
        given: frozenset[RelationId],
    ) -> Program:
        """Return the program of an epoch: tables and views take their changes from each other.

        ``circuits`` are in topological order; ``changed`` are streams and tables with changes, and
        views in which time passes. ``looping`` are views whose recursions continue. The deltas of
        the views ``given`` are shares of the step; their circuits are not included.
        """
        known, reached = {*changed, *given}, []
        for circuit in circuits:
            if circuit.reads & known or circuit.view in changed or circuit.view in looping:
                known.add(circuit.view)
                reached.append(circuit)
        self._uses.update(
            s.plan.relation for c in reached for s in c.sources() if s.plan.relation in known
        )
        self._read_once(reached, changed, given)
        for id_ in sorted(changed):
            relation = self.assembly.relations[id_]
            if isinstance(relation, Table):
                self._table(relation)
        for circuit in reached:
            ticks = circuit.view in changed
            users, reading, loops = circuit.users(), frozenset(known), circuit.view in looping
            nodes = Nodes(self.assembly, users, reading, filling=False, ticks=ticks, loops=loops)
            self._view(circuit, nodes)
        return self.assembly.program()

    def _read_once(
        self,
        circuits: list[Circuit],
        changed: frozenset[RelationId],
        given: frozenset[RelationId],
    ) -> None:
        """Mark shares that many leaves read to be read once: Spark runs an exchange once."""
        read: dict[RelationId, dict[str, None]] = {}
        places: set[RelationId] = set()
        for source in (s for circuit in circuits for s in circuit.sources()):
            id_ = source.plan.relation
            relation = self.assembly.relations[id_]
            shared = id_ in given or (id_ in changed and isinstance(relation, Stream))
            if shared and self._uses[id_] >= READ_ONCE_FROM:
                columns = columns_read(source.plan.columns, relation)
                read.setdefault(id_, {}).update(dict.fromkeys(columns))
                if plan.PLACE in source.plan.columns:
                    places.add(id_)
        for id_, every in read.items():
            self.assembly.read_once[id_] = ShareScan(tuple(every), id_ in places)

    def stored(
        self,
        circuit: Circuit,
        *,
        ticks: bool = False,
        sliced: Sliced | None = None,
        watch: Mapping[Node, str] = MappingProxyType({}),
        restored: Mapping[Input, tuple[StateShare, ...]] = MappingProxyType({}),
    ) -> Program:
        """Return the program that fills a view, or a slice of it, from its inputs.

        With ``ticks``, time passes in the step. The rows of the nodes in ``watch`` are counted.
        The inputs ``restored`` are read from the state of other builds.
        """
        nodes = Nodes(
            self.assembly,
            circuit.users(),
            circuit.reads,
            filling=True,
            ticks=ticks,
            sliced=sliced,
            watch=watch,
            restored=restored,
        )
        self._view(circuit, nodes)
        return self.assembly.program()

    def alone(self, circuit: Circuit, *, ticks: bool, loops: bool) -> Program:
        """Return the program of one view in an epoch; the deltas of its inputs are shares."""
        reads, users = circuit.reads, circuit.users()
        self._view(
            circuit, Nodes(self.assembly, users, reads, filling=False, ticks=ticks, loops=loops)
        )
        return self.assembly.program()

    def rows_of(self, table: Table) -> Program:
        """Return the program that keeps the rows of a table."""
        self._table(table)
        return self.assembly.program()

    def _table(self, table: Table) -> None:
        """Keep a table's rows; by primary key, the last change of a key wins."""
        schema = table.schema
        layout = table_layout(table)
        upserts = bool(table.primary_key)
        leaf = self.assembly.leaf(table, schema.names, offsets=upserts)
        columns = self.transplant.output(leaf)
        values = [columns[f"c{i}"] for i in range(len(schema.names))]
        keys = [values[schema.names.index(name)] for name in layout.key]
        extra = [columns[OFFSET]] if upserts else []
        named = [self.transplant.alias(self.transplant.hash(keys), HASH)]
        named += [self.transplant.alias(v, n) for v, n in zip(values, schema.names, strict=True)]
        named += [columns[WEIGHT], *extra]
        exchanged = self.assembly.exchange(self.transplant.project(named, leaf))
        arrived = (HASH, *schema.names, WEIGHT, *([OFFSET] if upserts else []))
        operator = Upsert(layout) if upserts else Integrate(layout)
        types = [(HASH, LongType()), *((c.name, c.type) for c in schema.columns)]
        types.append((WEIGHT, LongType()))
        name, kept_as = f"{table.id}/rows", (rows_of(table.id),)
        task = self.assembly.task(name, operator, kept_as, (arrived,), types)
        kept = self.assembly.stepped(task, exchanged, types)
        self._publish(table.id, kept, task, types, size=1)

    def _publish(
        self,
        relation: RelationId,
        kept: Any,
        task: OperatorTask,
        fields: list[tuple[str, DataType]],
        *,
        size: int,
    ) -> None:
        """Publish a relation's consolidated delta to the circuits that read it."""
        stored = self._uses[relation] > 1 and size > MOST_REPEATED
        if self._uses[relation] > 1 and not stored:
            # Spark runs an exchange once however often it is used, and a stage once per use.
            kept = self.transplant.exchange(kept, HASH, self.assembly.partitions)
        self.assembly.frames[relation] = PublishedDelta(
            kept, task, fields, self.assembly.job, size, stored
        )

    def _size(self, circuit: Circuit) -> int:
        """Return the number of nodes in the plan of a circuit, each counted once per use."""
        sizes: dict[Node, int] = {}
        frames = self.assembly.frames

        def size(node: Node) -> int:
            if node not in sizes:
                below = sum(size(child) for child in inputs(node))
                if isinstance(node, RelationDelta) and node.plan.relation in frames:
                    read = frames[node.plan.relation]
                    below = read.size if read.job == self.assembly.job else 0
                sizes[node] = 1 + below
            return sizes[node]

        return size(circuit.output.child)

    def _view(self, circuit: Circuit, nodes: Nodes) -> None:
        output, frames = circuit.output, self.assembly.frames
        read = [frames[id_] for id_ in circuit.reads if id_ in frames]
        self.assembly.job = max((each.job + each.stored for each in read), default=0)
        frame = nodes.node(output.child)
        if frame is None:
            return
        attributes = output.child.plan.attributes
        names = output.operator.layout.columns.names
        ids = tuple(attributes[i].id for i in output.key)
        handles = [attributes[i].handle for i in output.key]
        by_name = [(names[i], a.handle) for i, a in enumerate(attributes)]
        there = frame.is_by(output.child.plan, ids)
        types = [(HASH, LongType())]
        types += [(name, a.type) for name, a in zip(names, attributes, strict=True)]
        types.append((WEIGHT, LongType()))
        task = self.assembly.task(
            output.name, output.operator, output.arrangements, ((HASH, *names, WEIGHT),), types
        )
        if there and frame.tail is not None:
            chain = frame.tail.then(task, [a.id for a in attributes])
            kept = self.assembly.stepped(chain, frame.tail.below, types)
        else:
            keyed = self.assembly.keyed(frame, handles, by_name, [], there=there)
            kept = self.assembly.stepped(task, keyed, types)
        self._publish(circuit.view, kept, task, types, size=self._size(circuit))


def table_layout(table: Table) -> Layout:
    """Return the layout of a table's rows: by primary key, or else by all columns.

    Without a key, columns that were added later are not among those by which rows are arranged.
    """
    return Layout(
        key=table.arranged or table.primary_key or table.schema.names,
        columns=table.schema.filled,
        summed=pa.schema([pa.field(WEIGHT, pa.int64())]),
        stored=table.schema.stored_names if table.arranged else (),
    )
