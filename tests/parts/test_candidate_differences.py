"""The types as which the values of two types are compared."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.lifecycle.definitions.candidates import CommonType


@pytest.mark.parametrize(
    ("first", "second", "common", "exact"),
    [
        (pa.int32(), pa.int64(), pa.decimal128(19, 0), True),
        (pa.int64(), pa.decimal128(9, 2), pa.decimal128(21, 2), True),
        (pa.decimal128(9, 2), pa.decimal128(12, 6), pa.decimal128(13, 6), True),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 38), False),
        (pa.float32(), pa.float64(), pa.float64(), True),
        (pa.int64(), pa.float32(), pa.float64(), False),
        (pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), True),
        (pa.bool_(), pa.int32(), pa.string(), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.string(), False),
    ],
)
def test_a_common_type_holds_the_values_of_both(first, second, common, exact):
    assert CommonType.of(first, second) == CommonType(common, exact=exact)
    assert CommonType.of(second, first) == CommonType(common, exact=exact)


def test_equal_values_of_different_types_are_equal_in_the_common_one():
    for first, second in (
        (pa.array([5, None], pa.int32()), pa.array([Decimal("5.000"), None])),
        (pa.array([5], pa.int64()), pa.array([5.0])),
        (pa.array(["5", None]), pa.array([5, None])),
        (pa.array([[1, None]], pa.list_(pa.int32())), pa.array([[1, None]], pa.list_(pa.int64()))),
        (pa.array(["1.50"]), pa.array([Decimal("1.50")])),
    ):
        common = CommonType.of(first.type, second.type)
        assert common.values(first) == common.values(second)
