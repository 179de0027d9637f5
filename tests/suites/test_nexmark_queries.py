"""Nexmark: its queries q0 to q22 as views, while events arrive out of order."""

from __future__ import annotations

import pytest

from length import choose
from suites.nexmark.events import Events
from suites.suite import ROWS_PER_CHANGE, Run, Suite

pytestmark = pytest.mark.spark

NEXMARK = Suite("nexmark")
GROUPS = {
    "stateless": ("q00", "q01", "q02", "q10", "q14", "q21", "q22"),
    "joins": ("q03", "q08", "q13", "q20"),
    "highest": ("q04", "q05", "q06", "q07", "q09", "q18", "q19"),
    "counts": ("q11", "q12", "q15", "q16", "q17"),
}


SHORT = {"some of each": ("q02", "q12", "q08", "q20", "q04")}


@pytest.mark.parametrize("names", choose(SHORT, GROUPS).values(), ids=choose(SHORT, GROUPS))
def test_a_query_follows_its_streams(oracle, names):
    run = Run(NEXMARK, oracle(rows_per_change=ROWS_PER_CHANGE))
    events = Events(run.oracle, 7)
    run.view(names)
    events.change_side_input(50)
    for size in choose((1, 300), (1, 1000, 10)):
        events.arrive(size)
        events.change_side_input(1)
        run.epoch()
    run.hold()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", GROUPS.values(), ids=GROUPS)
def test_a_query_follows_long_streams(oracle, names):
    run = Run(NEXMARK, oracle(rows_per_change=ROWS_PER_CHANGE))
    events = Events(run.oracle, 8)
    events.change_side_input(100)
    events.arrive(2000)
    run.view(names)
    for size in (1, 10, 100, 1000, 5000, 1, 10, 1, 100, 1000):
        events.arrive(size)
        events.change_side_input(size % 7)
        run.epoch()
    run.hold()
    run.oracle.finish()


def test_every_query_is_in_a_group():
    assert sorted(name for names in GROUPS.values() for name in names) == list(NEXMARK.queries)
    assert len(NEXMARK.queries) == 23
    assert set(NEXMARK.not_kept) <= set(NEXMARK.queries)
