"""Views that wait for a Python function which this process has not registered.

Views above them wait too: all are marked dirty and skipped by epochs. Registering the function
resumes them; if epochs were made in the meantime, they are rebuilt. So are views of a branch that
have no state of their operators when it is first opened.

Rebuilds views whose stored state this version does not go on with, before the next epoch.

Such a view is found by its fingerprint alone when a database is opened. Its rows, which are of the
last epoch as all others are, go on being read. Another build is filled beside them, as of that
epoch, and takes over in one commit: what is above it, subscribers and sinks get the difference.
Epochs of their connected sets wait for that, since none may run on the former state; rows that are
written to these meanwhile are kept, and read by the first epoch afterwards.

Plans the views of a database that was just opened, in the background, one after another.

The first epoch that reaches a view then need not wait until it is planned.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.builds import fill_again
from headrace.execution.runtime.cancelling import Cancellation
from headrace.execution.runtime.connected import CLOCK
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.published import REFILLED, STOPPED, WAITING
from headrace.execution.runtime.unfit import mark_unfit, stop_unfit
from headrace.planning.catalog import PlainView, View
from headrace.planning.catalog.naming import shown_name
from headrace.planning.catalyst.python import lacks
from headrace.planning.circuit.digest import outdated, stamped
from headrace.storage.ledger import NO_EPOCH, Dirty, EpochCommit, RepairedView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.pump import Pump
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.definitions.functions import Functions
    from headrace.lifecycle.states.declarations import Declarations
    from headrace.planning.catalog import Catalog
    from headrace.storage.ledger import Ledger
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


_log = logging.getLogger(__name__)

_HINT: Final = (
    "Open the database again to try once more, or with the version that stored it; or CREATE OR"
    " REPLACE the view."
)


@dataclass(slots=True)
class Upgrades:
    """Rebuilds the views of an opened database that need it, in the background."""

    engine: Engine
    loop: EpochLoop
    definer: Definer
    pump: Pump
    _cancellation: Cancellation = field(default_factory=Cancellation)
    _closed: threading.Event = field(default_factory=threading.Event)
    _begun: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Say which views are rebuilt, and begin; return once none can be stepped before."""
        found = outdated(self.loop.catalog)
        if not found:
            return
        for view, why in found:
            name = shown_name(view, self.loop.catalog)
            _log.warning("view %s is rebuilt: %s", name, "; ".join(why))
        views = [view for view, _ in found]
        self._thread = threading.Thread(
            target=self._run, args=(views,), name="headrace-upgrades", daemon=True
        )
        self._thread.start()
        self._begun.wait()

    def wait(self) -> None:
        """Wait until no view is being rebuilt."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop; views that are not rebuilt yet are not maintained either."""
        self._closed.set()
        self._cancellation.asked = True
        self.wait()

    def _run(self, views: list[View]) -> None:
        loop = self.loop
        # Also the clock: what a view reads may be another thing for this version.
        among, what = [CLOCK, *(view.id for view in views)], "the upgrade of views"
        with loop.refreshing, loop.holding(among, what), self.pump.compaction.busy:
            self._begun.set()
            # What is above comes first: with a state of this version, it follows the difference.
            for view in views:
                try:
                    self._rebuild(view)
                except HeadraceError as error:
                    self._stop(view, error)
                except BaseException as error:
                    self._stop(view, HeadraceError(Code.INTERNAL, f"it was not rebuilt: {error!r}"))
                    raise

    def _rebuild(self, view: View) -> None:
        if self._closed.is_set():
            raise HeadraceError(Code.CANCELLED, "the database was closed before it was rebuilt")
        with self._cancellation.statement():
            another = replace(view, replacement=self.definer.new_build(), circuit="")
            planned = self.engine.planned(another)
            planned = replace(planned, view=stamped(another, planned.circuit))
            if view.id in self.loop.stopped():
                self.definer.replace_stopped(view, planned)
                return
            self.definer.replace_view(view, planned, self._progress, stays=True, held=True)

    def _progress(self, _done: int, _total: int) -> None:
        if self._closed.is_set():
            raise HeadraceError(Code.CANCELLED, "the database was closed before it was rebuilt")

    def _stop(self, view: View, error: HeadraceError) -> None:
        """Stop a view that could not be rebuilt: no epoch may run on its former state."""
        shown = HeadraceError(error.code, error.primary, error.detail, _HINT)
        with self.loop.between():
            mark_unfit(self.loop.ledger, view.id, shown)


_PAUSES_OF_STORED: Final = 5
"""How often the time of planning a view passes between views whose programs are stored."""
_FIRST_SECONDS: Final = 1.0
"""When it begins after Spark has started: the statement that waited for Spark is planned first."""


@dataclass(slots=True)
class Planning:
    """Plans views that nothing has planned yet.

    The thread takes the lock of planning for one view at a time, and pauses as long as that took:
    statements and epochs plan in between. The program of narrow epochs is built as well, and stored
    if it can be. Views whose programs are stored come last and with longer pauses: only a wide
    epoch or a statement needs their circuits. A view that cannot be run stops, as in an epoch.
    """

    loop: EpochLoop
    engine: Engine
    _closed: threading.Event = field(default_factory=threading.Event)
    _cancellation: Cancellation = field(default_factory=Cancellation)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin in the background, unless it is closed."""
        if self._closed.is_set():
            return
        self._thread = threading.Thread(target=self._later, name="headrace-planning", daemon=True)
        self._thread.start()

    def _later(self) -> None:
        if not self._closed.wait(_FIRST_SECONDS):
            self.run()

    def close(self) -> None:
        """Stop, within the planning of a view."""
        self._closed.set()
        self._cancellation.asked = True
        if self._thread is not None:
            self._thread.join()

    def run(self) -> None:
        """Plan each view once."""
        with self._cancellation.statement():
            stored = []
            for view in self.loop.catalog.views_in_order():
                if self.engine.is_stored(view):
                    stored.append(view)
                elif self._planned(view, pauses=1):
                    return
            for view in stored:
                if self._planned(view, pauses=_PAUSES_OF_STORED):
                    return

    def _planned(self, view: View, pauses: int) -> bool:
        """Plan a view, and pause some times as long as that took; return whether to stop."""
        began = time.monotonic()
        self._plan(view)
        return self._closed.wait((time.monotonic() - began) * pauses)

    def _plan(self, view: View) -> None:
        loop, id_ = self.loop, view.id
        if id_ in loop.stopped() or id_ not in self.engine.circuits:  # it waits for a function
            return
        others = {view.id for view in loop.catalog.views_in_order()} - {id_}
        without = frozenset(loop.stopped() | others)
        try:
            if loop.runner.unfit(frozenset([id_]), without, few=False):
                with loop.lock:
                    stop_unfit(loop, {id_}, without)
            with self.engine.planning:
                if self.engine.circuits.known(id_) is not None:  # it has not been dropped
                    self.engine.prepare(view)
        except HeadraceError:
            return  # not of the view: whoever needs it next says so
