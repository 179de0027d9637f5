"""State of maintained builds from which another build is filled, in place of reading its inputs.

An operator's arrangements are the sum of its input. Where a circuit and a *kept* one, which epochs
maintain, compute the same rows below an operator and arrange them alike, the kept arrangements can
be the operator's input: nothing below need be read. The operators below take their arrangements
over as they are.

Only some inputs can be restored from arrangements. Those of an aggregate are sums by group, those
of first rows may lack rows that never count again, and inner joins leave out rows whose key is
NULL: the operator's output is the same. Outer joins would miss these rows.

Whether a query over altered relations computes the same as the former one over the former ones.

The columns of a relation may have moved or have another name. Two circuits resemble each other if
they have the same nodes and state, and each expression refers to the same columns of the same
types. A column is compared by where it comes from, not by its name, so that a name which has
another meaning now is seen.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headrace.algebra.operators import (
    Distinct,
    Extremum,
    InnerJoin,
    SessionAggregate,
    SignedExtremum,
    TouchedSessions,
)
from headrace.algebra.zset import WEIGHT, Layout
from headrace.planning.catalyst import plan
from headrace.planning.catalyst.lineage import alike_text, bound_text
from headrace.planning.catalyst.node import FieldRole
from headrace.planning.catalyst.numbered import shape_of
from headrace.planning.catalyst.scala import items
from headrace.planning.circuit.circuit import (
    Aggregate,
    First,
    Join,
    Loop,
    Match,
    Output,
    Recompute,
    RelationDelta,
    Shared,
    Stateful,
    Stateless,
    Sum,
    below,
    inputs,
    own_arrangements,
    shared,
)
from headrace.planning.circuit.digest import CircuitStructure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.algebra.operators import Part
    from headrace.planning.catalyst.numbered import PlanNumbers
    from headrace.planning.circuit.accumulators import Accumulator
    from headrace.planning.circuit.circuit import Circuit, Node
    from headrace.types import ArrangementId, RelationId


@dataclass(frozen=True, slots=True)
class AlteredColumns:
    """What happened to the columns of relations.

    ``moved`` has, by relation, the position that each former one has now, and -1 of those that were
    dropped; absent ones stay. ``widened``: whether integers may have more bytes.
    """

    moved: Mapping[RelationId, Mapping[int, int]] = field(default_factory=dict)
    widened: bool = False


def resembles(before: Circuit, after: Circuit, altered: AlteredColumns) -> bool:
    """Return whether ``after`` computes and stores what ``before`` did, over altered columns."""
    widened = altered.widened
    was = _Bound(before, altered.moved, widened=widened).nodes()
    return bool(was == _Bound(after, widened=widened).nodes())


class _Bound(CircuitStructure):
    """The structure of a circuit whose expressions refer to columns by their positions."""

    def __init__(
        self,
        circuit: Circuit,
        moved: Mapping[RelationId, Mapping[int, int]] = MappingProxyType({}),
        *,
        widened: bool = False,
    ) -> None:
        super().__init__(circuit)
        self.moved = moved
        self.widened = widened
        self.places: dict[int, str] = {}
        """Of each attribute, by its id: its place in the inputs of the node that is described."""

    def nodes(self) -> list[Any]:
        index: dict[Node | Output, int] = {}
        described: list[Any] = []
        for node in self.circuit.nodes:
            below = [index[child] for child in inputs(node)]
            index[node] = below[0] if _passes_all(node) else len(described)
            if index[node] < len(described):
                continue
            if not isinstance(node, Output):
                self.places = _places(node.plan)
            kind, parts = self.node(node)
            state = self.state(node) if isinstance(node, Stateful | Loop) else []
            described.append([kind, below, parts, *state])
        return [*described, self.circuit.unique]

    def node(self, node: Node | Output) -> tuple[str, list[Any]]:
        if not isinstance(node, RelationDelta):
            return super().node(node)
        places = self.moved.get(node.plan.relation, {})
        guarded = () if node.guard is None else node.guard.columns
        read, kept = (
            [places.get(i, i) for i in columns] for columns in (node.plan.columns, guarded)
        )
        return "source", [node.plan.relation, read, kept]

    def state(self, node: Stateful | Loop) -> list[Any]:
        """Return the operator and arrangements; of contents that it shares, what it reads of them.

        Other columns of these do not matter.
        """
        read = {} if isinstance(node, Loop) else shared(node)
        operator, arrangements, _ = super().state(node)
        return [operator, arrangements, [[i, self.read(each)] for i, each in sorted(read.items())]]

    def read(self, contents: Shared) -> list[Any]:
        """Return the columns that are read of shared contents, and those by which it is found."""
        columns, places = contents.layout.columns, self.moved.get(contents.relation, {})
        at = {name: places.get(i, i) for i, name in enumerate(columns.names)}
        named = (contents.columns, contents.layout.key)
        found = ([[at[n], self.type(columns.field(n).type)] for n in names] for names in named)
        return [contents.relation, *found, list(contents.present)]

    def type(self, of: pa.DataType) -> str:
        """Return the type of contents that others store."""
        return "integer" if self.widened and pa.types.is_signed_integer(of) else str(of)

    def parts(self, query: plan.Plan) -> list[Any]:
        found = super().parts(query)
        match query:
            case plan.Generate():
                return [*found, self.bound(query.handle.generator())]
            case plan.Window():
                return [*found, *map(self.bound, items(query.handle.windowExpressions()))]
            case _:
                return found

    def part(self, role: FieldRole, value: Any, *below: plan.Plan) -> Any:
        if role is FieldRole.WORDS:
            return None  # the text of what is compared as an expression
        found = super().part(role, value, *below)
        is_text = isinstance(found, str) and not isinstance(value, str)
        return self.bound(value) if role is FieldRole.EXPRESSIONS and is_text else found

    def value(self, value: Any, *below: plan.Plan) -> Any:
        if isinstance(value, plan.AggregateFunction):
            return self.bound(value.handle)
        if isinstance(value, Layout):
            value = value.in_files
        return super().value(value, *below)

    def expression(self, found: plan.Expression, *below: plan.Plan) -> Any:
        known = super().expression(found, *below)
        if isinstance(known, int):
            return known
        return [self.bound(found.handle), found.type.simpleString()]

    def function(self, call: plan.AggregateFunction, *below: plan.Plan) -> list[Any]:
        _, *rest = super().function(call, *below)
        return [self.bound(call.handle), *rest]

    def bound(self, handle: Any) -> Any:
        """Return the text of an expression with the places of columns instead of names, and types.

        One that is not known is equal to nothing.
        """
        if self.widened:
            alike = alike_text(handle, self.places)
            return object() if alike is None else alike
        found = bound_text(handle, self.places)
        return object() if found is None else [self.text(found[0]), found[1]]


def _places(query: plan.Plan) -> dict[int, str]:
    """Return where each attribute is that a node's expressions may refer to, by its id.

    It is a column of an input, by position, or one that the node itself computes first.
    """
    found: dict[int, str] = {}
    if isinstance(query, plan.Aggregate):
        for number, attribute in enumerate(query.grouping_attributes):
            found[attribute.id] = f"key {number}"
        for number, call in enumerate(query.functions):
            found[int(call.handle.resultId().id())] = f"call {number}"
    for number, attribute in enumerate(query.attributes):
        found.setdefault(attribute.id, f"own {number}")
    for number, child in enumerate(query.inputs):
        for position, attribute in enumerate(child.attributes):
            found[attribute.id] = f"{number}.{position}"
    return found


def _passes_all(node: Node | Output) -> bool:
    """Whether a node returns its input: what is left of a projection to the columns that are read.

    There is one only if the relation has other columns.
    """
    if not isinstance(node, Stateless) or not isinstance(node.plan, plan.Project):
        return False
    below = [attribute.id for attribute in node.plan.child.attributes]
    return [each.passes for each in node.plan.expressions] == below


_PASSED = (RelationDelta, Stateless, Sum, Aggregate, First, Join, Match, Recompute)
"""The nodes that may be below an input that is restored: their state depends on rows only."""
_READS_PER_ROW = 2
"""How many rows of a relation are read in the time in which one of state is, at least."""
_COPIES_PER_ROW = 4
"""How many rows are copied in the time in which one is read."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """A kept arrangement.

    An input has its columns under other names: ``columns`` are the kept ones by the input's, and
    ``weight`` is the input's column with the weights.
    """

    arrangement: ArrangementId
    layout: Layout
    columns: Mapping[str, str] = field(default_factory=dict)
    weight: str = WEIGHT


Input: TypeAlias = "tuple[Aggregate | First | Join | Recompute, int]"
"""An operator, and the position of one of its inputs."""

Sizes: TypeAlias = "Callable[[ArrangementId | RelationId], int]"
"""Returns the number of rows of a kept arrangement, or of a relation."""


@dataclass(frozen=True, slots=True)
class RestoredInputs:
    """What a circuit takes from kept ones: nothing below its ``inputs`` is read.

    ``inputs`` have the arrangements that make up each, and ``copied``, by the circuit's own
    arrangements, those of the operators below. ``unread`` are relations that need not be read.
    """

    inputs: Mapping[Input, tuple[KeptState, ...]]
    copied: Mapping[ArrangementId, KeptState]
    unread: frozenset[RelationId]


def restored(
    circuit: Circuit, kept: Iterable[Circuit], numbers: PlanNumbers, rows: Sizes
) -> RestoredInputs:
    """Return what a circuit takes from kept ones, where that costs less than reading its inputs."""
    found = _Search(numbers, rows)
    for each in kept:
        found.add(each)
    found.visit(circuit.output)
    read = found.reached(circuit.output)
    relations = frozenset(n.plan.relation for n in read if isinstance(n, RelationDelta))
    stored = {at: each.stored for at, each in found.inputs.items()}
    return RestoredInputs(stored, found.copied(without=read), circuit.reads - relations)


@dataclass(frozen=True, slots=True)
class _Found:
    """A kept input, and the arrangements that make up another one."""

    at: Input
    stored: tuple[KeptState, ...]


@dataclass(slots=True)
class _Search:
    """Finds inputs that kept circuits have, from the output down."""

    numbers: PlanNumbers
    rows: Sizes
    inputs: dict[Input, _Found] = field(default_factory=dict)
    """The inputs that are restored."""
    _kept: dict[object, list[Input]] = field(default_factory=lambda: defaultdict(list))
    """The inputs of kept circuits, by shapes: comparing these needs no calls to Spark."""
    _seen: set[Node | Output] = field(default_factory=set)

    def add(self, circuit: Circuit) -> None:
        """Add a kept circuit."""
        for node in circuit.nodes:
            for at in _restorable(node).values():
                self._kept[_shape(at)].append(at)

    def visit(self, node: Node | Output) -> None:
        """Find the topmost inputs at or below a node that are worth restoring."""
        if node in self._seen:
            return
        self._seen.add(node)
        possible = _restorable(node)
        for i, child in enumerate(inputs(node)):
            at = possible.get(i)
            found = None if at is None else self._found(at)
            if at is not None and found is not None:
                self.inputs[at] = found
            else:
                self.visit(child)

    def _found(self, at: Input) -> _Found | None:
        """Return the kept input that restores one for the least cost, if that is worth it."""
        among: list[_Found] = []
        for of in self._kept.get(_shape(at), ()):
            same = _alike(_child(at), _child(of)) and self._identity(at) == self._identity(of)
            stored = self._stored(at, of) if same else None
            if stored is not None:
                among.append(_Found(of, stored))
        worth = [each for each in among if self._cost(each) < self._read(each.at)]
        return min(worth, key=self._cost, default=None)

    def copied(self, without: frozenset[Node | Output]) -> dict[ArrangementId, KeptState]:
        """Return the kept arrangements of the operators below the inputs, by the circuit's own."""
        found: dict[ArrangementId, KeptState] = {}
        pairs = ((_child(at), _child(each.at)) for at, each in self.inputs.items())
        for own, kept in (each for pair in pairs for each in _pairs(*pair).items()):
            if isinstance(own, Stateful) and isinstance(kept, Stateful) and own not in without:
                ids = zip(own_arrangements(own), own_arrangements(kept).items(), strict=True)
                found |= {id_: KeptState(*stored) for id_, stored in ids}
        return found

    def reached(self, output: Output) -> frozenset[Node | Output]:
        """Return the nodes that are evaluated though inputs are restored."""
        found: set[Node | Output] = set()

        def visit(node: Node | Output) -> None:
            if node not in found:
                found.add(node)
                for i, child in enumerate(inputs(node)):
                    if (node, i) not in self.inputs:
                        visit(child)

        visit(output)
        return frozenset(found)

    def _read(self, at: Input) -> int:
        """Return how many rows of relations are below an input."""
        leaves = (node for node in below(_child(at)) if isinstance(node, RelationDelta))
        return sum(map(self.rows, {leaf.plan.relation for leaf in leaves}))

    def _cost(self, found: _Found) -> int:
        """Return what restoring costs, as a number of rows that are read."""
        fed = sum(self.rows(each.arrangement) for each in found.stored)
        nodes = (node for node in below(_child(found.at)) if isinstance(node, Stateful))
        copied = sum(self.rows(id_) for node in nodes for id_ in own_arrangements(node))
        return _READS_PER_ROW * fed + copied // _COPIES_PER_ROW

    def _identity(self, at: Input) -> object:
        """Return a key that is equal for inputs with the same rows, arranged alike.

        Aggregates may still sum up different values of these rows.
        """
        node, side = at
        of = self.numbers
        match node:
            case Aggregate():
                return "groups", of.of_keys(node.plan.child, node.plan.grouping)
            case Join():
                sides = node.plan.left_keys, node.plan.right_keys
                child = (node.plan.left, node.plan.right)[side]
                return "side", of.of_keys(child, sides[side]), node.operator.layouts[side]
            case First() | Recompute():
                return type(node), of.of(node.plan), node.operator

    def _stored(self, at: Input, of: Input) -> tuple[KeptState, ...] | None:
        """Return the arrangements of a kept input that make up another one; None if they do not."""
        own, (kept, side) = at[0], of
        if isinstance(own, Aggregate) and isinstance(kept, Aggregate):
            return self._of_groups(own, kept)
        layout = kept.operator.layouts[side]
        names = {name: name for name in layout.columns.names}
        return (KeptState(kept.arrangements[side], layout, names),)

    def _of_groups(self, own: Aggregate, kept: Aggregate) -> tuple[KeptState, ...] | None:
        """Return the totals of a kept aggregate, and the values of those of its parts, if any.

        The totals must have all sums over rows, in any order, and others may be among them. Parts
        with equal weights have the same values, unless they keep only an extremum.
        """
        sums = {self._slot(kept, each): each.column for each in kept.accumulators.summed}
        weights = {self._slot(kept, each): each.column for each in kept.accumulators.weights}
        keys = {name: name for name in own.operator.layout.key}
        names = {each.column: sums.get(self._slot(own, each)) for each in own.accumulators.summed}
        totals = {name: column for name, column in names.items() if column is not None}
        if len(totals) < len(names):
            return None
        found = [KeptState(kept.arrangements[0], kept.operator.layouts[0], {**keys, **totals})]
        if not all(map(_keeps_values, own.accumulators.parts)):
            return None
        for weight in own.accumulators.weights:
            parts = [part for part in own.accumulators.parts if part.weight == weight.column]
            chosen = _with_values_of(parts, kept, weights.get(self._slot(own, weight)))
            if chosen is None:
                return None
            for i in chosen:
                theirs = kept.accumulators.parts[i].arguments.names
                given = dict(zip(parts[0].arguments.names, theirs, strict=True))
                id_, layout = kept.arrangements[1 + i], kept.operator.layouts[1 + i]
                found.append(KeptState(id_, layout, {**keys, **given}, weight.column))
        return tuple(found)

    def _slot(self, node: Aggregate, of: Accumulator) -> object:
        """Return a key that is equal for sums of equal values over equal rows."""
        over = (*of.arguments, of.condition)
        return of.kind, self.numbers.of_expressions(node.plan.child, over)


