"""Values as JSON, as CSV and in tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.execution.serving.values import csv_text, json_text, rows
from headrace.tools.cli.values import cell_text

_PARIS = timezone(timedelta(hours=2))

# value, as JSON, as CSV, in a table
_VALUES = [
    (None, "null", None, "NULL"),
    (True, "true", "true", "true"),
    (2**63 - 1, "9223372036854775807", "9223372036854775807", "9223372036854775807"),
    (Decimal("0.10"), '"0.10"', "0.10", "0.10"),
    (Decimal("1E-18"), '"0.000000000000000001"', "0.000000000000000001", "0.000000000000000001"),
    (0.1, "0.1", "0.1", "0.1"),
    (float("nan"), '"NaN"', "NaN", "NaN"),
    (float("-inf"), '"-Infinity"', "-Infinity", "-Infinity"),
    ("é\n", '"é\\n"', "é\n", "é\n"),
    (b"\x00\xff", '"AP8="', "AP8=", "00ff"),
    (date(2024, 2, 3), '"2024-02-03"', "2024-02-03", "2024-02-03"),
    (
        datetime(2024, 2, 3, 4, 5, 6, 500_000, UTC),
        '"2024-02-03T04:05:06.500000Z"',
        "2024-02-03T04:05:06.500000Z",
        "2024-02-03 04:05:06.5",
    ),
    (
        datetime(2024, 2, 3, 4, 5, tzinfo=_PARIS),
        '"2024-02-03T02:05:00Z"',
        "2024-02-03T02:05:00Z",
        "2024-02-03 02:05:00",
    ),
    (
        datetime(2024, 2, 3, 4, 5),  # noqa: DTZ001  (a timestamp without a zone)
        '"2024-02-03T04:05:00"',
        "2024-02-03T04:05:00",
        "2024-02-03 04:05:00",
    ),
    (time(4, 5, 6, 500_000), '"04:05:06.500000"', "04:05:06.500000", "04:05:06.5"),
    (time(0), '"00:00:00"', "00:00:00", "00:00:00"),
    (timedelta(days=1, hours=2, seconds=0.5), '"P1DT2H0.5S"', "P1DT2H0.5S", "P1DT2H0.5S"),
    (-timedelta(minutes=90), '"-PT1H30M"', "-PT1H30M", "-PT1H30M"),
    (timedelta(), '"PT0S"', "PT0S", "PT0S"),
    ([1, None], "[1,null]", "[1,null]", "[1,null]"),
    ({"a": Decimal("1.5")}, '{"a":"1.5"}', '{"a":"1.5"}', '{"a":"1.5"}'),
    ({1: []}, '{"1":[]}', '{"1":[]}', '{"1":[]}'),
]


@pytest.mark.parametrize(("value", "in_json", "in_csv", "in_table"), _VALUES)
def test_a_value_is_written_exactly(
    value: Any, in_json: str, in_csv: str | None, in_table: str
) -> None:
    assert json_text(value) == in_json
    assert csv_text(value) == in_csv
    assert cell_text(value) == in_table


def test_a_cell_never_steers_the_terminal() -> None:
    assert cell_text("\x1b[31mred\u202e\r") == r"\x1b[31mred\u202e\r"
    assert "\x1b" not in cell_text({"a": "\x1b"})


def test_a_32_bit_float_is_written_with_the_digits_it_has() -> None:
    table = pa.table({"x": pa.array([0.1, None], pa.float32())})
    assert list(rows(table)) == [(0.1,), (None,)]


def test_maps_and_structs_are_dictionaries() -> None:
    table = pa.table(
        {
            "m": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
            "s": pa.array([{"b": 2}, None], pa.struct([("b", pa.int32())])),
        }
    )
    assert list(rows(table)) == [({"a": 1}, {"b": 2}), ({}, None)]
