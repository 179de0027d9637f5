"""Dates and times that Python lacks are text, and hide no other value."""

from __future__ import annotations

import datetime as dt
import json
import random

import pyarrow as pa
import pytest

from headrace.execution.serving.values import (
    column_values,
    date_text,
    json_column,
    json_text,
    python_rows,
    python_values,
    text_column,
    time_text,
)

FAR = 2_932_897
"""10000-01-01, in days since 1970."""
DAY = 86_400_000_000


def dates(*days: int | None) -> pa.Array:
    return pa.array(days, pa.int32()).cast(pa.date32())


def test_dates_are_those_of_python_where_it_has_them() -> None:
    some, epoch = random.Random(1), dt.date(1970, 1, 1).toordinal()
    ordinals = [1, 366, 1461, 146_097, 146_098, dt.date.max.toordinal()]
    for ordinal in [*ordinals, *(some.randrange(1, dt.date.max.toordinal()) for _ in range(2000))]:
        assert date_text(ordinal - epoch) == dt.date.fromordinal(ordinal).isoformat()
    assert [date_text(each) for each in (FAR, -719_163, -719_529, 10**9)] == [
        "+10000-01-01",
        "0000-12-31",
        "-0001-12-31",
        "+2739877-01-03",
    ]
    assert time_text(FAR * DAY - 1, "Z") == "9999-12-31T23:59:59.999999Z"
    assert time_text(-62_167_219_200_000_001, "") == "-0001-12-31T23:59:59.999999"


NESTED = pa.list_(pa.struct([("d", pa.date32()), ("m", pa.map_(pa.string(), pa.date32()))]))


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (dates(0, None, FAR), [dt.date(1970, 1, 1), None, "+10000-01-01"]),
        (pa.array([0, FAR * DAY], pa.timestamp("us")), [dt.datetime(1970, 1, 1), "+10000-01-01T00:00:00"]),  # noqa: DTZ001
        (pa.array([2**63 - 1, None], pa.timestamp("us", "UTC")), ["+294247-01-10T04:00:54.775807Z", None]),
        (pa.array([[{"d": FAR, "m": [("a", FAR), ("b", None)]}, None], None], NESTED),
         [[{"d": "+10000-01-01", "m": [("a", "+10000-01-01"), ("b", None)]}, None], None]),
    ],
)  # fmt: skip
def test_one_value_hides_no_other(column: pa.Array, wanted: list[object]) -> None:
    for given in (column, pa.chunked_array([column.slice(0, 1), column.slice(1)])):
        assert python_values(given) == wanted
        assert python_rows(pa.table({"a": given})) == [{"a": value} for value in wanted]
        in_json = [json_text(value) for value in column_values(given)]
        assert json_column(given).to_pylist() == in_json
        plain = [None if text == "null" else text.strip('"') for text in in_json]
        assert text_column(given).to_pylist() == plain
        assert all(json.loads(text) is not None or text == "null" for text in in_json)
