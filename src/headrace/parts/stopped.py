"""Stopped views: the last epoch at which their contents were correct, and their errors."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.catalog import PlainView, View
from headrace.catalyst.python import waits
from headrace.errors import Code, HeadraceError
from headrace.ledger import NO_EPOCH, Dirty
from headrace.parts.naming import shown_name
from headrace.runtime.published import STOPPED, WAITING
from headrace.runtime.unfit import UNFIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.catalog import Catalog, Relation
    from headrace.ledger import Ledger
    from headrace.types import Epoch, RelationId

_CODE: Final = re.compile(r"^error\[\w+\]: ")

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
                why = f'It reads view "{catalog.by_id[entry.view].name}", which stopped.'
                yield replace(entry, view=above.id, detail=why, origin={}, id=None)


def view_state(relation: Relation, stopped: frozenset[RelationId]) -> str:
    """Return the word for the state of a relation: stopped, not stored, lagging or running."""
    if relation.id in stopped:
        return "stopped"
    if isinstance(relation, PlainView):
        return "not stored"
    return "lagging" if isinstance(relation, View) and relation.refresh.lags else "running"


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
    over = {id_: {v.id for v in catalog.dependants(id_)} for id_ in marked}
    failed = relation
    if relation.id not in marked:
        failed = catalog.by_id[next(id_ for id_ in marked if relation.id in over[id_])]
    entry = marked[failed.id]
    if "evidence" in entry.origin:
        raise _quarantined(relation, failed, entry)
    if UNFIT in entry.origin:
        raise _unfit(relation, failed, entry)
    by_key = isinstance(failed, View) and failed.checks_key and _OF_KEY in entry.detail
    failing = "rows break its PRIMARY KEY" if by_key else "query failed on its data"
    why = f"its {failing}"
    if failed is not relation:
        why = f'it reads view "{failed.name}", whose {failing}'
    if isinstance(relation, View) and relation.candidate_of is not None:
        of = shown_name(catalog.by_id[relation.candidate_of], catalog)
        raise HeadraceError(
            Code.UNAVAILABLE,
            f"{shown_name(relation, catalog)} stopped, since {why}",
            in_sentences(entry.detail),
            f"Make another one with another query, or DROP CANDIDATE OF {of}.",
        )
    again = (
        f'DROP VIEW "{failed.name}" CASCADE, and create it and the views that read it again'
        if over[failed.id]
        else "CREATE OR REPLACE the view"
    )
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
        f" correct the query: {again}.{before}",
    )


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
