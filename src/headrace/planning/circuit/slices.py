"""Slices: the part of each node of a circuit from which some rows of its view are computed.

A slice begins as conditions on the view's columns, all true of its rows. From the output down, each
node determines the conditions on its inputs that follow: a projection replaces columns by the
expressions that compute them, a grouping passes on conditions on its keys, and a join those on a
side that it preserves and, since keys are equal, conditions on keys also to the other side. A
condition that no rule moves is lost: below, the slice is larger.

Let ``p(n)`` be the conditions at a node ``n``, and ``n|p`` its rows that meet them. *Where each
input has all its rows that meet the conditions passed to it, n|p(n) is right.* For every rule: each
row of ``n|p(n)`` is computed from rows of the inputs, and from the absence of others, that all meet
what was passed on. So, by induction from the leaves, a circuit that reads only the slices of its
leaves has the right rows in the slice of each node and arrangement; its other rows are ignored.
Replacing the slice of every arrangement does not change the rows outside of it.

A node with several users has the conditions that all of them pass on: fewer conditions, so a larger
slice.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.algebra.operators import RowKind, TouchedSessions
from headrace.planning.catalyst import plan
from headrace.planning.circuit.circuit import (
    Aggregate,
    Circuit,
    First,
    FoldedRows,
    Join,
    Match,
    Node,
    Output,
    Recompute,
    RelationDelta,
    Stateful,
    Stateless,
    Sum,
    inputs,
    own_arrangements,
    shared,
)
from headrace.types import is_exact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.algebra.zset import Layout, Restriction
    from headrace.planning.catalyst.predicates import Conjunct, Predicates
    from headrace.types import ArrangementId, RelationId


Conditions: TypeAlias = "tuple[Conjunct, ...]"

_MOST_PROJECTIONS = 64
"""The projections of an Expand beyond which a condition is not moved through each of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """A condition that a node does not pass to one of its inputs, and why."""

    condition: Conjunct
    node: Node | Output
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ArrangementSlice:
    """The slice of an arrangement: its conditions, and the columns of the attributes that they use.

    ``restriction`` are the conditions that Arrow can test; if it is ``exact``, these are all.
    """

    layout: Layout
    conditions: Conditions
    columns: Mapping[int, plan.Attribute]
    names: Mapping[int, str]
    restriction: Restriction
    exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class Sliced:
    """A circuit with the slices of its nodes and of the arrangements that it owns.

    ``leaves`` has the conditions of each leaf that Arrow can test, over the relation's columns.
    ``lookups`` are relations that are not scanned for the slice: joins look up the rows that they
    need in the contents, by key. If the slice is ``exact``, the rows that leaves read only produce
    rows of the slice.
    """

    circuit: Circuit
    nodes: Mapping[Node | Output, Conditions]
    arrangements: Mapping[ArrangementId, ArrangementSlice]
    leaves: Mapping[RelationDelta, Restriction]
    lookups: frozenset[RelationId]
    lost: tuple[Lost, ...]
    exact: bool


def sliced(
    circuit: Circuit,
    conditions: Conditions,
    predicates: Predicates,
    names_of: Mapping[RelationId, tuple[str, ...]],
) -> Sliced:
    """Return the slices of a circuit's nodes for conditions on the attributes of its output.

    ``names_of`` has the names of the columns of each relation that the circuit reads.
    """
    return _Slicing(circuit, predicates, names_of).of(conditions)


def traced(
    circuit: Circuit, predicates: Predicates, attribute: plan.Attribute
) -> dict[RelationDelta, Conjunct]:
    """Return the expression over each leaf from which an attribute of the output has its value.

    All rows of the leaf from which a row is computed have the row's value. Leaves for which this is
    not known are omitted.
    """
    slicing = _Slicing(circuit, predicates, {}, several=False)
    nodes = slicing.nodes((predicates.conjunct(attribute.handle),))
    return {leaf: nodes[leaf][0] for leaf in circuit.sources() if nodes[leaf]}


