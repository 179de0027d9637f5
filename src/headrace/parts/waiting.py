"""Views that wait for a Python function which this process has not registered.

Views above them wait too: all are marked dirty and skipped by epochs. Registering the function
resumes them; if epochs were made in the meantime, they are rebuilt. So are views of a branch that
have no state of their operators when it is first opened.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.catalog import PlainView, View
from headrace.catalyst.python import lacks
from headrace.errors import Code, HeadraceError
from headrace.ledger import NO_EPOCH, Dirty, EpochCommit, RepairedView
from headrace.runtime.builds import fill_again
from headrace.runtime.fill import Fill
from headrace.runtime.published import REFILLED, STOPPED, WAITING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalog import Catalog
    from headrace.ledger import Ledger
    from headrace.parts.declarations import Declarations
    from headrace.parts.functions import Functions
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.pump import Pump
    from headrace.types import Epoch, RelationId


def _silent(_done: int, _total: int) -> None:
    """Ignore progress reports."""


@dataclass(frozen=True, slots=True)
class WaitingViews:
    """Excludes views that lack a function from epochs, and resumes them."""

    functions: Functions
    declarations: Declarations
    ledger: Ledger
    loop: EpochLoop
    pump: Pump

    def lacking(self, catalog: Catalog) -> dict[RelationId, str]:
        """Return the views that lack a function, and the views above, each with the reason."""
        found: dict[RelationId, str] = {}
        for view in catalog.defined_in_order():
            why = lacks(view.functions, self.functions.registered)
            below = [catalog.by_id[id_].name for id_ in view.inputs if id_ in found]
            if why is not None:
                found[view.id] = why
            elif below:
                found[view.id] = f'It reads view "{below[0]}", which waits for a function.'
        return found

    def wait(self, why: Mapping[RelationId, str], *, changed: bool = False) -> None:
        """Exclude views from epochs from now on.

        ``changed``: their query has changed, so their stored contents cannot be used.
        """
        loop, ledger = self.loop, self.ledger
        live = {view.id for view in loop.catalog.views_in_order()}
        behind = loop.stopped() - self._marked(WAITING)
        for id_, reason in why.items():
            if id_ not in live:
                continue
            after = NO_EPOCH if changed or id_ in behind else ledger.head.epoch
            ledger.dirty.mark(Dirty(id_, WAITING, time.time(), reason, after))
            if changed:
                ledger.dirty.clear(id_, STOPPED)

    def resume(self) -> None:
        """Include views in epochs again whose functions are now registered."""
        loop, ledger = self.loop, self.ledger
        waiting = [view.id for view in self._ready()]
        if not waiting:
            return
        with loop.holding(waiting, "views whose function is registered"):
            ready = [view for view in self._ready() if view.id in waiting]
            for view in ready:
                self.declarations.plan_again(view)
            views = [view for view in ready if isinstance(view, View)]
            entries = [entry for entry in ledger.head.dirty if entry.cause == WAITING]
            refilled = {e.view: e.after for e in entries if REFILLED in e.origin}
            since = {e.view: e.after for e in entries if e.view not in refilled}
            with loop.between():
                last = ledger.head.epoch
                current = [view for view in views if since.get(view.id) == last]
                if current:  # the clock and history of the last epoch did not include them
                    right = tuple(RepairedView(view.id, WAITING, last) for view in current)
                    ledger.commit(EpochCommit(last, uuid4().hex, repaired=right))
            for view in [*current, *(view for view in views if view not in current)]:
                # Rebuilding does not help a view that stopped, or that reads a stopped one.
                if view not in current and not self._failed(view):
                    self._fill_again(view, refilled.get(view.id, NO_EPOCH))
                ledger.dirty.clear(view.id, WAITING)

    def _ready(self) -> list[View | PlainView]:
        """Return the views that lack no function, and wait for one or are not planned."""
        catalog, marked = self.loop.catalog, self._marked(WAITING)
        lacking, planned = self.lacking(catalog), self.declarations.is_planned
        ready = (view for view in catalog.defined_in_order() if view.id not in lacking)
        return [view for view in ready if view.id in marked or not planned(view)]

    def _fill_again(self, view: View, after: Epoch) -> None:
        """Fill a view again that has been right up to an epoch."""
        self.pump.settle_held()
        try:
            with self.pump.compaction.busy:
                fill_again(
                    Fill(self.loop, view, _silent),
                    RepairedView(view.id, WAITING, after),
                    stays=True,
                )
        except HeadraceError as error:
            if error.code not in (Code.INVALID, Code.CONFLICT):
                raise
            self.ledger.dirty.mark(Dirty(view.id, STOPPED, time.time(), str(error)))

    def _failed(self, view: View) -> bool:
        catalog = self.loop.catalog
        failed = tuple(catalog.by_id[id_] for id_ in self._marked(STOPPED))
        return any(view.id == f.id or view in catalog.dependants(f.id) for f in failed)

    def _marked(self, cause: str) -> frozenset[RelationId]:
        live = self.loop.catalog.by_id
        dirty = self.ledger.head.dirty
        return frozenset(e.view for e in dirty if e.cause == cause and e.view in live)
