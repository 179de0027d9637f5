"""Runs: search and access by position, over several batches."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import Run
from headrace.algebra.spine.run import matches_of_runs, take_of
from headrace.algebra.zset import HASH, WEIGHT, Layout
from reference import numbers

LAYOUT = Layout(("k",), pa.schema([("k", pa.string())]), pa.schema([(WEIGHT, pa.int64())]))
SMALL = st.integers(-4, 4)


def run_of(hashes: list[int], cuts: list[int]) -> Run:
    """A run whose rows are called by their position, cut into batches, empty ones included."""
    table = pa.table(
        {HASH: hashes, "k": [str(i) for i in range(len(hashes))], WEIGHT: [1] * len(hashes)},
        schema=LAYOUT.schema,
    )
    bounds = [0, *sorted(min(cut, len(hashes)) for cut in cuts), len(hashes)]
    batches = [
        table.slice(start, stop - start).combine_chunks().to_batches()
        for start, stop in itertools.pairwise(bounds)
    ]
    return Run.of_batches(LAYOUT, [batch for part in batches for batch in part])


runs = st.builds(
    run_of, st.lists(SMALL, max_size=15).map(sorted), st.lists(st.integers(0, 15), max_size=4)
)


@given(run=runs, probes=st.lists(st.integers(-6, 6), max_size=10))
def test_all_pairs_of_equal_hashes_are_found_and_no_other(run: Run, probes: list[int]) -> None:
    own = [hash_ for part in run.hashes for hash_ in part.tolist()]
    probe, row = run.matches(numbers(*probes))
    found = list(zip(probe.tolist(), row.tolist(), strict=True))
    expected = [(i, j) for i, a in enumerate(probes) for j, b in enumerate(own) if a == b]
    assert sorted(found) == expected
    hashes = [own[j] for j in row.tolist()]
    assert hashes == sorted(hashes)


@given(several=st.lists(runs, max_size=5), probes=st.lists(st.integers(-6, 6), max_size=30))
def test_pairs_of_several_runs_say_which_run_each_is_of(
    several: list[Run], probes: list[int]
) -> None:
    hashes = numbers(*sorted(probes))
    probe, number, rows = matches_of_runs(LAYOUT, several, hashes)
    places = [int(name) for name in rows["k"].to_pylist()]
    found = sorted(zip(number.tolist(), places, probe.tolist(), strict=True))
    assert found == sorted(
        (i, j, at)
        for i, run in enumerate(several)
        for j, hash_ in enumerate(itertools.chain(*(part.tolist() for part in run.hashes)))
        for at, asked in enumerate(hashes.tolist())
        if asked == hash_
    )
    assert number.tolist() == sorted(number.tolist())


@given(run=runs, data=st.data())
def test_rows_are_taken_by_position_in_any_order_and_more_than_once(
    run: Run, data: st.DataObject
) -> None:
    positions = st.integers(0, max(0, run.rows - 1))
    rows = data.draw(st.lists(positions, max_size=12)) if run.rows else []
    assert run.take(numbers(*rows))["k"].to_pylist() == [str(row) for row in rows]


@given(several=st.lists(runs, max_size=4), data=st.data(), small=st.sampled_from([0, 5, 4096]))
def test_rows_of_several_runs_are_taken_one_run_after_the_other(
    several: list[Run], data: st.DataObject, small: int
) -> None:
    taken = [
        numbers(*data.draw(st.lists(st.integers(0, run.rows - 1), max_size=6)) if run.rows else ())
        for run in several
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.algebra.spine.run._COPIED", small)
        patch.setattr("headrace.algebra.spine.run._MANY", 0)
        found = take_of(LAYOUT, several, taken)
    expected = [run.take(rows).to_pylist() for run, rows in zip(several, taken, strict=True)]
    assert found.to_pylist() == [row for rows in expected for row in rows]
    assert found.schema.equals(LAYOUT.schema)
    assert found["k"].num_chunks == 1


@given(run=runs, low=st.integers(-6, 6), high=st.integers(-6, 6))
def test_a_range_has_the_rows_between_both_ends(run: Run, low: int, high: int) -> None:
    own = [hash_ for part in run.hashes for hash_ in part.tolist()]
    assert run.between(low, high).hashes.tolist() == [h for h in own if low <= h <= high]


@given(run=runs)
def test_the_hash_at_a_position_is_that_of_its_row(run: Run) -> None:
    own = [hash_ for part in run.hashes for hash_ in part.tolist()]
    assert [run.hash_at(row) for row in range(run.rows)] == own


@pytest.mark.parametrize("hash_", [-(2**63), 2**63 - 1])
def test_extreme_hashes_are_found(hash_: int) -> None:
    run = run_of([-(2**63), 2**63 - 1], [1])
    probe, row = run.matches(numbers(hash_))
    assert (probe.tolist(), row.tolist()) == ([0], [0 if hash_ < 0 else 1])


def test_a_run_without_rows_has_no_matches() -> None:
    probe, row = run_of([], []).matches(numbers(1, 2))
    assert len(probe) == len(row) == 0
    assert probe.dtype == row.dtype == np.int64
