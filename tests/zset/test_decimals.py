"""Conversions of decimals, beside Python's own in as many digits as they take."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset.sums import exactly, rounded, wide

WIDE = Context(prec=200)
SCALES = st.integers(0, 38)
DIGITS = st.integers(0, 38).flatmap(
    lambda n: st.one_of(
        st.integers(1 - 10**n, 10**n - 1),
        st.integers(0, n).map(lambda zeros: 10**n - 10**zeros + 10**zeros // 2),
    )
)
TYPES = st.tuples(st.integers(1, 38), SCALES).map(lambda p: pa.decimal128(p[0], min(p)))


def fits(value: Decimal, type_: pa.Decimal128Type) -> bool:
    return abs(value) < Decimal(1).scaleb(type_.precision - type_.scale)


def at_scale(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, WIDE)


@given(st.lists(DIGITS, min_size=1), SCALES, TYPES)
def test_decimals_are_converted_exactly_or_not_at_all(
    units: list[int], scale: int, type_: pa.Decimal128Type
) -> None:
    values = [Decimal(each).scaleb(-scale, WIDE) for each in [*units, 0]]
    kept = all(fits(v, type_) and at_scale(v, type_.scale) == v for v in values)
    texts = pa.array([f"{value:f}" for value in values])
    for column in (pa.array(values, pa.decimal128(38, scale)), texts):
        for given_ in (column, pa.chunked_array([column])):
            if kept:
                assert exactly(given_, type_).to_pylist() == values
            else:
                with pytest.raises(pa.ArrowException):
                    exactly(given_, type_)


@given(st.lists(DIGITS, min_size=1), SCALES, TYPES)
def test_decimals_are_rounded_half_up_or_do_not_fit(
    units: list[int], scale: int, type_: pa.Decimal128Type
) -> None:
    values = [Decimal(each).scaleb(-scale, WIDE) for each in [*units, 0]]
    expected = [at_scale(value, type_.scale) for value in values]
    column = pa.array([*values, None], pa.decimal128(38, scale))
    if all(fits(value, type_) for value in expected):
        assert rounded(column, type_).to_pylist() == [*expected, None]
    else:
        with pytest.raises(pa.ArrowException):
            rounded(column, type_)


@pytest.mark.parametrize("text", ["1.5e30", "-1E28", "9" * 39, "1" * 60, "5" * 29, "1e400"])
def test_a_number_that_is_too_large_for_its_type_is_no_other_number(text: str) -> None:
    for column in (pa.array([text, "1"]), pa.array([text, "1"], pa.large_string())):
        with pytest.raises(pa.ArrowException):
            exactly(column, pa.decimal128(38, 10))


def test_wide_types_have_wide_decimals_in_all_parts() -> None:
    narrow = pa.struct([("a", pa.list_(pa.decimal128(9, 2))), ("b", pa.string())])
    parsed = pa.struct([("a", pa.list_(pa.decimal256(76, 2))), ("b", pa.string())])
    assert wide(narrow) == parsed
    values = [{"a": [Decimal("1.25"), None], "b": "x"}, None]
    assert exactly(pa.array(values, parsed), narrow).to_pylist() == values
    with pytest.raises(pa.ArrowException):
        exactly(pa.array([{"a": [Decimal(10**7)], "b": ""}], parsed), narrow)
