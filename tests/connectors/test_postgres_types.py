"""Types of PostgreSQL and ours: which take which, and values from text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import types as t

from headrace.io.connectors.postgres.access import PgType, can_read, inferred, read
from headrace.io.connectors.postgres.target import keeps, type_of
from headrace.types import Column

TIME, TIME_WITH_ZONE, TIMESTAMP = 1083, 1266, 1114


def test_a_column_of_type_time_takes_the_times_of_postgresql_and_rejects_midnight_at_the_end():
    assert inferred(PgType(TIME)) == t.StringType()
    assert can_read(PgType(TIME, 3), t.TimeType(6))
    assert not can_read(PgType(TIME_WITH_ZONE), t.TimeType(6))
    assert not can_read(PgType(TIMESTAMP), t.TimeType(6))
    whole = read(pa.array(["01:02:03.456789", None, "23:59:59"]), Column("c", t.TimeType(3)))
    assert whole.values.to_pylist() == [dt.time(1, 2, 3, 456000), None, dt.time(23, 59, 59)]
    some = read(pa.array(["24:00:00", "00:00:00"]), Column("c", t.TimeType(3)))
    assert some.values.to_pylist() == [None, dt.time(0)]
    assert str(some.refused[0]) == '"24:00:00" is not a TIME(3)'
    listed = read(pa.array(["{01:02:03,NULL}"]), Column("c", t.ArrayType(t.TimeType())))
    assert listed.values.to_pylist() == [[dt.time(1, 2, 3), None]]


def test_a_time_of_postgresql_keeps_those_of_no_more_digits():
    assert type_of(Column("c", t.TimeType(3))) == "time(3) without time zone"
    assert keeps(PgType(TIME, -1), t.TimeType(6))
    assert keeps(PgType(TIME, 3), t.TimeType(3))
    assert not keeps(PgType(TIME, 2), t.TimeType(3))
    assert not keeps(PgType(TIME_WITH_ZONE), t.TimeType(3))


def test_a_numeric_that_is_too_large_for_its_decimal_is_rejected() -> None:
    texts = ["1" * 60, "5555555555555555.5555", "0.25", None]
    found = read(pa.array(texts), Column("n", t.DecimalType(38, 25)))
    assert found.values.to_pylist()[2:] == [Decimal("0.25"), None]
    assert list(found.refused) == [0, 1]
