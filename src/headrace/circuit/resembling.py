"""Whether a query over altered relations computes the same as the former one over the former ones.

The columns of a relation may have moved or have another name. Two circuits resemble each other if
they have the same nodes and state, and each expression refers to the same columns of the same
types. A column is compared by where it comes from, not by its name, so that a name which has
another meaning now is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalyst import plan
from headrace.catalyst.bound import alike_text, bound_text
from headrace.catalyst.node import FieldRole
from headrace.catalyst.scala import items
from headrace.circuit.circuit import (
    Loop,
    Output,
    RelationDelta,
    Shared,
    Stateful,
    Stateless,
    inputs,
    shared,
)
from headrace.circuit.digest import CircuitStructure
from headrace.zset import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.circuit.circuit import Circuit, Node
    from headrace.types import RelationId


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
