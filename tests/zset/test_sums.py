"""Exact sums: against Python's integers, and refusing where the type is too small."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import sums
from headrace.algebra.zset.sums import digits_of, float_sums, halves, segment_sums, sums_at
from headrace.errors import Code, HeadraceError

BIG = 2**63
int64s = st.one_of(st.integers(-5, 5), st.integers(-BIG, BIG - 1), st.sampled_from([-BIG, BIG - 1]))
digits38 = st.one_of(
    st.integers(-5, 5),
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.sampled_from([2**64, -(2**64), 2**63, 10**38 - 1, 1 - 10**38, 2**32 - 1, -(2**96)]),
)


def groups(values: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(values, min_size=1, max_size=4), max_size=5)


def starts_of(stretches: list[list[int]]) -> np.ndarray:
    return np.cumsum([0, *map(len, stretches)])[:-1].astype(np.int64)


def decimals(values: list[int], precision: int, scale: int = 0) -> pa.Array:
    with localcontext(prec=50):
        scaled = [Decimal(value).scaleb(-scale) for value in values]
    return pa.array(scaled, pa.decimal128(precision, scale))


@given(stretches=groups(int64s))
def test_sums_of_integers_are_exact_or_refused(stretches: list) -> None:
    expected = [sum(stretch) for stretch in stretches]
    column = pa.array([n for stretch in stretches for n in stretch], pa.int64())
    if all(-BIG <= total < BIG for total in expected):
        assert segment_sums(column, starts_of(stretches)).to_pylist() == expected
    else:
        with pytest.raises(HeadraceError, match="bigint overflowed"):
            segment_sums(column, starts_of(stretches))


@given(
    rows=st.lists(st.tuples(int64s, st.integers(-9, 9)), min_size=1, max_size=12),
    data=st.data(),
)
def test_columns_are_summed_together_as_each_of_them(rows: list, data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    cuts = data.draw(st.sets(st.integers(1, len(rows))))
    starts = np.array(sorted({0, *cuts} - {len(rows)}), np.int64)
    whole, small = (pa.array(values, pa.int64()) for values in zip(*rows, strict=True))
    prices = decimals([value for _, value in rows], 5)

    def each(columns: list[pa.Array]) -> list[pa.Array] | None:
        try:
            return [segment_sums(column.take(pa.array(order)), starts) for column in columns]
        except HeadraceError:
            return None

    for columns in ([small, small], [whole, small], [small, prices]):
        expected = each(columns)
        if expected is None:
            with pytest.raises(HeadraceError, match="overflowed"):
                sums_at(columns, order, starts)
        else:
            assert sums_at(columns, order, starts) == expected


@given(values=st.lists(int64s, min_size=1, max_size=20))
def test_the_halves_of_integers_add_up_to_their_sum_beyond_64_bits(values: list) -> None:
    upper, lower = (
        segment_sums(pa.array(half), np.array([0])).to_pylist()[0]
        for half in halves(np.array(values, np.int64))
    )
    assert upper * 2**32 + lower == sum(values)


@given(stretches=groups(digits38))
def test_sums_of_decimals_are_exact_or_refused(stretches: list) -> None:
    expected = [sum(stretch) for stretch in stretches]
    column = decimals([n for stretch in stretches for n in stretch], 38)
    column = pa.concat_arrays([decimals([7], 38), column]).slice(1)
    if all(abs(total) < 10**38 for total in expected):
        sums = segment_sums(column, starts_of(stretches))
        assert [int(total) for total in sums.to_pylist()] == expected
        assert sums.type == column.type
    else:
        with pytest.raises(HeadraceError, match="overflowed"):
            segment_sums(column, starts_of(stretches))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_decimal_sum_may_reach_its_precision_but_not_pass_it(sign: int) -> None:
    fits = decimals([sign * 9_999_999, sign * 90_000_000], 8, 2)
    assert segment_sums(fits, np.array([0])).to_pylist() == [Decimal(sign * 99_999_999).scaleb(-2)]
    passes = decimals([sign * 10_000_000, sign * 90_000_000], 8, 2)
    with pytest.raises(HeadraceError, match=r"decimal\(8,2\) overflowed") as caught:
        segment_sums(passes, np.array([0]))
    assert caught.value.code == Code.INVALID
    assert caught.value.hint is not None


def test_large_values_that_cancel_do_not_overflow_on_the_way() -> None:
    column = pa.array([BIG - 1, BIG - 1, -(BIG - 1), -(BIG - 1), 5])
    assert segment_sums(column, np.array([0])).to_pylist() == [5]


def test_a_long_stretch_of_large_values_is_exact() -> None:
    largest = 10**38 - 1
    column = decimals([largest, -largest] * 500 + [largest], 38)
    assert int(segment_sums(column, np.array([0]))[0].as_py()) == largest


@given(stretches=st.lists(st.lists(st.floats(allow_nan=False), max_size=6), max_size=4))
def test_floats_are_summed_alike_one_by_one_and_together(stretches: list) -> None:
    rows, places, digits = digits_of(np.array([v for each in stretches for v in each], np.float64))
    owners = np.repeat(np.arange(len(stretches)), [len(each) for each in stretches])
    found = []
    for few in (0, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sums, "_FEW", few)
            found.append(float_sums(len(stretches), owners[rows], places, digits))
    np.testing.assert_array_equal(*(sums.view(np.int64) for sums in found))
    for stretch, total in zip(stretches, found[0].tolist(), strict=True):
        if all(map(math.isfinite, stretch)) and math.isfinite(total):
            assert total == math.fsum(stretch)
