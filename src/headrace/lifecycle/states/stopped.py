"""Stopped views: the last epoch at which their contents were correct, and their errors."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.published import STOPPED, WAITING, marked_and_above, stopped_views
from headrace.execution.runtime.unfit import UNFIT
from headrace.lifecycle.states.swapping import root_of, swapping
from headrace.planning.catalog import View
from headrace.planning.catalog.naming import shown_name
from headrace.planning.catalyst.python import waits
from headrace.storage.ledger import NO_EPOCH, Dirty, RepairedView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from headrace.execution.runtime.published import Published
    from headrace.planning.catalog import Catalog, Relation
    from headrace.storage.ledger import Ledger
    from headrace.types import Epoch, RelationId


_CODE: Final = re.compile(r"^error\[\w+\]: ")

BEHIND: Final = "behind"
"""The key of an entry's origin with the view that runs again, and that its view has to follow."""

_OF_KEY = "PRIMARY KEY ("
"""Contained in the error of a view whose rows violate its declared key."""


def stopped_after(ledger: Ledger, catalog: Catalog, view: Relation) -> Epoch:
    """Return the last epoch at which a stopped view's contents are its query's result; or -1.

    For a view above a stopped one, this is the last epoch in which the one below ran.
    """
    marked = {e.view: e.after for e in ledger.head.dirty if e.cause == STOPPED}
    above = catalog.dependants
    causes = [id_ for id_ in marked if id_ == view.id or view.id in {v.id for v in above(id_)}]
    return min((marked[id_] for id_ in causes), default=NO_EPOCH)


def stopped_below(entries: Iterable[Dirty], catalog: Catalog) -> Iterator[Dirty]:
    """Yield a derived entry for each view without one that is stopped because an input is.

    These entries are not stored: the view runs again together with its input.
    """
    marked = [entry for entry in entries if entry.cause in (STOPPED, WAITING)]
    known = {entry.view for entry in marked}
    for entry in marked:
        for above in catalog.dependants(entry.view):
            if isinstance(above, View) and above.id not in known:
                known.add(above.id)
                below = shown_name(catalog.by_id[entry.view], catalog)
                why = f'It reads view "{below}", which stopped.'
                yield replace(entry, view=above.id, detail=why, origin={}, id=None)


@dataclass(frozen=True, slots=True)
class StopsMoved:
    """What an epoch records in which other builds take the places of some that have stopped.

    What has ``ended`` was not right in between. Those ``marked`` are stopped from this epoch on.
    """

    ended: tuple[RepairedView, ...] = ()
    marked: tuple[Dirty, ...] = ()


def stops_moved(
    ledger: Ledger,
    before: Catalog,
    after: Catalog,
    filled: Collection[RelationId],
    places: Mapping[RelationId, RelationId],
    of: str,
) -> StopsMoved:
    """Return what becomes of stopped views when builds that run take the places of others.

    The contents of the views ``filled`` are right with it. What served some of these goes to other
    ``places``, and what has stopped is stopped there. A view above ``of`` that could run again
    would continue from an old state, which is that of another time than its other inputs: it stays
    stopped until it is filled again. One that is refreshed apart continues where it stands.
    """
    head = ledger.head
    marks = [entry for entry in head.dirty if entry.cause in (STOPPED, WAITING)]
    stopped = marked_and_above({entry.view for entry in marks}, before)
    left, ended, marked = set(), list[RepairedView](), list[Dirty]()
    for entry in marks:
        if entry.view not in filled:
            left.add(entry.view)
            continue
        right_until = stopped_after(ledger, before, before.by_id[entry.view])
        ended.append(RepairedView(entry.view, entry.cause, right_until))
        if entry.view in places:
            left.add(places[entry.view])
            marked.append(replace(entry, view=places[entry.view], id=None))
    runs = stopped - marked_and_above(left, after) - head.lagging.keys()
    own = {entry.view for entry in marks}
    for view in after.views_in_order():
        if view.id not in runs or view.id in own:
            continue
        right_until = stopped_after(ledger, before, before.by_id[view.id])
        if view.id in filled:
            ended.append(RepairedView(view.id, STOPPED, right_until))
        else:
            why = "It reads a view that had stopped, and that another build computes now."
            origin = {BEHIND: of}
            marked.append(Dirty(view.id, STOPPED, time.time(), why, right_until, origin=origin))
    return StopsMoved(tuple(ended), tuple(marked))


def stopped_above(state: Published, views: Iterable[RelationId]) -> list[RelationId]:
    """Return the views above some that have stopped, inputs first."""
    catalog = state.catalog
    above = {each.id for id_ in views for each in catalog.dependants(id_)}
    return [v.id for v in catalog.views_in_order() if v.id in above and v.id in state.stopped]


