"""Freshness: which changes of its inputs a view does not show yet, and for how long."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.lifecycle.states.quarantined import quarantined_count
from headrace.planning.catalog.naming import HIDDEN
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.inputs.admission import Admission
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import View
    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class InputPosition:
    """How far epochs have read the log of a stream or table below a view.

    ``watermark`` is the bound on its event time, in microseconds; None if it has none.
    """

    relation: str
    position: Offset
    end: Offset
    watermark: int | None


@dataclass(frozen=True, slots=True)
class ViewFreshness:
    """How current one view is.

    ``pending`` counts the changes of its inputs that it does not show, ``seconds`` is how long the
    oldest of them has waited, 0 if none does. ``dirty_since`` is in Unix seconds, None unless the
    view or one below it is known to differ from its inputs. ``pending`` is None for a stopped view.
    ``waits_for`` is what epochs of it wait for; None if they are made as changes arrive.
    ``epoch`` is the epoch whose inputs it shows, that of the last refresh if it lags, committed at
    ``shown_at``; ``next_refresh`` is when it is due again; both times in Unix seconds.
    """

    view: View
    state: str
    pending: int | None
    seconds: float
    inputs: tuple[InputPosition, ...]
    dirty_since: float | None
    dirty_slices: int
    """The number of the view's own entries in the dirty ledger."""
    epoch: Epoch
    shown_at: float
    next_refresh: float | None
    quarantined: int | None
    """The number of its rows in quarantine; None if a file of the quarantine is damaged."""
    waits_for: str | None

    @property
    def watermark(self) -> int | None:
        """The least watermark of its inputs, in microseconds; None if they have none."""
        return min((i.watermark for i in self.inputs if i.watermark is not None), default=None)


def view_freshness(
    reader: Reader, admission: Admission, state: Published
) -> Iterator[ViewFreshness]:
    """Yield the freshness of the views of a published state, inputs first."""
    ends, arrived, now = reader.ledger.head.ends, reader.arrivals(state), time.time()
    catalog, due = state.catalog, reader.pump.refreshes.due_times(state)
    failed = reader.pump.refreshes.failed
    dirty = reader.ledger.head.dirty
    marks = {id_: admission.watermark(catalog.by_id[id_]) for id_ in state.maintained}
    for view in catalog.views_in_order():
        if view.name.startswith(HIDDEN):
            continue
        bases = sorted(catalog.bases([view.id]))
        below, stopped = catalog.below([view.id]), view.id in state.stopped
        since = min((entry.since for entry in dirty if entry.view in below), default=None)
        late = reader.arrivals(state, view.id) if state.lags(view.id) else arrived
        shown, stands = state.shown(view.id), state.lagging.get(view.id)
        waiting = [late[id_] for id_ in bases if id_ in late]
        if stopped and since is not None:
            waiting.append(since)
        yield ViewFreshness(
            view,
            "failing" if view.id in failed and not stopped else state.word_for(view),
            None if stopped else state.behind(ends, view.id),
            max(0.0, now - min(waiting)) if waiting else 0.0,
            tuple(
                InputPosition(
                    catalog.by_id[id_].name,
                    shown.get(id_, Offset(0)),
                    ends.get(id_, Offset(0)),
                    marks.get(id_),
                )
                for id_ in bases
                if not catalog.by_id[id_].name.startswith(HIDDEN)
            ),
            since,
            sum(entry.view == view.id for entry in dirty),
            state.epoch if stands is None or stands.epoch is None else stands.epoch,
            state.committed_at if stands is None else stands.at,
            due.get(view.id),
            quarantined_count(reader.ledger, reader.directory, state, view),
            reader.pump.loop.beside.waited_for(view.id),
        )
