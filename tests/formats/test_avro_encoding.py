"""Columns as Avro: the library for Avro reads back what was written."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.io.formats.avro_encoding import AvroEncoder, record_name

fastavro = pytest.importorskip("fastavro")

NESTED = pa.struct([("p", pa.int32()), ("q", pa.list_(pa.string()))])
TYPES = {
    "boolean": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "decimal": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "long decimal": (pa.decimal128(38, 0), st.decimals(-(10**37), 10**37, places=0)),
    "string": (pa.string(), st.text()),
    "binary": (pa.binary(), st.binary(max_size=200)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("ns"), st.times()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes()),
    "local timestamp": (pa.timestamp("us"), st.datetimes()),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(0, 99), max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.string()),
        st.dictionaries(st.text(), st.none() | st.text(), max_size=3).map(lambda d: [*d.items()]),
    ),
    "struct": (
        NESTED,
        st.fixed_dictionaries(
            {
                "p": st.none() | st.integers(-9, 9),
                "q": st.none() | st.lists(st.none() | st.text(), max_size=2),
            }
        ),
    ),
}


def read(text: str, values: list[bytes]) -> list[Any]:
    schema = fastavro.parse_schema(json.loads(text))
    found = []
    for value in values:
        stored = io.BytesIO(value)
        found.append(fastavro.schemaless_reader(stored, schema, None))
        assert not stored.read()
    return found


@pytest.mark.parametrize("name", TYPES)
@given(st.data())
def test_what_is_written_is_read_back(name: str, data: st.DataObject) -> None:
    kind, values = TYPES[name]
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=6)), kind)
    rows = pa.table({"other": pa.array(range(len(column)), pa.int64()), "x": column})
    encoder = AvroEncoder("r", rows.schema)
    for part in (rows, rows.slice(1), pa.concat_tables([rows.slice(2), rows])):
        found = read(encoder.text, encoder.encode(part).to_pylist())
        assert found == part.to_pylist(maps_as_pydicts="strict")


def test_bytes_come_before_each_record() -> None:
    rows = pa.table({"x": pa.array([1, None], pa.int64())})
    assert AvroEncoder("r", rows.schema).encode(rows, b"id").to_pylist() == [b"id\x02\x02", b"id\0"]


def test_what_avro_has_no_name_or_type_for_is_refused() -> None:
    with pytest.raises(HeadraceError, match='"a b" cannot be a field'):
        AvroEncoder("r", pa.schema([("a b", pa.int64())]))
    with pytest.raises(HeadraceError, match='"x" of type duration'):
        AvroEncoder("r", pa.schema([("x", pa.duration("us"))]))
    assert record_name("7 orders.v2") == "_7_orders_v2"