class _Slicing:
    def __init__(
        self,
        circuit: Circuit,
        predicates: Predicates,
        names_of: Mapping[RelationId, tuple[str, ...]],
        *,
        several: bool = True,
    ) -> None:
        self.circuit = circuit
        self.predicates = predicates
        self.names_of = names_of
        self.several = several
        """Whether conditions move to a row from which a node makes several rows."""
        self.lost: list[Lost] = []
        self.exact = True
        """Whether all conditions hold at each node without a filter, once they do at the leaves."""

    def of(self, conditions: Conditions) -> Sliced:
        nodes = self.nodes(conditions)
        kept = {}
        for node in self.circuit.stateful():
            own = own_arrangements(node)
            for position, id_ in enumerate(node.arrangements):
                if position not in shared(node):
                    kept[id_] = self._kept(node, position, own[id_], nodes)
        leaves = {leaf: self._leaf(leaf, nodes[leaf]) for leaf in self.circuit.sources()}
        lookups = looked_up(self.circuit)
        lost = tuple(self.lost)
        return Sliced(self.circuit, nodes, kept, leaves, lookups, lost, self.exact)

    # -- nodes -------------------------------------------------------------------------------

    def nodes(self, conditions: Conditions) -> dict[Node | Output, Conditions]:
        """Return the conditions at each node: those that all of its users pass on."""
        found: dict[Node | Output, Conditions] = {self.circuit.output: conditions}
        passed: dict[Node | Output, list[Conditions]] = defaultdict(list)
        for node in reversed(list(self.circuit.nodes)):
            if node in passed:
                found[node] = _common(passed[node])
                self.exact &= all(len(each) == len(found[node]) for each in passed[node])
            for child, conds in zip(inputs(node), self._below(node, found[node]), strict=True):
                passed[child].append(conds)
        return found

    def _below(self, node: Node | Output, given: Conditions) -> tuple[Conditions, ...]:
        """Return the conditions on each input of a node that follow from those on its rows."""
        match node:
            case Output():
                if self.circuit.loops():
                    return (self._all_lost(node, given, "the view is recursive"),)
                return (given,)
            case Stateless():
                return (self._of_stateless(node, given),)
            case Sum():
                return tuple(self._of_union(node, child, given) for child in node.children)
            case Join():
                return self._of_join(node, given)
            case Match():
                return (self._of_match(node, given),)
            case Aggregate():
                return (self._of_groups(node, node.plan, given),)
            case Recompute(plan=plan.Aggregate() as query):
                return (self._of_groups(node, query, given),)
            case Recompute(plan=plan.Window() as query):
                return (self._on_keys(node, query.partition, given, "PARTITION BY"),)
            case First():
                return (self._on_keys(node, node.plan.keys, given, "each group of"),)
            case FoldedRows():
                pairs = zip(node.plan.attributes, node.plan.keys, strict=False)
                keys = {a.id: key.handle for a, key in pairs if is_exact(key.type)}
                return (self._moved(node, given, keys, keys, "a fold computes it"),)
            case _ if isinstance(node.plan, plan.Selection) and node.plan.by_row:
                return (given, *((),) * (len(inputs(node)) - 1))
            case _:
                self.exact &= isinstance(node, RelationDelta) or not given
                return tuple(() for _ in inputs(node))

    def _of_stateless(self, node: Stateless, given: Conditions) -> Conditions:
        match node.plan:
            case plan.Filter():
                return given
            case plan.Project() as query:
                pairs = list(zip(query.attributes, query.expressions, strict=True))
                passed = {a.id for a, e in pairs if e.passes is not None}
                values = {a.id: e.handle for a, e in pairs}
                movable = passed if query.calls else values.keys()
                why = "a Python function computes it"
                return self._moved(node, given, movable, values, why)
            case plan.Generate() as query:
                below = {a.id: a.handle for a in query.child.attributes}
                return self._moved(node, given, below.keys(), below, "a generator computes it")
            case plan.Expand() as query:
                return self._of_expand(node, query, given)

    def _of_expand(self, node: Stateless, query: plan.Expand, given: Conditions) -> Conditions:
        if len(query.projections) > _MOST_PROJECTIONS:
            return self._all_lost(node, given, f"a row is in {len(query.projections)} windows")
        ids = [a.id for a in query.attributes]
        found = []
        for condition in given:
            values = [dict(zip(ids, row, strict=True)) for row in query.projections]
            first, *others = [self.predicates.moved(condition, columns) for columns in values]
            different = [other for other in others if not first.same(other)]
            if not different:
                found.append(first)
            elif self.several:
                found.append(self.predicates.either([first, *different]))
            else:
                self._lose(condition, node, "it differs between the windows of a row")
        return tuple(found)

    def _of_union(self, node: Sum, child: Node, given: Conditions) -> Conditions:
        pairs = zip(node.plan.attributes, child.plan.attributes, strict=True)
        values = {a.id: b.handle for a, b in pairs}
        return self._moved(node, given, values.keys(), values, "")

    def _of_join(self, node: Join, given: Conditions) -> tuple[Conditions, Conditions]:
        query = node.plan
        sides = query.left, query.right
        preserved = _preserved(query.kind)
        passed: tuple[list[Conjunct], list[Conjunct]] = ([], [])
        for condition in given:
            on = [condition.uses <= {a.id for a in side.attributes} for side in sides]
            which = 0 if on[0] else 1
            if not any(on):
                self._lose(condition, node, "it uses columns of both sides of the join")
            elif not preserved[which]:
                self._lose(condition, node, f"a {query.kind.value} join adds NULLs to that side")
            else:
                passed[which].append(condition)
                other = self._through_keys(query, which, condition, preserved)
                if other is None:
                    why = "the join is by other columns: its other side is read whole"
                    self.lost.append(Lost(condition, node, why))
                    # Rows of that side also pair with rows of shared contents outside of the slice.
                    self.exact &= not any(_is_of(which, i) for i in node.shared)
                else:
                    passed[1 - which].append(other)
        return (tuple(passed[0]), tuple(passed[1]))

    def _of_match(self, node: Match, given: Conditions) -> Conditions:
        """Return the conditions on a preserved side; the columns of the other side may be NULL."""
        query, kept = node.plan, []
        for condition in given:
            sides = zip((query.left, query.right), _preserved(query.kind), strict=True)
            if any(keeps and condition.uses <= {a.id for a in s.attributes} for s, keeps in sides):
                kept.append(condition)
            else:
                self._lose(condition, node, f"a {query.kind.value} join adds NULLs to that side")
        return tuple(kept)

    def _through_keys(
        self, query: plan.Join, which: int, condition: Conjunct, preserved: tuple[bool, bool]
    ) -> Conjunct | None:
        """Return a condition on the keys of one side as a condition on the other's, or None.

        The rows of a side that is not preserved are counted by key, so its keys must be columns.
        """
        keys = (query.left_keys, query.right_keys)
        values = {}
        for mine, other in zip(keys[which], keys[1 - which], strict=True):
            column = other.passes is not None or all(preserved)
            if mine.passes is not None and column and is_exact(mine.type):
                values[mine.passes] = other.handle
        if not condition.uses or not condition.uses <= values.keys():
            return None
        return self.predicates.moved(condition, values)

    def _of_groups(
        self, node: Aggregate | Recompute, query: plan.Aggregate, given: Conditions
    ) -> Conditions:
        keys = self._grouping(query)
        values = {a.id: e.handle for a, e in keys.items()}
        on_keys = self._conditions_on_groups(node, query, given)
        return tuple(self.predicates.moved(c, values) for c in on_keys)

    def _conditions_on_groups(
        self, node: Aggregate | Recompute, query: plan.Aggregate, given: Conditions
    ) -> Conditions:
        """Return the conditions on grouping keys, as conditions on the attributes of the input."""
        results = dict(zip((a.id for a in query.attributes), query.results, strict=True))
        ids, found = {a.id for a in self._grouping(query)}, []
        for condition in given:
            values = {id_: results[id_].handle for id_ in condition.uses}
            moved = self.predicates.moved(condition, values)
            if moved.uses and moved.uses <= ids:
                found.append(moved)
            else:
                self._lose(condition, node, "it is computed from the rows of a group")
        return tuple(found)

    def _recorded_on_groups(
        self, node: Aggregate | Recompute, query: plan.Aggregate, given: Conditions
    ) -> Conditions:
        """Return the conditions on groups; those that are lost are recorded for the input."""
        count = len(self.lost)
        found = self._conditions_on_groups(node, query, given)
        del self.lost[count:]
        return found

    def _grouping(self, query: plan.Aggregate) -> dict[plan.Attribute, plan.Expression]:
        """Return the grouping keys whose equal values are identical."""
        pairs = zip(query.grouping_attributes, query.grouping, strict=True)
        return {
            attribute: key
            for i, (attribute, key) in enumerate(pairs)
            if i != query.session and is_exact(key.type)
        }

    def _on_keys(
        self,
        node: Recompute | First,
        keys: tuple[plan.Expression, ...],
        given: Conditions,
        what: str,
    ) -> Conditions:
        columns = {k.passes for k in keys if k.passes is not None and is_exact(k.type)}
        shown = ", ".join(k.text for k in keys) or "all rows"
        kept = []
        for condition in given:
            if condition.uses and condition.uses <= columns:
                kept.append(condition)
            else:
                self._lose(condition, node, f"the rows of {what} {shown} are needed together")
        return tuple(kept)

    def _moved(
        self,
        node: Node,
        given: Conditions,
        movable: Iterable[int],
        values: Mapping[int, object],
        why: str,
    ) -> Conditions:
        known, found = frozenset(movable), []
        for condition in given:
            if condition.uses <= known:
                found.append(self.predicates.moved(condition, values))
            else:
                self._lose(condition, node, why)
        return tuple(found)

    def _all_lost(self, node: Node | Output, given: Conditions, why: str) -> Conditions:
        for condition in given:
            self._lose(condition, node, why)
        return ()

    def _lose(self, condition: Conjunct, node: Node | Output, why: str) -> None:
        self.lost.append(Lost(condition, node, why))
        self.exact = False

    # -- arrangements and leaves -------------------------------------------------------------

    def _kept(
        self,
        node: Stateful,
        position: int,
        layout: Layout,
        nodes: Mapping[Node | Output, Conditions],
    ) -> ArrangementSlice:
        """Return the slice of one of a node's own arrangements."""
        attributes: tuple[plan.Attribute, ...]
        names: Iterable[str]
        conditions: Conditions
        match node:
            case Output():
                attributes, names = node.child.plan.attributes, layout.columns.names
                conditions = nodes[node]
                if self.circuit.loops():
                    conditions = ()
            case Join():
                is_left = node.arrangements[position].rpartition(".")[2].startswith("left")
                side, prefix = (node.left, "l") if is_left else (node.right, "r")
                attributes = side.plan.attributes
                names = [f"{prefix}{i}" for i in range(len(attributes))]
                conditions = nodes[side]
            case Match():
                is_left = node.operator.alone is RowKind.LEFT
                below, prefix = (node.plan.left, "l") if is_left else (node.plan.right, "r")
                attributes = below.attributes
                names = [f"{prefix}{i}" for i in range(len(attributes))]
                ids = {a.id for a in attributes}
                conditions = tuple(c for c in nodes[node.child] if c.uses <= ids)
            case Aggregate():
                attributes = node.plan.grouping_attributes
                names = [f"g{i}" for i in range(len(attributes))]
                conditions = self._recorded_on_groups(node, node.plan, nodes[node])
            case Recompute(operator=TouchedSessions(), plan=plan.Aggregate() as query) if position:
                pairs = enumerate(query.grouping_attributes)
                attributes = tuple(a for i, a in pairs if i != query.session)
                names = node.operator.layout.key
                conditions = self._recorded_on_groups(node, query, nodes[node])
            case _:
                attributes = node.child.plan.attributes
                names = [f"x{i}" for i in range(len(attributes))]
                # These arrangements have a value, or a mark of the first result, for all rows.
                whole = position > 0 and not isinstance(node, FoldedRows)
                conditions = () if whole else nodes[node.child]
        by_id = {a.id: (a, name) for a, name in zip(attributes, names, strict=False)}
        used = {id_ for condition in conditions for id_ in condition.uses}
        names_of = {id_: by_id[id_][1] for id_ in used}
        tests, exact = self.predicates.restriction(conditions, names_of)
        return ArrangementSlice(
            layout,
            conditions,
            {id_: by_id[id_][0] for id_ in used},
            {id_: by_id[id_][1] for id_ in used},
            tests,
            exact,
        )

    def _leaf(self, leaf: RelationDelta, conditions: Conditions) -> Restriction:
        names, scan = self.names_of[leaf.plan.relation], leaf.plan
        columns = {
            a.id: names[i]
            for a, i in zip(scan.attributes, scan.columns, strict=True)
            if i < len(names)
        }
        restriction, exact = self.predicates.restriction(conditions, columns)
        self.exact &= exact
        return restriction