def _keeps_values(part: Part) -> bool:
    """Whether a part keeps the values of its arguments, and nothing else."""
    return isinstance(part, Distinct | Extremum)


def _with_values_of(parts: list[Part], kept: Aggregate, weight: str | None) -> list[int] | None:
    """Return the kept parts of a weight, by position, that have all values of some parts."""
    every, signed = enumerate(kept.accumulators.parts), any(map(_is_signed, parts))
    among = {i: part for i, part in every if part.weight == weight and _keeps_values(part)}
    among = {i: part for i, part in among.items() if _is_signed(part) == signed}
    whole = [i for i, part in among.items() if not _is_one(part)]
    if whole:
        return whole[:1]
    ends = {part.end: i for i, part in among.items() if isinstance(part, Extremum)}
    if not all(isinstance(part, Extremum) and _is_one(part) and part.end in ends for part in parts):
        return None
    return [ends[part.end] for part in parts if isinstance(part, Extremum)]


def _is_signed(part: Part) -> bool:
    """Whether the values that a part keeps are as they came, also zeros."""
    return isinstance(part, SignedExtremum)


def _is_one(part: Part) -> bool:
    """Whether a part keeps one value of a group."""
    return isinstance(part, Extremum) and part.append_only


def _restorable(node: Node | Output) -> dict[int, Input]:
    """Return the inputs of a node that arrangements can restore, by position."""
    match node:
        case Aggregate(operator=SessionAggregate()) | Recompute(operator=TouchedSessions()):
            return {}
        case Aggregate() | First() | Recompute():
            return {0: (node, 0)}
        case Join(operator=InnerJoin(alone=(False, False))):
            return {side: (node, side) for side in (0, 1) if side not in node.shared}
        case _:
            return {}


