"""The order of values: against comparing them one by one, for every type that has one."""

from __future__ import annotations

import datetime as dt
import itertools
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet, orderable, same
from headrace.algebra.zset.order import exact_keys, order_keys, ordered, refined
from reference import compare, is_consolidated

NEGATIVE_NAN = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0]
FLOATS = [0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan"), NEGATIVE_NAN, 5e-324]
DAY = dt.date(1969, 12, 31)
TIME = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001  (without a zone)

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127, 0]),
    (pa.int16(), [-1, 300]),
    (pa.int32(), [-(2**31), 2**31 - 1, 0]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0, -1]),
    (pa.float32(), [value for value in FLOATS if value != 5e-324]),
    (pa.float64(), FLOATS),
    (pa.decimal128(9, 2), [Decimal("-0.01"), Decimal(0), Decimal("9999999.99")]),
    (
        pa.decimal128(38, 0),
        [Decimal(10**37), Decimal(-(10**37)), Decimal(2**64), Decimal(2**63), Decimal(-(2**64))],
    ),
    (pa.string(), ["", "a", "aa", "b", "é", "\U0001f600", "\uffff"]),
    (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"]),
    (pa.binary(2), [b"\x00\x01", b"\x80\x00"]),
    (pa.date32(), [DAY, dt.date(2020, 1, 1), dt.date(1, 1, 1)]),
    (pa.timestamp("us"), [TIME, dt.datetime(1970, 1, 1)]),  # noqa: DTZ001
    (pa.duration("us"), [dt.timedelta(microseconds=-1), dt.timedelta(days=3)]),
    (pa.list_(pa.int64()), [[], [None], [1], [1, None], [1, -1], [2], [256]]),
    (
        pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]),
        [
            {"a": None, "b": ["x"]},
            {"a": 1.0, "b": None},
            {"a": -0.0, "b": ["x", "a"]},
            {"a": 0.0, "b": ["x"]},
        ],
    ),
    (pa.dictionary(pa.int32(), pa.string()), ["b", "a", "\U0001f600"]),
]
FLAGS = [(descending, first) for descending in (False, True) for first in (False, True)]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@pytest.mark.parametrize("flags", FLAGS, ids=str)
@given(data=st.data())
def test_sorting_by_keys_is_sorting_by_comparison(
    kind: pa.DataType, values: list, flags: tuple[bool, bool], data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.sampled_from([None, *values]), max_size=12))
    by = OrderBy("x", *flags)
    # A slice: neither offsets nor what lies beyond may matter.
    array = pa.array([values[0], *drawn, None], kind).slice(1, len(drawn))
    order, codes = ordered(np.zeros(len(drawn), np.int64), order_keys(array, by))
    rows = [{"x": value} for value in array.to_pylist()]
    assert sorted(order) == list(range(len(rows)))
    steps = [compare(rows[i], rows[j], [by]) for i, j in itertools.pairwise(order)]
    assert all(step <= 0 for step in steps)
    assert (np.diff(codes) == 0).tolist() == [step == 0 for step in steps]


@pytest.mark.parametrize(
    ("kind", "values"),
    [*VALUES, (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", None)]])],
    ids=str,
)
@given(data=st.data())
def test_exact_keys_are_equal_only_for_the_same_value(
    kind: pa.DataType, values: list, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.sampled_from([None, *values]), min_size=1, max_size=12))
    array = pa.array(drawn, kind)
    order, codes = ordered(np.zeros(len(drawn), np.int64), exact_keys(array))
    in_order = array.take(pa.array(order))
    assert (np.diff(codes) == 0).tolist() == same(in_order[:-1], in_order[1:]).tolist()


numbers = st.sampled_from([0, 1, -1, 7, 2**31, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63)])


@given(rows=st.lists(st.tuples(st.integers(0, 3), numbers, numbers, numbers), max_size=40))
def test_keys_sort_rows_by_the_first_that_differs_however_far_apart_they_are(rows: list) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    blocks, *keys = np.array(rows, np.int64).reshape(-1, 4).T
    order, codes = ordered(blocks, keys)
    assert [rows[i] for i in order] == sorted(rows)
    assert codes.tolist() == [sorted(set(rows)).index(row) for row in sorted(rows)]


def test_a_column_is_sorted_by_only_where_those_before_it_leave_rows_together() -> None:
    seen: list[list[int]] = []

    def keys(values: pa.Array) -> list:
        seen.append(values.to_pylist())
        return exact_keys(values)

    starts = np.array([True, False, False, True, False])
    columns = [[3, 1, 3, 5, 5], [7, 7, 7, 7, 7], [2, 9, 1, 8, 4], [0, 0, 0, 0, 0]]
    ordering = [(pa.array(values), keys) for values in columns]
    order, first = refined(np.arange(5), starts, ordering)
    assert order.tolist() == [1, 2, 0, 4, 3]
    assert first.all()
    assert [sorted(values) for values in seen] == [[1, 3, 3, 5, 5], [1, 2, 4, 8]]


def test_all_types_but_maps_have_an_order() -> None:
    assert all(orderable(kind) for kind, _ in VALUES)
    entries = pa.map_(pa.string(), pa.int64())
    assert not orderable(entries)
    assert not orderable(pa.list_(pa.struct([("a", entries)])))


LAYOUT = Layout(
    ("k",),
    pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())]),
    pa.schema([(WEIGHT, pa.int64())]),
    (OrderBy("s", descending=True, nulls_first=False), OrderBy("x")),
)
rows = st.tuples(
    st.sampled_from([1, 2]),
    st.sampled_from([None, *FLOATS[:4], float("nan")]),
    st.sampled_from([None, "a", "b"]),
    st.integers(-1, 2),
)


def zset(changes: list) -> ZSet:
    names = [*LAYOUT.columns.names, WEIGHT, HASH]
    given_rows = [dict(zip(names, (*row, row[0] % 2), strict=True)) for row in changes]
    return ZSet(LAYOUT, pa.Table.from_pylist(given_rows, schema=LAYOUT.schema))


@given(changes=st.lists(rows, max_size=20), random=st.randoms(use_true_random=False))
def test_equal_bags_consolidate_to_one_table_in_the_order_of_the_layout(
    changes: list, random: Any
) -> None:
    result = zset(changes).consolidated()
    assert is_consolidated(result)
    shuffled = random.sample(changes, len(changes))
    assert repr(zset(shuffled).consolidated().table.to_pylist()) == repr(result.table.to_pylist())
    assert result.consolidated().table.to_pylist().__repr__() == repr(result.table.to_pylist())


def test_rows_that_differ_in_no_order_column_do_not_start_a_tie() -> None:
    given_rows = zset([(1, -0.0, "a", 1), (1, 0.0, "a", 1), (1, 1.5, "a", 1), (2, 1.5, "a", 1)])
    assert given_rows.starts_of_ties().tolist() == [True, False, True, False]