def refuse_stopped(
    ledger: Ledger, catalog: Catalog, relation: Relation, epoch: Epoch | None
) -> None:
    """Raise if a view had stopped by an epoch; None is the last epoch."""
    last_right = stopped_after(ledger, catalog, relation)
    if epoch is not None and epoch <= last_right:
        return
    dirty = ledger.head.dirty
    waiting = [e.detail for e in dirty if (e.view, e.cause) == (relation.id, WAITING)]
    if waiting:
        raise waits(relation.name, waiting[0])
    marked = {entry.view: entry for entry in dirty if entry.cause in (STOPPED, WAITING)}
    below = catalog.below([relation.id])
    failed = next(v for v in catalog.views_in_order() if v.id in marked and v.id in below)
    entry = marked[failed.id]
    if isinstance(relation, View) and relation.candidate_of is not None:
        of = shown_name(catalog.by_id[relation.candidate_of], catalog)
        raise HeadraceError(
            Code.UNAVAILABLE,
            f"{shown_name(relation, catalog)} has stopped",
            in_sentences(entry.detail),
            f"Correct the data, then REPAIR {of}; or make another one with another query, or DROP"
            f" CANDIDATE OF {of}.",
        )
    if "evidence" in entry.origin:
        raise _quarantined(relation, failed, entry)
    if UNFIT in entry.origin:
        raise _unfit(relation, failed, entry)
    by_key = failed.checks_key and _OF_KEY in entry.detail
    if BEHIND in entry.origin:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f'view "{relation.name}" stopped, since "{failed.name}" has to be filled again',
            in_sentences(entry.detail),
            f"REPAIR {failed.name} fills it, and what is above.",
        )
    failing = "rows break its PRIMARY KEY" if by_key else "query failed on its data"
    why = f"its {failing}"
    if failed is not relation:
        why = f'it reads view "{failed.name}", whose {failing}'
    quarantine = (
        f", or have the view quarantine such rows, ALTER MATERIALIZED VIEW {failed.name}"
        " SET (on_error = 'quarantine')"
    )
    before = f" It can be read AS OF EPOCH {last_right}." if last_right >= 0 else ""
    raise HeadraceError(
        Code.UNAVAILABLE,
        f'view "{relation.name}" stopped, since {why}',
        detail=in_sentences(entry.detail),
        hint=f"Correct the data{'' if by_key else quarantine}, then REPAIR {failed.name}; or"
        f" correct the query: CREATE OR REPLACE {failed.name}."
        f"{_way_back(ledger, catalog, failed)}{before}",
    )


def _way_back(ledger: Ledger, catalog: Catalog, failed: View) -> str:
    """Return the hint that another build of a stopped view can serve, if there is one."""
    other = catalog.candidate(failed.id)
    if other is None or other.id in stopped_views(ledger.head, catalog):
        return ""
    what = "what served before serve again" if other.has_served else "its candidate serve"
    return f" {swapping(catalog, root_of(catalog, failed))} lets {what}."


def in_sentences(error: str) -> str:
    """Return the error text for which a view stopped as the detail of another error."""
    parts = re.split(r"\n(?:detail|hint): ", _CODE.sub("", error))
    return " ".join(f"{part.removesuffix('.')}." for part in parts)


def _unfit(relation: Relation, wrong: Relation, entry: Dirty) -> HeadraceError:
    """Return the error of reading a view that cannot be run as it is stored, or one above it."""
    why = "it cannot be run as it is stored"
    if wrong is not relation:
        why = f'it reads view "{wrong.name}", which cannot be run as it is stored'
    error, _, hint = entry.detail.partition("\nhint: ")
    return HeadraceError(
        Code.UNAVAILABLE,
        f'{relation.kind} "{relation.name}" stopped, since {why}',
        detail=in_sentences(error),
        hint=hint or None,
    )


def _quarantined(relation: Relation, wrong: Relation, entry: Dirty) -> HeadraceError:
    """Return the error of reading a view in quarantine, or a view above one."""
    what = "is quarantined"
    if wrong is not relation:
        what = f'reads view "{wrong.name}", which is quarantined'
    return HeadraceError(
        Code.UNAVAILABLE,
        f'{relation.kind} "{relation.name}" {what}',
        detail=in_sentences(entry.detail),
        hint=f"SHOW EVIDENCE FOR {wrong.name} lists the rows; REPAIR {wrong.name} rebuilds it.",
    )


def mark_stopped(ledger: Ledger, view: View, after: Epoch, why: str) -> None:
    """Stop a view: epochs skip it, and its contents are valid up to the epoch ``after``."""
    ledger.dirty.mark(Dirty(view.id, STOPPED, time.time(), why, after))
