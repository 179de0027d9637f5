"""Runs in order: the first rows of a key, and single rows, against plain Python."""

from __future__ import annotations

from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import Rank, Run, Spine, merge, near_rows, pack, write_run
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.errors import HeadraceError
from reference import compare, exact, hash_of, numbers, table_of

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = Layout(
    ("k",),
    pa.schema([("k", pa.string()), ("x", pa.float64()), ("id", pa.int64())]),
    pa.schema([(WEIGHT, pa.int64()), ("n", pa.int64())]),
    (OrderBy("x", descending=True, nulls_first=False), OrderBy("id")),
)
LOOSE = Layout(LAYOUT.key, LAYOUT.columns, LAYOUT.summed, LAYOUT.order[:1])
BY_VALUE = Layout(
    ("k",),
    pa.schema([("k", pa.int64()), ("x", pa.int64())]),
    pa.schema([(WEIGHT, pa.int64())]),
    (OrderBy("x"),),
)

row = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b"]),
        "x": st.sampled_from([None, 0.0, -0.0, 1.0, -1.0, float("inf"), float("nan")]),
        "id": st.integers(0, 3),
        WEIGHT: st.integers(-1, 3),
        "n": st.integers(-1, 1),
    }
)
history = st.lists(st.lists(row, max_size=12), max_size=5)
some_bits = st.sampled_from([1, 2, 64])
ranks = st.sampled_from(list(Rank))


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack, "BATCH_ROWS", 3)
        patch.setattr("headrace.algebra.spine.spine.FIRST_READ", 2)
        yield


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def spine_of(layout: Layout, epochs: list, bits: int, directory: Path | None = None) -> Spine:
    parts = [ZSet.of(layout, table_of(layout, epoch, bits=bits)).consolidated() for epoch in epochs]
    if directory is not None:
        return Spine.open(directory, layout, [write_run(directory, part) for part in parts])
    spine = Spine(layout)
    for part in parts:
        spine = spine.plus(part)
    return spine


def expected(layout: Layout, epochs: list, key: Any, count: int, rank: Rank) -> list[tuple]:
    """Rank the rows of a key as SQL does; rows of weight 0 or less take no place."""
    total: dict[tuple, list] = {}
    for entry in (entry for epoch in epochs for entry in epoch if entry["k"] == key):
        sums = total.setdefault(exact([entry["x"], entry["id"]]), [entry, 0, 0])
        sums[1] += entry[WEIGHT]
        sums[2] += entry["n"]
    there = [(entry, w, n) for entry, w, n in total.values() if w or n]
    order = (*layout.order, OrderBy("sign"), OrderBy("id"))
    for entry, _, _ in there:
        entry["sign"] = -1 if str(entry["x"]) == "-0.0" else 1
    there.sort(key=cmp_to_key(lambda a, b: compare(a[0], b[0], order)))
    answer = []
    for entry, weight, n in there:
        before = [(other, w) for other, w, _ in there if w > 0 and compare(other, entry, order) < 0]
        ahead = [(o, w) for o, w in before if compare(o, entry, layout.order) < 0]
        values: list = []
        for other, _ in ahead:
            if not values or compare(values[-1], other, layout.order):
                values.append(other)
        number = {
            Rank.ROW_NUMBER: sum(w for _, w in before),
            Rank.RANK: sum(w for _, w in ahead),
            Rank.DENSE_RANK: len(values),
        }[rank]
        if number < count:
            answer.append((exact(entry["x"]), entry["id"], weight, n, number + 1))
    return answer


@given(
    layout=st.sampled_from([LAYOUT, LOOSE]),
    epochs=history,
    bits=some_bits,
    asked=st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=5),
    count=st.integers(0, 6),
    rank=ranks,
)
def test_the_first_rows_are_those_that_sorting_puts_first(
    directory: Path,
    layout: Layout,
    epochs: list,
    bits: int,
    asked: list,
    count: int,
    rank: Rank,
) -> None:
    spine = spine_of(layout, epochs, bits, directory if len(asked) % 2 else None)
    hashes = numbers(*(hash_of([key], bits) for key in asked))
    found = spine.first_rows(hashes, [pa.array(asked, pa.string())], count, rank)
    assert found.rows.table.schema.equals(layout.schema)
    assert found.rows.hashes.tolist() == hashes[found.probes].tolist()
    assert found.rows.hashes.tolist() == sorted(found.rows.hashes.tolist())
    answers: dict[int, list[tuple]] = {probe: [] for probe in range(len(asked))}
    entries = found.rows.table.to_pylist()
    for probe, entry, number in zip(found.probes, entries, found.ranks, strict=True):
        assert entry["k"] == asked[probe]
        answers[probe].append((exact(entry["x"]), entry["id"], entry[WEIGHT], entry["n"], number))
    for probe, key in enumerate(asked):
        assert answers[probe] == expected(layout, epochs, key, count, rank)


