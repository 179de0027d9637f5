"""Wide steps beside the epochs of other sets. No JVM; steps end when the tests say so."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
from pyspark.sql.types import LongType

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime import epoch as epochs
from headrace.execution.runtime.attempt import Width
from headrace.execution.runtime.beside import SetStep, SetSteps, _Threads
from headrace.execution.runtime.builds import fill_again
from headrace.execution.runtime.cancelling import Cancellation, StatementLock, check_cancelled
from headrace.execution.runtime.connected import ConnectedSets
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.ports import MoreRowsError
from headrace.execution.runtime.published import STOPPED
from headrace.execution.runtime.pump import Pump
from headrace.execution.runtime.replay import TableRebuild
from headrace.execution.runtime.stages import Poll
from headrace.execution.runtime.step import Clock
from headrace.planning.catalog import CONTINUOUS, Catalog, RefreshKind, RefreshPolicy, Stream, View
from headrace.storage.ledger import (
    Dirty,
    EpochCommit,
    OffsetRange,
    OutdatedEpochError,
    RepairedView,
)
from headrace.types import Column, Epoch, Offset, RelationId, Schema
from runtime.pure import TABLE, PureDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.planning.catalog import Table

WIDE = 5
"""A statement of so many changes makes a step wide."""


@dataclass
class Sets:
    """Two sets, each a table with a view, and the steps that have begun beside epochs."""

    db: PureDatabase
    begun: list[Callable[[], None]] = field(default_factory=list)
    a: Table = field(init=False)
    b: Table = field(init=False)
    over_a: View = field(init=False)
    over_b: View = field(init=False)

    def __post_init__(self) -> None:
        self.a, self.b = self.db.create_table("a"), self.db.create_table("b")
        self.over_a = self.db.create_view("over_a", self.a)
        self.over_b = self.db.create_view("over_b", self.b)
        self.db.loop.beside.run = self.begun.append

    def append(self, table: Table, rows: int) -> None:
        """Append so many changes by one statement."""
        at = self.db.ledger.head.log_end(table.id)
        self.db.append(table, [(at + i, 1, 1) for i in range(rows)])

    def advance(self) -> Epoch | None:
        """Make an epoch of what is narrow."""
        return self.db.loop.advance()

    def end_one(self) -> None:
        """Make the step that began first, to its commit."""
        self.begun.pop(0)()

    def counts(self, epoch: Epoch | None = None) -> tuple[int, int]:
        """Return how many rows the views show of each table."""
        shown = (self.db.rows(view.id, epoch) for view in (self.over_a, self.over_b))
        return tuple(sum(n for _, n in rows.elements()) for rows in shown)  # type: ignore[return-value]

    @property
    def epoch(self) -> Epoch:
        return self.db.ledger.head.epoch


@pytest.fixture
def sets(tmp_path: Path) -> Iterator[Sets]:
    sets = Sets(PureDatabase(tmp_path))
    yield sets
    sets.db.close()


def test_narrow_epochs_of_other_sets_are_made_while_a_wide_step_runs(sets: Sets) -> None:
    first = sets.epoch
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    assert sets.advance() == first + 1
    sets.append(sets.a, 1)  # its set is busy
    sets.append(sets.b, 1)
    assert sets.advance() == first + 2
    assert (len(sets.begun), sets.counts(), sets.advance()) == (1, (0, 2), None)
    sets.end_one()
    assert (sets.epoch, sets.counts()) == (first + 3, (WIDE, 2))
    assert sets.advance() == first + 4, "what came meanwhile"
    found = [sets.counts(Epoch(epoch)) for epoch in range(first + 1, first + 5)]
    assert found == [(0, 1), (0, 2), (WIDE, 2), (WIDE + 1, 2)]
    widths = [each.counters["width"] for each in sets.db.ledger.epochs.newest(4)]
    assert widths == ["narrow", Width.MANY_CHANGES.value, "narrow", "narrow"]
    assert not sets.db.ledger.violations()


def test_a_backlog_of_one_set_leaves_those_of_others_as_narrow_as_they_are(sets: Sets) -> None:
    for _ in range(40):
        sets.append(sets.a, 1)
    sets.append(sets.b, 1)
    sets.advance()
    assert (sets.counts(), len(sets.begun)) == ((0, 1), 1)
    while sets.db.loop.pending():
        for _ in sets.begun[:]:
            sets.end_one()
        sets.advance()
    assert sets.counts() == (40, 1)


def test_as_many_wide_steps_run_at_once_as_the_setting_says(sets: Sets) -> None:
    c = sets.db.create_table("c")
    for table in (sets.a, sets.b, c):
        sets.append(table, WIDE)
    assert sets.advance() is None
    assert len(sets.begun) == sets.db.loop.settings.wide_steps == 2
    assert sets.db.loop.beside.waiting == {c.id}
    sets.end_one()
    sets.append(sets.a, WIDE)
    sets.advance()
    assert sets.db.loop.beside.waiting == {sets.a.id, sets.over_a.id}, "who waits longest is first"
    while sets.begun:
        sets.end_one()
        sets.advance()
    assert sets.counts() == (2 * WIDE, WIDE)


def test_a_step_that_was_admitted_does_not_begin_once_it_is_excluded() -> None:
    some, other = frozenset({RelationId(1)}), frozenset({RelationId(2)})
    beside, given = SetSteps(2), []
    beside.run = given.append
    poll = Poll(Epoch(1), {}, Clock(0, 0), frozenset())
    assert beside.admits(some, rested=False, full=False)
    with beside.holding(some, "a test", StatementLock()):
        assert beside.begin(some, poll, None, print) is None  # type: ignore[arg-type]
        assert (beside.steps, beside.waiting, given) == ((), some, [])
        assert (beside.waited_for(RelationId(1)) or "").startswith("a test, for 0.")
        assert beside.begin(other, poll, None, print) is not None  # type: ignore[arg-type]
    assert beside.begin(some, poll, None, print) is not None  # type: ignore[arg-type]
    assert beside.busy == some | other


def test_after_a_wide_step_its_set_lets_changes_accumulate_for_as_long_as_it_took() -> None:
    beside, some, other = SetSteps(2), frozenset[Any]({1}), frozenset[Any]({2})
    beside.run = lambda _make: None
    step = beside.begin(some, Poll(Epoch(1), {}, Clock(0, 0), other), None, print)  # type: ignore[arg-type]
    assert beside.seconds_until_rested() is None
    beside.end(step, rests=3600)
    assert 3000 < (beside.seconds_until_rested() or 0) <= 3600
    assert not beside.admits(some, rested=True, full=False)
    assert beside.admits(some, rested=True, full=True), "as much waits as one step reads"
    assert beside.admits(some, rested=False, full=False), "a statement waits for it"
    assert beside.admits(other, rested=True, full=False)


def test_a_narrow_step_that_fans_out_becomes_the_wide_step_of_its_set(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, tried = sets.db.runner.run_live, []

    def floods(step: Any, changed: Any, *given: Any) -> Any:
        tried.append((sorted(changed), step.few))
        if step.few and sets.a.id in changed:
            run(step, changed, *given)
            raise MoreRowsError
        return run(step, changed, *given)

    monkeypatch.setattr(sets.db.runner, "run_live", floods)
    sets.append(sets.a, 2)
    sets.append(sets.b, 1)
    sets.advance()
    a, b = sets.a.id, sets.b.id
    assert tried == [([a, b], True), ([a], True), ([b], True)], "together, then apart"
    assert (sets.counts(), len(sets.begun)) == ((0, 1), 1)
    sets.end_one()
    assert (sets.counts(), tried[3:]) == ((2, 1), [([a], False)])
    sets.append(sets.a, 2)
    assert (sets.advance(), len(sets.begun)) == (None, 1), "it is known to fan out"
    sets.end_one()
    assert sets.counts() == (4, 1)


def test_a_merge_beside_a_wide_step_changes_nothing_of_its_result(sets: Sets) -> None:
    for _ in range(12):  # runs that are to be merged
        sets.append(sets.a, 1)
        sets.append(sets.b, 1)
        sets.advance()
    sets.append(sets.a, WIDE)
    sets.advance()
    assert sets.db.compaction.run() > 0
    sets.append(sets.b, 1)
    sets.advance()
    assert sets.db.compaction.run() >= 0
    sets.end_one()
    assert sets.counts() == (12 + WIDE, 13)
    assert not sets.db.ledger.violations()


def test_the_last_epoch_of_a_step_ends_what_excludes_it(sets: Sets) -> None:
    sets.append(sets.a, WIDE)
    sets.advance()
    entered = threading.Event()

    def excludes() -> None:
        with sets.db.loop.exclusive():
            entered.set()

    waiting = threading.Thread(target=excludes)
    waiting.start()
    while not sets.db.loop.beside.holds:
        waiting.join(0.001)
    assert not entered.is_set()
    sets.append(sets.b, WIDE)
    assert (sets.advance(), len(sets.begun)) == (None, 1), "no other begins before"
    sets.append(sets.b, 1)
    sets.end_one()
    waiting.join()
    assert entered.is_set()
    sets.advance()
    sets.end_one()
    assert sets.counts() == (WIDE, WIDE + 1)


def test_what_changes_one_set_waits_for_no_step_of_another(sets: Sets) -> None:
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    sets.advance()
    with sets.db.loop.exclusive([sets.over_b.id]):
        sets.append(sets.b, WIDE)
        assert sets.advance() is not None, "here, a wide step is run in the epoch"
        assert (sets.counts(), len(sets.begun), sets.advance()) == ((0, WIDE + 1), 1, None)
    below = sets.db.create_view("above_b", sets.b)
    sets.append(sets.b, 1)
    sets.advance()
    sets.end_one()
    assert sets.db.loop.beside.error() is None
    assert (sets.counts(), sets.db.loop.pending()) == ((WIDE, WIDE + 2), 0)
    assert sets.db.rows(below.id) == {(1, WIDE + 2): 1}
    assert not sets.db.ledger.violations()


def test_a_set_that_grows_while_a_step_reads_a_part_of_it_is_busy(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, both = sets.db.loop, frozenset({sets.over_a.id, sets.over_b.id})
    sets.append(sets.a, WIDE)
    sets.advance()
    assert loop.parting.busy() == {sets.a.id, sets.over_a.id}
    monkeypatch.setattr(type(loop.timetable), "views", lambda _self: both)
    sets.append(sets.b, 1)
    assert sets.advance() is None
    assert loop.parting.busy() == both | {sets.a.id, sets.b.id}
    first = sets.epoch
    sets.end_one()
    assert (sets.epoch, sets.counts()) == (first, (0, 0)), "it is made again, of the larger set"
    sets.advance()
    sets.end_one()
    assert sets.counts() == (WIDE, 1)


def test_in_an_exclusive_block_wide_steps_run_in_the_epoch(sets: Sets) -> None:
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    with sets.db.loop.exclusive():
        assert sets.advance() is not None
    assert (sets.counts(), sets.begun) == ((WIDE, 1), [])


def test_a_step_whose_set_has_changed_meanwhile_is_made_again(sets: Sets) -> None:
    sets.append(sets.a, WIDE)
    sets.advance()
    why = Dirty(sets.over_a.id, STOPPED, 0.0, "a test", sets.epoch)
    marks = {"stepped": lambda: sets.db.ledger.dirty.mark(why)}
    sets.db.loop.fault = lambda stage: marks.pop(stage, lambda: None)()
    first = sets.epoch
    sets.end_one()
    assert (sets.epoch, sets.counts(), marks) == (first, (0, 0), {})
    assert (sets.advance(), len(sets.begun)) == (None, 1)
    sets.end_one()
    assert (sets.epoch, sets.db.loop.pending(), sets.counts()) == (first + 1, 0, (0, 0))


def test_the_ledger_refuses_a_step_whose_set_has_changed_since_it_began(sets: Sets) -> None:
    ledger, first = sets.db.ledger, sets.epoch
    sets.append(sets.a, 1)
    sets.append(sets.b, 1)
    sets.advance()
    for changed, refused in ((sets.a, True), (sets.db.create_table("c"), False)):
        commit = EpochCommit(sets.epoch, "late", began=first, members=(changed.id,))
        if refused:
            with pytest.raises(OutdatedEpochError, match="has changed since epoch"):
                ledger.commit(commit)
        else:
            assert ledger.commit(commit) == commit.epoch


def test_a_failed_step_stops_its_view_and_no_other(sets: Sets) -> None:
    sets.db.runner.failing.add(sets.over_a.id)
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    sets.advance()
    sets.end_one()
    assert sets.db.loop.stopped() == {sets.over_a.id}
    assert (sets.db.loop.pending(), sets.counts()) == (0, (0, 1))


def test_a_narrow_step_that_fails_is_made_again_beside_the_epochs_of_others(sets: Sets) -> None:
    quarantined = sets.db.create_view("quarantined", sets.a, quarantines=True)
    sets.db.runner.poison = frozenset({7})
    sets.db.append(sets.a, [(1, 7, 1), (2, 1, 1)])
    sets.append(sets.b, 1)
    sets.advance()
    assert (sets.counts(), len(sets.begun)) == ((0, 1), 1)
    sets.end_one()
    assert sets.db.quarantined(quarantined) == {(1, 7): 1}
    assert sets.db.rows(quarantined.id) == {(1, 1): 1}
    assert (sets.counts(), sets.db.loop.stopped()) == ((2, 1), frozenset())
    sets.db.runner.failing.add(sets.over_a.id)
    sets.append(sets.a, 1)
    sets.append(sets.b, 1)
    sets.advance()
    sets.end_one()
    assert (sets.db.loop.stopped(), sets.counts()) == ({sets.over_a.id}, (2, 2))


def test_a_set_whose_narrow_step_was_slow_is_stepped_beside_the_epochs_of_others(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, now, slow = sets.db.runner.run_live, [0.0], [2.0]

    def passes(step: Any, changed: Any, *given: Any) -> Any:
        now[0] += slow[0] if sets.a.id in changed else 0.1
        return run(step, changed, *given)

    monkeypatch.setattr(sets.db.runner, "run_live", passes)
    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(epochs, "time", clock)

    def both() -> tuple[int, tuple[int, int]]:
        sets.append(sets.a, 1)
        sets.append(sets.b, 1)
        sets.advance()
        return len(sets.begun), sets.counts()

    assert both() == (0, (1, 1)), "together: which of them is slow is not known"
    assert both() == (0, (2, 2)), "apart"
    assert both() == (1, (2, 3))
    sets.append(sets.b, 1)
    sets.advance()
    sets.end_one()
    assert sets.counts() == (3, 4)
    assert [e.counters["width"] for e in sets.db.ledger.epochs.newest(2)] == ["narrow", "narrow"]
    slow[0] = 0.1
    assert both() == (1, (3, 5)), "still, until it was quick"
    sets.end_one()
    assert both() == (0, (5, 6))


def test_a_step_that_cannot_be_made_is_shown_and_tried_again(sets: Sets) -> None:
    sets.db.runner.failing.add(sets.over_a.id)
    sets.db.runner.failure = Code.UNAVAILABLE
    sets.append(sets.a, WIDE)
    sets.advance()
    sets.end_one()
    beside = sets.db.loop.beside
    error = beside.error([sets.over_a.id])
    assert error is not None
    assert error.code is Code.UNAVAILABLE
    assert beside.error([sets.over_b.id]) is None
    assert (beside.seconds_until_rested() or 0) > 0
    assert sets.db.loop.advance(rested=True) is None
    assert not sets.begun, "it rests first"
    sets.db.runner.failing.clear()
    sets.append(sets.b, 1)
    assert sets.db.loop.advance(rested=True) is not None
    assert sets.advance() is None, "a statement does not wait for that"
    sets.end_one()
    assert (beside.error(), sets.counts()) == (None, (WIDE, 1))


def test_a_crash_of_a_step_leaves_what_others_have_committed_and_no_file(sets: Sets) -> None:
    sets.append(sets.a, WIDE)
    sets.advance()
    sets.append(sets.b, 1)
    sets.advance()

    class Crash(BaseException):
        pass

    def crash(stage: str) -> None:
        if stage == "commit":
            raise Crash

    before = set(sets.db.directory.joinpath("runs").iterdir())
    sets.db.loop.fault = crash
    sets.end_one()
    error = sets.db.loop.beside.error()
    assert error is not None
    assert "Crash" in str(error)
    assert set(sets.db.directory.joinpath("runs").iterdir()) == before
    sets.db.loop.fault = lambda _stage: None
    sets.advance()
    sets.end_one()
    assert sets.counts() == (WIDE, 1)


def test_another_writer_ends_a_step_that_runs(sets: Sets, tmp_path: Path) -> None:
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    sets.advance()
    other = PureDatabase(tmp_path)
    sets.end_one()
    error = sets.db.loop.beside.error()
    assert error is not None
    assert error.code is Code.CONFLICT
    other.loop.advance()
    assert other.rows(sets.over_a.id) == {(1, WIDE): 1}
    assert other.rows(sets.over_b.id) == {(1, 1): 1}
    other.close()


def test_views_that_read_the_clock_are_one_set(sets: Sets) -> None:
    catalog, none = sets.db.loop.catalog, frozenset[Any]()
    apart = ConnectedSets.of(catalog, none)
    assert apart.by_relation[sets.a.id] == {sets.a.id, sets.over_a.id}
    joined = ConnectedSets.of(catalog, frozenset({sets.over_a.id, sets.over_b.id}))
    everything = {sets.a.id, sets.b.id, sets.over_a.id, sets.over_b.id}
    assert joined.by_relation[sets.a.id] == joined.by_relation[sets.over_b.id] == everything


def test_the_clock_stands_still_while_views_that_read_it_are_busy(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, ledger = sets.db.loop, sets.db.ledger
    monkeypatch.setattr(type(loop.timetable), "views", lambda _self: frozenset({sets.over_a.id}))
    sets.append(sets.b, 1)
    sets.advance()
    stands = ledger.head.clock
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    sets.advance()
    assert (ledger.head.clock, sets.counts()) == (stands, (0, 2))
    sets.end_one()
    moved = ledger.head.clock
    assert moved > stands
    sets.append(sets.b, WIDE)
    sets.advance()
    sets.append(sets.a, 1)
    sets.advance()
    later = ledger.head.clock
    assert later > moved
    sets.end_one()
    assert (ledger.head.clock, sets.counts()) == (later, (WIDE + 1, WIDE + 2))


def test_the_clock_of_an_epoch_passes_no_row_that_is_due_since_it_was_polled(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, ledger, over_a = sets.db.loop, sets.db.ledger, sets.over_a.id
    sets.append(sets.b, 1)
    sets.advance()
    began, asked = ledger.head.clock, list[int]()

    def ticking() -> int:
        """Return a clock that goes on whenever it is read."""
        asked.append(began + 10 * (1 + len(asked)))
        return asked[-1]

    loop.clock = ticking
    monkeypatch.setattr(type(loop.timetable), "views", lambda _self: frozenset({over_a}))
    for left in (0, WIDE):  # changes of another set, of which a wide step is made
        for at in range(began, began + 60, 5):
            monkeypatch.setattr(
                type(loop.timetable), "at", lambda _self, _state, at=at: {over_a: at}
            )
            asked.clear()
            sets.append(sets.b, 1 + left)
            poll, wide = loop.parting.parted()
            assert over_a in poll.due or poll.clock.after < at
            rest, _ = loop.parting.without_wide(poll, frozenset({sets.b.id}))
            assert over_a in rest.due or rest.clock.after < at
            assert all(each.clock.after == asked[0] for each in wide)


@dataclass
class Latch:
    """A runner's steps of one table wait until they are let go."""

    runner: Any
    table: Table
    reached: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self, step: Any, changed: Any, *given: Any) -> Any:
        if self.table.id in changed and not step.few:
            self.reached.set()
            assert self.goes_on.wait(60)
        return type(self.runner).run_live(self.runner, step, changed, *given)


