"""Plans the views of a database that was just opened, in the background, one after another.

The first epoch that reaches a view then need not wait until it is planned.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError
from headrace.runtime.cancelling import Cancellation
from headrace.runtime.unfit import stop_unfit

if TYPE_CHECKING:
    from headrace.catalog import View
    from headrace.engine.engine import Engine
    from headrace.runtime.epoch import EpochLoop

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
