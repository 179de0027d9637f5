"""The fills of views that are running: how far they are, and which of them wait."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headrace.catalog import View
from headrace.parts.naming import HIDDEN
from headrace.runtime.cancelling import check_cancelled, running_statement
from headrace.runtime.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.catalog import Catalog
    from headrace.runtime.fill import Progress

_LISTEN_SECONDS: Final = 0.1
"""The interval at which a fill that waits looks whether its statement was cancelled."""


class FillState(StrEnum):
    """What a fill does now."""

    RUNNING = "running"
    PAUSING = "pausing"
    """It is to wait after the part that it reads."""
    PAUSED = "paused"


@dataclass(slots=True, eq=False)
class FillProgress:
    """The fill of a build of a view, how far it is, and whether it is to wait.

    ``progress`` is called with what is reported.
    """

    name: str
    """The name of the view, of the one whose candidate is filled, or of the index."""
    kind: str
    progress: Progress
    pauses: bool = True
    """Whether it may wait: nobody else waits for its end then."""
    began_at: float = field(default_factory=time.time)
    """In Unix seconds."""
    pace: Pace = field(default_factory=Pace)
    done: int = 0
    """How many rows of its inputs have been read."""
    total: int | None = None
    """How many rows its inputs had when it began; None until that is known."""
    _state: FillState = FillState.RUNNING
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @classmethod
    def of(cls, view: View, catalog: Catalog, progress: Progress, *, pauses: bool) -> FillProgress:
        """Return the fill of a view before it begins."""
        return cls(*_named(view, catalog), progress, pauses)

    @property
    def state(self) -> FillState:
        """What it does now."""
        return self._state

    def pause(self) -> None:
        """Let it wait after the part that it reads; the caller has asked :attr:`pauses`."""
        with self._changed:
            if self._state is FillState.RUNNING:
                self._state = FillState.PAUSING

    def resume(self) -> bool:
        """Let it go on; return whether it was to wait."""
        with self._changed:
            waited = self._state is not FillState.RUNNING
            self._state = FillState.RUNNING
            self._changed.notify_all()
        return waited

    def report(self, done: int, total: int) -> None:
        """Report the rows read so far and their total to the statement; wait if that is asked.

        Raises:
            HeadraceError: ``cancelled`` if the statement is cancelled.
        """
        self.done, self.total = done, total
        self.pace.report(done)
        self.progress(done, total)
        self.wait()

    def wait(self) -> None:
        """Wait until it may go on, between two parts of the work: on the statement's thread.

        Raises:
            HeadraceError: ``cancelled`` if the statement is cancelled meanwhile.
        """
        if self._state is FillState.RUNNING:
            return
        self.pace.wait()
        if (statement := running_statement()) is not None:
            name = self.name
            statement.waits(f"filling {name} is paused; RESUME FILL OF {name} continues it")
        with self._changed:
            while self._state is not FillState.RUNNING:
                self._state = FillState.PAUSED
                self._changed.wait(_LISTEN_SECONDS)
                check_cancelled()
        self.pace.report(self.done)
        self.progress(self.done, self.total or 0)


@dataclass(slots=True)
class Fills:
    """The running fills of an open database. Thread-safe."""

    _running: list[FillProgress] = field(default_factory=list)
    _changing: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self, fill: FillProgress) -> Iterator[None]:
        """List a fill while the block runs it."""
        with self._changing:
            self._running.append(fill)
        try:
            yield
        finally:
            with self._changing:
                self._running.remove(fill)

    def listed(self) -> list[FillProgress]:
        """Return those that have a name, oldest first: not those of queries that are followed."""
        with self._changing:
            return [fill for fill in self._running if not fill.name.startswith(HIDDEN)]


def _named(view: View, catalog: Catalog) -> tuple[str, str]:
    """Return the name by which users know what is filled, and what it is."""
    if view.candidate_of is not None:
        of = catalog.by_id.get(view.candidate_of)
        if isinstance(of, View):
            return _named(of, catalog)[0], "candidate"
    if view.index is not None:
        return view.index.name, "index"
    return view.name, "view"
