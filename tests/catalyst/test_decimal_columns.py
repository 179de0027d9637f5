"""Arithmetic on columns of decimals, beside Python's own in as many digits as it takes."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.planning.catalyst.vectors import DoubtError, decimals

WIDE = Context(prec=200)
TO_38 = Decimal(1).scaleb(-38)
SCALES = st.integers(0, 12)
UNITS = st.integers(0, 38).flatmap(lambda n: st.integers(1 - 10**n, 10**n - 1))


def column(values: list[Decimal | None], scale: int) -> pa.Array:
    return pa.array(values, pa.decimal128(38, scale))


def rounded(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, WIDE)


def expected(name: str, a: Decimal, b: Decimal, scale: int) -> Decimal:
    match name:
        case "added":
            return WIDE.add(a, b)
        case "subtracted":
            return WIDE.subtract(a, b)
        case "multiplied":
            return rounded(WIDE.multiply(a, b), scale)
        case _:  # Spark rounds quotients twice
            return rounded(WIDE.divide(a, b).quantize(TO_38, ROUND_HALF_UP, WIDE), scale)


@pytest.mark.parametrize("name", ["added", "subtracted", "multiplied", "divided"])
@given(UNITS, UNITS, SCALES, SCALES, SCALES)
def test_a_result_is_exact_or_rounded_once_or_in_doubt(
    name: str, first: int, second: int, left: int, right: int, scale: int
) -> None:
    a, b = Decimal(f"{first}E-{left}"), Decimal(f"{second}E-{right}")
    scale = {"added": max(left, right), "subtracted": max(left, right)}.get(name, scale)
    if name == "multiplied":
        scale = min(scale, left + right)
    kind = pa.decimal128(38, scale)
    try:
        found = getattr(decimals, name)(column([a, None], left), column([b, b], right), kind)
    except DoubtError:
        is_small = max(abs(first), abs(second)) < 10**9 and scale + right <= 8
        assert not is_small or (name == "divided" and second == 0)
        return
    except pa.ArrowInvalid:  # an overflow
        is_large = abs(expected(name, a, b, scale)) >= Decimal(1).scaleb(38 - scale)
        assert is_large or (name == "multiplied" and abs(second) >= 10**37)
        return
    assert found.to_pylist() == [expected(name, a, b, scale), None]


@given(UNITS, SCALES, st.integers(0, 38), st.integers(1, 38))
def test_a_decimal_of_another_type_is_rounded_or_in_doubt(
    units: int, scale: int, other: int, digits: int
) -> None:
    value, kind = Decimal(f"{units}E-{scale}"), pa.decimal128(digits, min(other, digits))
    expected = rounded(value, kind.scale)
    try:
        found = decimals.rescaled(column([None, value], scale), kind)
    except (DoubtError, pa.ArrowInvalid):
        assert abs(units) >= 10**18 or abs(expected) >= Decimal(1).scaleb(digits - kind.scale)
        return
    assert found.to_pylist() == [None, expected]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 38), st.integers(1, 38))
def test_an_integer_is_a_decimal_unless_it_has_too_many_digits(
    value: int, other: int, digits: int
) -> None:
    kind = pa.decimal128(digits, min(other, digits))
    try:
        found = decimals.of_integers(pa.array([value, None]), kind)
    except (DoubtError, pa.ArrowInvalid):
        assert abs(value) >= 10 ** (digits - kind.scale)
        return
    assert found.to_pylist() == [Decimal(value), None]
