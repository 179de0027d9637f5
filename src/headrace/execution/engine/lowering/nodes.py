"""Lowering the nodes of one circuit: stateless ones as Catalyst nodes, operators as tasks.

Lowering the quarantines of a view: rows in quarantine do not reach its leaves.

Lowering recursions: the operator of a loop, and its rows of the previous round as a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType

from headrace.algebra.operators import OFFSET
from headrace.algebra.zset import HASH, WEIGHT
from headrace.execution.engine.jobs.worker import GuardTask
from headrace.execution.engine.lowering.assembly import (
    Assembly,
    Frame,
    ShareScan,
    Tail,
    restored_increments,
)
from headrace.execution.engine.lowering.groups import (
    compared,
    first_rows,
    folded,
    recomputed,
    temporal,
)
from headrace.execution.engine.lowering.joins import joined, matched
from headrace.execution.engine.lowering.watching import watched
from headrace.execution.runtime.ports import LEAF
from headrace.planning.catalog import ROWTIME
from headrace.planning.catalyst import plan
from headrace.planning.catalyst.predicates import Predicates
from headrace.planning.catalyst.rewrites import halves
from headrace.planning.catalyst.scala import collect_arrow, items
from headrace.planning.circuit import (
    Aggregate,
    Circuit,
    ComparedRows,
    Constant,
    Feedback,
    First,
    FoldedRows,
    Join,
    Loop,
    Match,
    Node,
    Recompute,
    RelationDelta,
    Stateless,
    Sum,
    SumKind,
    TemporalRows,
)
from headrace.planning.circuit.accumulators import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.execution.engine.lowering.assembly import StateShare
    from headrace.planning.catalog import Relation
    from headrace.planning.catalyst.transplant import Transplant
    from headrace.planning.circuit import InputGuard, Sliced
    from headrace.planning.circuit.accumulators import Accumulator, Argument
    from headrace.planning.circuit.reuse import Input
    from headrace.types import DataType, RelationId


def guarded(
    assembly: Assembly, guard: InputGuard, values: list[Any], weight: Any, below: Any, *, uses: int
) -> Any:
    """Return a plan of the rows that pass a guard, under its names, with their hash and weight.

    ``values`` are its columns in the plan ``below``; ``uses`` is the number of leaves that read it.
    """
    transplant, names = assembly.transplant, guard.operator.columns.names
    named = [transplant.alias(transplant.hash(values), HASH)]
    named += [transplant.alias(value, name) for value, name in zip(values, names, strict=True)]
    named.append(transplant.alias(weight, WEIGHT))
    arrived = assembly.exchange(transplant.project(named, below))
    fields: list[tuple[str, DataType]] = [(HASH, LongType())]
    fields += zip(names, guard.types, strict=True)
    fields.append((WEIGHT, LongType()))
    (layout,) = guard.operator.layouts
    assembly.guard(guard.name, guard.arrangement, layout)
    task = GuardTask(guard.name, guard.operator, guard.arrangement)
    passed = assembly.stepped(task, arrived, fields)
    # Spark runs an exchange once however often it is used, and a stage once per use.
    return passed if uses == 1 else transplant.exchange(passed, HASH, assembly.partitions)


def looped(assembly: Assembly, node: Loop, below: Frame) -> Frame:
    """Lower a loop over the delta of its start and its step."""
    transplant, attributes = assembly.transplant, node.plan.attributes
    names = node.operator.layout.columns.names
    columns = [(name, a.handle) for name, a in zip(names, attributes, strict=True)]
    keyed = assembly.keyed(below, [value for _, value in columns], columns, [], there=False)
    types: list[tuple[str, DataType]] = [(HASH, LongType())]
    types += [(name, a.type) for name, a in zip(names, attributes, strict=True)]
    types.append((WEIGHT, LongType()))
    inputs = ((HASH, *names, WEIGHT),)
    task = assembly.task(node.name, node.operator, node.arrangements, inputs, types)
    rows = assembly.stepped(task, keyed, types)
    output = transplant.output(rows)
    named = [
        transplant.alias(output[name], a.name, a.handle)
        for name, a in zip(names, attributes, strict=True)
    ]
    return assembly.weighted(named, output[WEIGHT], rows)


def fed_back(assembly: Assembly, node: Feedback) -> Frame:
    """Lower the leaf of a loop's step: the delta of the loop's rows in the previous round."""
    transplant, attributes = assembly.transplant, node.plan.attributes
    names = node.layout.columns.names
    types = [(name, a.type) for name, a in zip(names, attributes, strict=True)]
    below = assembly.handed(node.arrangement, [*types, (WEIGHT, LongType())])
    output = transplant.output(below)
    named = [
        transplant.alias(output[name], a.name, a.handle)
        for name, a in zip(names, attributes, strict=True)
    ]
    return assembly.weighted(named, output[WEIGHT], below)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Lowers nodes whose inputs are the deltas of the relations in ``known``.

    Constants have rows only if a view is being filled. With ``ticks``, time passes; with ``loops``,
    recursions read the feedback of their previous round. ``users`` is the number of users of each
    node of the circuit. With ``sliced``, only the slice of each leaf is read, and joins keep only
    pairs in their slice, since contents of relations are read in full. ``watch`` names nodes whose
    rows in their slice are counted. The inputs ``restored`` are read from shares with the state of
    other builds, and nothing below them is lowered.
    """

    assembly: Assembly
    users: Mapping[Node, int]
    known: frozenset[RelationId]
    filling: bool
    ticks: bool = False
    loops: bool = False
    sliced: Sliced | None = None
    watch: Mapping[Node, str] = field(default_factory=dict)
    restored: Mapping[Input, tuple[StateShare, ...]] = field(default_factory=dict)
    _reused: dict[Node, tuple[Any, bool] | None] = field(default_factory=dict)
    _guarded: dict[InputGuard, Any] = field(default_factory=dict)

    @property
    def transplant(self) -> Transplant:
        """Builds the logical plans."""
        return self.assembly.transplant

    def node(self, node: Node) -> Frame | None:
        """Lower a node, at most once; None if none of its inputs can change."""
        if self.users[node] <= 1:
            return self._lowered(node)
        attributes = node.plan.attributes
        if node not in self._reused:
            frame = self._lowered(node)
            self._reused[node] = None
            if frame is not None:
                reused = self.assembly.reusable(frame, attributes)
                self._reused[node] = reused, frame.hash is not None
        found = self._reused[node]
        return None if found is None else self.assembly.used(found[0], attributes, there=found[1])

    def _in_slice(self, node: Node, frame: Frame | None) -> Frame | None:
        """Return the rows that are in the slice of a node."""
        if self.sliced is None or frame is None or (self.sliced.exact and not self.watch):
            return frame
        met = Predicates(self.transplant.scala).met(self.sliced.nodes[node])
        if met is None:
            return frame
        return replace(frame, plan=self.transplant.filter(met, frame.plan), tail=None)

    def _lowered(self, node: Node) -> Frame | None:
        frame, name = self._lowered_alone(node), self.watch.get(node)
        if frame is None or name is None:
            return frame
        if not isinstance(node, RelationDelta | Join):
            frame = self._in_slice(node, frame) or frame
        return watched(self.assembly, name, node.plan.attributes, frame)

    def _lowered_alone(self, node: Node) -> Frame | None:
        match node:
            case RelationDelta():
                known = node.plan.relation in self.known
                return self._in_slice(node, self._source(node)) if known else None
            case Constant():
                return self._constant(node) if self.filling else None
            case Stateless():
                below = self.node(node.child)
                return None if below is None else self._stateless(node, below)
            case Sum():
                return self._sum(node)
            case Join():
                sides = self._input((node, 0), node.left), self._input((node, 1), node.right)
                return self._in_slice(node, joined(self.assembly, node, sides))
            case Match():
                below = self.node(node.child)
                return None if below is None else matched(self.assembly, node, below)
            case First():
                rows = self._input((node, 0), node.child)
                return None if rows is None else first_rows(self.assembly, node, rows)
            case FoldedRows():
                below = self.node(node.child)
                return None if below is None else folded(self.assembly, node, below)
            case TemporalRows():
                return temporal(self.assembly, node, self.node(node.child), ticks=self.ticks)
            case ComparedRows():
                return compared(self.assembly, node, self.node(node.child), self.node(node.value))
            case Recompute():
                rows = self._input((node, 0), node.child)
                return None if rows is None else recomputed(self.assembly, node, rows)
            case Aggregate():
                return self._aggregate(node)
            case Loop():
                below = self.node(node.child)
                return None if below is None else looped(self.assembly, node, below)
            case Feedback():
                return fed_back(self.assembly, node) if self.loops else None

    def _stateless(self, node: Stateless, below: Frame) -> Frame:
        transplant = self.transplant
        match node.plan:
            case plan.Project():
                return self._projected(node.plan, below)
            case plan.Filter():
                filtered = transplant.filter(node.plan.condition.handle, below.plan)
                return Frame(filtered, below.weight, below.hash)
            case plan.Expand():
                return Frame(*transplant.expand(node.plan, below.weight, below.plan))
            case plan.Generate():
                # The hash would shift the columns that Generate refers to by position.
                bare = below.plan
                if below.hash is not None:
                    named = [a.handle for a in node.child.plan.attributes]
                    bare = transplant.project([*named, below.weight], bare)
                generated = transplant.generate(node.plan, bare)
                named = [a.handle for a in node.plan.attributes]
                return Frame(transplant.project([*named, below.weight], generated), below.weight)

    def _projected(self, node: plan.Project, below: Frame) -> Frame:
        named = [e.handle for e in node.expressions]
        carried = [below.weight] if below.hash is None else [below.weight, below.hash]
        projected = self.transplant.project([*named, *carried], below.plan)
        return Frame(projected, below.weight, below.hash, _renamed(below.tail, node))

    def _sum(self, node: Sum) -> Frame | None:
        branches = []
        for child in node.children:
            frame = self.node(child)
            if frame is not None:
                # Each branch has the ids of the columns of the union.
                own = [a.handle for a in child.plan.attributes]
                named = [
                    self.transplant.alias(value, a.name, a.handle) if a.id != b.id else value
                    for value, a, b in zip(
                        own, node.plan.attributes, child.plan.attributes, strict=True
                    )
                ]
                weight = self.transplant.alias(frame.weight, WEIGHT)
                branches.append(self.transplant.project([*named, weight], frame.plan))
        if not branches:
            return None
        union = self.transplant.union(branches)
        return Frame(union, items(union.output())[-1])

    def _input(self, at: Input, child: Node) -> Frame | StateShare | None:
        """Lower an input of an operator, or return the share that restores it."""
        stored = self.restored.get(at)
        return self.node(child) if stored is None else stored[0]

    def _aggregate(self, node: Aggregate) -> Frame | None:
        stored, query, kept = self.restored.get((node, 0)), node.plan, node.accumulators
        long = LongType()
        identity = [(f"g{i}", key.type) for i, key in enumerate(query.grouping)]
        identity += [(a.column, a.value.type) for a in kept.arguments]
        summed = [(WEIGHT, long), *((a.column, a.type) for a in kept.increments)]
        if stored is not None:
            keyed = restored_increments(self.assembly, stored, [*identity, *summed])
        elif (below := self.node(node.child)) is not None:
            keyed = self._increments(node, below, summed)
        else:
            return None
        layout = node.operator.increments
        if node.operator.is_global:
            fields = [(HASH, long), *identity, *summed]
            keyed = self.assembly.seeded(node.name, layout, keyed, fields)
        types: list[tuple[str, DataType]] = [(HASH, long)]
        types += [(f"g{i}", key.type) for i, key in enumerate(query.grouping)]
        types += [(WEIGHT, long), (ROWS, long)]
        types += [(a.column, a.type) for a in kept.columns]
        types += kept.values
        inputs = (tuple(layout.schema.names),)
        task = self.assembly.task(node.name, node.operator, node.arrangements, inputs, types)
        grouped = self.assembly.stepped(task, keyed, types)
        return self._results(node, grouped)

    def _increments(self, node: Aggregate, below: Frame, summed: list[tuple[str, DataType]]) -> Any:
        """Compute the increments of an aggregate, and send them to the partition of their group."""
        transplant, query, kept = self.transplant, node.plan, node.accumulators
        keys = [key.handle for key in query.group_keys]
        added = [
            (
                a.column,
                transplant.increment(
                    a.arguments, a.condition, a.type, below.weight, self._summand(a)
                ),
            )
            for a in kept.increments
        ]
        columns = [(f"g{i}", key.handle) for i, key in enumerate(query.grouping)]
        columns += [(a.column, self._value(a)) for a in kept.arguments]
        passed = [key.passes for key in query.group_keys]
        there = bool(keys) and below.is_by(node.child.plan, passed)
        # Spark would group by the values: -0.0 would become 0.0, and be shown so.
        totals = None if kept.picks else summed
        return self.assembly.keyed(below, keys, columns, added, there=there, totals=totals)

    def _summand(self, accumulator: Accumulator) -> Any | None:
        """Return the argument that an accumulator sums, or None if it counts rows."""
        match accumulator.kind:
            case SumKind.COUNT:
                return None
            case SumKind.SUM:
                return accumulator.arguments[0].handle
            case SumKind.UPPER:
                return halves(self.transplant.scala, accumulator.arguments[0].handle)[0]
            case SumKind.LOWER:
                return halves(self.transplant.scala, accumulator.arguments[0].handle)[1]

    def _value(self, argument: Argument) -> Any:
        value = argument.value.handle
        if argument.condition is None:
            return value
        return self.transplant.where(argument.condition.handle, value)

    def _results(self, node: Aggregate, grouped: Any) -> Frame:
        """Let Spark compute the results from the accumulators."""
        transplant, query = self.transplant, node.plan
        columns = transplant.output(grouped)
        keys = [
            transplant.alias(columns[f"g{i}"], a.name, a.handle)
            for i, a in enumerate(query.grouping_attributes)
        ]
        fed, evaluated = [], []
        for call in node.accumulators.calls:
            value = columns[call.value] if call.value is not None else None
            upper = columns[call.upper] if call.upper is not None else None
            buffers, result = transplant.buffers(call.function, value, columns[call.count], upper)
            fed += buffers
            evaluated.append(result)
        weight, hash_ = columns[WEIGHT], columns[HASH]
        plan_ = transplant.project([*keys, *fed, weight, hash_], grouped)
        own = [a.handle for a in query.grouping_attributes]
        plan_ = transplant.project([*own, *evaluated, weight, hash_], plan_)
        named = [e.handle for e in query.results]
        plan_ = transplant.project([*named, weight, hash_], plan_)
        return Frame(plan_, weight, hash_)

    def _constant(self, node: Constant) -> Frame:
        """Lower the rows of a constant under the ids of their attributes."""
        transplant, attributes = self.transplant, node.plan.attributes
        one = transplant.alias(transplant.literal(1, LongType()), "__one")
        marked = transplant.project([*items(node.plan.handle.output()), one], node.plan.handle)
        rows = collect_arrow(transplant.frame(marked))
        fields: list[tuple[str, DataType]] = [(f"c{i}", a.type) for i, a in enumerate(attributes)]
        fields += [("__one", LongType()), (WEIGHT, LongType())]
        below = self.assembly.constant(node.name, rows, fields)
        columns = transplant.output(below)
        named = [
            transplant.alias(columns[f"c{i}"], a.name, a.handle) for i, a in enumerate(attributes)
        ]
        return self.assembly.weighted(named, columns[WEIGHT], below)

    def _source(self, node: RelationDelta) -> Frame:
        """Lower a relation's delta under the ids that the view's expressions refer to."""
        scan, guard = node.plan, node.guard
        if guard is None:
            slice_ = None if self.sliced is None else leaf_names(self.sliced.circuit)[node]
            values, weight, below = self._read(scan.relation, scan.columns, slice_)
        else:
            below = self._passed(guard)
            columns = self.transplant.output(below)
            names = dict(zip(guard.columns, guard.operator.columns.names, strict=True))
            values, weight = [columns[names[i]] for i in scan.columns], columns[WEIGHT]
        aliased = [
            self.transplant.alias(value, a.name, a.handle)
            for value, a in zip(values, scan.attributes, strict=True)
        ]
        return self.assembly.weighted(aliased, weight, below)

    def _passed(self, guard: InputGuard) -> Any:
        """Return a plan of the rows that pass a guard; all leaves of its relation read it."""
        if guard not in self._guarded:
            leaves = [n for n in self.users if isinstance(n, RelationDelta) and n.guard is guard]
            slice_ = None
            if self.sliced is not None:
                only, names = len(leaves) == 1, leaf_names(self.sliced.circuit)
                slice_ = names[leaves[0]] if only else f"{LEAF}of {guard.relation}"
            read = self._read(guard.relation, guard.columns, slice_)
            self._guarded[guard] = guarded(self.assembly, guard, *read, uses=len(leaves))
        return self._guarded[guard]

    def _read(
        self, id_: RelationId, positions: tuple[int, ...], slice_: str | None
    ) -> tuple[list[Any], Any, Any]:
        """Return columns of a relation's delta, the weight, and the plan with these.

        For a slice, only rows that meet the restriction of that name, if any, are read of the
        share.
        """
        relation = self.assembly.relations[id_]
        names = columns_read(positions, relation)
        if id_ in self.assembly.frames:
            below = self.assembly.delta(id_)
            columns = self.transplant.output(below)
            return [columns[name] for name in names], columns[WEIGHT], below
        there = ShareScan(names, plan.PLACE in positions)
        if slice_ is None:
            below, there = self.assembly.scan(relation, there)
        else:
            below = self.assembly.leaf(relation, names, offsets=there.offsets, slice_=slice_)
        columns, named = self.transplant.output(below), iter(names)
        values = [
            columns[OFFSET] if i == plan.PLACE else columns[f"c{there.columns.index(next(named))}"]
            for i in positions
        ]
        return values, columns[WEIGHT], below


def leaf_names(circuit: Circuit) -> dict[RelationDelta, str]:
    """Return the names of the leaves of a circuit, under which a step has their restrictions."""
    return {leaf: f"{LEAF}{i}" for i, leaf in enumerate(circuit.sources())}


def columns_read(positions: Iterable[int], relation: Relation) -> tuple[str, ...]:
    """Return the columns of its log at some positions of a relation, in their order."""
    known = relation.schema.names
    read = (i for i in positions if i != plan.PLACE)
    return tuple(ROWTIME if i == plan.TIME else known[i] for i in read)


def _renamed(tail: Tail | None, node: plan.Project) -> Tail | None:
    """Return the tail under the ids of a projection that only passes columns on, else None."""
    if tail is None or any(e.passes not in tail.columns for e in node.expressions):
        return None
    pairs = zip(node.attributes, node.expressions, strict=True)
    columns = {a.id: tail.columns[e.passes] for a, e in pairs if e.passes is not None}
    return Tail(tail.task, tail.below, columns)
