"""A query that feeds a table for good is cast only where no value can change."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from headrace.interfaces.statements.sinks.destination import is_exact_cast


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (t.LongType(), t.IntegerType()),
        (t.IntegerType(), t.DecimalType(5, 2)),
        (t.DecimalType(20, 2), t.DecimalType(10, 4)),
        (t.DecimalType(20, 2), t.DoubleType()),
        (t.DateType(), t.TimestampType()),
        (t.TimeType(3), t.TimeType(6)),
        (t.NullType(), t.DateType()),
        (t.ArrayType(t.IntegerType()), t.ArrayType(t.LongType())),
    ],
)
def test_a_cast_that_is_exact_or_fails_is_made(found: t.DataType, wanted: t.DataType) -> None:
    assert is_exact_cast(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (t.DoubleType(), t.IntegerType()),
        (t.DecimalType(10, 2), t.IntegerType()),
        (t.DecimalType(10, 4), t.DecimalType(20, 2)),
        (t.DoubleType(), t.DecimalType(10, 2)),
        (t.TimestampType(), t.DateType()),
        (t.TimeType(6), t.TimeType(3)),
        (t.TimestampType(), t.TimeType(6)),
        (t.StringType(), t.IntegerType()),
        (t.IntegerType(), t.StringType()),
        (t.StringType(), t.BooleanType()),
        (t.ArrayType(t.DoubleType()), t.ArrayType(t.LongType())),
    ],
)
def test_a_cast_that_could_change_a_value_is_refused(found: t.DataType, wanted: t.DataType) -> None:
    assert not is_exact_cast(found, wanted)
