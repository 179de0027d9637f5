"""Sides of joins that are already stored as the contents of the table or view that they scan.

Such a side is not copied. If the contents are arranged by the keys of the join, in the same order
and by the same hash, the join reads the contents before the step; its input is the relation's own
delta, so

    L⁺ ⋈ (R + ΔR) - L⁻ ⋈ R + (L - L⁻) ⋈ ΔR

holds as for a copy. Rows that a copy would not have, those with a NULL in the key, are never
looked up: NULL equals nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalyst import plan
from headrace.circuit.circuit import Shared

if TYPE_CHECKING:
    from headrace.types import RelationId
    from headrace.zset import Layout


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
