"""The switch interval of this process, which is Python's own setting."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from headrace.execution.runtime.beside import SetSteps
from headrace.execution.runtime.pump import Pump, QuickSwitching
from headrace.storage.ledger.log_merges import Landed


@pytest.fixture(autouse=True)
def _kept_interval():
    kept = sys.getswitchinterval()
    yield
    sys.setswitchinterval(kept)


def test_threads_take_turns_quickly_until_the_last_one_who_asked_has_ended() -> None:
    switching = QuickSwitching()
    sys.setswitchinterval(0.005)
    switching.begin()
    switching.begin()
    switching.end()
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    switching.end()
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_an_interval_that_is_shorter_already_stays() -> None:
    switching = QuickSwitching()
    sys.setswitchinterval(0.0001)
    switching.begin()
    assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.02)
    switching.end()
    assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.02)


class Idle:
    """A loop without anything to read or to refresh, ever."""

    def __init__(self) -> None:
        self.closing, self.news = threading.Event(), threading.Event()
        self.published = self.retirement = self
        self.streams, self.beside = (), SetSteps(0)
        self.waits: list[float | None] = []
        log = SimpleNamespace(landed=Landed())
        self.ledger = SimpleNamespace(head=SimpleNamespace(positions={}, epoch=0), log=log)

    def advance(self, **_: bool) -> None:
        return None

    def run(self) -> bool:
        return False

    def seconds_until_due(self) -> None:
        return None

    def due_times(self) -> tuple[()]:
        return ()

    def wake(self) -> None:
        self.news.set()

    def wait_for(self, _met: object, seconds: float | None = None) -> None:
        self.waits.append(seconds)
        self.news.wait()


def test_a_pump_that_makes_epochs_has_threads_take_turns_quickly(monkeypatch) -> None:
    sys.setswitchinterval(0.005)
    loop = Idle()
    monkeypatch.setattr("headrace.execution.runtime.pump.Refreshes", lambda _loop: loop)
    logs = SimpleNamespace(begin=loop.run)
    pump = Pump(loop, SimpleNamespace(run=loop.run, retirement=loop, logs=logs))
    pump.start()
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    pump.close()
    pump.close()
    assert pump.error is None
    assert sys.getswitchinterval() == pytest.approx(0.005)


class Waiting(threading.Event):
    """An event that keeps for how long it is waited for."""

    def __init__(self, waits: list[float | None]) -> None:
        super().__init__()
        self.waits, self.asked = waits, threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        self.asked.set()
        return super().wait(timeout)


def test_no_thread_of_an_idle_pump_wakes_by_itself(monkeypatch) -> None:
    loop = Idle()
    monkeypatch.setattr("headrace.execution.runtime.pump.Refreshes", lambda _loop: loop)
    pump = Pump(
        loop, SimpleNamespace(run=loop.run, retirement=loop, logs=SimpleNamespace(begin=loop.run))
    )
    pump._arrived, pump._due = Waiting(loop.waits), Waiting(loop.waits)
    pump.start()
    assert pump._due.asked.wait(30)
    assert pump._arrived.asked.wait(30)
    pump.close()
    assert loop.waits
    assert set(loop.waits) == {None}
