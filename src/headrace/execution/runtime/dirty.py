"""Dirty slices of views: which entries of the ledger a repair removes, and which is next.

One event, such as an INVALIDATE, may make slices of several views dirty. The entries of the views
above them have :attr:`RepairPath.DELTAS`: they are corrected in the same epoch, by the changes that
the repair of the views below makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.planning.catalog import View
from headrace.storage.ledger import RepairPath

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from headrace.planning.catalog import Catalog
    from headrace.storage.ledger import Dirty
    from headrace.types import DirtyId, RelationId


EVENT: Final = "event"
"""The key of an entry's origin with what all entries that one event caused have in common."""

RECOMPUTED: Final = frozenset({RepairPath.REPLAY, RepairPath.REBUILD})
"""The repairs that read a view's inputs again."""


def repairable(entries: Iterable[Dirty], view: RelationId) -> tuple[Dirty, ...]:
    """Return the entries of a view that are repaired by recomputing all of its rows."""
    return tuple(e for e in entries if e.view == view and e.repair in RECOMPUTED)


def removed_with(
    repaired: Collection[Dirty], entries: Iterable[Dirty], catalog: Catalog
) -> tuple[DirtyId, ...]:
    """Return the ids of the entries that become right when some are repaired: those first.

    An entry of a view above is removed with the last entry of its event below it; not yet if that
    view, or one between, lags: see :func:`followed_by`.
    """
    gone = {e.id for e in repaired}
    left = [e for e in entries if e.id not in gone]
    right = _settled(left, {e.origin.get(EVENT) for e in repaired}, frozenset(), catalog)
    return tuple(e.id for e in (*repaired, *right) if e.id is not None)


def followed_by(
    refreshed: Collection[RelationId], entries: Iterable[Dirty], catalog: Catalog
) -> tuple[DirtyId, ...]:
    """Return the ids of the entries that become right when views that lag are refreshed.

    The views have read all repairs that are committed.
    """
    listed = list(entries)
    events = {e.origin.get(EVENT) for e in listed if e.view in refreshed}
    right = _settled(listed, events, frozenset(refreshed), catalog)
    return tuple(e.id for e in right if e.id is not None)


def awaiting_refresh(
    entries: Iterable[Dirty], catalog: Catalog
) -> list[tuple[Dirty, tuple[View, ...]]]:
    """Return the entries that become right once views that lag are refreshed, with those views.

    Nothing of their events below them is left to recompute. Each view comes after its inputs.
    """
    listed = list(entries)
    found: list[tuple[Dirty, tuple[View, ...]]] = []
    for entry in listed:
        event = entry.origin.get(EVENT)
        below = [e for e in listed if e.origin.get(EVENT) == event and _over(entry, e, catalog)]
        if event is None or any(e.repair is not RepairPath.DELTAS for e in below):
            continue
        late = {e.view for e in below if _lags(e.view, catalog)}
        if late:
            found.append((entry, tuple(v for v in catalog.views_in_order() if v.id in late)))
    return found


def _settled(
    entries: Collection[Dirty],
    events: Collection[object],
    refreshed: frozenset[RelationId],
    catalog: Catalog,
) -> list[Dirty]:
    """Return the entries repaired by deltas whose event has nothing left to repair below them."""
    found = [e for e in entries if EVENT in e.origin and e.origin[EVENT] in events]
    wait = {e.view for e in found if e.repair is not RepairPath.DELTAS or _lags(e.view, catalog)}
    wait -= refreshed
    return [
        e
        for e in found
        if e.repair is RepairPath.DELTAS
        and not any(
            other.view in wait and _over(e, other, catalog)
            for other in found
            if other.origin[EVENT] == e.origin[EVENT]
        )
    ]


def _lags(view: RelationId, catalog: Catalog) -> bool:
    relation = catalog.by_id.get(view)
    return isinstance(relation, View) and relation.refresh.lags


def next_to_repair(
    entries: Iterable[Dirty],
    catalog: Catalog,
    stopped: Collection[RelationId],
    among: Collection[DirtyId],
) -> Dirty | None:
    """Return the oldest of some entries that can be repaired now; None if there is none.

    Views that have stopped cannot. Views are repaired after those among their inputs, since they
    then read rows that are right.
    """
    wanted = [
        e
        for e in entries
        if e.id in among
        and e.repair in RECOMPUTED
        and e.view in catalog.by_id
        and e.view not in stopped
    ]
    ready = (e for e in wanted if not any(_above(e, other, catalog) for other in wanted))
    return min(ready, key=lambda e: (e.since, e.id or 0), default=None)


def _over(entry: Dirty, other: Dirty, catalog: Catalog) -> bool:
    """Whether the view of one entry reads that of the other, or is it."""
    return other.view in catalog.below([entry.view])


def _above(entry: Dirty, other: Dirty, catalog: Catalog) -> bool:
    return entry.view != other.view and _over(entry, other, catalog)
