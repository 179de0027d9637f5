"""The shards of `make suites`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards import Shard, listing, pieces_of, recorded


@given(st.lists(st.floats(min_value=0.01, max_value=900), min_size=1), st.integers(1, 30))
def test_every_test_lies_in_one_shard_and_neighbours_stay_together(seconds, pieces):
    placed = pieces_of(seconds, pieces)
    assert placed == sorted(placed)
    assert set(placed) <= set(range(1, pieces + 1))
    for piece in set(placed):
        own = sum(each for each, its in zip(seconds, placed, strict=True) if its == piece)
        assert own <= sum(seconds) / pieces + max(seconds) + 1e-6


def test_shards_take_equal_time_and_not_equally_many_tests():
    assert pieces_of([1, 1, 1, 1], 2) == [1, 1, 2, 2]
    assert pieces_of([9, 1, 1, 1], 2) == [1, 2, 2, 2]


def test_a_listing_names_the_first_and_last_file_of_each_shard():
    files = [f"tests/test_{name}.py" for name in "aabbccdd"]
    assert listing(files, [150.0] * 8, 2) == [
        "1/2   5.0 min  tests/test_a.py to tests/test_b.py",
        "2/2   5.0 min  tests/test_c.py to tests/test_d.py",
    ]


@pytest.mark.parametrize("text", ["0/12", "13/12", "3", "a/b", "3/0", "-1/2"])
def test_what_is_no_shard_is_a_usage_error(text):
    with pytest.raises(pytest.UsageError, match="3/12"):
        Shard.parse(text)


def test_the_recorded_seconds_are_of_long_tests_by_function():
    assert all(seconds >= 1 and "[" not in name for name, seconds in recorded().items())
