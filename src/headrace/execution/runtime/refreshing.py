"""When views that lag behind are refreshed: by schedule, one after another, the oldest due first.

A view that is refreshed every hour is due an hour after its last refresh, which the ledger has: one
that was missed while the database was closed is due when it is opened. When a view is due, those
that read a relation that it reads are refreshed with it if they would be due soon, so that views on
one table come to share one scan of its changes. Refreshes never run side by side.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.published import STOPPED
from headrace.execution.runtime.refresh import ViewRefresh
from headrace.planning.catalog import RefreshKind, View
from headrace.storage.ledger import Dirty

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.published import Published
    from headrace.types import Epoch, RelationId


_LATE_SECONDS = 60.0
"""After how many seconds a scheduled refresh that failed is tried again."""


@dataclass(slots=True)
class Refreshes:
    """Refreshes the views of one database. Times are in Unix seconds, by the clock of its epochs.

    ``failed`` has the error of the last scheduled refresh of a view, while it is not made up for.
    """

    loop: EpochLoop
    failed: dict[RelationId, HeadraceError] = field(default_factory=dict)
    _not_before: dict[RelationId, float] = field(default_factory=dict)

    def refresh(
        self,
        views: Iterable[View],
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Epoch:
        """Refresh some views that lag behind, up to what epochs have read; return the epoch.

        Raises:
            HeadraceError: as :meth:`ViewRefresh.run`; nothing has changed then.
        """
        with self.loop.refreshing:
            wanted, known = {view.id for view in views}, self.loop.catalog.views_in_order()
            there = tuple(view for view in known if view.id in wanted)
            if len(there) < len(wanted):
                raise HeadraceError(
                    Code.CONFLICT, "a view was dropped before it was refreshed", hint="Try again."
                )
            epoch = ViewRefresh(self.loop, there, progress).run()
        for id_ in wanted:
            self.failed.pop(id_, None)
        return epoch

    def due_times(self, state: Published | None = None) -> Mapping[RelationId, float]:
        """Return when each view that has a schedule is due."""
        state = state or self.loop.published.current
        found: dict[RelationId, float] = {}
        for id_, stands in state.lagging.items():
            view = state.catalog.by_id.get(id_)
            if not isinstance(view, View) or id_ in state.stopped:
                continue
            if view.refresh.kind is RefreshKind.EVERY:
                due = stands.at + view.refresh.seconds
                found[id_] = max(due, self._not_before.get(id_, due))
        return found

    def seconds_until_due(self) -> float | None:
        """Return the seconds until the next view is due; None if none ever is."""
        due = self.due_times().values()
        return max(0.0, min(due) - self._now()) if due else None

    def run_due(self) -> Epoch | None:
        """Refresh the view that has been due for longest, and those that go with it.

        Return the epoch, None if no view was due. Views whose query fails on their data stop, as
        in an epoch; the others are refreshed without them.
        """
        views = self._next(self._now())
        if not views:
            return None
        try:
            epoch = self.refresh(views)
        except HeadraceError as error:
            self._take_failure(views, error)
            return None
        for view in views:
            self._not_before.pop(view.id, None)
        return epoch

    def _next(self, now: float) -> list[View]:
        """Return the views to refresh next, those that are due first."""
        state = self.loop.published.current
        times, catalog = self.due_times(state), state.catalog
        views = [view for view in catalog.views_in_order() if view.id in times]
        views.sort(key=lambda view: times[view.id])
        if not views or times[views[0].id] > now:
            return []
        first, bases = views[0], catalog.bases([views[0].id])
        chosen = [
            first,
            *(
                v
                for v in views[1:]
                if times[v.id] <= now + _early(v, first) and catalog.bases([v.id]) & bases
            ),
        ]
        return chosen[: self.loop.settings.refresh_views]

    def _take_failure(self, views: list[View], error: HeadraceError) -> None:
        """Stop the views that fail alone; try the others again, or all later if none does."""
        failing = []
        if error.code in (Code.INVALID, Code.INTERNAL) and len(views) > 1:
            failing = [view for view in views if self._fails(view)]
        elif error.code in (Code.INVALID, Code.INTERNAL):
            failing = views
            self._note(views[0], error)
        for view in failing:
            stands = self.loop.ledger.head.lagging[view.id]
            after = self.loop.ledger.head.epoch if stands.epoch is None else stands.epoch
            why = str(self.failed.pop(view.id))  # from now on the dirty ledger says it
            self.loop.ledger.dirty.mark(Dirty(view.id, STOPPED, time.time(), why, after=after))
        if failing:
            with self.loop.between():  # publishes
                return
        for view in views:
            self._note(view, error)
            self._not_before[view.id] = self._now() + _LATE_SECONDS

    def _fails(self, view: View) -> bool:
        """Refresh a view alone; return whether its query fails."""
        try:
            self.refresh([view])
        except HeadraceError as error:
            self._note(view, error)
            return error.code in (Code.INVALID, Code.INTERNAL)
        return False

    def _note(self, view: View, error: HeadraceError) -> None:
        """Keep an error, not its traceback, which keeps the states that it was raised in."""
        self.failed[view.id] = HeadraceError(
            error.code, error.primary, error.detail, error.hint, error.span
        )

    def _now(self) -> float:
        return self.loop.clock() / 1e6


def _early(view: View, first: View) -> float:
    """Return by how many seconds a view may be refreshed too early, to share a scan with another.

    Of two views with one interval, one is due at most half of it after the other.
    """
    return min(view.refresh.seconds / 2, first.refresh.seconds)
