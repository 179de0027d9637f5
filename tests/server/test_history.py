"""The history of a day: spans that sum up samples, are stored seldom, and go on after a restart."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.history import (
    RUNGS,
    StatusHistory,
    StatusSample,
    of_relation,
    rung,
    totals,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.storage.ledger import StatusSpan

START = 1_800_000_000.0  # begins spans of each length
IDLE = StatusSample(START, 7, START, 0, 0, None, 0.0, 0, 0.0, 1, 2, {"v": (0, 0.0)}, {"s": 9}, {"s": 0.0})  # fmt: skip


@dataclass
class Kept:
    """Spans in memory, as the ledger keeps them."""

    spans: dict[tuple[int, int], StatusSpan] = field(default_factory=dict)
    puts: int = 0
    fails: bool = False

    def since(self, seconds: int, at: float) -> list[StatusSpan]:
        found = (s for s in self.spans.values() if s.seconds == seconds and s.at > at - seconds)
        return sorted(found, key=lambda each: each.at)

    def put(self, spans: Sequence[StatusSpan], oldest: Mapping[int, float]) -> None:
        if self.fails:
            raise HeadraceError(Code.UNAVAILABLE, "the ledger does not answer")
        self.puts += 1
        self.spans |= {(each.seconds, each.at): each for each in spans}
        old = [k for k in self.spans if k[1] < oldest[k[0]] - k[0]]
        for key in old:
            del self.spans[key]


def busy(at: float, rows: float = 10.0, pending: int = 3) -> StatusSample:
    return replace(
        IDLE, at=at, epochs=2, narrow=2, epoch_seconds=0.5, rows=rows, pending=pending, seconds=1.5,
        views={"v": (pending, 1.5)}, rates={"s": rows},
    )  # fmt: skip


def lived(history: StatusHistory, begin: float, seconds: int, sample: StatusSample) -> None:
    for second in range(seconds):
        history.add(replace(sample, at=begin + second))


def test_spans_have_sums_and_extremes_of_their_samples() -> None:
    history = StatusHistory(Kept())
    lived(history, START, 60, busy(START))
    history.add(busy(START + 60, pending=8))
    spans = history.since(60, START)
    assert [span.at for span in spans] == [START, START + 60]
    found = totals(spans, ("at", "epochs", "epoch_seconds", "rows", "pending", "statements"))
    assert found["epochs"] == [120, 2]
    assert found["epoch_seconds"] == [0.5, 0.5]
    assert found["rows"] == [pytest.approx(10), pytest.approx(10)]
    assert (found["pending"], found["statements"]) == ([3, 8], [1, 1])
    own = of_relation(spans, "v")
    assert (own["pending"], own["seconds"]) == ([3, 8], [1.5, 1.5])
    assert of_relation(spans, "s")["rows"] == found["rows"]
    assert of_relation(spans, "unknown")["rows"] == [0, 0]


def test_what_happens_is_stored_every_ten_seconds_and_idleness_every_minute() -> None:
    kept = Kept()
    history = StatusHistory(kept)
    lived(history, START, 61, busy(START))
    assert kept.puts == 6
    lived(history, START + 61, 600, IDLE)
    assert 6 < kept.puts <= 6 + 12
    assert {seconds for seconds, _ in kept.spans} == set(RUNGS)


def test_the_history_of_a_restart_is_one_and_its_rows_are_bounded() -> None:
    kept = Kept()
    first = StatusHistory(kept)
    lived(first, START, 300, busy(START))
    first.close()
    second = StatusHistory(kept)
    lived(second, START + 303, 30, busy(START))
    (span,) = second.since(600, START)
    assert span.figures["epochs"] == 2 * 330
    for day in range(4):  # nothing but what is not too old is kept
        for minute in range(0, 1440, 10):
            second.add(busy(START + 600 + day * 86400 + minute * 60))
    assert len(kept.spans) <= sum(kept_for // seconds + 2 for seconds, kept_for in RUNGS.items())
    assert len(second.since(600, START + 3 * 86400)) >= 143


def test_a_ledger_that_does_not_answer_loses_no_span() -> None:
    kept = Kept(fails=True)
    history = StatusHistory(kept)
    lived(history, START, 120, busy(START))
    assert len(history.since(60, START)) == 2
    kept.fails = False
    history.close()
    assert len(Kept.since(kept, 5, START)) == 24


def test_a_day_is_drawn_from_spans_of_ten_minutes() -> None:
    assert [rung(seconds) for seconds in (60, 900, 3600, 4 * 3600, 86400, 10**9)] == [5, 5, 60, 60, 600, 600]  # fmt: skip
