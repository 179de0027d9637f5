"""State of maintained builds from which another build is filled, in place of reading its inputs.

An operator's arrangements are the sum of its input. Where a circuit and a *kept* one, which epochs
maintain, compute the same rows below an operator and arrange them alike, the kept arrangements can
be the operator's input: nothing below need be read. The operators below take their arrangements
over as they are.

Only some inputs can be restored from arrangements. Those of an aggregate are sums by group, those
of first rows may lack rows that never count again, and inner joins leave out rows whose key is
NULL: the operator's output is the same. Outer joins would miss these rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headrace.catalyst import plan
from headrace.catalyst.numbered import shape_of
from headrace.circuit.circuit import (
    Aggregate,
    First,
    Join,
    Match,
    Recompute,
    RelationDelta,
    Stateful,
    Stateless,
    Sum,
    below,
    inputs,
    own_arrangements,
    shared,
)
from headrace.operators import (
    Distinct,
    Extremum,
    InnerJoin,
    SessionAggregate,
    SignedExtremum,
    TouchedSessions,
)
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.catalyst.numbered import PlanNumbers
    from headrace.circuit.accumulators import Accumulator
    from headrace.circuit.circuit import Circuit, Node, Output
    from headrace.operators import Part
    from headrace.types import ArrangementId, RelationId
    from headrace.zset import Layout

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
