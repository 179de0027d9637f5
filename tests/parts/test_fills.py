"""Running fills: those that wait do so between two reports, until they go on or are cancelled."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import Cancellation
from headrace.lifecycle.definitions.filling import FillProgress, Fills, FillState
from headrace.planning.catalog import Catalog, Index, Stream, View
from headrace.types import RelationId, Schema
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

VIEW = View(RelationId(2), "gold.v", Schema(()), "", (RelationId(1),))
CATALOG = Catalog.of([Stream(RelationId(1), "s", Schema(())), VIEW])


class Statement:
    """A statement on a thread of its own that fills something in parts."""

    def __init__(self, parts: int) -> None:
        self.reports: list[int] = []
        self.waits: list[str] = []
        self.error: HeadraceError | None = None
        self.cancellation = Cancellation(waits=self.waits.append)
        self.fill = FillProgress.of(VIEW, CATALOG, self._report, pauses=True)
        self.at_report: Callable[[int], None] = lambda _done: None
        self._parts = parts
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _report(self, done: int, _total: int) -> None:
        self.reports.append(done)
        self.at_report(done)

    def _run(self) -> None:
        try:
            with self.cancellation.statement():
                for part in range(self._parts + 1):
                    self.fill.report(part, self._parts)
        except HeadraceError as error:
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def is_paused(self) -> bool:
        return self.fill.state is FillState.PAUSED

    def end(self) -> None:
        self._thread.join()


def test_a_fill_waits_after_the_part_that_it_reads_and_goes_on_with_the_next() -> None:
    statement = Statement(3)
    statement.at_report = lambda done: statement.fill.pause() if done == 1 else None
    statement.start()
    until(statement.is_paused)
    assert statement.reports == [0, 1]
    assert statement.waits == ["filling gold.v is paused; RESUME FILL OF gold.v continues it"]
    statement.at_report = lambda _done: None
    assert statement.fill.resume()
    statement.end()
    assert statement.reports == [0, 1, 1, 2, 3]
    assert statement.fill.state is FillState.RUNNING
    assert not statement.fill.resume()


def test_a_fill_that_is_to_wait_is_pausing_until_its_part_has_ended() -> None:
    fill = FillProgress.of(VIEW, CATALOG, lambda _done, _total: None, pauses=True)
    fill.pause()
    assert fill.state is FillState.PAUSING
    assert fill.resume()
    fill.report(1, 2)  # returns
    assert fill.state is FillState.RUNNING


def test_a_fill_that_waits_ends_when_its_statement_is_cancelled() -> None:
    statement = Statement(3)
    statement.fill.pause()
    statement.start()
    until(statement.is_paused)
    statement.cancellation.asked = True
    statement.end()
    assert statement.error is not None
    assert statement.error.code is Code.CANCELLED
    assert statement.reports == [0]


def test_time_in_which_a_fill_waits_is_not_time_of_its_work() -> None:
    statement, now = Statement(30), [0.0]
    statement.fill.pace.clock = lambda: now[0]

    def work(done: int) -> None:
        now[0] += 1.0
        if done == 20:
            statement.fill.pause()

    statement.at_report = work
    statement.start()
    until(statement.is_paused)
    statement.at_report = lambda _done: None
    now[0] += 1_000.0
    assert statement.fill.pace.seconds_left(30) == 10.5  # 20 parts in 21 seconds
    statement.fill.resume()
    statement.end()


def test_fills_are_listed_by_what_users_call_them_while_they_run() -> None:
    index = replace(VIEW, id=RelationId(3), name="__3", index=Index("by_x", VIEW.id, ("x",)))
    catalog = CATALOG.with_(index)
    views = [
        VIEW,
        index,
        replace(VIEW, id=RelationId(4), name="__4", candidate_of=VIEW.id),
        replace(index, id=RelationId(5), name="__5", candidate_of=index.id),
        replace(VIEW, id=RelationId(6), name="__6"),
    ]
    fills = Fills()
    running = [
        FillProgress.of(each, catalog, lambda _done, _total: None, pauses=True) for each in views
    ]
    with fills.running(running[0]), fills.running(running[1]), fills.running(running[2]):
        with fills.running(running[3]), fills.running(running[4]):
            assert [(fill.name, fill.kind) for fill in fills.listed()] == [
                ("gold.v", "view"),
                ("by_x", "index"),
                ("gold.v", "candidate"),
                ("by_x", "candidate"),
            ]
        assert len(fills.listed()) == 3
    assert fills.listed() == []
