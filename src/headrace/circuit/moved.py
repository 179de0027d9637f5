"""Circuits of builds that take other places: as they are, over relations with other ids."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from headrace.catalyst import node as plans
from headrace.catalyst import plan
from headrace.circuit.circuit import Circuit, Join, Node, Output
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.types import RelationId


def moved(circuit: Circuit, view: RelationId, ids: Mapping[RelationId, RelationId]) -> Circuit:
    """Return the circuit as that of another view, which reads relations with other ``ids``.

    Its state and its expressions stay, so nothing is planned. Relations with quarantines have no
    other id: these are the streams and tables that a view reads.
    """
    if view == circuit.view and ids.keys().isdisjoint(circuit.reads):
        return circuit
    found = _Moved(ids)
    for node in circuit.nodes:
        found.nodes[node] = found.node(node)
    output = cast("Output", found.nodes[circuit.output])
    output = replace(output, arrangements=(rows_of(view),))
    return Circuit(view, circuit.build, output, circuit.unique)


@dataclass(slots=True)
class _Moved:
    """The nodes and plans of a circuit, each once."""

    ids: Mapping[RelationId, RelationId]
    nodes: dict[Node | Output, Node | Output] = field(default_factory=dict)
    _plans: dict[plans.AnyPlan, plans.AnyPlan] = field(default_factory=dict)

    def node(self, node: Node | Output) -> Node | Output:
        """Return a node whose inputs have been moved."""
        values = {each.name: self._value(getattr(node, each.name)) for each in fields(node)}
        if isinstance(node, Join):
            shared = {
                i: replace(each, relation=self._id(each.relation))
                for i, each in node.shared.items()
            }
            values["shared"] = shared
            values["arrangements"] = tuple(
                shared[i].id if i in shared else id_ for i, id_ in enumerate(node.arrangements)
            )
        return type(node)(**values)

    def _value(self, value: Any) -> Any:
        match value:
            case plans.Node():
                return self._plan(value)
            case tuple():
                return tuple(map(self._value, value))
            case _:
                return self.nodes[value] if isinstance(value, Node) else value

    def _plan(self, query: plans.AnyPlan) -> plans.AnyPlan:
        if query not in self._plans:
            made = query.rebuilt(map(self._plan, query.inputs)) if query.inputs else query
            if isinstance(made, plan.Scan):
                made = replace(made, relation=self._id(made.relation))
            self._plans[query] = made
        return self._plans[query]

    def _id(self, relation: RelationId) -> RelationId:
        return self.ids.get(relation, relation)
