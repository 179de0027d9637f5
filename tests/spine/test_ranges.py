"""Partitions of the hash space: each hash has one owner, and the slices are even."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import HIGHEST, LOWEST, partition_of, ranges
from reference import numbers

hashes = st.one_of(st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, -1, 0, 1, HIGHEST]))


@given(hash_=hashes, partitions=st.integers(1, 5000))
def test_a_hash_lies_in_the_range_of_its_partition(hash_: int, partitions: int) -> None:
    partition = int(partition_of(numbers(hash_), partitions)[0])
    low, high = ranges(partitions)[partition]
    assert low <= hash_ <= high


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 8, 200, 4097])
def test_ranges_are_contiguous_even_and_cover_all_hashes(partitions: int) -> None:
    slices = ranges(partitions)
    assert len(slices) == partitions
    assert (slices[0][0], slices[-1][1]) == (LOWEST, HIGHEST)
    assert all(low == high + 1 for (_, high), (low, _) in itertools.pairwise(slices))
    sizes = [high - low + 1 for low, high in slices]
    assert max(sizes) - min(sizes) <= 2**32


@pytest.mark.parametrize("partitions", [1, 3, 8, 4097])
def test_the_ends_of_a_range_belong_to_it(partitions: int) -> None:
    for partition, ends in enumerate(ranges(partitions)):
        assert partition_of(numbers(*ends), partitions).tolist() == [partition, partition]


def test_the_formula_is_that_of_the_exchange() -> None:
    for hash_ in (LOWEST, -(2**40) + 5, -1, 0, 2**33, HIGHEST):
        expected = ((hash_ >> 32) + 2147483648) * 12 >> 32
        assert partition_of(numbers(hash_), 12).tolist() == [expected]
