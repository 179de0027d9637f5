"""Repairing dirty slices: in the background and when asked, failures, crashes and the end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import Code, HeadraceError
from headrace.lifecycle.history.repairing import Repairing
from headrace.lifecycle.states.reader import Reader
from headrace.storage.ledger import Dirty, DirtyState, EpochCommit, RepairPath, Slice
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.execution.runtime.fill import Progress
    from headrace.planning.catalog import View
    from headrace.types import DirtyId, Epoch

SECONDS = 30.0


@dataclass(frozen=True)
class Done:
    epoch: Epoch
    read: int = 3
    whole: int = 3
    changed: int = 1


@dataclass
class Recomputing:
    """Recomputes nothing, in an epoch of its own, as a replay commits."""

    db: PureDatabase
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    fails: dict[str, BaseException] = field(default_factory=dict)
    waits: bool = False
    begun: threading.Event = field(default_factory=threading.Event)

    def plan(self, view: View, slice_: Slice) -> Any:
        raise NotImplementedError

    def replay(
        self, view: View, slice_: Slice, progress: Progress, cleaned: tuple[DirtyId, ...] = ()
    ) -> Done:
        (state,) = {e.state for e in self.db.ledger.head.dirty if e.id == cleaned[0]}
        self.calls.append((view.name, slice_.where, state.value))
        self.begun.set()
        while self.waits:
            progress(0, 1)
        if slice_.where in self.fails:
            raise self.fails[slice_.where]
        commit = EpochCommit(self.db.ledger.head.epoch, "replay", cleaned=cleaned)
        epoch = self.db.ledger.commit(commit)
        self.db.loop.published.publish()
        return Done(epoch)


@pytest.fixture
def pure(tmp_path: Path) -> Iterator[PureDatabase]:
    opened = PureDatabase(tmp_path)
    opened.create_view("counts", opened.create_table())
    yield opened
    opened.close()


def repairing(db: PureDatabase, *, automatic: bool = False) -> Repairing:
    reader = Reader(db.directory, db.ledger, db.loop.published, None, None)  # type: ignore[arg-type]
    return Repairing(db.ledger, reader, Recomputing(db), automatic, lambda _tag: None)


def mark(db: PureDatabase, *conditions: str, **of: Any) -> list[DirtyId]:
    (view,) = db.loop.catalog.views_in_order()
    entries = (
        Dirty(view.id, "x", float(i), slice=Slice(where), repair=RepairPath.REPLAY, **of)
        for i, where in enumerate(conditions)
    )
    marked = db.ledger.dirty.mark(*entries)
    db.loop.published.publish()
    return [e.id for e in marked if e.id is not None]


def left(db: PureDatabase) -> list[tuple[str, str]]:
    return [(e.slice.where, e.state.value) for e in db.ledger.head.dirty]


def emptied(db: PureDatabase) -> bool:
    return db.loop.published.wait_for(lambda: not db.ledger.head.dirty, SECONDS)


def test_what_is_asked_for_is_repaired_in_order_and_the_rest_stays(pure: PureDatabase) -> None:
    made, ids = repairing(pure), mark(pure, "a", "b", "c")
    done = made.repair([ids[2], ids[0]], lambda _entry: lambda _done, _total: None)
    assert [each.entry.slice.where for each in done] == ["a", "c"]
    assert made.recomputing.calls == [
        ("counts", "a", "repairing"),
        ("counts", "c", "repairing"),
    ]
    assert left(pure) == [("b", "open")]


def test_what_fails_stays_dirty_with_the_error_and_the_others_are_repaired(
    pure: PureDatabase,
) -> None:
    made, ids = repairing(pure), mark(pure, "a", "b")
    failure = HeadraceError(Code.INVALID, "it divides by zero")
    made.recomputing.fails["a"] = failure
    done = made.repair(ids, lambda _entry: lambda _done, _total: None)
    assert [each.done is failure for each in done] == [True, False]
    assert left(pure) == [("a", "open")]
    (entry,) = pure.ledger.head.dirty
    assert entry.detail == "Its repair failed: error[invalid]: it divides by zero"


def test_quarantine_is_left_by_the_background_and_repaired_when_asked(pure: PureDatabase) -> None:
    made, ids = repairing(pure, automatic=True), mark(pure, "a", state=DirtyState.QUARANTINED)
    mark(pure, "b")
    made.start()
    assert pure.loop.published.wait_for(lambda: left(pure) == [("a", "quarantined")], SECONDS)
    failure = HeadraceError(Code.INVALID, "no")
    made.recomputing.fails["a"] = failure
    made.repair(ids, lambda _entry: lambda _done, _total: None)
    assert left(pure) == [("a", "quarantined")]
    del made.recomputing.fails["a"]
    made.repair(ids, lambda _entry: lambda _done, _total: None)
    made.close()
    assert left(pure) == []


def test_a_repair_that_a_crash_interrupted_is_made_when_the_database_opens(
    pure: PureDatabase,
) -> None:
    (id_,) = mark(pure, "a")
    pure.ledger.dirty.change(id_, state=DirtyState.REPAIRING)
    made = repairing(pure, automatic=True)
    made.start()
    assert emptied(pure)
    made.close()


def test_the_background_finds_what_is_marked_later_and_tries_again_what_fails(
    pure: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.lifecycle.history.repairing._NEVER", (0.0, 0.01))
    made = repairing(pure, automatic=True)
    made.recomputing.fails["a"] = HeadraceError(Code.UNAVAILABLE, "a disk is full")
    made.start()
    mark(pure, "a", "b")
    assert pure.loop.published.wait_for(lambda: left(pure) == [("a", "open")], SECONDS)
    made.recomputing.fails.clear()
    assert emptied(pure)
    assert [where for _, where, _ in made.recomputing.calls].count("a") >= 2
    made.close()


def test_left_to_statements_nothing_is_repaired_in_the_background(pure: PureDatabase) -> None:
    made = repairing(pure)
    made.start()
    mark(pure, "a")
    assert made.recomputing.calls == []
    made.close()
    assert left(pure) == [("a", "open")]


def test_closing_cancels_the_repair_at_hand_and_loses_nothing(pure: PureDatabase) -> None:
    made = repairing(pure, automatic=True)
    made.recomputing.waits = True
    mark(pure, "a")
    made.start()
    assert made.recomputing.begun.wait(SECONDS)
    made.close()
    assert left(pure) == [("a", "open")]
    assert pure.ledger.head.dirty[0].detail == "", "a repair that was cancelled has not failed"