@given(epochs=history, bits=some_bits, count=st.integers(1, 4), rank=ranks)
def test_merging_runs_never_changes_the_first_rows(
    directory: Path, epochs: list, bits: int, count: int, rank: Rank
) -> None:
    parts = [ZSet.of(LAYOUT, table_of(LAYOUT, epoch, bits=bits)).consolidated() for epoch in epochs]
    merged = merge(directory, LAYOUT, [write_run(directory, part) for part in parts])
    keys = [pa.array([None, "a", "b"])]
    hashes = numbers(*(hash_of([key], bits) for key in [None, "a", "b"]))
    whole = Spine.open(directory, LAYOUT, [merged] if merged else [])
    split = spine_of(LAYOUT, epochs, bits)
    answers = [spine.first_rows(hashes, keys, count, rank) for spine in (whole, split)]
    first, second = (repr(answer.rows.table.to_pylist()) for answer in answers)
    assert first == second


def _group(values: np.ndarray, weight: int = 1) -> ZSet:
    rows_of_group = {HASH: [7] * len(values), "k": [1] * len(values), "x": values}
    table = pa.table(rows_of_group | {WEIGHT: [weight] * len(values)}, schema=BY_VALUE.schema)
    return ZSet(BY_VALUE, table).consolidated()


def test_the_first_of_a_large_group_costs_a_few_rows() -> None:
    values = np.random.default_rng(3).permutation(100_000)
    spine = Spine(BY_VALUE, tuple(Run.of(_group(part)) for part in np.array_split(values, 4)))
    found = spine.first_rows(numbers(7), [pa.array([1])], 1)
    assert found.rows.table["x"].to_pylist() == [0]
    assert spine.reads.rows <= 4 * 2


def test_deleting_the_first_rows_of_a_large_group_costs_about_twice_as_many_reads() -> None:
    runs = tuple(Run.of(_group(part)) for part in np.array_split(np.arange(100_000), 4))
    spine = Spine(BY_VALUE, runs).plus(_group(np.arange(10), -1))
    found = spine.first_rows(numbers(7), [pa.array([1])], 1)
    assert found.rows.table["x"].to_pylist() == [10]
    assert spine.reads.rows <= 5 * 2 * 16


def test_rows_of_other_keys_with_the_same_hash_are_read_past() -> None:
    rows_here = {HASH: [7] * 50, "k": [2] * 40 + [1] * 10, "x": range(50), WEIGHT: [1] * 50}
    rows = ZSet(BY_VALUE, pa.table(rows_here, schema=BY_VALUE.schema)).consolidated()
    found = Spine(BY_VALUE).plus(rows).first_rows(numbers(7, 7), [pa.array([1, 2])], 2)
    assert found.probes.tolist() == [0, 0, 1, 1]
    assert found.rows.table["x"].to_pylist() == [40, 41, 0, 1]


def test_keys_beyond_the_range_of_a_spine_are_not_found() -> None:
    spine = Spine(BY_VALUE, (Run.of(_group(np.arange(3))),), 8, 9)
    assert spine.first_rows(numbers(7), [pa.array([1])], 1).rows.rows == 0


def test_an_arrangement_without_order_has_no_first_rows() -> None:
    loose = Layout(BY_VALUE.key, BY_VALUE.columns, BY_VALUE.summed)
    with pytest.raises(HeadraceError, match="without order"):
        Spine(loose).first_rows(numbers(7), [pa.array([1])], 1)


@given(
    layout=st.sampled_from([LAYOUT, LOOSE]),
    epochs=history,
    asked=st.lists(row, max_size=6),
    bits=some_bits,
)
def test_a_row_is_found_by_searching_its_block(
    layout: Layout, epochs: list, asked: list, bits: int
) -> None:
    spine = spine_of(layout, epochs, bits)
    rows = ZSet.of(layout, table_of(layout, asked, bits=bits))
    names = layout.columns.names

    def identity(entry: dict[str, Any]) -> Any:
        return exact([entry[name] for name in names])

    expected_weights = [
        sum(e[WEIGHT] for epoch in epochs for e in epoch if identity(e) == identity(entry))
        for entry in asked
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_rows, "NARROW", 1)
        assert spine.weights_of(rows).tolist() == expected_weights


@pytest.mark.parametrize(("asked", "most_read"), [(3, 3 * 3 * 24), (3000, 3 * 5100)])
def test_few_rows_of_a_large_block_are_searched_and_many_are_read_at_once(
    asked: int, most_read: int
) -> None:
    random = np.random.default_rng(11)
    values = random.permutation(20_000)[:15_000]
    spine = Spine(BY_VALUE, tuple(Run.of(_group(part)) for part in np.array_split(values, 3)))
    wanted = np.sort(random.permutation(20_000)[:asked])
    weights = spine.weights_of(_group(wanted))
    assert weights.tolist() == np.isin(wanted, values).astype(int).tolist()
    assert spine.reads.rows <= most_read + asked


def test_rows_beyond_the_range_of_a_spine_have_no_weight() -> None:
    rows = _group(np.arange(30))
    assert not Spine(BY_VALUE, (Run.of(rows),), 8, 9).weights_of(rows).any()
    assert Spine(BY_VALUE, (Run.of(rows),), 7, 7).weights_of(rows).all()
