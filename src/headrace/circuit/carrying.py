"""Which columns of a view a slice of one of its inputs is carried over in.

A change of the input's rows with some value in a column changes only rows of the view with that
value in a column of its own: then a condition on the one is a condition on the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.catalyst import plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.circuit.circuit import Circuit
    from headrace.types import RelationId

_Carried: TypeAlias = "Mapping[int, frozenset[int]]"
"""By column of the input, the ids of the attributes that have its value in all changed rows."""


def carried_columns(circuit: Circuit, relation: RelationId) -> dict[int, frozenset[int]]:
    """Return, by position of an input's column, the positions of a view's columns that carry it.

    Columns that none carries are left out.
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
    """Return the columns that a node carries; None if it does not read the relation."""
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
    """Return what is carried by the columns by which rows are divided into independent groups."""
    below = _carried(node, relation)
    if below is None:
        return None
    groups = _with_copies(node, frozenset(passed))
    return {column: ids & groups for column, ids in below.items()}


def _with_copies(node: plan.Plan, ids: frozenset[int | None]) -> frozenset[int | None]:
    """Return ids of attributes of a node, with those of others that always equal them."""
    if not isinstance(node, plan.Project):
        return ids
    pairs = zip(node.attributes, node.expressions, strict=True)
    passes = {a.id: e.passes for a, e in pairs if e.passes is not None}
    below = {passes[id_] for id_ in ids if id_ in passes}
    return ids | {id_ for id_, passed in passes.items() if passed in below}


def _united(node: plan.UnionAll, relation: RelationId) -> _Carried | None:
    """Return what every input that reads the relation carries at the same position."""
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
    """Return what the one side that reads the relation carries.

    A change of the left only changes rows with its values, whatever the kind; one of the right also
    changes what the rows of the left are beside without a match.
    """
    left, right = _carried(node.left, relation), _carried(node.right, relation)
    if left is None and right is None:
        return None
    if right is None:
        return {} if node.kind.keeps_right else left
    if left is None and node.kind in {plan.JoinKind.INNER, plan.JoinKind.RIGHT}:
        return right
    return {}
