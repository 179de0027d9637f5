"""Hashes of many rows, beside that of one row; those of Spark are in ``catalyst/test_vectors``."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algebra.zset import row_hash
from headrace.algebra.zset.row_hash import hashes_of, spark_hash

TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.bool_())


def values(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return st.none() | st.integers(-bound, bound - 1)
    return st.none() | (st.booleans() if pa.types.is_boolean(kind) else st.text())


@given(st.lists(st.tuples(*map(values, TYPES)), max_size=20), st.integers(0, 3))
def test_rows_are_hashed_together_as_one_by_one(rows: list[tuple[object, ...]], skipped: int):
    columns = [
        pa.array([row[i] for row in rows], kind).slice(min(skipped, len(rows)))
        for i, kind in enumerate(TYPES)
    ]
    expected = [spark_hash(row, TYPES) for row in rows[skipped:]]
    for alone in (0, 32):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_hash, "_ALONE", alone)
            assert hashes_of(columns, len(expected)).tolist() == expected


@settings(max_examples=20)
@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-300, 300), min_size=1),
    st.integers(0, 3),
)
def test_many_texts_and_long_decimals_are_hashed_as_one_by_one(
    texts: list[bytes], numbers: list[int], skipped: int
):
    rows, context = 700, Context(prec=38)
    seeds = pa.array(range(rows), pa.int64())
    before = hashes_of([seeds], rows).view(np.uint64).tolist()
    for given_, kind in (
        (texts, pa.binary()),
        ([Decimal(n).scaleb(0, context) for n in numbers], pa.decimal128(38, 0)),
    ):
        repeated = (given_ * (rows + skipped))[: rows + skipped]
        found = hashes_of([seeds, pa.array(repeated, kind).slice(skipped)], rows)
        hashed = [each if isinstance(each, bytes) else fewest(int(each)) for each in repeated]
        expected = map(xxhash.xxh64_intdigest, hashed[skipped:], before)
        assert found.view(np.uint64).tolist() == list(expected)


def fewest(number: int) -> bytes:
    """Return the fewest bytes of an integer in two's complement, as Java's BigInteger does."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


@pytest.mark.parametrize(
    ("column", "same"),
    [
        (pa.array([0.0, float("nan")]), pa.array([-0.0, -float("nan")])),
        (pa.array([[1, None, 2], None, []]), pa.array([[1, 2], [], [None]])),
        (pa.array([{"a": 1, "b": None}, None]), pa.array([{"a": 1, "b": None}, {"a": None}])),
        (
            pa.array([Decimal(5), Decimal(-5)], pa.decimal128(9, 0)),
            pa.array([Decimal("0.05"), Decimal("-0.05")], pa.decimal128(18, 2)),
        ),
    ],
)
def test_values_without_a_difference_to_spark_have_one_hash(column: pa.Array, same: pa.Array):
    assert hashes_of([column], len(column)).tolist() == hashes_of([same], len(same)).tolist()
    sliced = pa.concat_arrays([column, column]).slice(len(column))
    assert hashes_of([sliced], len(column)).tolist() == hashes_of([column], len(column)).tolist()


def test_without_columns_the_hash_is_the_seed():
    assert hashes_of([], 2).tolist() == [42, 42]
