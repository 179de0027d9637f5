"""Typed values go into a column exactly, or not at all."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from headrace.io.formats.fitting import fitted
from headrace.io.formats.literals import fitted_objects
from headrace.types import to_arrow

UTC = dt.UTC
NOON = dt.datetime.fromisoformat("2026-01-02 12:00:00")
MIDNIGHT = dt.datetime.fromisoformat("2026-01-02")
BEYOND = 9007199254740993
"""2^53 + 1: an integer that no DOUBLE is."""

TAKEN: list[tuple[pa.Array, t.DataType, list[Any]]] = [
    (pa.array([1.0, None, -0.0, 2.0**53]), t.LongType(), [1, None, 0, 2**53]),
    (pa.array([Decimal("1.00"), Decimal("-7.00")]), t.IntegerType(), [1, -7]),
    (pa.array([5, BEYOND]), t.DecimalType(38, 10), [Decimal(5), Decimal(BEYOND)]),
    (pa.array([2**64 - 1], pa.uint64()), t.DecimalType(20, 0), [Decimal(2**64 - 1)]),
    (pa.array([9.99, 1e-2, 1e6]), t.DecimalType(9, 2), [Decimal("9.99"), Decimal("0.01"), 10**6]),
    (pa.array([0.1], pa.float32()), t.DecimalType(9, 2), [Decimal("0.1")]),
    (pa.array([Decimal("9.990")]), t.DecimalType(9, 2), [Decimal("9.99")]),
    (pa.array([Decimal("0.1"), Decimal("1e22")]), t.DoubleType(), [0.1, 1e22]),
    (pa.array([BEYOND]), t.DoubleType(), [float(BEYOND)]),
    (pa.array([0.1, float("inf"), float("nan")]), t.FloatType(), None),
    (pa.array([dt.date(2026, 1, 2)]), t.TimestampType(), [MIDNIGHT.replace(tzinfo=UTC)]),
    (pa.array([MIDNIGHT], pa.timestamp("ns", "UTC")), t.DateType(), [dt.date(2026, 1, 2)]),
    (pa.array([NOON], pa.timestamp("s")), t.TimestampType(), [NOON.replace(tzinfo=UTC)]),
    (
        pa.array([1999], pa.timestamp("ns")),
        t.TimestampNTZType(),
        [dt.datetime.fromisoformat("1970-01-01 00:00:00.000001")],
    ),
    (pa.array([dt.time(1, 2, 3, 987654)]), t.TimeType(3), [dt.time(1, 2, 3, 987000)]),
    (pa.array([1999], pa.time64("ns")), t.TimeType(6), [dt.time(0, 0, 0, 1)]),
    (pa.array([7], pa.time32("s")), t.TimeType(0), [dt.time(0, 0, 7)]),
    (
        pa.array([[1_900_000_000], None], pa.list_(pa.time64("ns"))),
        t.ArrayType(t.TimeType(0)),
        [[dt.time(0, 0, 1)], None],
    ),
    (pa.array(["a", None, "a"]).dictionary_encode(), t.StringType(), ["a", None, "a"]),
    (pa.array([b"a"], pa.binary(1)), t.BinaryType(), [b"a"]),
    (pa.nulls(2), t.ArrayType(t.IntegerType()), [None, None]),
    (pa.array([[1.0, None], None, []]), t.ArrayType(t.IntegerType()), [[1, None], None, []]),
    (pa.array([[], None], pa.list_(pa.string())), t.ArrayType(t.IntegerType()), [[], None]),
    (
        pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        t.MapType(t.StringType(), t.DecimalType(9, 2)),
        [[("a", Decimal(1))], None, []],
    ),
    (
        pa.array([{"y": 1, "X": 2}, None]),
        t.StructType().add("x", t.IntegerType()).add("Y", t.IntegerType()).add("z", t.DateType()),
        [{"x": 2, "Y": 1, "z": None}, None],
    ),
    (
        pa.array([{"col1": 1, "col2": "a"}]),
        t.StructType().add("x", t.IntegerType()).add("y", t.StringType()),
        [{"x": 1, "y": "a"}],
    ),
]


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: f"{case[0].type}-{case[1].simpleString()}")
def test_a_value_that_is_exactly_one_of_the_columns_is_taken(
    case: tuple[pa.Array, t.DataType, list[Any]],
) -> None:
    values, data_type, wanted = case
    found = fitted(values, data_type)
    assert found.refused == {}
    assert found.values.type == to_arrow(data_type)
    if wanted is not None:
        assert found.values.to_pylist() == wanted
    sliced = fitted(values[1:], data_type)
    assert sliced.values.equals(found.values[1:]) or wanted is None


REFUSED: list[tuple[pa.Array, t.DataType, str]] = [
    (pa.array([1.7]), t.IntegerType(), "1.7 does not fit INT"),
    (pa.array([float("nan")]), t.LongType(), "nan does not fit BIGINT"),
    (pa.array([2.0**63]), t.LongType(), "9.223372036854776e+18 does not fit BIGINT"),
    (pa.array([300]), t.ByteType(), "300 does not fit TINYINT"),
    (pa.array(["5"]), t.IntegerType(), '"5" is not an INT'),
    (pa.array(["yes"]), t.BooleanType(), '"yes" is not a BOOLEAN'),
    (pa.array([1]), t.BooleanType(), "1 is not a BOOLEAN"),
    (pa.array([True]), t.IntegerType(), "true is not an INT"),
    (pa.array([1]), t.StringType(), "1 is not a STRING"),
    (pa.array(["a"]), t.BinaryType(), '"a" is not a BINARY'),
    (pa.array([Decimal("9.999")]), t.DecimalType(9, 2), "9.999 does not fit DECIMAL(9,2)"),
    (pa.array([9.999]), t.DecimalType(9, 2), "9.999 does not fit DECIMAL(9,2)"),
    (pa.array([10**7]), t.DecimalType(9, 2), "10000000 does not fit DECIMAL(9,2)"),
    (pa.array([float("inf")]), t.DecimalType(9, 2), "inf does not fit DECIMAL(9,2)"),
    (pa.array([1e39]), t.FloatType(), "1e+39 does not fit FLOAT"),
    (pa.array([NOON]), t.DateType(), '"2026-01-02 12:00:00" does not fit DATE'),
    (pa.array([86_400], pa.time32("s")), t.TimeType(3), '"00:00:00" does not fit TIME(3)'),
    (pa.array([5]), t.TimeType(3), "5 is not a TIME(3)"),
    (pa.array(["2026-01-02"]), t.DateType(), '"2026-01-02" is not a DATE'),
    (pa.array([[1.5]]), t.ArrayType(t.IntegerType()), "[1.5] does not fit ARRAY<INT>"),
    (pa.array([["a"]]), t.ArrayType(t.IntegerType()), '["a"] does not fit ARRAY<INT>'),
    (pa.array([1]), t.ArrayType(t.IntegerType()), "1 is not an ARRAY<INT>"),
    (
        pa.array([{"b": 1, "c": 2}]),
        t.StructType().add("a", t.IntegerType()).add("b", t.IntegerType()),
        '{"b": 1, "c": 2} is not a STRUCT<A:INT,B:INT>',
    ),
]


@pytest.mark.parametrize(
    "case", REFUSED, ids=lambda case: f"{case[0].type}-{case[1].simpleString()}"
)
def test_any_other_value_is_refused_and_those_beside_it_are_not(
    case: tuple[pa.Array, t.DataType, str],
) -> None:
    values, data_type, reason = case
    around = pa.concat_arrays([pa.nulls(1, values.type), values, pa.nulls(1, values.type)])
    found = fitted(around, data_type)
    assert {place: str(why) for place, why in found.refused.items()} == {1: reason}
    assert found.values.to_pylist() == [None, None, None]
    chunked = fitted(pa.chunked_array([around, around]), data_type)
    assert sorted(chunked.refused) == [1, 4]


def test_every_value_that_does_not_fit_is_found_among_those_that_do() -> None:
    found = fitted(pa.array([n / 2 for n in range(100)]), t.IntegerType())
    assert sorted(found.refused) == list(range(1, 100, 2))
    assert found.values.to_pylist()[::2] == list(range(50))
    first = fitted(pa.array([n / 2 for n in range(100)]), t.IntegerType(), first=True)
    assert list(first.refused) == [1]


def test_no_python_object_widens_another() -> None:
    mixed = [1, Decimal("1.5"), 1.5, BEYOND, None, 10**25]
    found = fitted_objects(mixed, t.DecimalType(38, 10))
    assert found.refused == {}
    assert found.values.to_pylist() == [1, Decimal("1.5"), Decimal("1.5"), BEYOND, None, 10**25]
    whole = fitted_objects([BEYOND, 2.0, 2.5, "3", True, 2**63], t.LongType())
    assert whole.values.to_pylist() == [BEYOND, 2, None, 3, None, None]
    assert {place: str(why) for place, why in whole.refused.items()} == {
        2: "2.5 does not fit BIGINT",
        4: "true is not a BIGINT",
        5: f"{2**63} does not fit BIGINT",
    }


def test_times_of_python_with_and_without_a_zone_go_into_one_column() -> None:
    zoned = dt.datetime(2026, 1, 2, 13, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    found = fitted_objects([NOON, zoned, dt.date(2026, 1, 2)], t.TimestampType())
    noon = NOON.replace(tzinfo=UTC)
    assert found.values.to_pylist() == [noon, noon, MIDNIGHT.replace(tzinfo=UTC)]
    assert fitted_objects([NOON], t.DateType()).refused.keys() == {0}


def test_parts_of_python_objects_are_fitted_each_by_itself() -> None:
    lists = fitted_objects([[1, 2.0], None, (BEYOND,), [1.5], 7], t.ArrayType(t.LongType()))
    assert lists.values.to_pylist()[:3] == [[1, 2], None, [BEYOND]]
    assert {k: str(v) for k, v in lists.refused.items()} == {
        3: "1.5 does not fit BIGINT",
        4: "7 is not an ARRAY<BIGINT>",
    }
    kind = t.MapType(t.StringType(), t.IntegerType())
    maps = fitted_objects([{"a": 1.0}, [("b", 2)], None], kind)
    assert maps.values.to_pylist() == [[("a", 1)], [("b", 2)], None]
    assert fitted_objects([{}, {"a": 1, "b": "x"}, {None: 1}], kind).refused.keys() == {1, 2}
    struct = t.StructType().add("x", t.IntegerType()).add("y", t.StringType())
    rows = fitted_objects([{"X": 1}, (2, "b"), None, {"z": 1}, {"x": "1"}], struct)
    assert rows.values.to_pylist()[:3] == [{"x": 1, "y": None}, {"x": 2, "y": "b"}, None]
    assert rows.values.to_pylist()[4] == {"x": 1, "y": None}
    assert rows.refused.keys() == {3}


def test_texts_among_python_objects_are_read_as_in_json() -> None:
    at = ["2026-11-29T11:00:00Z", "2026-11-29 12:00:00+01:00", "2026-11-29T11:00:00", None, "noon"]
    found = fitted_objects([*at, NOON], t.TimestampType())
    eleven = dt.datetime(2026, 11, 29, 11, tzinfo=UTC)
    assert found.values.to_pylist() == [eleven] * 3 + [None, None, NOON.replace(tzinfo=UTC)]
    assert {at: str(why) for at, why in found.refused.items()} == {4: '"noon" is not a TIMESTAMP'}
    good = fitted_objects(["2026-11-29", "0044-03-15"], t.DateType())
    assert good.values.to_pylist() == [dt.date(2026, 11, 29), dt.date(44, 3, 15)]
    assert fitted_objects(["07:30", "7:30"], t.TimeType(3)).refused.keys() == {1}
    assert fitted_objects(["9.99", "9.999"], t.DecimalType(9, 2)).refused.keys() == {1}
    assert fitted_objects(["true", "yes"], t.BooleanType()).values.to_pylist()[0] is True
    assert fitted_objects(["1.5", "x"], t.DoubleType()).values.to_pylist() == [1.5, None]
    assert fitted_objects(["300"], t.ByteType()).refused.keys() == {0}
    assert fitted_objects(["\ud800"], t.LongType()).refused.keys() == {0}
    assert fitted_objects(["QQ=="], t.BinaryType()).refused.keys() == {0}
    assert fitted_objects([5], t.StringType()).refused.keys() == {0}
