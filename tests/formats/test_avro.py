"""Avro records: what columns take of them, against fastavro's writer and reader."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.io.formats.avro import AvroRecords
from headrace.io.formats.values import RejectedValueError
from headrace.types import Column, Schema


def encoded(schema: Any, *values: Any) -> list[bytes]:
    parsed, found = fastavro.parse_schema(schema), []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        found.append(out.getvalue())
    return found


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
    }


def columns(**types: t.DataType) -> Schema:
    return Schema(tuple(Column(name, type_) for name, type_ in types.items()))


def decoder(schema: Any, wanted: Schema) -> AvroRecords:
    return AvroRecords(json.dumps(schema), wanted)


def logical(type_: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


NESTED = record(
    id="long",
    tags={"type": "array", "items": ["null", "string"]},
    counts={"type": "map", "values": "int"},
    place=[
        "null",
        {
            "type": "record",
            "name": "place",
            "fields": [
                {"name": "Town", "type": "string"},
                {"name": "zip", "type": "bytes"},
                {"name": "spots", "type": {"type": "array", "items": "double"}},
            ],
        },
    ],
    again=["null", "place"],
)
NESTED_COLUMNS = columns(
    id=t.LongType(),
    tags=t.ArrayType(t.StringType()),
    counts=t.MapType(t.StringType(), t.IntegerType()),
    place=t.StructType(
        [
            t.StructField("town", t.StringType()),
            t.StructField("spots", t.ArrayType(t.DoubleType())),
            t.StructField("other", t.StringType()),
        ]
    ),
    again=t.StructType([t.StructField("zip", t.BinaryType())]),
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
PLACE = st.fixed_dictionaries(
    {"Town": TEXT, "zip": st.binary(max_size=20), "spots": st.lists(st.floats(), max_size=3)}
)
RECORDS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "tags": st.lists(st.none() | TEXT, max_size=4),
        "counts": st.dictionaries(TEXT, st.integers(-(2**31), 2**31 - 1), max_size=3),
        "place": st.none() | PLACE,
        "again": st.none() | PLACE,
    }
)


def as_row(value: dict[str, Any]) -> dict[str, Any]:
    place, again = value["place"], value["again"]
    return {
        "id": value["id"],
        "tags": value["tags"],
        "counts": list(value["counts"].items()),
        "place": place and {"town": place["Town"], "spots": place["spots"], "other": None},
        "again": again and {"zip": again["zip"]},
    }


@given(st.lists(RECORDS, max_size=8))
def test_records_are_what_their_writer_wrote(values: list[Any]) -> None:
    found = decoder(NESTED, NESTED_COLUMNS).decode(encoded(NESTED, *values))
    assert not found.rejects
    assert found.kept.tolist() == list(range(len(values)))
    assert repr(found.rows.to_pylist()) == repr([as_row(value) for value in values])


@given(st.lists(RECORDS, max_size=4))
def test_fields_that_no_column_takes_are_passed_over(values: list[Any]) -> None:
    schema = {**NESTED, "fields": [*NESTED["fields"], {"name": "last", "type": "string"}]}
    written = encoded(schema, *({**value, "last": str(n)} for n, value in enumerate(values)))
    found = decoder(schema, columns(LAST=t.StringType())).decode(written)
    assert found.rows["LAST"].to_pylist() == [str(n) for n in range(len(values))]


@given(RECORDS, RECORDS, st.data())
def test_a_damaged_record_changes_no_other(one: Any, other: Any, data: Any) -> None:
    (whole, neighbour) = encoded(NESTED, one, other)
    cut = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.binary(min_size=1, max_size=3))
    damaged = [whole[:cut], whole + change, whole[:cut] + change + whole[cut:]]
    found = decoder(NESTED, NESTED_COLUMNS).decode([neighbour, *damaged, neighbour])
    assert {0, 4} <= set(found.kept.tolist())
    assert {1, 2} <= {reject.line for reject in found.rejects}
    rows = dict(zip(found.kept.tolist(), found.rows.to_pylist(), strict=True))
    assert repr(rows[0]) == repr(rows[4]) == repr(as_row(other))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_any_bytes_are_a_row_or_a_reject(values: list[bytes]) -> None:
    found = decoder(NESTED, NESTED_COLUMNS).decode(values)
    places = [*found.kept.tolist(), *(reject.line for reject in found.rejects)]
    assert sorted(places) == list(range(len(values)))
    found.rows.validate(full=True)


@pytest.mark.parametrize(
    ("avro", "value", "wanted", "expected"),
    [
        ("int", 7, t.LongType(), 7),
        ("long", 7, t.IntegerType(), 7),
        ("long", 7, t.DecimalType(10, 2), Decimal("7.00")),
        ("float", 1.5, t.DoubleType(), 1.5),
        ("double", math.inf, t.DoubleType(), math.inf),
        ("boolean", True, t.BooleanType(), True),
        ("bytes", b"\x00\xff", t.BinaryType(), b"\x00\xff"),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab", t.BinaryType(), b"ab"),
        ({"type": "enum", "name": "e", "symbols": ["a", "b"]}, "b", t.StringType(), "b"),
        (["null", "long", "string"], "x", t.StringType(), "x"),
        (["string", "null"], None, t.StringType(), None),
        ("null", None, t.IntegerType(), None),
        (logical("int", "date"), date(2024, 2, 29), t.DateType(), date(2024, 2, 29)),
        (
            logical("long", "timestamp-millis"),
            datetime(2024, 1, 1, 0, 0, 0, 5000, UTC),
            t.TimestampType(),
            datetime(2024, 1, 1, 0, 0, 0, 5000, UTC),
        ),
        (
            logical("long", "timestamp-micros"),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            t.TimestampNTZType(),
            datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        ),
        (
            logical("long", "local-timestamp-micros"),
            datetime(2024, 1, 1),  # noqa: DTZ001
            t.TimestampNTZType(),
            datetime(2024, 1, 1),  # noqa: DTZ001
        ),
        (
            logical("long", "timestamp-nanos"),
            1_999,
            t.TimestampType(),
            datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
        ),
        (
            logical("long", "timestamp-millis"),
            datetime(1970, 1, 2, tzinfo=UTC),
            t.LongType(),
            86_400_000,
        ),
        (logical("int", "time-millis"), 5, t.IntegerType(), 5),
        (logical("int", "time-millis"), 3_723_004, t.TimeType(3), time(1, 2, 3, 4000)),
        (logical("long", "time-micros"), 86_399_999_999, t.TimeType(4), time(23, 59, 59, 999900)),
        (
            logical("bytes", "decimal", precision=9, scale=2),
            Decimal("-1234.50"),
            t.DecimalType(9, 2),
            Decimal("-1234.50"),
        ),
        (
            logical("fixed", "decimal", precision=9, scale=4, name="d", size=5),
            Decimal("0.1032"),
            t.DecimalType(38, 10),
            Decimal("0.1032000000"),
        ),
        (
            logical("bytes", "decimal", precision=38, scale=0),
            Decimal(-(10**38) + 1),
            t.DecimalType(38, 0),
            Decimal(-(10**38) + 1),
        ),
        (logical("string", "uuid"), UUID(int=5), t.StringType(), str(UUID(int=5))),
        (
            logical("fixed", "uuid", name="u", size=16),
            UUID(int=5).bytes,
            t.StringType(),
            str(UUID(int=5)),
        ),
    ],
)
def test_a_value_is_what_its_column_takes(avro, value, wanted, expected) -> None:
    schema = record(v=avro)
    found = decoder(schema, columns(v=wanted)).decode(encoded(schema, {"v": value}))
    assert not found.rejects
    assert found.rows["v"].to_pylist() == [expected]


@pytest.mark.parametrize(
    ("avro", "value", "wanted", "reason"),
    [
        ("long", 2**40, t.IntegerType(), "does not fit INT"),
        ("string", "7", t.IntegerType(), "is not an INT"),
        ("double", 1.5, t.LongType(), "does not fit BIGINT"),
        (
            logical("bytes", "decimal", precision=9, scale=2),
            Decimal("0.25"),
            t.DecimalType(9, 1),
            "fit",
        ),
        (
            {"type": "array", "items": "int"},
            [1],
            t.StringType(),
            "an Avro array is not of type STRING",
        ),
        (["null", "long", "string"], 5, t.StringType(), "is not a STRING"),
        (logical("long", "timestamp-millis"), 2**62, t.TimestampType(), "does not fit TIMESTAMP"),
    ],
)
def test_a_value_that_does_not_fit_is_a_reject(avro, value, wanted, reason) -> None:
    schema = record(n="int", v=avro)
    written = encoded(schema, {"n": 1, "v": value})
    found = decoder(schema, columns(n=t.IntegerType(), v=wanted)).decode(written)
    assert found.rows.num_rows == 0
    (reject,) = found.rejects
    assert (reject.line, reject.column) == (0, "v")
    assert reason in reject.reason
    assert reject.raw == "\\x" + written[0].hex()


def test_text_that_is_not_utf8_is_a_reject() -> None:
    schema = record(v="string", w="string")
    good = encoded(schema, {"v": "a longer text than twelve", "w": "é"})[0]
    found = decoder(schema, columns(v=t.StringType(), w=t.StringType())).decode(
        [good, b"\x04\xff\xfe\x02a", good]
    )
    assert found.kept.tolist() == [0, 2]
    assert [reject.reason for reject in found.rejects] == ["a text is not UTF-8"]
    assert found.rows["v"].to_pylist() == ["a longer text than twelve"] * 2


def test_a_missing_field_is_null_and_refused_where_null_is() -> None:
    schema = record(a="int")
    wanted = Schema((Column("a", t.IntegerType()), Column("b", t.StringType())))
    found = decoder(schema, wanted).decode(encoded(schema, {"a": 1}))
    assert found.rows.to_pylist() == [{"a": 1, "b": None}]
    strict = Schema((Column("a", t.IntegerType()), Column("b", t.StringType(), nullable=False)))
    found = decoder(schema, strict).decode(encoded(schema, {"a": 1}))
    assert [(r.column, r.reason) for r in found.rejects] == [("b", "NULL in a NOT NULL column")]


def test_a_type_within_itself_is_passed_over() -> None:
    schema = record(id="int", next=["null", "r"])
    value: Any = None
    for n in range(50):
        value = {"id": n, "next": value}
    deep: Any = None
    for n in range(300):
        deep = {"id": n, "next": deep}
    found = decoder(schema, columns(id=t.IntegerType())).decode(encoded(schema, value, deep))
    assert found.rows["id"].to_pylist() == [49]
    assert [reject.reason for reject in found.rejects] == ["it is nested too deeply"]


def test_blocks_with_their_size_and_many_blocks_are_read() -> None:
    schema = record(v={"type": "array", "items": "int"})
    value = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"  # 2 items in 2 bytes, then 1, then the end
    found = decoder(schema, columns(v=t.ArrayType(t.IntegerType()))).decode([value])
    assert found.rows["v"].to_pylist() == [[1, 2, 3]]


def test_counts_and_lengths_that_cannot_be_are_refused_at_once() -> None:
    schema = record(v={"type": "array", "items": "null"}, w="string")
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    found = decoder(schema, columns(w=t.StringType())).decode([huge, b"\x00\x01", b"\x00" + huge])
    assert [reject.reason for reject in found.rejects] == [
        "an array has more items than bytes",
        "a length is negative",
        "it ends too early",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "not one of Avro"),
        ('{"type": "nothing"}', "not one of Avro"),
        ('"string"', "not of a record"),
        (json.dumps(record(b="int")), "none of the columns"),
        (json.dumps(record(a="int", A="int", B="int")), None),
        (json.dumps(record(aA="int", Aa="int")), None),
    ],
)
def test_schemas_that_cannot_be_read_are_refused(text: str, reason: str | None) -> None:
    if reason is None:
        wanted = columns(a=t.IntegerType()) if '"a"' in text else columns(AA=t.IntegerType())
        if '"a"' in text:
            AvroRecords(text, wanted)  # the exact name wins
            return
        reason = "twice"
    else:
        wanted = columns(a=t.IntegerType())
    with pytest.raises(RejectedValueError, match=reason):
        AvroRecords(text, wanted)


def test_schemas_may_name_others() -> None:
    inner = {"type": "record", "name": "ns.inner", "fields": [{"name": "x", "type": "int"}]}
    outer = record(i="ns.inner")
    wanted = columns(i=t.StructType([t.StructField("x", t.IntegerType())]))
    found = AvroRecords(json.dumps(outer), wanted, [json.dumps(inner)]).decode([b"\x06"])
    assert found.rows.to_pylist() == [{"i": {"x": 3}}]
    assert found.rows.schema == wanted.arrow
    assert isinstance(found.rows, pa.Table)