def looked_up(circuit: Circuit) -> frozenset[RelationId]:
    """Return the relations that are not scanned for a slice, since joins look up their rows by key.

    Each of their leaves is a side of a join that reads the relation's contents, and its rows are in
    the result only together with rows of the other side. So reading the other side finds all pairs.
    """
    found: dict[RelationId, bool] = {}
    driven: set[Node] = set()
    for node in circuit.nodes:
        if isinstance(node, Join):
            side = _side_looked_up(node, driven)
            driven |= set() if side is None else _scanned(side)
    users = circuit.users()
    for leaf in circuit.sources():
        alone = leaf in driven and users[leaf] == 1
        found[leaf.plan.relation] = found.get(leaf.plan.relation, True) and alone
    return frozenset(id_ for id_, only in found.items() if only)


def _side_looked_up(join: Join, driven: set[Node]) -> Node | None:
    """Return the side of a join that need not be read if the other side is read, or None."""
    query = join.plan
    of_right = {1} if query.kind.of_one_side or query.kind is plan.JoinKind.INNER else {1, 2}
    candidates = []
    if query.kind is not plan.JoinKind.FULL and query.kind is not plan.JoinKind.RIGHT:
        candidates.append((join.right, join.left, of_right))
    if query.kind is plan.JoinKind.INNER:
        candidates.append((join.left, join.right, {0}))
    for side, other, positions in candidates:
        there = {i for i in positions if i < len(join.arrangements)}
        if there <= join.shared.keys() and _scanned(side) and not (_scanned(other) & driven):
            return side
    return None


def _scanned(side: Node) -> set[Node]:
    """Return the leaf of a side, in a set; empty unless all nodes above it are stateless."""
    while isinstance(side, Stateless):
        side = side.child
    return {side} if isinstance(side, RelationDelta) else set()


def _is_of(which: int, position: int) -> bool:
    """Whether the arrangement at a position of a join belongs to a side: 0 is left, 1 is right."""
    return (position == 0) == (which == 0)


def _preserved(kind: plan.JoinKind) -> tuple[bool, bool]:
    """Return whether each side of a join has a row in every result row, and never NULLs instead."""
    match kind:
        case plan.JoinKind.INNER:
            return True, True
        case plan.JoinKind.RIGHT:
            return False, True
        case plan.JoinKind.FULL:
            return False, False
        case _:
            return True, False


def _common(passed: list[Conditions]) -> Conditions:
    """Return the conditions that are in every list."""
    first, *others = passed
    return tuple(c for c in first if all(any(c.same(d) for d in each) for each in others))
