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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.catalyst import plan
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
    inputs,
    own_arrangements,
    shared,
)
from headrace.operators import InnerJoin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.catalyst.numbered import PlanNumbers
    from headrace.circuit.circuit import Circuit, Node, Output
    from headrace.types import ArrangementId, RelationId
    from headrace.zset import Layout

_COPIED = (Aggregate, First, Join, Match, Recompute)
"""Operators whose state depends on their input only."""
_PASSED = (RelationDelta, Stateless, Sum, *_COPIED)
"""The nodes that may be below an input that is restored."""
_COPIES_PER_ROW = 4
"""How many rows are copied in the time in which one is read and stepped."""


class Stored(NamedTuple):
    """A kept arrangement, and its layout."""

    arrangement: ArrangementId
    layout: Layout


Input: TypeAlias = "tuple[Aggregate | First | Join | Recompute, int]"
"""An operator, and the position of one of its inputs."""

Sizes: TypeAlias = "Callable[[ArrangementId | RelationId], int]"
"""Returns the number of rows of a kept arrangement, or of a relation."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a circuit takes from kept ones: nothing below its ``inputs`` is read.

    ``inputs`` have the arrangements that make up each, and ``copied``, by the circuit's own
    arrangements, those of the operators below. ``reads`` are the relations that are still read.
    """

    inputs: Mapping[Input, tuple[Stored, ...]]
    copied: Mapping[ArrangementId, Stored]
    reads: frozenset[RelationId]


def restored(
    circuit: Circuit, kept: Iterable[Circuit], numbers: PlanNumbers, rows: Sizes
) -> Restored:
    """Return what a circuit takes from kept ones, where that costs less than reading its inputs."""
    found = _Search(numbers, rows)
    for each in kept:
        found.add(each)
    found.visit(circuit.output)
    read = found.reached(circuit.output)
    relations = frozenset(n.plan.relation for n in read if isinstance(n, RelationDelta))
    stored = {at: _stored(of) for at, of in found.inputs.items()}
    return Restored(stored, found.copied(without=read), relations)


@dataclass(slots=True)
class _Search:
    """Finds inputs that kept circuits have, from the output down."""

    numbers: PlanNumbers
    rows: Sizes
    inputs: dict[Input, Input] = field(default_factory=dict)
    """The inputs that are restored, each with the kept one."""
    _kept: dict[object, Input] = field(default_factory=dict)
    _seen: set[Node | Output] = field(default_factory=set)

    def add(self, circuit: Circuit) -> None:
        """Add a kept circuit."""
        for node in circuit.nodes:
            for at in _restorable(node).values():
                self._kept.setdefault(self._identity(at), at)

    def visit(self, node: Node | Output) -> None:
        """Find the topmost inputs at or below a node that are worth restoring."""
        if node in self._seen:
            return
        self._seen.add(node)
        possible = _restorable(node)
        for i, child in enumerate(inputs(node)):
            at = possible.get(i)
            of = None if at is None else self._kept.get(self._identity(at))
            if at is not None and of is not None and self._is_worth(child, of):
                self.inputs[at] = of
            else:
                self.visit(child)

    def copied(self, without: frozenset[Node | Output]) -> dict[ArrangementId, Stored]:
        """Return the kept arrangements of the operators below the inputs, by the circuit's own."""
        found: dict[ArrangementId, Stored] = {}
        below = (each for at, of in self.inputs.items() for each in _pairs(_child(at), _child(of)))
        for own, kept in below:
            if isinstance(own, Stateful) and isinstance(kept, Stateful) and own not in without:
                ids = zip(own_arrangements(own), own_arrangements(kept).items(), strict=True)
                found |= {id_: Stored(*stored) for id_, stored in ids}
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

    def _is_worth(self, child: Node, of: Input) -> bool:
        """Whether a kept input can take the place of a node's rows, for less than these cost."""
        if not _alike(child, _child(of)):
            return False
        relations = {
            n.plan.relation for n in _all_below(_child(of)) if isinstance(n, RelationDelta)
        }
        read = sum(map(self.rows, relations))
        fed = sum(self.rows(each.arrangement) for each in _stored(of))
        below = (node for node in _all_below(_child(of)) if isinstance(node, Stateful))
        copied = sum(self.rows(id_) for node in below for id_ in own_arrangements(node))
        return 2 * fed + copied // _COPIES_PER_ROW < read

    def _identity(self, at: Input) -> object:
        """Return a key that is equal for inputs with the same rows, arranged alike."""
        node, side = at
        of = self.numbers
        match node:
            case Aggregate():
                return "aggregate", of.of_core(node.plan), node.operator
            case Join():
                sides = node.plan.left_keys, node.plan.right_keys
                child = (node.plan.left, node.plan.right)[side]
                return "side", of.of_keys(child, sides[side]), node.operator.layouts[side]
            case First() | Recompute():
                return type(node), of.of(node.plan), node.operator


def _restorable(node: Node | Output) -> dict[int, Input]:
    """Return the inputs of a node that arrangements can restore, by position."""
    match node:
        case Aggregate() | First() | Recompute():
            return {0: (node, 0)}
        case Join(operator=InnerJoin(alone=(False, False))):
            return {side: (node, side) for side in (0, 1) if side not in node.shared}
        case _:
            return {}


def _stored(at: Input) -> tuple[Stored, ...]:
    """Return the arrangements of a kept operator that make up an input."""
    node, side = at
    match node:
        case Join():
            return (Stored(node.arrangements[side], node.operator.layouts[side]),)
        case Aggregate():
            stored = tuple(map(Stored, node.arrangements, node.operator.layouts))
            return stored[0], *(stored[1 + i] for i in node.accumulators.restoring)
        case First() | Recompute():
            return (Stored(node.arrangements[0], node.operator.layouts[0]),)


def _child(at: Input) -> Node:
    return inputs(at[0])[at[1]]


def _all_below(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, each once."""
    seen: set[Node] = set()

    def visit(each: Node) -> Iterator[Node]:
        if each not in seen:
            seen.add(each)
            yield each
            for child in inputs(each):
                yield from visit(child)

    yield from visit(node)


def _pairs(own: Node, kept: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the nodes at the same places at and below two nodes that are alike."""
    yield own, kept
    for below in zip(inputs(own), inputs(kept), strict=True):
        yield from _pairs(*below)


def _alike(own: Node, kept: Node) -> bool:
    """Whether the nodes at the same places of two circuits have the same operators and state.

    Their plans are equal already; what is inferred from other relations may differ.
    """
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
    below = inputs(own), inputs(kept)
    return len(below[0]) == len(below[1]) and all(
        _alike(*each) for each in zip(*below, strict=True)
    )
