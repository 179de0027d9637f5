"""From circuits to one Spark job: stateless parts as Catalyst nodes, operators as Python tasks.

A *program* is the part of a connected set of views that a given set of changed relations can
reach; nodes whose inputs cannot change are left out. It is built once and run at every epoch that
has the same changed relations.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType, StructField, StructType

from headrace.catalog import Relation, Table
from headrace.catalyst import plan
from headrace.catalyst.scala import items
from headrace.circuit import (
    Aggregate,
    Circuit,
    Join,
    Kind,
    Node,
    Source,
    Stateless,
    Sum,
    rows_of,
)
from headrace.circuit.accumulators import ROWS
from headrace.circuit.properties import partitioning
from headrace.engine.worker import SIDE, LeafTask, LogReader, OperatorTask, SeedTask
from headrace.operators import OFFSET, GlobalAggregate, Integrate, StatefulOperator, Upsert
from headrace.zset import HASH, WEIGHT, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalyst.transplant import Transplant
    from headrace.types import ArrangementId, DataType, RelationId


@dataclass(frozen=True, slots=True)
class Frame:
    """A plan whose rows are a delta: its weight column and, where it has one, its hash column.

    With ``hash``, rows are in the partition that owns it; it is the hash of the columns that
    :func:`headrace.circuit.properties.partitioning` tells.
    """

    plan: Any
    weight: Any
    hash: Any | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """One Spark job, ready to run: its plan, the operators in it, and how many exchanges it has."""

    plan: Any
    operators: tuple[str, ...]
    arrangements: Mapping[ArrangementId, Layout]
    shares: frozenset[RelationId]


@dataclass(frozen=True, slots=True)
class _Side:
    """One input of a join, and how it is arranged."""

    prefix: str
    node: Node
    keys: tuple[plan.Expression, ...]
    layout: Layout

    def columns(self) -> list[tuple[str, DataType, Any]]:
        """Return the arranged columns: name, type, and the expression that computes it."""
        found = {
            f"{self.prefix}{i}": (a.type, a.handle) for i, a in enumerate(self.node.plan.attributes)
        }
        for name, key in zip(self.layout.key, self.keys, strict=True):
            found.setdefault(name, (key.type, key.handle))
        return [(name, *found[name]) for name in self.layout.columns.names]


@dataclass(slots=True)
class Lowering:
    """Lowers the circuits of a connected set of views for one set of changed relations."""

    transplant: Transplant
    partitions: int
    relations: Mapping[RelationId, Relation]
    log: LogReader
    _frames: dict[RelationId, tuple[Any, tuple[str, ...]]] = field(default_factory=dict)
    _terminals: list[Any] = field(default_factory=list)
    _operators: list[str] = field(default_factory=list)
    _arrangements: dict[ArrangementId, Layout] = field(default_factory=dict)
    _shares: set[RelationId] = field(default_factory=set)
    _uses: Counter[RelationId] = field(default_factory=Counter)
    _stored: bool = False

    def live(self, circuits: tuple[Circuit, ...], changed: frozenset[RelationId]) -> Program:
        """Return the program of an epoch: tables and views take their changes from each other.

        ``circuits`` come in topological order; ``changed`` are streams and tables.
        """
        known, reached = set(changed), []
        for circuit in circuits:
            if circuit.reads & known:
                known.add(circuit.view)
                reached.append(circuit)
        self._uses.update(
            s.plan.relation for c in reached for s in c.sources() if s.plan.relation in known
        )
        for id_ in sorted(changed):
            relation = self.relations[id_]
            if isinstance(relation, Table):
                self._table(relation)
        for circuit in reached:
            self._view(circuit, known)
        return self._program()

    def stored(self, circuit: Circuit) -> Program:
        """Return the program that fills one view from what its inputs have stored."""
        self._stored = True
        self._view(circuit, set(circuit.reads))
        return self._program()

    def _program(self) -> Program:
        transplant = self.transplant
        empty = [
            transplant.project([transplant.alias(transplant.literal(0, LongType()), "x")], terminal)
            for terminal in self._terminals
        ]
        return Program(
            transplant.union(empty),
            tuple(self._operators),
            dict(self._arrangements),
            frozenset(self._shares),
        )

    # -- relations -------------------------------------------------------------------------

    def _table(self, table: Table) -> None:
        """Keep a table's rows; by primary key, the last change of a key wins."""
        schema = table.schema
        layout = table_layout(table)
        upserts = bool(table.primary_key)
        leaf = self._leaf(table, schema.names, offsets=upserts)
        columns = self.transplant.output(leaf)
        values = [columns[f"c{i}"] for i in range(len(schema.names))]
        keys = [values[schema.names.index(name)] for name in layout.key]
        extra = [columns[OFFSET]] if upserts else []
        named = [self.transplant.alias(self.transplant.hash(keys), HASH)]
        named += [self.transplant.alias(v, n) for v, n in zip(values, schema.names, strict=True)]
        named += [columns[WEIGHT], *extra]
        exchanged = self._exchange(self.transplant.project(named, leaf))
        arrived = (HASH, *schema.names, WEIGHT, *([OFFSET] if upserts else []))
        operator = Upsert(layout) if upserts else Integrate(layout)
        types = [(HASH, LongType()), *((c.name, c.type) for c in schema.columns)]
        kept = self._operator(
            f"{table.id}/rows",
            operator,
            (rows_of(table.id),),
            (arrived,),
            [*types, (WEIGHT, LongType())],
            exchanged,
        )
        self._publish(table.id, kept, schema.names)

    def _publish(self, relation: RelationId, kept: Any, names: tuple[str, ...]) -> None:
        """Hand a relation's consolidated delta to those who read it; run it if nobody does."""
        uses = self._uses[relation]
        if uses == 0 or self._stored:
            self._terminals.append(kept)
            return
        if uses > 1:
            # Spark runs an exchange once however often it is used, and a stage once per use.
            kept = self.transplant.exchange(kept, HASH, self.partitions)
        self._frames[relation] = (kept, names)

    def _leaf(self, relation: Relation, columns: tuple[str, ...], *, offsets: bool) -> Any:
        task = LeafTask(relation.id, columns, offsets, self.partitions, self.log)
        types = {c.name: c.type for c in relation.schema.columns}
        fields = [(f"c{i}", types[name]) for i, name in enumerate(columns)]
        fields.append((WEIGHT, LongType()))
        if offsets:
            fields.append((OFFSET, LongType()))
        self._shares.add(relation.id)
        return self.transplant.mapped(self.transplant.range(self.partitions), task, _spark(fields))

    def _source(self, node: Source) -> Frame:
        """Give a relation's delta the ids that the view's expressions refer to."""
        scan = node.plan
        relation = self.relations[scan.relation]
        names = tuple(relation.schema.names[i] for i in scan.columns)
        if scan.relation in self._frames:
            below, all_names = self._frames[scan.relation]
            columns = self.transplant.output(below)
            values = [columns[name] for name in names]
            assert set(names) <= set(all_names)  # noqa: S101
        else:
            below = self._leaf(relation, names, offsets=False)
            columns = self.transplant.output(below)
            values = [columns[f"c{i}"] for i in range(len(names))]
        named = [
            self.transplant.alias(value, a.name, a.handle)
            for value, a in zip(values, scan.attributes, strict=True)
        ]
        return self._weighted(named, columns[WEIGHT], below)

    # -- views -----------------------------------------------------------------------------

    def _view(self, circuit: Circuit, known: set[RelationId]) -> None:
        output = circuit.output
        frame = self._node(output.child, known)
        if frame is None:
            return
        attributes = output.child.plan.attributes
        names = output.operator.layout.columns.names
        ids = tuple(attributes[i].id for i in output.key)
        handles = [attributes[i].handle for i in output.key]
        by_name = [(names[i], a.handle) for i, a in enumerate(attributes)]
        found = partitioning(output.child.plan)
        there = (
            frame.hash is not None
            and found is not None
            and len(found) == len(ids)
            and all(id_ in column for id_, column in zip(ids, found, strict=True))
        )
        keyed = self._keyed(frame, handles, by_name, [], there=there)
        types = [(HASH, LongType())]
        types += [(name, a.type) for name, a in zip(names, attributes, strict=True)]
        types.append((WEIGHT, LongType()))
        kept = self._operator(
            output.name,
            output.operator,
            output.arrangements,
            ((HASH, *names, WEIGHT),),
            types,
            keyed,
        )
        self._publish(circuit.view, kept, tuple(names))

    def _node(self, node: Node, known: set[RelationId]) -> Frame | None:
        """Lower one node; None where none of its inputs can change."""
        match node:
            case Source():
                return self._source(node) if node.plan.relation in known else None
            case Stateless():
                below = self._node(node.child, known)
                return None if below is None else self._stateless(node, below)
            case Sum():
                return self._sum(node, known)
            case Join():
                return self._join(node, known)
            case Aggregate():
                return self._aggregate(node, known)

    def _stateless(self, node: Stateless, below: Frame) -> Frame:
        transplant = self.transplant
        match node.plan:
            case plan.Project():
                return self._projected([e.handle for e in node.plan.expressions], below)
            case plan.Filter():
                filtered = transplant.filter(node.plan.condition.handle, below.plan)
                return Frame(filtered, below.weight, below.hash)
            case plan.Expand():
                expanded = transplant.expand(node.plan, below.weight, below.plan)
                return Frame(expanded, below.weight)
            case plan.Generate():
                # The hash would shift the columns that Generate tells by position.
                bare = below.plan
                if below.hash is not None:
                    named = [a.handle for a in node.child.plan.attributes]
                    bare = transplant.project([*named, below.weight], bare)
                generated = transplant.generate(node.plan, bare)
                named = [a.handle for a in node.plan.attributes]
                return Frame(transplant.project([*named, below.weight], generated), below.weight)

    def _projected(self, named: list[Any], below: Frame) -> Frame:
        carried = [below.weight] if below.hash is None else [below.weight, below.hash]
        projected = self.transplant.project([*named, *carried], below.plan)
        return Frame(projected, below.weight, below.hash)

    def _sum(self, node: Sum, known: set[RelationId]) -> Frame | None:
        branches = []
        for child in node.children:
            frame = self._node(child, known)
            if frame is not None:
                # Each branch under the ids that the union gives its columns.
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

    def _join(self, node: Join, known: set[RelationId]) -> Frame | None:
        query = node.plan
        sides = (
            _Side("l", node.left, query.left_keys, node.operator.left),
            _Side("r", node.right, query.right_keys, node.operator.right),
        )
        branches = [
            self._joined_side(i, sides, frame)
            for i, side in enumerate(sides)
            if (frame := self._node(side.node, known)) is not None
        ]
        if not branches:
            return None
        own = {
            f"{side.prefix}{i}": attribute
            for side in sides
            for i, attribute in enumerate(side.node.plan.attributes)
        }
        joined = self._operator(
            node.name,
            node.operator,
            node.arrangements,
            tuple((HASH, *side.layout.columns.names, WEIGHT) for side in sides),
            [
                (HASH, LongType()),
                *((name, a.type) for name, a in own.items()),
                (WEIGHT, LongType()),
            ],
            self._exchange(self.transplant.union(branches)),
        )
        columns = self.transplant.output(joined)
        named = [self.transplant.alias(columns[n], a.name, a.handle) for n, a in own.items()]
        hash_, weight = columns[HASH], columns[WEIGHT]
        plan_ = self.transplant.project([*named, weight, hash_], joined)
        if query.residual is not None:
            plan_ = self.transplant.filter(query.residual.handle, plan_)
        return Frame(plan_, weight, hash_)

    def _joined_side(self, index: int, sides: tuple[_Side, _Side], frame: Frame) -> Any:
        """Name one side's columns, with NULL for the other's, so that both can be one plan."""
        transplant = self.transplant
        values = [
            (name, value if i == index else transplant.literal(None, type_))
            for i, side in enumerate(sides)
            for name, type_, value in side.columns()
        ]
        hash_ = transplant.hash([key.handle for key in sides[index].keys])
        which = transplant.literal(index, LongType())
        named = [transplant.alias(hash_, HASH), transplant.alias(which, SIDE)]
        named += [transplant.alias(value, name) for name, value in values]
        named.append(transplant.alias(frame.weight, WEIGHT))
        return transplant.project(named, frame.plan)

    def _aggregate(self, node: Aggregate, known: set[RelationId]) -> Frame | None:
        below = self._node(node.child, known)
        if below is None:
            return None
        transplant, query = self.transplant, node.plan
        keys = [key.handle for key in query.grouping]
        added = [
            (
                a.column,
                transplant.increment(
                    a.arguments, a.condition, a.type, below.weight, of_value=a.kind is Kind.SUM
                ),
            )
            for a in node.accumulators.columns
        ]
        named_keys = [(f"g{i}", key) for i, key in enumerate(keys)]
        keyed = self._keyed(below, keys, named_keys, added, there=False)
        long = LongType()
        types: list[tuple[str, DataType]] = [(HASH, long)]
        types += [(f"g{i}", key.type) for i, key in enumerate(query.grouping)]
        types += [(WEIGHT, long), (ROWS, long)]
        types += [(a.column, a.type) for a in node.accumulators.columns]
        if isinstance(node.operator, GlobalAggregate):
            keyed = self._seeded(node.name, node.operator.increments, keyed, types)
        grouped = self._operator(
            node.name,
            node.operator,
            node.arrangements,
            ((HASH, *dict(named_keys), WEIGHT, *dict(added)),),
            types,
            keyed,
        )
        return self._results(node, grouped)

    def _results(self, node: Aggregate, grouped: Any) -> Frame:
        """Have Spark compute the results from the accumulators."""
        transplant, query = self.transplant, node.plan
        columns = transplant.output(grouped)
        keys = [
            transplant.alias(columns[f"g{i}"], a.name, a.handle)
            for i, a in enumerate(query.grouping_attributes)
        ]
        fed, evaluated = [], []
        for call in node.accumulators.calls:
            total = columns[call.total] if call.total is not None else None
            buffers, result = transplant.buffers(call.function, total, columns[call.count])
            fed += buffers
            evaluated.append(result)
        weight, hash_ = columns[WEIGHT], columns[HASH]
        plan_ = transplant.project([*keys, *fed, weight, hash_], grouped)
        own = [a.handle for a in query.grouping_attributes]
        plan_ = transplant.project([*own, *evaluated, weight, hash_], plan_)
        named = [e.handle for e in query.results]
        plan_ = transplant.project([*named, weight, hash_], plan_)
        return Frame(plan_, weight, hash_)

    def _seeded(
        self, name: str, layout: Layout, keyed: Any, types: list[tuple[str, DataType]]
    ) -> Any:
        fields = dict(types)
        schema = _spark([(n, fields[n]) for n in layout.schema.names])
        seed = SeedTask(name, layout.schema)
        row = self.transplant.mapped(self.transplant.range(1), seed, schema)
        return self._exchange(self.transplant.union([keyed, row]))

    # -- pieces ----------------------------------------------------------------------------

    def _weighted(self, named: list[Any], weight: Any, below: Any) -> Frame:
        """Project columns with a weight of its own, so that no two frames share its id."""
        own = self.transplant.alias(weight, WEIGHT)
        return Frame(self.transplant.project([*named, own], below), own.toAttribute())

    def _keyed(
        self,
        frame: Frame,
        keys: list[Any],
        columns: list[tuple[str, Any]],
        summed: list[tuple[str, Any]],
        *,
        there: bool,
    ) -> Any:
        """Name the columns, hash the keys, and send rows to their partition if need be."""
        transplant = self.transplant
        hash_ = frame.hash if there else transplant.hash(keys)
        named = [transplant.alias(hash_, HASH)]
        named += [transplant.alias(value, name) for name, value in columns]
        named.append(transplant.alias(frame.weight, WEIGHT))
        named += [transplant.alias(value, name) for name, value in summed]
        projected = transplant.project(named, frame.plan)
        return projected if there else self._exchange(projected)

    def _exchange(self, below: Any) -> Any:
        """Send rows to the partition that owns their hash; with one partition, just gather."""
        if self.partitions == 1:
            return self.transplant.gather(below)
        return self.transplant.exchange(below, HASH, self.partitions)

    def _operator(
        self,
        name: str,
        operator: StatefulOperator,
        arrangements: tuple[ArrangementId, ...],
        inputs: tuple[tuple[str, ...], ...],
        output: list[tuple[str, DataType]],
        below: Any,
    ) -> Any:
        for id_, layout in zip(arrangements, operator.layouts, strict=True):
            self._arrangements[id_] = layout
        self._operators.append(name)
        names = tuple(name for name, _ in output)
        task = OperatorTask(name, operator, arrangements, inputs, names)
        return self.transplant.mapped(below, task, _spark(output))


def table_layout(table: Table) -> Layout:
    """Return how a table's rows are arranged: by primary key, or else by the whole row."""
    import pyarrow as pa  # noqa: PLC0415

    return Layout(
        key=table.primary_key or table.schema.names,
        columns=table.schema.arrow,
        summed=pa.schema([pa.field(WEIGHT, pa.int64())]),
    )


def _spark(fields: list[tuple[str, DataType]]) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in fields])
