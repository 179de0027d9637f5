"""Reports what happens to views and sinks to OpenLineage, if an address is set."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.catalog import PlainView, Sink, View
from headrace.parts.naming import HIDDEN
from headrace.parts.openlineage_events import FillJob, Lifecycle, RunState
from headrace.parts.openlineage_sending import OpenLineageSending, sender
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.catalog import Catalog, Relation
    from headrace.parts.openlineage_events import OpenLineageEvents
    from headrace.parts.openlineage_sending import Making
    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.types import RelationId


@dataclass(slots=True)
class OpenLineage:
    """Reports creations, fillings and drops, and at intervals the views whose rows have changed.

    Its methods return at once, and never raise. Without an ``address``, nothing is reported.
    """

    reader: Reader
    events: OpenLineageEvents
    address: str = ""
    sending: OpenLineageSending | None = None
    _shown: dict[RelationId, object] = field(default_factory=dict)
    """The runs of files of each view at its last event."""

    def start(self) -> None:
        """Begin to send events, if there is an address.

        Raises:
            HeadraceError: ``invalid`` if the client of OpenLineage is not installed, or cannot use
                the address.
        """
        if self.address:
            self.sending = OpenLineageSending(sender(self.address), self._running)

    def close(self) -> None:
        """Send what waits, for a few seconds."""
        if self.sending is not None:
            self.sending.close()

    @contextmanager
    def filling(self, view: View, former: View | None = None) -> Iterator[None]:
        """Report that a view is filled while the block runs, and that it then runs, or has failed.

        ``former`` is the view that it replaces.
        """
        if self.sending is None or view.name.startswith(HIDDEN):
            yield
            return
        run, catalog = uuid4(), self.reader.catalog
        filling = FillJob.FILL if former is None else FillJob.REBUILD
        report = partial(self._put, self.events.filling, catalog, view, filling, run)
        if former is None:
            self._put(self.events.run, catalog, view, RunState.START, lifecycle=Lifecycle.CREATE)
        report(RunState.START)
        try:
            yield
        except BaseException as error:
            report(RunState.FAIL, error=f"{error}")
            if former is None:
                self._put(self.events.run, catalog, view, RunState.FAIL, error=f"{error}")
            raise
        state = self.reader.published
        report(RunState.COMPLETE, state)
        if former is not None and former.build != view.build:
            self._ends(catalog, former)
            self._put(self.events.run, state.catalog, view, RunState.START, state)
        self._runs(view, state)

    def replaced(self, catalog: Catalog, pairs: Iterable[tuple[View, View]]) -> None:
        """Report that views of a former catalog have got builds that were filled before."""
        state = self.reader.published
        for former, view in pairs:
            if not view.name.startswith(HIDDEN):
                self._ends(catalog, former)
                self._put(self.events.run, state.catalog, view, RunState.START, state)
                self._runs(view, state)

    def _ends(self, catalog: Catalog, former: View) -> None:
        self._shown.pop(former.id, None)
        self._put(self.events.run, catalog, former, RunState.COMPLETE)

    def _runs(self, view: View, state: Published) -> None:
        self._put(self.events.run, state.catalog, view, RunState.RUNNING, state)
        self._shown[view.id] = state.spines.get(rows_of(view.id))

    def created(self, relation: Relation) -> None:
        """Report a relation that has no rows to be filled with."""
        catalog, create = self.reader.catalog, Lifecycle.CREATE
        if relation.name.startswith(HIDDEN):
            return
        if isinstance(relation, PlainView):
            self._put(self.events.job, catalog, relation, create)
        elif isinstance(relation, Sink):
            self._put(self.events.run, catalog, relation, RunState.START, lifecycle=create)

    def dropped(self, relations: Iterable[Relation]) -> None:
        """Report that relations were dropped."""
        catalog, drop = self.reader.catalog, Lifecycle.DROP
        for each in relations:
            self._shown.pop(each.id, None)
            if each.name.startswith(HIDDEN):
                continue
            if isinstance(each, PlainView):
                self._put(self.events.job, catalog, each, drop)
            elif isinstance(each, View | Sink):
                self._put(self.events.run, catalog, each, RunState.COMPLETE, lifecycle=drop)

    def _put(self, make: Callable[..., Any], *given: object, **named: object) -> None:
        if self.sending is not None:
            self.sending.put(partial(make, *given, **named, at=datetime.now(UTC)))

    def _running(self) -> Iterator[Making]:
        """Yield what makes the events on views whose rows have changed since their last event."""
        state = self.reader.published
        for view in state.catalog.views_in_order():
            files = state.spines.get(rows_of(view.id))
            if view.name.startswith(HIDDEN) or self._shown.get(view.id) == files:
                continue
            self._shown[view.id] = files
            yield partial(self.events.run, state.catalog, view, RunState.RUNNING, state)
