"""Sides of joins that are already stored as the contents of the table or view that they scan.

Such a side is not copied. If the contents are arranged by the keys of the join, in the same order
and by the same hash, the join reads the contents before the step; its input is the relation's own
delta, so

    L⁺ ⋈ (R + ΔR) - L⁻ ⋈ R + (L - L⁻) ⋈ ΔR

holds as for a copy. Rows that a copy would not have, those with a NULL in the key, are never
looked up: NULL equals nothing.

Columns of a view that have the values of a column of one of its inputs.

A change of input rows with some value in such a column only changes rows of the view with the same
value. So a condition that selects the changed rows of the input also selects those of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.planning.catalyst import plan
from headrace.planning.circuit.circuit import Shared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.algebra.zset import Layout
    from headrace.planning.circuit.circuit import Circuit
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """How the contents of a table or a view are arranged, and whether each key has one row."""

    layout: Layout
    unique: bool


StoredAs = Callable[["RelationId"], StoredLayout | None]
"""Returns how a relation's contents are stored; None for a stream, whose contents are not."""


def aligned(query: plan.Plan, stored_as: StoredAs) -> plan.Plan:
    """Return the plan with the keys of each join in the order in which one of its sides is stored.

    The order of its equalities makes no difference to a join. A node with several users remains one
    node.
    """
    done: dict[plan.Plan, plan.Plan] = {}

    def of(node: plan.Plan) -> plan.Plan:
        if node not in done:
            below: plan.Plan = node.rebuilt(of(child) for child in node.inputs)
            done[node] = _aligned(below, stored_as) if isinstance(below, plan.Join) else below
        return done[node]

    return of(query)


def shared_rows(
    side: plan.Plan, keys: tuple[plan.Expression, ...], wanted: Layout, stored_as: StoredAs
) -> Shared | None:
    """Return the stored contents with a side's rows arranged by its keys, or None.

    ``wanted`` is the layout of the join's own copy: a column for each attribute of the side, in
    order.
    """
    return _shared(side, keys, wanted, stored_as, unique=False)


def shared_counts(
    side: plan.Plan, keys: tuple[plan.Expression, ...], wanted: Layout, stored_as: StoredAs
) -> Shared | None:
    """Return the stored contents with the number of a side's rows for each key, or None.

    These are the stored rows, if the keys are unique. ``wanted`` has only the keys as columns.
    """
    return _shared(side, keys, wanted, stored_as, unique=True)


def _shared(
    side: plan.Plan,
    keys: tuple[plan.Expression, ...],
    wanted: Layout,
    stored_as: StoredAs,
    *,
    unique: bool,
) -> Shared | None:
    scanned = _scanned(side, keys, stored_as)
    if scanned is None or (unique and not scanned.stored.unique):
        return None
    stored, columns_of_keys = scanned.stored.layout, scanned.by_keys(keys)
    if columns_of_keys != stored.key:
        return None
    names, present = dict(zip(wanted.key, stored.key, strict=True)), []
    if unique and scanned.present:
        return None  # the check for NULL would have to read columns other than the keys
    if not unique:
        named = list(zip(wanted.columns.names, side.attributes, strict=True))
        names = {name: scanned.columns[a.id] for name, a in named}
        present = [name for name, a in named if a.id in scanned.present]
    columns = tuple(names[name] for name in wanted.columns.names)
    if [stored.columns.field(name).type for name in columns] != wanted.columns.types:
        return None
    return Shared(scanned.relation, stored, columns, tuple(present))


def _aligned(join: plan.Join, stored_as: StoredAs) -> plan.Join:
    orders = []
    for side, keys in ((join.right, join.right_keys), (join.left, join.left_keys)):
        scanned = _scanned(side, keys, stored_as)
        if scanned is None:
            continue
        names = scanned.by_keys(keys)
        if len(set(names)) == len(names) and set(names) == set(scanned.stored.layout.key):
            orders.append([names.index(name) for name in scanned.stored.layout.key])
    if not orders or sorted(orders[0]) in orders:
        return join  # a side is stored in the current order of the keys, or no side is stored
    return replace(
        join,
        left_keys=tuple(join.left_keys[i] for i in orders[0]),
        right_keys=tuple(join.right_keys[i] for i in orders[0]),
    )


@dataclass(frozen=True, slots=True)
class _Scanned:
    """A side that selects columns of a relation, without rows with NULL in some of them.

    ``columns`` are the names of the side's attributes in the relation, by id; ``present`` the ids
    of the attributes, other than keys, in which rows must not have NULL.
    """

    relation: RelationId
    stored: StoredLayout
    columns: Mapping[int, str]
    present: frozenset[int]

    def by_keys(self, keys: tuple[plan.Expression, ...]) -> tuple[str | None, ...]:
        """Return the relation's column of each key, None for a computed key."""
        return tuple(None if k.passes is None else self.columns.get(k.passes) for k in keys)


def _scanned(
    side: plan.Plan, keys: tuple[plan.Expression, ...], stored_as: StoredAs
) -> _Scanned | None:
    """Return the relation that a side reads, or None unless the side only selects columns of it."""
    present: set[int] = set()
    below = {a.id: a.id for a in side.attributes}
    while not isinstance(side, plan.Scan):
        match side:
            case plan.Project():
                pairs = zip(side.attributes, side.expressions, strict=True)
                passed = {a.id: e.passes for a, e in pairs}
            case plan.Filter() if side.present is not None and side.present <= {*below.values()}:
                present |= {own for own, id_ in below.items() if id_ in side.present}
                passed = {a.id: a.id for a in side.attributes}
            case _:
                return None
        found = {own: passed[id_] for own, id_ in below.items()}
        below = {own: id_ for own, id_ in found.items() if id_ is not None}
        if len(below) < len(found):
            return None
        side = side.child
    stored = stored_as(side.relation)
    if stored is None:
        return None
    names = stored.layout.columns.names
    read = {a.id: names[i] for a, i in zip(side.attributes, side.columns, strict=True)}
    columns = {own: read[id_] for own, id_ in below.items()}
    of_keys = {columns[k.passes] for k in keys if k.passes in columns}
    others = frozenset(own for own in present if columns[own] not in of_keys)
    return _Scanned(side.relation, stored, columns, others)


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
