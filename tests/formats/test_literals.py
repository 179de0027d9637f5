"""Literals as they are written, and as values of a column."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as t

from headrace.io.formats.literals import (
    Date,
    NoLiteral,
    TimeOfDay,
    Timestamp,
    literal,
    literal_converter,
)
from headrace.io.formats.values import RejectedValueError
from headrace.planning.sql.lexer import tokens
from headrace.types import Column

BEYOND = 9007199254740993


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NULL", None),
        ("true", True),
        ("-9007199254740993", -BEYOND),
        ("+ 7", 7),
        ("5L", 5),
        ("1.50", Decimal("1.50")),
        ("1e-3", Decimal("0.001")),
        (".5BD", Decimal("0.5")),
        ("-1.0D", -1.0),
        (r"'it''s\n'", "it's\n"),
        ('"doubled"', "doubled"),
        ("DATE '1970-01-03'", Date(2, "1970-01-03")),
        ("TIME '23:59:59.5'", TimeOfDay("23:59:59.5")),
        ("timestamp'1970-01-01 00:00:00.5'", Timestamp(500_000, "1970-01-01 00:00:00.5")),
    ],
)
def test_a_literal_is_the_value_that_is_written(text: str, value: object) -> None:
    found = literal(list(tokens(text)))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *("1 + 1", "x", "'a' 'b'", "- - 1", "200Y", "1.5L", "1.0F", "DATE '2026-02-30'"),
        *("DATE 'today'", "TIME '24:00:00'", "TIME '1:02'", "TIME '01:02:03.1234567'"),
    ],
)
def test_all_else_is_left_to_spark(text: str) -> None:
    with pytest.raises(NoLiteral):
        literal(list(tokens(text)))


def converted(text: str, data_type: t.DataType) -> Any:
    return literal_converter(Column("x", data_type))(literal(list(tokens(text))))


def test_a_literal_becomes_a_value_of_its_column_exactly() -> None:
    assert converted("1.0", t.IntegerType()) == 1
    assert converted("1.0D", t.LongType()) == 1
    assert converted("9.99D", t.DecimalType(9, 2)) == Decimal("9.99")
    assert converted("1e-3", t.DecimalType(38, 10)) == Decimal("0.001")
    assert converted(f"{BEYOND}", t.DoubleType()) == float(BEYOND)
    assert converted("'5'", t.IntegerType()) == 5
    assert converted("'true'", t.BooleanType()) is True
    assert converted("'1970-01-02'", t.DateType()) == 1
    assert converted("DATE '1970-01-02'", t.TimestampType()) == 86_400_000_000
    assert converted("TIMESTAMP '1970-01-02 00:00:00'", t.DateType()) == 1
    assert converted("TIME '00:00:01.987654'", t.TimeType(3)) == 1_987_000_000
    assert converted("'00:01'", t.TimeType(6)) == 60_000_000_000


@pytest.mark.parametrize(
    ("text", "data_type", "reason"),
    [
        ("1.7", t.IntegerType(), "1.7 does not fit INT"),
        ("9.999", t.DecimalType(9, 2), "9.999 does not fit DECIMAL(9,2)"),
        ("'9.999'", t.DecimalType(9, 2), '"9.999" does not fit DECIMAL(9,2)'),
        ("'yes'", t.BooleanType(), '"yes" is not a BOOLEAN'),
        ("1", t.BooleanType(), "1 is not a BOOLEAN"),
        ("TRUE", t.IntegerType(), "true is not an INT"),
        ("5", t.StringType(), "5 is not a STRING"),
        ("5", t.DateType(), "5 is not a DATE"),
        ("5", t.TimeType(), "5 is not a TIME(6)"),
        ("'24:00'", t.TimeType(0), '"24:00" is not a TIME(0)'),
        ("'10:00Z'", t.TimeType(0), '"10:00Z" is not a TIME(0)'),
        ("TIME '10:00'", t.TimestampType(), '"10:00" is not a TIMESTAMP'),
        ("DATE '2026-01-01'", t.TimeType(), '"2026-01-01" is not a TIME(6)'),
        ("'a'", t.ArrayType(t.StringType()), '"a" is not an ARRAY<STRING>'),
        (
            "TIMESTAMP '2026-01-01 00:00:01'",
            t.DateType(),
            '"2026-01-01 00:00:01" does not fit DATE',
        ),
    ],
)
def test_a_literal_that_its_column_cannot_hold_is_refused(
    text: str, data_type: t.DataType, reason: str
) -> None:
    with pytest.raises(RejectedValueError) as refused:
        converted(text, data_type)
    assert str(refused.value) == reason
