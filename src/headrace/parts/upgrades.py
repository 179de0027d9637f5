"""Rebuilds views whose stored state this version does not go on with, before the next epoch.

Such a view is found by its fingerprint alone when a database is opened. Its rows, which are of the
last epoch as all others are, go on being read. Another build is filled beside them, as of that
epoch, and takes over in one commit: what is above it, subscribers and sinks get the difference.
Epochs of their connected sets wait for that, since none may run on the former state; rows that are
written to these meanwhile are kept, and read by the first epoch afterwards.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headrace.circuit.fingerprint import outdated, stamped
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import shown_name
from headrace.runtime.cancelling import Cancellation
from headrace.runtime.connected import CLOCK
from headrace.runtime.unfit import mark_unfit

if TYPE_CHECKING:
    from headrace.catalog import View
    from headrace.engine.engine import Engine
    from headrace.parts.definer import Definer
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.pump import Pump

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
