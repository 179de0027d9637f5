"""How long the pump lets changes gather. No JVM, and no second that has to pass."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from headrace.errors import HeadraceError
from headrace.runtime.cancelling import StatementLock
from headrace.runtime.pump import Pump
from headrace.runtime.settings import RuntimeSettings

HOUR = 3600.0


@dataclass
class Loop:
    """A loop whose last epoch read so many changes, in so many seconds."""

    changes: int
    seconds: float
    waiting: list[int]
    settings: RuntimeSettings = field(
        default_factory=lambda: RuntimeSettings(small_rows=10, epoch_rows=1000)
    )
    closing: threading.Event = field(default_factory=threading.Event)

    def next_is_narrow(self) -> bool:
        return self.waiting[0] <= 80

    @property
    def ledger(self):
        counters = {"seconds": self.seconds}
        newest = SimpleNamespace(newest=lambda _count: [SimpleNamespace(counters=counters)])
        return SimpleNamespace(epochs=newest)

    def pending(self) -> int:
        return self.waiting.pop(0) if len(self.waiting) > 1 else self.waiting[0]


def gathered(loop: Loop, *, arriving: bool = False) -> None:
    """Let changes gather to the end; with ``arriving``, more and more come meanwhile."""
    pump = Pump(loop, None)
    gathering = threading.Thread(target=pump._gather, args=(loop.changes, 0.0), daemon=True)
    gathering.start()
    while arriving and gathering.is_alive():
        pump.wake()
        gathering.join(0.01)
    gathering.join()


def paused(loop: Loop, computed: float) -> float | None:
    """Return for how long changes gather after an epoch; None if the next one follows at once."""
    pump, found = Pump(loop, None), []
    pump._closed = SimpleNamespace(wait=found.append)
    pump._gather(loop.changes, computed)
    return found[0] if found else None


def test_after_a_small_epoch_changes_gather_nine_times_as_long_as_it_computed():
    assert paused(Loop(10, HOUR, [0]), 0.002) == pytest.approx(0.018)


def test_changes_gather_no_longer_than_the_setting_says():
    settings = RuntimeSettings(small_rows=10, gather_ms=40)
    assert paused(Loop(10, HOUR, [0], settings), 1.0) == pytest.approx(0.04)


def test_a_backlog_does_not_gather():
    assert paused(Loop(10, HOUR, [10]), 1.0) is None


def test_after_a_large_epoch_a_full_one_is_waited_for():
    loop = Loop(500, HOUR, [81, 400, 999, 1000])
    gathered(loop, arriving=True)
    assert loop.waiting == [1000]


def test_a_load_that_ends_is_waited_for_no_longer_than_the_last_epoch_took():
    gathered(Loop(500, 0.01, [300]))


@pytest.mark.parametrize("waiting", [0, 80])
def test_what_narrow_epochs_can_read_is_not_waited_for(waiting):
    gathered(Loop(500, HOUR, [waiting]))


@pytest.mark.parametrize("waiting", [81, 999])
def test_closing_ends_the_wait(waiting):
    pump = Pump(Loop(500, HOUR, [waiting]), None)
    gathering = threading.Thread(target=pump._gather, args=(500, 0.0), daemon=True)
    gathering.start()
    pump.close()
    while gathering.is_alive():
        pump.wake()
        gathering.join(0.01)


class Stale:
    """A loop without anything to read, whose published state says otherwise until it is renewed."""

    def __init__(self, *, renewed: bool) -> None:
        self.renewed, self.has_read = renewed, False
        self.lock, self.ledger = StatementLock(), SimpleNamespace(head=SimpleNamespace(ends={}))
        self.published = self

    @property
    def current(self) -> SimpleNamespace:
        return SimpleNamespace(has_read=lambda _ends: self.has_read)

    def publish(self) -> None:
        self.has_read = self.renewed

    def now(self) -> int:
        return 0

    def due(self, _now: int, _among: object = None) -> frozenset[int]:
        return frozenset()

    def advance(self) -> None:
        return None


def test_a_statement_waits_for_no_epoch_that_will_not_come() -> None:
    assert Pump(Stale(renewed=True), None).settle({}).has_read({})
    with pytest.raises(HeadraceError, match="no epoch reads"):
        Pump(Stale(renewed=False), None).settle({})