def _shape(at: Input) -> object:
    """Return a key that is equal for inputs that may be equal."""
    node, side = at
    return type(node), side if isinstance(node, Join) else 0, shape_of(_child(at).plan)


def _child(at: Input) -> Node:
    return inputs(at[0])[at[1]]


def _pairs(own: Node, kept: Node) -> dict[Node, Node]:
    """Return the nodes at and below one, each with the node at the same place of another."""
    found: dict[Node, Node] = {}

    def visit(own: Node, kept: Node) -> None:
        if own not in found:
            found[own] = kept
            for below in zip(inputs(own), inputs(kept), strict=False):
                visit(*below)

    visit(own, kept)
    return found


def _alike(own: Node, kept: Node) -> bool:
    """Whether the nodes at the same places of two circuits have the same operators and state.

    Their plans may still differ; what is inferred from other relations is compared here.
    """
    return all(_are_one(*pair) for pair in _pairs(own, kept).items())


def _are_one(own: Node, kept: Node) -> bool:
    if type(own) is not type(kept) or not isinstance(own, _PASSED):
        return False
    if isinstance(own, RelationDelta) and (own.guard or getattr(kept, "guard", None)):
        return False
    if isinstance(own.plan, plan.Project) and own.plan.calls:
        return False  # a function may have been replaced
    if (isinstance(own, Stateful) and isinstance(kept, Stateful)) and (
        own.operator != kept.operator or {**shared(own)} != {**shared(kept)}
    ):
        return False
    return len(inputs(own)) == len(inputs(kept))
