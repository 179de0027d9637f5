"""The pace of work: its rate, and the time that the rest takes."""

from __future__ import annotations

import pytest

from headrace.execution.runtime.spent import Pace
from headrace.interfaces.statements.refreshing import Paced
from headrace.interfaces.statements.results import Progress


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def reported(pace: Pace, clock: Clock, *steps: tuple[float, int]) -> Pace:
    """Report how much is done after some seconds each."""
    for seconds, done in steps:
        clock.now += seconds
        pace.report(done)
    return pace


def test_a_rate_is_what_was_done_since_the_first_report(clock: Clock) -> None:
    pace = reported(Pace(clock), clock, (9.0, 1_000), (2.0, 1_400), (2.0, 2_200))
    assert pace.rate == 300.0
    assert pace.seconds_left(5_200) == 10.0


def test_before_a_moment_of_work_nothing_is_known(clock: Clock) -> None:
    pace = reported(Pace(clock), clock, (0.0, 0), (0.5, 50))
    assert (pace.rate, pace.seconds_left(100)) == (None, None)
    assert reported(pace, clock, (0.5, 80)).rate == 80.0
    assert pace.seconds_left(None) is None


def test_the_time_left_passes_between_reports_and_ends_at_nothing(clock: Clock) -> None:
    pace = reported(Pace(clock), clock, (0.0, 0), (10.0, 100))
    assert pace.seconds_left(200) == 10.0
    clock.now += 4.0
    assert pace.seconds_left(200) == 6.0
    clock.now += 40.0
    assert pace.seconds_left(200) == 0.0


def test_waiting_changes_neither_the_rate_nor_the_time_left(clock: Clock) -> None:
    pace = reported(Pace(clock), clock, (0.0, 0), (10.0, 100))
    pace.wait()
    clock.now += 3_600.0
    pace.wait()
    assert (pace.rate, pace.seconds_left(200)) == (10.0, 10.0)
    reported(pace, clock, (0.0, 100), (10.0, 300))
    assert (pace.rate, pace.seconds_left(450)) == (15.0, 10.0)


def test_work_that_begins_again_has_a_new_rate(clock: Clock) -> None:
    pace = reported(Pace(clock), clock, (0.0, 0), (10.0, 100), (10.0, 0))
    assert pace.rate is None
    assert reported(pace, clock, (1.0, 500)).rate == 500.0


def test_each_work_of_a_statement_has_its_own_pace(clock: Clock) -> None:
    seen: list[Progress] = []
    paced = Paced(seen.append, clock)

    def report(what: str, done: int, seconds: float, unit: str = "rows") -> Progress:
        clock.now += seconds
        paced(Progress(what, done, 3_000 if unit else None, unit))
        return seen[-1]

    assert report("filling a", 0, 0.0).rate is None
    assert report("filling a", 1_000, 10.0).rate == 100.0
    assert report("filling a", 3_000, 10.0).seconds_left == 0.0
    assert report("filling b", 0, 0.0).rate is None
    assert report("waiting", 0, 1.0, "") == Progress("waiting", 0, None, "")
    found = report("filling b", 0, 600.0)
    found = report("filling b", 1_000, 4.0)
    assert (found.rate, found.seconds_left) == (200.0, 10.0)
