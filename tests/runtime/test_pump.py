"""What statements wait for. No JVM."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.errors import HeadraceError
from headrace.execution.runtime.beside import SetSteps
from headrace.execution.runtime.cancelling import StatementLock
from headrace.execution.runtime.pump import Pump
from headrace.execution.runtime.settings import RuntimeSettings

SETTINGS = RuntimeSettings(small_rows=10, gather_ms=100)


def paused(waiting: int, computed: float, settings: RuntimeSettings = SETTINGS) -> float | None:
    """Return for how long changes gather after an epoch; None if the next one follows at once."""
    parting = SimpleNamespace(pending=lambda: waiting)
    loop = SimpleNamespace(settings=settings, parting=parting)
    pump, found = Pump(loop, None), []
    pump._closed = SimpleNamespace(wait=found.append)
    pump._gather(computed)
    return found[0] if found else None


def test_after_a_small_epoch_changes_gather_nine_times_as_long_as_it_computed():
    assert paused(0, 0.002) == pytest.approx(0.018)


def test_changes_gather_no_longer_than_the_setting_says():
    settings = RuntimeSettings(small_rows=10, gather_ms=40)
    assert paused(0, 1.0, settings) == pytest.approx(0.04)


def test_a_backlog_does_not_gather():
    assert paused(10, 1.0) is None


class Stale:
    """A loop without anything to read, whose published state says otherwise until it is renewed."""

    def __init__(self, *, renewed: bool) -> None:
        self.renewed, self.has_read = renewed, False
        self.lock, self.ledger = StatementLock(), SimpleNamespace(head=SimpleNamespace(ends={}))
        self.published = self
        self.beside, self.parting = SetSteps(0), SimpleNamespace(waits=lambda *_: False)

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
