"""The time of an epoch is divided among what it does, without gaps and without overlap."""

from __future__ import annotations

import time

import pytest

from headrace.execution.runtime.spent import Activity, Spending, Spent, measured


def test_an_activity_within_another_counts_for_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def work(seconds: float) -> None:
        now[0] += seconds

    def fail(seconds: float) -> None:
        work(seconds)
        raise ValueError("it fails")

    spent = Spent(_since=now[0])
    with measured(spent):
        work(1)
        with Spending(Activity.OPERATORS):
            work(2)
            with Spending(Activity.WRITING):
                work(4)
            with pytest.raises(ValueError, match="fails"), Spending(Activity.JOBS):
                fail(8)
            work(16)
        with Spending(Activity.OPERATORS):
            work(32)
        work(64)
    with Spending(Activity.PLANNING):  # of no epoch
        work(128)
    found = spent.milliseconds(set(Activity) - {Activity.OTHER})
    assert found == {"operators_ms": 50_000, "writing_ms": 4000, "jobs_ms": 8000}
    assert spent.milliseconds()["other_ms"] == 1000 * (1 + 64 + 128)


def test_the_epoch_of_a_thread_is_its_own_again_after_one_within_it() -> None:
    outer, inner = Spent(), Spent()
    with measured(outer):
        with measured(inner), Spending(Activity.JOBS):
            pass
        with Spending(Activity.COMMIT):
            pass
    assert inner.milliseconds().keys() == {"jobs_ms", "other_ms"}
    assert outer.milliseconds().keys() == {"commit_ms", "other_ms"}
