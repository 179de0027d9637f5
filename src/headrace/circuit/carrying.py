"""Columns of a view that have the values of a column of one of its inputs.

A change of input rows with some value in such a column only changes rows of the view with the same
value. So a condition that selects the changed rows of the input also selects those of the view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.catalyst import plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.circuit.circuit import Circuit
    from headrace.types import RelationId

_Carried: TypeAlias = "Mapping[int, frozenset[int]]"
"""For each column of the input, the ids of the attributes with its value in all changed rows."""


def carried_columns(circuit: Circuit, relation: RelationId) -> dict[int, frozenset[int]]:
    """Map each input column to the view's columns with its value, all by position.

    Input columns without such a column of the view are omitted.
    """
    top = circuit.output.child.plan
    found = _carried(top, relation) or {}
    places = {attribute.id: i for i, attribute in enumerate(top.attributes)}
    by_place = {
        column: frozenset(places[id_] for id_ in ids if id_ in places)
        for column, ids in found.items()
    }
    return {column: ids for column, ids in by_place.items() if ids}


def _carried(node: plan.Plan, relation: RelationId) -> _Carried | None:
    """Return the columns that carry values at a node; None if it does not read the relation."""
    match node:
        case plan.Scan():
            if node.relation != relation:
                return None
            pairs = zip(node.columns, node.attributes, strict=True)
            return {column: frozenset({a.id}) for column, a in pairs if column < plan.PLACE}
        case plan.Constant() | plan.LoopRef():
            return None
        case plan.Filter() | plan.Temporal():
            return _carried(node.child, relation)
        case plan.Project():
            return _renamed(_carried(node.child, relation), node.expressions, node.attributes)
        case plan.Aggregate() if node.session is None:
            below = _renamed(
                _carried(node.child, relation), node.grouping, node.grouping_attributes
            )
            return _renamed(below, node.results, node.attributes)
        case plan.FirstRows() | plan.Window():
            return _kept(node.child, relation, (key.passes for key in node.groups))
        case plan.UnionAll():
            return _united(node, relation)
        case plan.Join():
            return _joined(node, relation)
        case _:
            reads = any(scan.relation == relation for scan in plan.scans(node))
            return {} if reads else None


def _renamed(
    below: _Carried | None,
    expressions: Iterable[plan.Expression],
    attributes: Iterable[plan.Attribute],
) -> _Carried | None:
    if below is None:
        return None
    passed = [(e.passes, a.id) for e, a in zip(expressions, attributes, strict=True)]
    return {
        column: frozenset(new for old, new in passed if old in ids) for column, ids in below.items()
    }


def _kept(node: plan.Plan, relation: RelationId, passed: Iterable[int | None]) -> _Carried | None:
    """Return the columns carried by a node over groups of rows: grouping columns only."""
    below = _carried(node, relation)
    if below is None:
        return None
    groups = _with_copies(node, frozenset(passed))
    return {column: ids & groups for column, ids in below.items()}


def _with_copies(node: plan.Plan, ids: frozenset[int | None]) -> frozenset[int | None]:
    """Return the ids of some attributes of a node, and of the attributes that always equal them."""
    if not isinstance(node, plan.Project):
        return ids
    pairs = zip(node.attributes, node.expressions, strict=True)
    passes = {a.id: e.passes for a, e in pairs if e.passes is not None}
    below = {passes[id_] for id_ in ids if id_ in passes}
    return ids | {id_ for id_, passed in passes.items() if passed in below}


def _united(node: plan.UnionAll, relation: RelationId) -> _Carried | None:
    """Return the columns that every input that reads the relation carries at the same position."""
    out = [attribute.id for attribute in node.attributes]
    found: list[dict[int, frozenset[int]]] = []
    for child in node.children:
        below = _carried(child, relation)
        if below is not None:
            places = {a.id: out[i] for i, a in enumerate(child.attributes)}
            found.append({c: frozenset(places[i] for i in ids) for c, ids in below.items()})
    if not found:
        return None
    columns = set(found[0]).intersection(*found[1:])
    return {c: frozenset.intersection(*(each[c] for each in found)) for c in columns}


def _joined(node: plan.Join, relation: RelationId) -> _Carried | None:
    """Return the columns carried by a join, if only one of its sides reads the relation.

    A change of the left side only changes rows with its values, whatever the kind of join. A change
    of the right side also adds or removes the NULLs of left rows without a match.
    """
    left, right = _carried(node.left, relation), _carried(node.right, relation)
    if left is None and right is None:
        return None
    if right is None:
        return {} if node.kind.keeps_right else left
    if left is None and node.kind in {plan.JoinKind.INNER, plan.JoinKind.RIGHT}:
        return right
    return {}
