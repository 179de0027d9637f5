"""The fills of views that are running, with their progress."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.parts.naming import HIDDEN
from headrace.runtime.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.catalog import Catalog
    from headrace.runtime.fill import Progress


@dataclass(slots=True, eq=False)
class FillProgress:
    """The fill of a build of a view, and how far it is.

    ``progress`` is called with what is reported.
    """

    name: str
    """The name of the view, of the one whose candidate is filled, or of the index."""
    kind: str
    progress: Progress
    began_at: float = field(default_factory=time.time)
    """In Unix seconds."""
    pace: Pace = field(default_factory=Pace)
    done: int = 0
    """How many rows of its inputs have been read."""
    total: int | None = None
    """How many rows its inputs had when it began; None until that is known."""

    @classmethod
    def of(cls, view: View, catalog: Catalog, progress: Progress) -> FillProgress:
        """Return the fill of a view before it begins."""
        return cls(*_named(view, catalog), progress)

    def report(self, done: int, total: int) -> None:
        """Record the rows read so far and their total, and report them to the statement."""
        self.done, self.total = done, total
        self.pace.report(done)
        self.progress(done, total)

    @property
    def state(self) -> str:
        """What it does now."""
        return "running"


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
