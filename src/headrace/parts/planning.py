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
    from headrace.runtime.epoch import EpochLoop
    from headrace.types import RelationId

_FIRST_SECONDS: Final = 1.0
"""When it begins after Spark has started: the statement that waited for Spark is planned first."""


@dataclass(slots=True)
class Planning:
    """Plans views that nothing has planned yet.

    The thread takes the lock of planning for one view at a time, and pauses as long as that took:
    statements and epochs plan in between. A view that cannot be run stops, as in an epoch.
    """

    loop: EpochLoop
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
            for view in self.loop.catalog.views_in_order():
                began = time.monotonic()
                self._plan(view.id)
                if self._closed.wait(time.monotonic() - began):
                    return

    def _plan(self, id_: RelationId) -> None:
        loop = self.loop
        others = {view.id for view in loop.catalog.views_in_order()} - {id_}
        without = frozenset(loop.stopped() | others)
        try:
            if loop.runner.unfit(frozenset([id_]), without):
                with loop.lock:
                    stop_unfit(loop, {id_}, without)
        except HeadraceError:
            return  # not of the view: whoever needs it next says so
