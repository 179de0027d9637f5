"""Spines: contents, lookups and scans, against a dict, through files of several batches."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import (
    HIGHEST,
    LOWEST,
    Run,
    Spine,
    merge,
    pack,
    ranges,
    write_parts,
    write_run,
)
from headrace.algebra.zset import WEIGHT, Layout, Restriction, Test, ZSet
from length import choose
from reference import Bag, bag, hash_of, is_consolidated, numbers, plus, table_of
from text_tables import assert_rows, zset

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

COLUMNS = pa.schema([("v", pa.string()), ("k", pa.int64()), ("j", pa.string())])
LAYOUT = Layout(("k", "j"), COLUMNS, pa.schema([(WEIGHT, pa.int64()), ("n", pa.int64())]))
NAMES = ["v", "k", "j"]
USERS = Layout(
    ("user",),
    pa.schema([("user", pa.string()), ("city", pa.string())]),
    pa.schema([(WEIGHT, pa.int64())]),
)

row = st.fixed_dictionaries(
    {
        "v": st.sampled_from([None, "x"]),
        "k": st.sampled_from([None, 1, 2, 3]),
        "j": st.sampled_from(["", "a"]),
        WEIGHT: st.integers(-1, 1),
        "n": st.integers(-1, 1),
    }
)
history = st.lists(st.lists(row, max_size=10), max_size=5)
keys = st.lists(
    st.tuples(st.sampled_from([None, 1, 2, 3, 4]), st.sampled_from(["", "a", "b"])), max_size=8
)
some_bits = st.sampled_from([1, 2, 64])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack, "BATCH_ROWS", 3)
        yield


def deltas(epochs: list, kept: int) -> list[ZSet]:
    return [ZSet.of(LAYOUT, table_of(LAYOUT, epoch, bits=kept)).consolidated() for epoch in epochs]


def written(directory: Path, parts: list[ZSet]) -> Spine:
    return Spine.open(directory, LAYOUT, [write_run(directory, part) for part in parts])


def contents(spine: Spine) -> Bag:
    """The rows with both sums: {row: (weight, n)}, as a bag of rows with n appended."""
    total: Bag = Counter()
    for part in spine.scan(4):
        for entry in part.table.to_pylist():
            total[entry["v"], entry["k"], entry["j"], "weight"] += entry[WEIGHT]
            total[entry["v"], entry["k"], entry["j"], "n"] += entry["n"]
    return plus(total, Counter())


def model(parts: list[ZSet]) -> Bag:
    total: Bag = Counter()
    for part in parts:
        total = plus(total, contents(Spine(LAYOUT).plus(part)))
    return total


@given(epochs=history, kept=some_bits, batch_rows=st.integers(1, 6))
def test_a_scan_yields_the_sum_of_the_runs_in_ascending_parts(
    directory: Path, epochs: list, kept: int, batch_rows: int
) -> None:
    parts = deltas(epochs, kept)
    spine = written(directory, parts)
    assert contents(spine) == model(parts)
    scanned = list(spine.scan(batch_rows))
    assert all(part.rows and is_consolidated(part) for part in scanned)
    ends = [(int(part.hashes[0]), int(part.hashes[-1])) for part in scanned]
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(ends))
    assert all(part.rows <= batch_rows or len(set(part.hashes.tolist())) == 1 for part in scanned)
    assert sum(part.rows for part in scanned) <= spine.rows_upper_bound


@given(epochs=history, kept=some_bits, batch_rows=st.integers(1, 6))
def test_parts_of_few_bytes_are_the_same_rows_in_smaller_parts(
    directory: Path, epochs: list, kept: int, batch_rows: int
) -> None:
    spine = written(directory, deltas(epochs, kept))
    whole = [entry for part in spine.scan(batch_rows) for entry in part.table.to_pylist()]
    found, read = [], 0
    for part in spine.scan(batch_rows, batch_bytes=100):
        upto = spine.rows_upto(int(part.hashes[-1]))
        assert read < upto <= spine.rows_upper_bound
        assert part.table.nbytes <= 100 or len(set(part.hashes.tolist())) == 1
        assert part.rows <= batch_rows or len(set(part.hashes.tolist())) == 1
        found, read = found + part.table.to_pylist(), upto
    assert found == whole


@pytest.mark.parametrize("runs", [1, 3])
def test_parts_of_wide_rows_are_small_however_many_rows_are_asked_for(
    directory: Path, runs: int
) -> None:
    rows = choose(600, 3000)
    wide = ["x" * (10_000 if n % 10 == 0 else 10) for n in range(rows)]
    files = []
    for own in range(runs):
        places = range(own, rows, runs)
        entries = [{"v": wide[n], "k": n, "j": "a", WEIGHT: 1, "n": 1} for n in places]
        table = table_of(LAYOUT, entries, bits=64)
        files.append(write_run(directory, ZSet.of(LAYOUT, table).consolidated()))
    parts = list(Spine.open(directory, LAYOUT, files).scan(1 << 20, batch_bytes=100_000))
    assert sum(part.rows for part in parts) == rows
    assert max(part.table.nbytes for part in parts) <= 100_000
    assert len(parts) < rows // 50, "they are not much smaller than they may be"


@given(epochs=history, kept=some_bits, batch_rows=st.integers(1, 6), high=st.integers(0, 3))
def test_a_restricted_scan_yields_the_rows_of_a_scan_that_meet_it(
    directory: Path, epochs: list, kept: int, batch_rows: int, high: int
) -> None:
    spine = written(directory, deltas(epochs, kept))
    least = Restriction((Test("k", high=pa.scalar(high, pa.int64())),))
    found: Bag = Counter()
    for part in spine.scan(batch_rows, least):
        assert part.rows
        assert is_consolidated(part)
        found += Counter(tuple(row.values()) for row in part.table.to_pylist())
    expected = (row for part in spine.scan(4) for row in part.table.to_pylist())
    assert found == Counter(
        tuple(row.values()) for row in expected if row["k"] is not None and row["k"] <= high
    )


@given(epochs=history, kept=some_bits, asked=keys)
def test_a_lookup_finds_the_total_of_each_row_with_that_key(
    directory: Path, epochs: list, kept: int, asked: list
) -> None:
    parts = deltas(epochs, kept)
    spine = written(directory, parts)
    hashes = numbers(*(hash_of(key, kept) for key in asked))
    arrays = [
        pa.array([key[0] for key in asked], pa.int64()),
        pa.array([key[1] for key in asked], pa.string()),
    ]
    probes, found = spine.lookup(hashes, arrays)
    assert found.table.schema.equals(LAYOUT.schema)
    assert found.hashes.tolist() == hashes[probes].tolist() == sorted(found.hashes.tolist())
    entries = found.table.to_pylist()
    answered = [
        (probe, entry["v"], entry["k"], entry["j"], entry[WEIGHT], entry["n"])
        for probe, entry in zip(probes.tolist(), entries, strict=True)
    ]
    total = model(parts)
    there = {identity for *identity, _ in total for identity in [tuple(identity)]}
    expected = [
        (probe, v, k, j, total[v, k, j, "weight"], total[v, k, j, "n"])
        for probe, key in enumerate(asked)
        for v, k, j in there
        if (k, j) == key
    ]
    assert Counter(answered) == Counter(expected)


@given(epochs=history, wanted=st.lists(row, max_size=8), kept=some_bits)
def test_the_weight_of_a_row_is_its_total(
    directory: Path, epochs: list, wanted: list, kept: int
) -> None:
    parts = deltas(epochs, kept)
    asked = ZSet.of(LAYOUT, table_of(LAYOUT, wanted, bits=kept))
    total = model(parts)
    expected = [total[entry["v"], entry["k"], entry["j"], "weight"] for entry in wanted]
    assert written(directory, parts).weights_of(asked).tolist() == expected


@given(epochs=history, kept=some_bits, data=st.data())
def test_merging_any_runs_never_changes_the_contents(
    directory: Path, epochs: list, kept: int, data: st.DataObject
) -> None:
    parts = deltas(epochs, kept)
    files = [write_run(directory, part) for part in parts]
    chosen = data.draw(st.lists(st.sampled_from(files), unique=True) if files else st.just([]))
    merged = merge(directory, LAYOUT, chosen)
    rest = [file for file in files if file not in chosen]
    spine = Spine.open(directory, LAYOUT, [*rest, *([merged] if merged else [])])
    assert contents(spine) == model(parts)
    if merged:
        assert merged.rows <= sum(file.rows for file in chosen)


@given(epochs=history, partitions=st.integers(1, 5))
def test_the_ranges_of_a_spine_sum_to_the_whole(
    directory: Path, epochs: list, partitions: int
) -> None:
    parts = deltas(epochs, 64)
    files = [write_run(directory, part) for part in parts]
    total: Bag = Counter()
    bound = 0
    for low, high in ranges(partitions):
        spine = Spine.open(directory, LAYOUT, files, low, high)
        assert all(low <= hash_ <= high for part in spine.scan(3) for hash_ in part.hashes)
        total = plus(total, contents(spine))
        bound += spine.rows_upper_bound
    assert total == model(parts)
    assert bound == sum(part.rows for part in parts)


@given(epochs=history)
def test_a_spine_in_memory_equals_one_in_files(directory: Path, epochs: list) -> None:
    spine = Spine(LAYOUT)
    parts = deltas(epochs, 2)
    for part in parts:
        spine = spine.plus(part)
    assert contents(spine) == contents(written(directory, parts))


def test_a_lookup_outside_the_range_finds_nothing() -> None:
    users = zset(USERS, "weight | user | city \n +1 | ann | Oslo \n +1 | bob | Rome")
    here = int(users.hashes[0])
    spine = Spine(USERS, Spine(USERS).plus(users).runs, here, here)
    probes, found = spine.lookup(users.hashes, users.keys)
    assert probes.tolist() == [0]
    assert found.hashes.tolist() == [here]


def test_a_key_that_is_asked_for_twice_is_answered_twice() -> None:
    users = zset(USERS, "weight | user | city \n +1 | ann | Oslo \n +1 | ann | Rome")
    more = zset(USERS, "weight | user | city \n +1 | ann | Rome")
    spine = Spine(USERS).plus(users).plus(more)
    hash_ = hash_of(["ann"], 64)
    probes, found = spine.lookup(numbers(hash_, hash_), [pa.array(["ann", "ann"])])
    assert sorted(probes.tolist()) == [0, 0, 1, 1]
    assert_rows(found.table, "weight | user | city \n +2 | ann | Oslo \n +4 | ann | Rome")


def test_a_lookup_of_an_equal_hash_with_another_key_finds_nothing() -> None:
    users = zset(USERS, "weight | user | city \n +1 | ann | Oslo", bits=0)
    probes, _ = Spine(USERS).plus(users).lookup(numbers(LOWEST), [pa.array(["bob"])])
    assert len(probes) == 0


def test_a_key_is_searched_only_in_those_small_runs_that_have_its_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("ann", "bob", "eva", "kim", "ann")
    spine = Spine(USERS)
    for name in names:
        spine = spine.plus(zset(USERS, f"weight | user | city \n +1 | {name} | Oslo"))
    searched: list[Run] = []

    def matches_of(run: Run, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        searched.append(run)
        return real(run, hashes)

    real = Run.matches_of
    monkeypatch.setattr(Run, "matches_of", matches_of)
    for name, count in (("ann", 2), ("kim", 1), ("zoe", 0)):
        searched.clear()
        _, found = spine.lookup(numbers(hash_of([name], 64)), [pa.array([name])])
        assert (len(searched), found.weights.sum()) == (count, count)


def test_rows_that_cancel_between_runs_are_gone_but_counted_in_the_bound() -> None:
    users = zset(USERS, "weight | user | city \n +1 | ann | Oslo")
    spine = Spine(USERS).plus(users).plus(users.negated())
    probes, _ = spine.lookup(users.hashes, users.keys)
    assert len(probes) == 0
    assert list(spine.scan(10)) == []
    assert spine.rows_upper_bound == 2


def test_a_lookup_of_nothing_or_in_nothing_is_empty() -> None:
    users = zset(USERS, "weight | user | city \n +1 | ann | Oslo")
    none = pa.array([], pa.string())
    for spine in (Spine(USERS), Spine(USERS).plus(users)):
        probes, found = spine.lookup(numbers(), [none])
        assert len(probes) == found.rows == 0
    assert Spine(USERS).lookup(users.hashes, users.keys)[1].rows == 0
    assert Spine(USERS).rows_upper_bound == 0
    assert list(Spine(USERS).scan(5)) == []


def test_opening_leaves_out_the_runs_beyond_the_range(directory: Path) -> None:
    users = zset(USERS, "weight | user | city \n +1 | ann | Oslo")
    file = write_run(directory, users)
    assert Spine.open(directory, USERS, [file], file.high + 1, HIGHEST).runs == ()
    assert len(Spine.open(directory, USERS, [file], LOWEST, file.low).runs) == 1


def test_rows_without_columns_are_looked_up_by_hash_alone() -> None:
    layout = Layout((), pa.schema([]), pa.schema([(WEIGHT, pa.int64())]))
    change = ZSet.of(layout, pa.table({"__hash": [0], WEIGHT: [3]}))
    probes, found = Spine(layout).plus(change).plus(change).lookup(numbers(0), [])
    assert (probes.tolist(), found.weights.tolist()) == ([0], [6])
    assert bag(found.table, []) == Counter({(): 6})


def test_the_batches_of_a_run_have_few_bytes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "BATCH_ROWS", 1000)
    monkeypatch.setattr(pack, "BATCH_BYTES", 100_000)
    sizes = [10, 150_000, 10, 60_000, 60_000, 10]
    parts = []
    for place, size in enumerate(sizes):
        entry = {"v": "x" * size, "k": place, "j": "a", WEIGHT: 1, "n": 1}
        part = ZSet.of(LAYOUT, table_of(LAYOUT, [entry], bits=64))
        parts.append(part.with_hashes(numbers(place)))
    file = write_parts(directory, LAYOUT, parts)
    assert file is not None
    (run,) = Spine.open(directory, LAYOUT, [file]).runs
    assert [batch.num_rows for batch in run.batches] == [1, 1, 2, 2]
    assert [len(v) for batch in run.batches for v in batch.column("v").to_pylist()] == sizes
