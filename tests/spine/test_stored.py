"""Batches of large runs are stored in narrower types, and read as the rows that they are."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import Run, Spine, forget_runs, open_run, pack, write_parts, write_run
from headrace.algebra.spine import stored as stored_batches
from headrace.algebra.spine.stored import StoredBatch, stored
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, Restriction, Test, ZSet
from reference import hash_of

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False)])
WHOLE = st.one_of(st.integers(-3, 3), st.sampled_from([127, 128, -129, 40_000, 2**31, -(2**63)]))
DAYS = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
MOMENTS = st.datetimes(timezones=st.just(dt.UTC))


def decimals(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    few = st.integers(-(10**4), 10**4)
    many = st.integers(-(10**digits) + 1, 10**digits - 1)
    context = decimal.Context(prec=digits)
    return st.one_of(few, many).map(lambda n: decimal.Decimal(n).scaleb(-scale, context))


TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): WHOLE.filter(lambda n: -(2**31) <= n < 2**31),
    pa.int64(): WHOLE,
    pa.date32(): DAYS,
    pa.timestamp("us", "UTC"): MOMENTS,
    pa.duration("us"): st.timedeltas(),
    pa.time64("us"): st.times(),
    pa.decimal128(10, 2): decimals(10, 2),
    pa.decimal128(38, 6): decimals(38, 6),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False),
    pa.list_(pa.int64()): st.lists(WHOLE, max_size=2),
    pa.struct([("a", pa.int64())]): st.fixed_dictionaries({"a": WHOLE}),
    pa.null(): st.none(),
}


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Return a column of any type, with some values repeated often enough for a dictionary."""
    type_ = draw(st.sampled_from(list(TYPES)))
    values = draw(st.lists(st.one_of(TYPES[type_], st.none()), min_size=1, max_size=6))
    if draw(st.booleans()):
        values = [value for value in values if value is not None] or [None]
    return pa.array(values * draw(st.sampled_from([1, 9])), type_)


def plain(column: pa.Array) -> pa.RecordBatch:
    rows = len(column)
    hashes = pa.array(np.arange(rows), pa.int64())
    fields = [
        pa.field(HASH, pa.int64(), nullable=False),
        pa.field("v", column.type),
        *WEIGHTS,
    ]
    ones = pa.array(np.ones(rows, np.int64))
    return pa.RecordBatch.from_arrays([hashes, column, ones], schema=pa.schema(fields))


@given(column=columns(), places=st.lists(st.integers(0, 5), max_size=8), cut=st.integers(0, 5))
def test_what_is_read_of_a_stored_batch_is_what_was_stored(
    column: pa.Array, places: list[int], cut: int
) -> None:
    whole = plain(column)
    layout = Layout((), pa.schema([whole.schema.field("v")]), WEIGHTS)
    found = StoredBatch(stored(whole, layout), layout.schema)
    rows = np.array([place % len(column) for place in places], np.int64)
    cut %= len(column)
    taken, left = found.take(rows), found.slice(cut, len(column))
    for each in (taken, left, found.select(["v", WEIGHT])):
        each.validate(full=True)
    assert taken.equals(whole.take(pa.array(rows)))
    assert left.equals(whole.slice(cut))
    assert found.select(["v", WEIGHT]).equals(whole.select(["v", WEIGHT]))
    assert found.column("v").equals(column)
    assert found.slice_bytes(cut, left.num_rows) >= 0.9 * left.nbytes - 8


FACTS = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
BY_KEY = Layout(("k",), FACTS, WEIGHTS)
IN_ORDER = Layout(("k",), FACTS, WEIGHTS, (OrderBy("t"),))


