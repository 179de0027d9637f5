"""Why a slice of a view has no rows: the lowest nodes that no row passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.planning.catalyst.plan import JoinKind
from headrace.planning.circuit import Aggregate, Join, RelationDelta, Sum, inputs
from headrace.planning.circuit.explain import step_of, with_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.planning.circuit import Node, Sliced
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class MissingRows:
    """Explains why no row of a slice passes a node.

    ``rows`` are the counts of rows that pass each node, None where unknown.
    """

    sliced: Sliced
    rows: Mapping[Any, int | None]
    name_of: Callable[[RelationId], str]

    def why(self, node: Node) -> tuple[str, ...]:
        """Return a sentence for each of the lowest nodes that could have rows and have none."""
        return tuple(dict.fromkeys(self._why(node)))

    def _why(self, node: Node) -> Iterator[str]:
        needed = _needed(node)
        empty = [child for child in needed if self.rows.get(child) == 0]
        if isinstance(node, Join) and node.plan.kind is JoinKind.FULL and empty != list(needed):
            empty = []
        if not empty:
            yield self._here(node)
        for child in empty:
            yield from self._why(child)

    def _here(self, node: Node) -> str:
        given = self.sliced.nodes[node]
        conditions = " AND ".join(with_calls(node, c.text) for c in given)
        if isinstance(node, RelationDelta):
            name = self.name_of(node.plan.relation)
            return f"{name} has no row where {conditions}" if conditions else f"{name} is empty"
        step = step_of(node, self.name_of)
        if isinstance(node, Join):
            return self._of_join(node, step, conditions)
        # Rows below a node already meet the conditions that were pushed down to them.
        if isinstance(node, Sum) or any(lost.node is node for lost in self.sliced.lost):
            return f"no row of {step} meets {conditions}"
        return f"rows reach it, but none passes {step}"

    def _of_join(self, node: Join, step: str, conditions: str) -> str:
        sides = [{a.id for a in side.attributes} for side in (node.plan.left, node.plan.right)]
        on_pairs = [
            condition
            for condition in self.sliced.nodes[node]
            if not any(condition.uses <= side for side in sides)
        ]
        match node.plan.kind:
            case JoinKind.ANTI:
                names = {self.name_of(leaf.plan.relation) for leaf in leaves(node.right)}
                among = f" among the rows of {' and '.join(sorted(names))}" if names else ""
                return f"each row that reaches it has a partner{among}: {step}"
            case JoinKind.INNER | JoinKind.SEMI if not on_pairs:
                return f"no row that reaches it has a partner: {step}"
            case _:
                return f"no joined row meets {conditions}: {step}"


def leaves(node: Node) -> Iterator[RelationDelta]:
    """Yield the leaves below a node; the node itself if it is a leaf."""
    if isinstance(node, RelationDelta):
        yield node
    for child in inputs(node):
        yield from leaves(child)


def _needed(node: Node) -> tuple[Node, ...]:
    """Return the inputs without whose rows a node has no output (of a union: all inputs)."""
    below = inputs(node)
    if isinstance(node, Aggregate) and not node.plan.grouping:
        return ()
    if isinstance(node, Sum):
        return below
    if isinstance(node, Join):
        return _sides(node.plan.kind, below)
    return below[:1]


def _sides(kind: JoinKind, sides: tuple[Node, ...]) -> tuple[Node, ...]:
    match kind:
        case JoinKind.INNER | JoinKind.SEMI | JoinKind.FULL:
            return sides
        case JoinKind.RIGHT:
            return sides[1:]
        case _:
            return sides[:1]
