"""Views that stopped: since which epoch their contents are old, and when they were rebuilt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.catalyst.python import waits
from headrace.errors import Code, HeadraceError
from headrace.ledger import Dirty
from headrace.runtime.epoch import STOPPED, STOPPED_AFTER, WAITING
from headrace.types import Epoch, RelationId

if TYPE_CHECKING:
    from headrace.catalog import Relation, View
    from headrace.session.instance import Instance

_OLD_BETWEEN = "old between"
"""By view: pairs of the last epoch in which it ran, and the epoch that rebuilt it."""

_NEVER = Epoch(-1)


def stopped_after(instance: Instance, view: Relation) -> Epoch:
    """Return the last epoch at which a stopped view's contents are its query's result; or -1.

    For a view that reads a stopped one, this is the last epoch in which that one ran.
    """
    stored = instance.ledger.get(STOPPED_AFTER) or {}
    marked = {entry.view for entry in instance.ledger.dirty() if entry.cause == STOPPED}
    above = instance.catalog.dependants
    causes = [id_ for id_ in marked if id_ == view.id or view.id in {v.id for v in above(id_)}]
    return min((Epoch(stored.get(str(id_), _NEVER)) for id_ in causes), default=_NEVER)


def refuse_stopped(instance: Instance, relation: Relation, epoch: Epoch | None) -> None:
    """Raise if a view had stopped at an epoch; None is the last epoch."""
    last_right = stopped_after(instance, relation)
    if epoch is not None and epoch <= last_right:
        return
    dirty, catalog = instance.ledger.dirty(), instance.catalog
    waiting = [e.detail for e in dirty if (e.view, e.cause) == (relation.id, WAITING)]
    if waiting:
        raise waits(relation.name, waiting[0])
    causes = {entry.view: entry.detail for entry in dirty}
    over = {id_: {v.id for v in catalog.dependants(id_)} for id_ in causes}
    why, failed = "its query failed on its data", relation
    if relation.id not in causes:
        failed = catalog.by_id[next(id_ for id_ in causes if relation.id in over[id_])]
        why = f'it reads view "{failed.name}", whose query failed on its data'
    again = (
        f'DROP VIEW "{failed.name}" CASCADE, and create it and the views that read it again'
        if over[failed.id]
        else "CREATE OR REPLACE the view"
    )
    before = f" It can be read AS OF EPOCH {last_right}." if last_right >= 0 else ""
    raise HeadraceError(
        Code.UNAVAILABLE,
        f'view "{relation.name}" stopped, since {why}',
        detail=causes[failed.id].removeprefix("error[invalid]: "),
        hint=f"Correct the data, then REPAIR {failed.name}; or correct the query: {again}.{before}",
    )


def mark_stopped(instance: Instance, view: View, after: Epoch, why: str) -> None:
    """Exclude a view from epochs: its contents are valid up to the epoch ``after``."""
    ledger = instance.ledger
    ledger.set(STOPPED_AFTER, {**(ledger.get(STOPPED_AFTER) or {}), str(view.id): after})
    ledger.mark_dirty(Dirty(view.id, STOPPED, time.time(), why))


def note_filled(instance: Instance, view: View, after: Epoch, epoch: Epoch) -> None:
    """Record that a view's contents were old between two epochs."""
    ledger, live = instance.ledger, instance.catalog.by_id
    stored = ledger.get(_OLD_BETWEEN) or {}
    of_live_views = {id_: pairs for id_, pairs in stored.items() if RelationId(int(id_)) in live}
    of_live_views.setdefault(str(view.id), []).append([after, epoch])
    ledger.set(_OLD_BETWEEN, of_live_views)


def old_between(instance: Instance, view: View, epoch: Epoch) -> tuple[Epoch, Epoch] | None:
    """Return the two epochs, exclusive, between which a view was stopped, if it was at an epoch."""
    stored = instance.ledger.get(_OLD_BETWEEN) or {}
    for after, filled in stored.get(str(view.id), ()):
        if after < epoch < filled:
            return Epoch(after), Epoch(filled)
    return None
