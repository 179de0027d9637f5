"""What served before a swap is dropped by itself when the time for which it is kept is over."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.parts.naming import is_candidate

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.catalog import Catalog, View
    from headrace.parts.definer import Definer
    from headrace.runtime.pump import Pump
    from headrace.types import RelationId

_SECOND: Final = 1_000_000
_RETRY_SECONDS: Final = 1.0
_LONGEST_WAIT_SECONDS: Final = 60.0
"""The longest wait for the end of a time: the system clock may be set meanwhile."""


@dataclass(slots=True)
class FormerBuilds:
    """Drops candidates that have served once they need not be kept any more.

    Their files are deleted as those of any dropped view are.
    """

    definer: Definer
    pump: Pump
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def drop_due(self) -> int:
        """Drop those whose time is over, in one epoch; return how many there were."""
        first = self._due()
        if not first:
            return 0
        with self.definer.loop.exclusive(first):
            due = self._due()  # one of them may serve again meanwhile
            due = due if set(due) <= set(first) else []  # or become due: it is looked for again
            if due:
                self.definer.drop(due)
        if due:
            self.pump.compaction.run()
        return len(due)

    def start(self) -> None:
        """Drop them in the background, each when it is due."""
        self._thread = threading.Thread(target=self._run, name="headrace-former", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what becomes due later is dropped when the database is opened again."""
        self._closed.set()
        self.definer.loop.published.wake()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        published = self.definer.loop.published
        while not self._closed.is_set():
            try:
                self.drop_due()
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end the thread
                internal = HeadraceError(
                    Code.INTERNAL, "a former build of a view was not dropped", f"{error!r}."
                )
                self.pump.error = error if isinstance(error, HeadraceError) else internal
                self._closed.wait(_RETRY_SECONDS)
            else:
                known = self.definer.loop.catalog
                published.wait_for(self._changed_from(known), self._seconds_until_due(known))

    def _changed_from(self, known: Catalog) -> Callable[[], bool]:
        """Return a condition that is met once another time ends next than in a catalog."""
        loop, ends = self.definer.loop, _next_end(known)
        return lambda: (
            self._closed.is_set() or (loop.catalog is not known and _next_end(loop.catalog) != ends)
        )

    def _seconds_until_due(self, catalog: Catalog) -> float | None:
        ends = _next_end(catalog)
        if ends is None:
            return None
        return min(_LONGEST_WAIT_SECONDS, max(0.0, ends - self._now()))

    def _due(self) -> list[RelationId]:
        """Return those whose time is over, and the candidates that read them, inputs first."""
        catalog, now = self.definer.loop.catalog, self._now()
        found: dict[RelationId, None] = {}
        for view, until in _kept(catalog):
            above = catalog.dependants(view.id)
            if until <= now and all(map(is_candidate, above)):
                found |= dict.fromkeys((view.id, *(each.id for each in above)))
        return list(found)

    def _now(self) -> float:
        return self.definer.loop.now() / _SECOND


def _kept(catalog: Catalog) -> list[tuple[View, float]]:
    views = catalog.views_in_order()
    return [(view, view.kept_until) for view in views if view.kept_until is not None]


def _next_end(catalog: Catalog) -> float | None:
    """Return the time, in Unix seconds, at which the next one is due; None if none ever is."""
    return min((at for _, at in _kept(catalog)), default=None)