def test_reads_of_one_set_wait_for_no_wide_step_of_another(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, latch = sets.db, Latch(sets.db.runner, sets.a)
    monkeypatch.setattr(db.runner, "run_live", latch)
    pump = Pump(db.loop, db.compaction)
    pump.start()
    try:
        sets.append(sets.a, WIDE)
        pump.wake()
        assert latch.reached.wait(60)
        seen = []
        for n in range(1, 4):
            sets.append(sets.b, 1)
            pump.wake()
            state = pump.settle({sets.b.id: db.ledger.head.log_end(sets.b.id)})
            assert sets.counts() == (0, n)
            seen.append(state.epoch)
        assert seen == sorted(set(seen))
        assert not latch.goes_on.is_set()
        of_a = threading.Thread(target=pump.settle)
        of_a.start()
        latch.goes_on.set()
        of_a.join()
        assert sets.counts() == (WIDE, 3)
    finally:
        latch.goes_on.set()
        pump.close()
    assert not db.ledger.violations()
    totals = Counter(sets.counts(Epoch(e)) for e in range(seen[0], sets.epoch + 1))
    assert set(totals) <= {(0, n) for n in range(1, 4)} | {(WIDE, 3)}


def test_what_waits_for_a_step_that_fails_is_given_the_error(sets: Sets) -> None:
    db = sets.db
    db.runner.failing.add(sets.over_a.id)
    db.runner.failure = Code.UNAVAILABLE
    pump = Pump(db.loop, db.compaction)
    pump.start()
    try:
        sets.append(sets.a, WIDE)
        with pytest.raises(HeadraceError, match='view "over_a" fails'):
            pump.settle()
        sets.append(sets.b, 1)
        pump.settle({sets.b.id: db.ledger.head.log_end(sets.b.id)})
        db.runner.failing.clear()
        pump.settle()
    finally:
        pump.close()
    assert sets.counts() == (WIDE, 1)


def test_a_statement_that_waits_for_a_wide_step_says_so_and_can_be_cancelled(sets: Sets) -> None:
    sets.append(sets.a, WIDE)
    sets.advance()
    waited: list[str] = []
    cancellation = Cancellation(waits=waited.append)
    pump = Pump(sets.db.loop, sets.db.compaction)
    for wait in (pump.settle, sets.db.loop.exclusive().__enter__):
        with cancellation.statement():
            cancellation.asked = True
            with pytest.raises(HeadraceError, match="the statement was cancelled"):
                wait()
    assert waited == ["waiting for a step of 5 changes"] * 2
    assert sets.db.loop.beside.holds == ()
    sets.end_one()
    assert sets.counts() == (WIDE, 0)


def test_what_a_view_waits_for_is_said(sets: Sets) -> None:
    c, beside = sets.db.create_table("c"), sets.db.loop.beside
    for table in (sets.a, sets.b, c):
        sets.append(table, WIDE)
    sets.advance()
    assert 'its step of 5 changes of table "a", for 0.' in (beside.waited_for(sets.over_a.id) or "")
    assert beside.waited_for(c.id) == "the end of a step of others, of 2 that run"
    sets.end_one()
    assert beside.waited_for(sets.over_a.id) is None


def test_a_thread_keeps_nothing_readable_that_its_last_step_has_read() -> None:
    threads, done = _Threads(1), threading.Event()

    class Read:
        pass

    read = Read()
    kept = ref(read)
    threads.run(partial(lambda _read: None, read))
    del read
    threads.run(done.set)
    assert done.wait(60)
    assert kept() is None
    threads.run(partial(lambda _read: None, last := Read()))
    kept = ref(last)
    del last
    while kept() is not None:
        done.wait(0.001)
    threads.close()


def test_closing_cancels_the_steps_that_run_and_loses_nothing(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, latch, tags = sets.db, Latch(sets.db.runner, sets.a), []

    def cancel(tag: str) -> None:
        tags.append(tag)
        latch.goes_on.set()

    def run_live(*given: Any) -> Any:
        latch(*given)
        check_cancelled()
        pytest.fail("the step was not cancelled")

    monkeypatch.setattr(db.runner, "run_live", run_live)
    db.loop.beside.cancel_jobs = cancel
    pump = Pump(db.loop, db.compaction)
    pump.start()
    sets.append(sets.a, WIDE)
    pump.wake()
    assert latch.reached.wait(60)
    (step,) = db.loop.beside.steps
    pump.close()
    assert set(tags) == {step.cancellation.tag}
    assert getattr(step.error, "code", None) is Code.CANCELLED
    assert sets.counts() == (0, 0)
    monkeypatch.undo()
    sets.advance()
    assert (sets.counts(), db.ledger.violations()) == ((WIDE, 0), {})
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace-")]


@dataclass
class Beside:
    """At a stage of what holds a set, an epoch of another set is made on another thread."""

    sets: Sets
    at: str
    epochs: list[Epoch | None] = field(default_factory=list)
    waits_for: list[str | None] = field(default_factory=list)

    def __call__(self, stage: str) -> None:
        if stage != self.at or self.epochs or self.sets.db.loop.beside.held() is None:
            return
        (before, _) = self.sets.counts()
        self.sets.append(self.sets.a, 1)  # its set is held: it waits
        self.sets.append(self.sets.b, 1)
        made = threading.Thread(target=lambda: self.epochs.append(self.sets.advance()))
        made.start()
        made.join(60)
        assert not made.is_alive(), "it waited for what holds another set"
        self.waits_for.append(self.sets.db.loop.beside.waited_for(self.sets.over_a.id))
        assert self.sets.counts() == (before, 4), "no epoch of the set that is held is made"


def _fills(sets: Sets) -> View:
    fill = sets.db.begin_view("filled", sets.a)
    sets.append(sets.a, 1)
    sets.advance()
    return sets.db.finish_view(fill)


def _takes_over(sets: Sets) -> View:
    fill = sets.db.begin_view("over_a", sets.a, sets.over_a)
    return sets.db.finish_view(fill, sets.over_a)


def _refreshes(sets: Sets) -> View:
    late = sets.db.create_view("late", sets.a, RefreshPolicy(RefreshKind.MANUAL))
    sets.append(sets.a, 1)
    sets.advance()
    sets.db.refresh(late)
    return late


def _replays(sets: Sets) -> View:
    sets.db.damage(sets.over_a, 1)
    assert sets.db.finish_replay(sets.db.begin_replay(sets.over_a, [1])).changed == 2
    return sets.over_a


def _corrects(sets: Sets) -> View:
    loop = sets.db.loop
    with loop.holding([sets.a.id], "a test"), sets.db.compaction.busy:
        TableRebuild(loop, sets.a, TABLE, lambda _done, _total: None).correct()
    return sets.over_a


def _fills_again(sets: Sets) -> View:
    db = sets.db
    late = db.create_view("late", sets.a, RefreshPolicy(RefreshKind.MANUAL))
    db.runner.filling[late.build] = late
    with db.loop.refreshing, db.loop.holding([late.id], "a test"):
        fill = Fill(db.loop, late, lambda _done, _total: None)
        fill_again(fill, RepairedView(late.id, STOPPED, sets.epoch))
    return late


@pytest.mark.parametrize(
    ("does", "at"),
    [
        (_fills, "catch up"),
        (_takes_over, "take over"),
        (_refreshes, "refresh follows"),
        (_replays, "replace"),
        (_replays, "replaced"),
        (_corrects, "correct"),
        (_fills_again, "fill"),
    ],
)
def test_the_last_part_of_what_changes_a_set_delays_no_epoch_of_another(
    sets: Sets, does: Callable[[Sets], View], at: str
) -> None:
    for table in (sets.a, sets.b):
        sets.append(table, 3)
    sets.advance()
    sets.db.loop.fault = beside = Beside(sets, at)
    view = does(sets)
    sets.db.loop.fault = lambda _stage: None
    (made,) = beside.epochs
    assert made is not None
    assert made < sets.epoch, "what held the other set was committed after it"
    assert beside.waits_for[0] is not None
    assert "s so far" in beside.waits_for[0]
    sets.advance()
    in_a = sets.db.loop.published.current.positions[sets.a.id]
    assert (sets.counts(), sets.db.loop.pending()) == ((in_a, 4), 0)
    if view.id in sets.db.loop.published.current.lagging:
        sets.db.refresh(view)
    assert sum(n for _, n in sets.db.rows(view.id).elements()) in (in_a, 0)
    assert not sets.db.ledger.violations()


def test_a_view_that_is_refreshed_apart_connects_nothing_between_its_refreshes(sets: Sets) -> None:
    db, both = sets.db, (sets.a.id, sets.b.id)
    late = db.create_view("late", sets.a, RefreshPolicy(RefreshKind.MANUAL))
    late = replace(late, depends_on=both)
    db.loop.published.publish(db.loop.catalog.with_(late), db.loop.published.current.layouts)
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    assert sets.advance() is not None
    assert (len(sets.begun), sets.counts()) == (1, (0, 1)), "a step of one input delays no other"
    everything = {*both, sets.over_a.id, sets.over_b.id, late.id}
    assert db.loop.parting.held_with([late.id]) == everything, "a refresh reads both"
    assert db.loop.parting.sets().within([sets.b.id]) == {sets.b.id, sets.over_b.id}
    sets.end_one()
    assert sets.counts() == (WIDE, 1)
    live = replace(late, refresh=CONTINUOUS)
    assert (
        ConnectedSets.of(db.loop.catalog.with_(live), frozenset()).within([both[0]]) == everything
    )
    assert not db.ledger.violations()


def test_a_view_that_a_step_of_another_input_delays_says_which_view_reads_both() -> None:
    columns = Schema((Column("k", LongType()),))
    a, b = (Stream(RelationId(id_), name, columns) for id_, name in ((1, "a"), (2, "b")))
    over_b = View(RelationId(3), "over_b", columns, "SELECT ...", (b.id,))
    joined = View(RelationId(4), "joined", columns, "SELECT ...", (a.id, b.id))
    catalog = Catalog.of([a, b, over_b, joined])
    read = {a.id: OffsetRange(Offset(0), Offset(7))}
    poll = Poll(Epoch(1), read, Clock(0, 0), frozenset())
    step = SetStep(frozenset(catalog.by_id), poll, SimpleNamespace(catalog=catalog), 1)  # type: ignore[arg-type]
    assert step.what(joined.id) == 'its step of 7 changes of stream "a"'
    assert step.what(over_b.id) == (
        'the step of 7 changes of stream "a", as view "joined" reads what both change'
    )


def test_steps_of_one_set_that_reach_no_view_together_run_beside_each_other(sets: Sets) -> None:
    """Two tables are joined with a third: a wide step of one delays what reaches its view alone."""
    db = sets.db
    shared, above = db.create_table("shared"), db.create_view("above_a", sets.over_a)
    joined = [
        replace(each, depends_on=(*each.depends_on, shared.id))
        for each in (sets.over_a, sets.over_b)
    ]
    db.loop.published.publish(
        db.loop.catalog.with_(joined[0]).with_(joined[1]), db.loop.published.current.layouts
    )
    found = db.loop.parting.sets()
    a, b, over_a, over_b = sets.a.id, sets.b.id, sets.over_a.id, sets.over_b.id
    assert found.by_relation[a] == {a, b, over_a, over_b, above.id, shared.id}
    assert found.touched([a]) == {a, over_a, above.id, shared.id}
    assert found.parted([a, b]) == [{a}, {b}]
    assert found.parted([a, b, shared.id]) == [{a, b, shared.id}]
    sets.append(sets.a, WIDE)
    sets.append(sets.b, 1)
    assert sets.advance() is not None
    assert (len(sets.begun), sets.counts()) == (1, (0, 1)), "beside it, from the same look"
    sets.append(sets.b, 1)
    assert sets.advance() is not None
    sets.append(shared, 1)
    sets.append(sets.b, 1)
    assert sets.advance() is not None, "what the shared table changes waits, the other does not"
    assert (sets.counts(), db.loop.parting.pending()) == ((0, 3), 0)
    assert (db.loop.beside.waited_for(shared.id) or "").startswith(
        'the step of 5 changes of table "a"'
    )
    assert db.loop.beside.waited_for(over_b) is None
    sets.append(sets.b, WIDE)
    sets.advance()
    assert len(sets.begun) == 2, "and wide ones beside each other"
    sets.end_one()
    sets.end_one()
    sets.advance()
    assert (sets.counts(), db.loop.pending()) == ((WIDE, WIDE + 3), 0)
    assert db.loop.beside.error() is None
    assert not db.ledger.violations()


def test_views_that_read_the_clock_are_stepped_as_a_whole(sets: Sets) -> None:
    everything = {sets.a.id, sets.b.id, sets.over_a.id, sets.over_b.id}
    found = ConnectedSets.of(sets.db.loop.catalog, frozenset({sets.over_a.id, sets.over_b.id}))
    assert found.touched([sets.a.id]) == everything
    assert found.parted([sets.a.id, sets.b.id]) == [{sets.a.id, sets.b.id}]


def test_sets_are_held_in_the_order_in_which_they_were_asked_for(sets: Sets) -> None:
    loop, order = sets.db.loop, list[str]()
    goes_on, threads = threading.Event(), list[threading.Thread]()

    def holds(name: str, *tables: Table) -> None:
        def run() -> None:
            with loop.holding([table.id for table in tables], name):
                order.append(name)

        asked = len(loop.beside.holds)
        threads.append(threading.Thread(target=run))
        threads[-1].start()
        while len(loop.beside.holds) == asked:
            goes_on.wait(0.001)

    with loop.holding([sets.a.id], "first"):
        holds("both", sets.a, sets.b)
        holds("second of b", sets.b)
        sets.append(sets.b, 1)
        assert order == []
        assert (loop.beside.waited_for(sets.b.id) or "").startswith("both, for ")
        with pytest.raises(HeadraceError, match="changes more views than it holds"):
            loop.holding([sets.b.id]).__enter__()
    for each in threads:
        each.join(60)
    assert order == ["both", "second of b"]
    assert (loop.beside.holds, loop.beside.busy) == ((), frozenset())
    sets.advance()
    assert sets.counts() == (0, 1)


def test_a_statement_that_waits_for_what_is_held_can_be_cancelled(sets: Sets) -> None:
    loop, cancellation, errors = sets.db.loop, Cancellation(), list[HeadraceError]()

    def waits() -> None:
        with cancellation.statement():
            try:
                loop.holding([sets.a.id], "late").__enter__()
            except HeadraceError as error:
                errors.append(error)

    with loop.holding([sets.a.id], "first"):
        waiting = threading.Thread(target=waits)
        waiting.start()
        while len(loop.beside.holds) < 2:
            waiting.join(0.001)
        cancellation.asked = True
        waiting.join(60)
        assert [each.code for each in errors] == [Code.CANCELLED]
    assert loop.beside.holds == ()


def test_another_writer_ends_all_steps_that_run(sets: Sets, tmp_path: Path) -> None:
    for table in (sets.a, sets.b):
        sets.append(table, WIDE)
    sets.advance()
    assert len(sets.begun) == 2
    other = PureDatabase(tmp_path)
    for error_of in (sets.over_a, sets.over_b):
        sets.end_one()
        error = sets.db.loop.beside.error([error_of.id])
        assert error is not None
        assert error.code is Code.CONFLICT
    assert (sets.db.loop.beside.steps, sets.db.loop.beside.busy) == ((), frozenset())
    while other.loop.advance() is not None:
        pass
    assert [other.rows(v.id) for v in (sets.over_a, sets.over_b)] == [{(1, WIDE): 1}] * 2
    other.close()
