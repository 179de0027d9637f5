"""Columns as JSON: what is written is what `json_value` has, whatever the values are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.execution.serving.values import column_values, json_column, json_objects, json_value

TYPES = {
    "boolean": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "decimal": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "small decimal": (pa.decimal128(38, 18), st.decimals(-1, 1, places=18)),
    "string": (pa.string(), st.text()),
    "binary": (pa.binary(), st.binary(max_size=9)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes()),
    "local timestamp": (pa.timestamp("us"), st.datetimes()),
    "time": (pa.time64("ns"), st.times()),
    "duration": (pa.duration("us"), st.timedeltas()),
    "list": (pa.list_(pa.string()), st.lists(st.none() | st.text(), max_size=3)),
    "map": (pa.map_(pa.string(), pa.int64()), st.just([("a\n", 1), ("b", None)])),
    "struct": (
        pa.struct([("x", pa.float64()), ('y"', pa.string())]),
        st.fixed_dictionaries({"x": st.floats(), 'y"': st.none() | st.text()}),
    ),
}


def texts(values: list[Any]) -> list[str]:
    return [repr(value) for value in values]


@pytest.mark.parametrize("name", TYPES)
@given(st.data())
def test_a_column_is_written_as_its_values_are(name: str, data: st.DataObject) -> None:
    kind, values = TYPES[name]
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), kind)
    wanted = texts([json_value(value) for value in column_values(column)])
    assert texts([json.loads(text) for text in json_column(column).to_pylist()]) == wanted
    cut = json_column(pa.chunked_array([column.slice(1), column.slice(0, 1)], kind))
    assert texts([json.loads(text) for text in cut.to_pylist()]) == [*wanted[1:], *wanted[:1]]


@given(st.lists(st.tuples(st.text(), st.none() | st.integers(0, 9)), min_size=1, max_size=4))
def test_rows_are_objects(rows: list[tuple[str, int | None]]) -> None:
    columns = {
        'a"\n': pa.array([text for text, _ in rows]),
        "b": pa.chunked_array([pa.array([number for _, number in rows], pa.int64())]),
    }
    found = [json.loads(text) for text in json_objects(columns, len(rows)).to_pylist()]
    assert found == [{'a"\n': text, "b": number} for text, number in rows]
    assert json_objects({}, 2).to_pylist() == ["{}", "{}"]