def facts(layout: Layout, rows: int) -> ZSet:
    """Return rows of which most keys have several."""
    numbers = np.arange(rows)
    table = pa.table(
        {
            HASH: [hash_of((int(n) // 3,), 64) for n in numbers],
            "k": numbers // 3,
            "t": pa.array(numbers % 7, mask=numbers % 11 == 0),
            "v": [f"v{n % 4}" for n in numbers],
            WEIGHT: np.ones(rows, np.int64),
        }
    )
    return ZSet.of(layout, table).consolidated()


@pytest.fixture(params=[BY_KEY, IN_ORDER], ids=["by key", "in order"])
def both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Run, Run]:
    """Return equal runs of several batches, of which the second one is stored in narrow types."""
    rows = facts(request.param, 500)
    files = []
    for most in (pack._AT_ONCE_BYTES, 0):
        monkeypatch.setattr(pack, "_AT_ONCE_BYTES", most)
        monkeypatch.setattr(pack, "BATCH_ROWS", 150)
        files.append(write_run(tmp_path, rows))
    forget_runs()
    one, other = (open_run(tmp_path, file, request.param) for file in files)
    assert other.batches
    assert all(isinstance(batch, StoredBatch) for batch in other.batches)
    assert not any(isinstance(batch, StoredBatch) for batch in one.batches)
    assert files[1].bytes < files[0].bytes
    return one, other


def test_a_spine_finds_in_a_stored_run_what_it_finds_in_another(both: tuple[Run, Run]) -> None:
    layout = both[0].layout
    keys = np.array([0, 7, 7, 160, 999, -1])
    hashes = np.array([hash_of((int(key),), 64) for key in keys])
    asked = [pa.array(keys, pa.int64())]
    spines = [Spine(layout, (run,)) for run in both]
    (places, rows), (others, found) = (spine.lookup(hashes, asked) for spine in spines)
    assert places.tolist() == others.tolist()
    assert rows.table.equals(found.table)
    assert rows.rows == 12
    parts = [[part.table for part in spine.scan(100, batch_bytes=2_000)] for spine in spines]
    assert pa.concat_tables(parts[0]).equals(pa.concat_tables(parts[1]))
    assert len(parts[0]) > 5
    few = Restriction((Test("k", pa.array([7, 160])), Test("v", low=pa.scalar("v1"))))
    tested = [list(spine.scan(100, few)) for spine in spines]
    assert [p.table for p in tested[0]] == [p.table for p in tested[1]]
    assert 0 < sum(part.rows for part in tested[1]) < 6
    wanted = rows.take(np.arange(0, rows.rows, 2))
    assert [spine.weights_of(wanted).tolist() for spine in spines] == [[1] * 6] * 2
    cells = [
        [batch.slice(place, 1).to_pylist() for batch, place in spine.places(int(hashes[1]))]
        for spine in spines
    ]
    assert cells[0] == cells[1]
    assert len(cells[0]) == 3
    assert [spine.weight for spine in spines] == [500, 500]
    assert both[1].repeated.tolist() == []
    if layout.order:
        first, same = (spine.first_rows(hashes[:1], [asked[0][:1]], 2) for spine in spines)
        assert first.rows.table.equals(same.rows.table)


def test_an_excerpt_of_a_stored_run_is_that_of_another(both: tuple[Run, Run]) -> None:
    if both[0].layout.order:
        return
    seen = Layout(("a",), pa.schema([("b", pa.string()), ("a", pa.int64())]), WEIGHTS)
    one, other = (
        Spine(run.layout, (run,)).excerpt(seen, ("v", "k"), ("a",)).runs[0] for run in both
    )
    assert one.slice(0, 500).table.equals(other.slice(0, 500).table)
    places = np.array([3, 1, 499])
    assert one.take(places).equals(other.take(places))


def test_stored_runs_are_merged_with_others(
    both: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = both[0].layout
    monkeypatch.setattr(pack, "_AT_ONCE_BYTES", 0)
    parts = list(Spine(layout, both).scan(200))
    file = write_parts(tmp_path, layout, parts)
    assert file is not None
    merged = open_run(tmp_path, file, layout)
    expected = ZSet.sum_of(layout, [run.slice(0, run.rows) for run in both]).consolidated()
    assert merged.slice(0, merged.rows).equals(expected)
    assert merged.weight == 1000


def test_columns_that_queries_read_are_kept_until_others_need_the_memory(
    both: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = both[1].batches
    assert isinstance(first, StoredBatch)
    assert isinstance(second, StoredBatch)
    kept = first.select(["k"]).column("k")
    assert first.select(["k"]).column("k").buffers()[1].address == kept.buffers()[1].address
    monkeypatch.setattr(stored_batches, "KEPT_BYTES", second.column("t").nbytes)
    second.select(["t"])
    assert (set(first.kept), set(second.kept)) == (set(), {"t"})
    monkeypatch.setattr(stored_batches, "KEPT_BYTES", 1)
    assert second.select(["k"]).column("k").equals(both[0].batches[1].column("k"))
    assert not second.kept
