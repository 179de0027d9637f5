"""Watermarks against a plain loop over rows, and cases by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.log.seen import NEVER, Watermark

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.none() | st.integers(-50, 50)), max_size=30
)


def plain(newest, heard, rows, delay, allowed, idle, clock):
    """Judge rows one after another."""
    newest = dict(newest)
    active = {p for p, at in heard.items() if clock - at < idle} | {p for p, _ in rows}
    found = []
    for partition, time in rows:
        known = [newest[p] for p in active if p in newest]
        mark = min(known) - delay if known else None
        found.append(time is not None and mark is not None and time < mark - allowed)
        if time is not None:
            newest[partition] = max(time, newest.get(partition, time))
    return found


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(-50, 50)),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100)),
    ROWS,
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_rows_are_judged_as_one_after_another(newest, heard, rows, delay, allowed):
    mark = Watermark(delay, 40, dict(newest), dict(heard))
    times = np.array([NEVER if time is None else time for _, time in rows], np.int64)
    late = mark.late(times, [p for p, _ in rows], allowed, 100)
    assert late.tolist() == plain(newest, heard, rows, delay, allowed, 40, 100)


def test_the_slowest_partition_with_news_holds_the_watermark():
    mark = Watermark(delay=5, idle=60)
    assert mark.now(0) is None
    assert mark.advance(np.array([100, 90, 40]), ["a", "a", "b"], 0) == {"a": 100, "b": 40}
    assert mark.now(0) == 35
    assert mark.advance(np.array([300]), ["a"], 50) == {"a": 300}
    assert mark.now(59) == 35
    assert mark.now(60) == 295  # b is idle
    assert mark.now(1000) == 295  # both are
    assert mark.advance(np.array([41]), ["b"], 1000) == {"b": 41}
    assert mark.now(1000) == 36


def test_batches_do_not_matter():
    rows = [("a", 10), ("a", 3), ("b", 20), ("a", 30), ("b", 4), ("a", 5), ("b", 25)]
    whole, split = Watermark(2, 100), Watermark(2, 100)
    for mark in (whole, split):
        mark.advance(np.array([1, 1]), ["a", "b"], 0)
    times, of = np.array([t for _, t in rows]), [p for p, _ in rows]
    expected = whole.late(times, of, 1, 1).tolist()
    found = []
    for time, partition in zip(times, of, strict=True):
        one = np.array([time])
        found += split.late(one, [partition], 1, 1).tolist()
        split.advance(one, [partition], 1)
    assert found == expected
    assert any(expected)
