"""The shards of `make suites`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards import QUICK, Shard, function_of, listing, pieces_of, recorded

TESTS = [f"tests/test_{file}.py::test_it[{number}]" for file in "abcd" for number in range(5)]


@given(
    st.lists(st.floats(min_value=0.1, max_value=900), min_size=4, max_size=4),
    st.integers(1, 30),
)
def test_every_test_lies_in_one_shard_and_neighbours_stay_together(seconds, pieces):
    by_function = dict(zip(dict.fromkeys(map(function_of, TESTS)), seconds, strict=True))
    placed = pieces_of(TESTS, by_function, pieces)
    assert placed == sorted(placed)
    assert set(placed) <= set(range(1, pieces + 1))
    longest = max(seconds)
    for piece in set(placed):
        own = sum(
            by_function[function_of(test)]
            for test, its in zip(TESTS, placed, strict=True)
            if its == piece
        )
        assert own <= 5 * sum(seconds) / pieces + longest + 1e-6


def test_tests_without_a_record_count_as_quick():
    assert pieces_of(["a::t", "b::t", "c::t", "d::t"], {}, 2) == [1, 1, 2, 2]
    assert pieces_of(["a::t", "b::t", "c::t"], {"a::t": 100 * QUICK}, 2) == [1, 2, 2]


def test_a_listing_names_the_first_and_last_file_of_each_shard():
    lines = listing(TESTS, dict.fromkeys(map(function_of, TESTS), 60.0), 2)
    assert lines == [
        "1/2   5.0 min  tests/test_a.py to tests/test_b.py",
        "2/2   5.0 min  tests/test_c.py to tests/test_d.py",
    ]


@pytest.mark.parametrize("text", ["0/12", "13/12", "3", "a/b", "3/0", "-1/2"])
def test_what_is_no_shard_is_a_usage_error(text):
    with pytest.raises(pytest.UsageError, match="3/12"):
        Shard.parse(text)


def test_the_recorded_seconds_are_of_long_tests_by_function():
    assert all(seconds >= 1 and "[" not in name for name, seconds in recorded().items())
