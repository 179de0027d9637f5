"""Equality of rows: for every type, against Python values compared by their bits."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import row_codes, same, same_pairs
from reference import exact

NAN = float("nan")
STRINGS = ["", "a", "aa", "ä", "a\0"]
POINT = pa.struct([("x", pa.float64()), ("name", pa.string())])

VALUES: dict[pa.DataType, list[Any]] = {
    pa.null(): [],
    pa.bool_(): [True, False],
    pa.int8(): [-128, 0, 127],
    pa.int16(): [-1, 0, 256],
    pa.int32(): [-1, 0, 65536],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.float32(): [0.0, -0.0, NAN, 1.5],
    pa.float64(): [0.0, -0.0, NAN, 1.5, float("inf")],
    pa.string(): STRINGS,
    pa.large_string(): STRINGS,
    pa.binary(): [b"", b"a", b"\0"],
    pa.binary(2): [b"aa", b"ab"],
    pa.date32(): [dt.date(1970, 1, 1), dt.date(2024, 2, 29)],
    pa.timestamp("us", tz="UTC"): [
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC),
    ],
    pa.timestamp("us"): [dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29)],  # noqa: DTZ001
    pa.time64("us"): [dt.time(0), dt.time(23, 59)],
    pa.duration("us"): [dt.timedelta(0), dt.timedelta(days=-1, microseconds=1)],
    pa.month_day_nano_interval(): [
        pa.MonthDayNano([1, 0, 0]),
        pa.MonthDayNano([0, 30, 0]),
        pa.MonthDayNano([0, 0, 2]),
    ],
    pa.decimal128(38, 2): [Decimal("0.00"), Decimal("-0.01"), Decimal(10) ** 35],
    POINT: [{"x": x, "name": n} for x in (0.0, -0.0, NAN, None) for n in ("a", None)],
    pa.struct([]): [{}],
    pa.list_(pa.int64()): [[], [1], [1, None], [None, 1], [1, 1]],
    pa.large_list(pa.string()): [[], [""], ["", ""], ["a", "b"], ["ab"]],
    pa.list_(pa.int64(), 2): [[1, 2], [2, 1], [None, 1]],
    pa.list_(pa.list_(POINT)): [[], [[]], [[], []], [[{"x": NAN, "name": "a"}]], [None]],
    pa.map_(pa.string(), pa.float64()): [
        [],
        [("a", 0.0)],
        [("a", -0.0)],
        [("a", 0.0), ("b", None)],
    ],
    pa.struct([("m", pa.map_(pa.int64(), pa.list_(pa.bool_())))]): [
        {"m": None},
        {"m": []},
        {"m": [(1, [True])]},
        {"m": [(1, [True, None])]},
    ],
    pa.dictionary(pa.int32(), pa.string()): STRINGS,
}

columns = st.sampled_from(list(VALUES)).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.lists(st.sampled_from([None, *VALUES[kind]]), min_size=0, max_size=12),
    )
)


def sliced(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Build an array that starts in the middle of its buffers."""
    padding = [None, *VALUES[kind][:1], None]
    whole = pa.array([*padding, *values, *padding], kind)
    return whole.slice(len(padding), len(values))


def pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.indices((count, count)).reshape(2, -1)
    return left, right


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_all_pairs_of_values_agree_with_python(kind: pa.DataType) -> None:
    values = [None, *VALUES[kind], *VALUES[kind], None]
    array = sliced(kind, values)
    left, right = pairs(len(values))
    expected = [exact(values[i]) == exact(values[j]) for i, j in zip(left, right, strict=True)]
    assert same(array.take(pa.array(left)), array.take(pa.array(right))).tolist() == expected
    codes = row_codes([array], len(values))
    assert (codes[left] == codes[right]).tolist() == expected


@given(first=columns, second=columns)
def test_rows_agree_where_all_their_columns_do(first: tuple, second: tuple) -> None:
    rows = min(len(first[1]), len(second[1]))
    arrays = [sliced(kind, values[:rows]) for kind, values in (first, second)]
    identities = list(zip(*(map(exact, v[:rows]) for _, v in (first, second)), strict=True))
    left, right = pairs(rows)
    expected = [identities[i] == identities[j] for i, j in zip(left, right, strict=True)]
    taken = [array.take(pa.array(left)) for array in arrays]
    assert same_pairs(taken, None, arrays, right).tolist() == expected
    assert same_pairs(arrays, left, arrays, right).tolist() == expected
    codes = row_codes(arrays, rows)
    assert (codes[left] == codes[right]).tolist() == expected


def test_many_wide_columns_do_not_overflow_the_numbers_of_rows() -> None:
    distinct = pa.array(range(1000))
    codes = row_codes([distinct] * 9, 1000)
    assert len(set(codes.tolist())) == 1000


def test_the_bits_under_a_null_do_not_count() -> None:
    mask = pa.py_buffer(b"\x00")
    left, right = (
        pa.Array.from_buffers(pa.int64(), 1, [mask, pa.py_buffer(np.array([n]))]) for n in (1, 2)
    )
    assert same(left, right).all()
    assert len(set(row_codes([pa.concat_arrays([left, right])], 2).tolist())) == 1


def test_rows_without_columns_are_all_the_same() -> None:
    assert same_pairs([], None, [], np.arange(3)).tolist() == [True] * 3
    assert row_codes([], 3).tolist() == [0, 0, 0]
