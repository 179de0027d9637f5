"""What is read of many runs is what would be read of one run that is their sum."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import Rank, Run, Spine, due_rows
from headrace.algebra.spine.pack import in_blocks_of_runs
from headrace.algebra.zset import WEIGHT, Layout, OrderBy, ZSet
from reference import exact, is_consolidated, table_of

COLUMNS = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(38, 2)),
        ("tags", pa.list_(pa.struct([("x", pa.float64())]))),
    ]
)
SUMS = pa.schema([(WEIGHT, pa.int64()), ("total", pa.decimal128(38, 2))])
LAYOUT = Layout(("k", "name"), COLUMNS, SUMS)
ORDERED = Layout(("k", "name"), COLUMNS, SUMS, (OrderBy("price", descending=True),))
WEIGHED = Layout(ORDERED.key, COLUMNS, pa.schema([SUMS[0]]), ORDERED.order)
WHOLE = Layout(tuple(COLUMNS.names), COLUMNS, SUMS)
layouts = st.sampled_from([LAYOUT, ORDERED, WHOLE])

row = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, 1, 2]),
        "name": st.sampled_from([None, "", "a"]),
        "price": st.sampled_from([None, Decimal("0.00"), Decimal("-0.01"), Decimal(10) ** 35]),
        "tags": st.sampled_from([None, [], [{"x": -0.0}], [{"x": 0.0}], [None]]),
        WEIGHT: st.integers(-2, 2),
        "total": st.sampled_from([Decimal(0), Decimal("1.50"), -(Decimal(10) ** 35)]),
    }
)
histories = st.lists(st.lists(row, max_size=8), min_size=1, max_size=5)
some_bits = st.sampled_from([0, 1, 64])
sizes = st.integers(1, 9)


def spines(layout: Layout, epochs: list[list[dict]], bits: int, size: int) -> tuple[Spine, Spine]:
    """Return rows as a run for each epoch, in batches of some rows, and as a single run."""
    parts = [ZSet.of(layout, table_of(layout, epoch, bits=bits)).consolidated() for epoch in epochs]
    runs = [Run.of_batches(layout, part.table.to_batches(max_chunksize=size)) for part in parts]
    whole = ZSet.sum_of(layout, parts).consolidated()
    return Spine(layout, tuple(runs)), Spine(layout).plus(whole)


def by_probe(probes: np.ndarray, rows: ZSet) -> list[Any]:
    """Return rows with the positions of their keys, in an order that depends on them alone."""
    entries = rows.table.to_pylist()
    return sorted(
        (repr((probe, exact(e))) for probe, e in zip(probes.tolist(), entries, strict=True))
    )


@given(
    layout=layouts, epochs=histories, asked=st.lists(row, max_size=8), bits=some_bits, size=sizes
)
def test_lookups_add_the_rows_of_all_runs(
    layout: Layout, epochs: list, asked: list, bits: int, size: int
) -> None:
    _look_up(layout, epochs, asked, bits, size)


@given(layout=layouts, epochs=histories, asked=st.lists(row, max_size=8), bits=some_bits)
def test_runs_that_are_searched_together_are_added_as_well(
    layout: Layout, epochs: list, asked: list, bits: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_SEVERAL", 0), ("_TOGETHER", 1), ("_SMALL", 5)):
            patch.setattr(f"headrace.algebra.spine.run.{name}", value)
        _look_up(layout, epochs, asked, bits, 9)


def _look_up(layout: Layout, epochs: list, asked: list, bits: int, size: int) -> None:
    many, one = spines(layout, epochs, bits, size)
    keys = ZSet.of(layout, table_of(layout, asked, bits=bits))
    for order in (np.arange(keys.rows), np.argsort(keys.hashes, kind="stable")):
        given_keys = keys.take(order)
        asked_keys = (given_keys.hashes, given_keys.keys)
        probes, found = many.lookup(*asked_keys)
        assert by_probe(probes, found) == by_probe(*one.lookup(*asked_keys))
        assert given_keys.hashes[probes].tolist() == found.hashes.tolist()
        assert by_probe(*many.rows_of(given_keys)) == by_probe(*one.rows_of(given_keys))
        weights = np.zeros(given_keys.rows, np.int64)
        np.add.at(weights, probes, found.weights)
        assert many.weights_under(*asked_keys).tolist() == weights.tolist()
        assert many.weights_of(given_keys).tolist() == one.weights_of(given_keys).tolist()


@given(
    epochs=histories,
    change=st.lists(row, max_size=8),
    asked=st.lists(row, max_size=8),
    bits=some_bits,
    size=sizes,
    count=st.integers(1, 4),
    rank=st.sampled_from(list(Rank)),
)
def test_first_rows_before_and_after_a_change_are_those_of_either_spine(
    epochs: list, change: list, asked: list, bits: int, size: int, count: int, rank: Rank
) -> None:
    many, one = spines(WEIGHED, epochs, bits, size)
    added = ZSet.of(WEIGHED, table_of(WEIGHED, change, bits=bits)).consolidated()
    keys = ZSet.of(WEIGHED, table_of(WEIGHED, asked, bits=bits))
    known = (keys.hashes, keys.keys, count, rank)
    around = many.first_rows_around(added, *known)
    for state, spine in ((around.before, one), (around.after, one.plus(added))):
        found = around.ranked(state)
        expected = spine.first_rows(*known)
        assert by_probe(found.probes, found.rows) == by_probe(expected.probes, expected.rows)
        assert sorted(found.ranks.tolist()) == sorted(expected.ranks.tolist())


@given(layout=layouts, epochs=histories, bits=some_bits)
def test_rows_of_one_run_need_no_comparison(layout: Layout, epochs: list, bits: int) -> None:
    parts = [ZSet.of(layout, table_of(layout, epoch, bits=bits)).consolidated() for epoch in epochs]
    rows = ZSet.sum_of(layout, parts)
    runs = np.repeat(np.arange(len(parts)), [part.rows for part in parts])
    heads, total = rows.added(*in_blocks_of_runs(rows, rows.hashes, runs))
    assert is_consolidated(total)
    assert total.equals(rows)
    assert rows.hashes[heads].tolist() == total.hashes.tolist()


@given(layout=layouts, changes=st.lists(row, max_size=12), bits=some_bits)
def test_keys_are_numbered_by_their_first_rows(layout: Layout, changes: list, bits: int) -> None:
    rows = ZSet.of(layout, table_of(layout, changes, bits=bits)).consolidated()
    first, number = rows.keyed()
    keys = [exact(tuple(each.values())) for each in rows.table.select(list(layout.key)).to_pylist()]
    distinct = list(dict.fromkeys(keys))
    assert [keys[place] for place in first.tolist()] == distinct
    assert first.tolist() == [keys.index(key) for key in distinct]
    assert number.tolist() == [distinct.index(key) for key in keys]


def test_blocks_that_two_threads_find_at_once_count_once() -> None:
    layout = Layout((), pa.schema([("due", pa.int64())]), pa.schema([SUMS[0]]), (OrderBy("due"),))
    entries = [{"due": due, WEIGHT: 1} for due in range(5)]
    spine = Spine(layout).plus(ZSet.of(layout, table_of(layout, entries)).consolidated())
    found = due_rows(spine, 0, 3)
    assert found.rows == 3
    (run,) = spine.runs
    run.due_blocks.append(run.due_blocks[0])
    assert due_rows(spine, 0, 3).equals(found)
