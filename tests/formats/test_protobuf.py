"""Protobuf messages: what columns take of them, from schemas in text and serialized."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.io.formats.protobuf import ProtobufMessages, RegisteredSchema, described
from headrace.io.formats.values import RejectedValueError
from headrace.types import Column, Schema

pytest.importorskip("grpc_tools")

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "parts/item.proto";

message Other { int32 id = 1; }
message Order {
  message Inner { string note = 1; }
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  optional string user = 2;
  State state = 3;
  repeated parts.Item items = 4;
  map<string, double> rates = 5;
  google.protobuf.Timestamp placed = 6;
  google.protobuf.StringValue note = 7;
  uint64 big = 8;
  oneof choice { bytes raw = 9; int32 number = 10; }
}
"""
ITEM = 'syntax = "proto3"; package parts; message Item { string Name = 1; int32 count = 2; }'
REGISTERED = RegisteredSchema("PROTOBUF", TEXT, (("parts/item.proto", ITEM),))


def columns(**types: t.DataType) -> Schema:
    return Schema(tuple(Column(name, type_) for name, type_ in types.items()))


ORDER = columns(
    ID=t.LongType(),
    user=t.StringType(),
    state=t.StringType(),
    items=t.ArrayType(
        t.StructType(
            [t.StructField("name", t.StringType()), t.StructField("other", t.IntegerType())]
        )
    ),
    rates=t.MapType(t.StringType(), t.DoubleType()),
    placed=t.TimestampType(),
    note=t.StringType(),
    big=t.DecimalType(20, 0),
    raw=t.BinaryType(),
    missing=t.IntegerType(),
)


@pytest.fixture(scope="module")
def file() -> Any:
    return described(REGISTERED)


def made(file: Any, name: str, **fields: Any) -> bytes:
    kind = message_factory.GetMessageClass(file.message_types_by_name[name])
    return bytes(kind(**fields).SerializeToString())


HEADER = b"\0\0\0\0\1"
ORDER_TYPE = b"\x02\x02"  # one place: the second type


def test_fields_become_columns(file) -> None:
    full = made(
        file,
        "Order",
        id=-5,
        user="",
        state=1,
        items=[{"Name": "a", "count": 1}, {}],
        rates={"x": 0.5},
        placed=datetime(2024, 1, 1, 0, 0, 0, 7, UTC),
        note={"value": "n"},
        big=2**64 - 1,
        raw=b"\xff",
    )
    empty = made(file, "Order")
    decoder = ProtobufMessages(REGISTERED, ORDER)
    found = decoder.decode([HEADER + ORDER_TYPE + full, HEADER + ORDER_TYPE + empty], 5)
    assert not found.rejects
    assert found.rows.to_pylist() == [
        {
            "ID": -5,
            "user": "",
            "state": "PAID",
            "items": [{"name": "a", "other": None}, {"name": "", "other": None}],
            "rates": [("x", 0.5)],
            "placed": datetime(2024, 1, 1, 0, 0, 0, 7, UTC),
            "note": "n",
            "big": Decimal(2**64 - 1),
            "raw": b"\xff",
            "missing": None,
        },
        {
            "ID": 0,
            "user": None,
            "state": "NEW",
            "items": [],
            "rates": [],
            "placed": None,
            "note": None,
            "big": Decimal(0),
            "raw": None,
            "missing": None,
        },
    ]


def test_the_type_is_the_one_at_its_place(file) -> None:
    decoder = ProtobufMessages(REGISTERED, columns(id=t.IntegerType(), note=t.StringType()))
    inner = b"\x04\x02\x00" + b"\x0a\x01x"  # two places: the second type, its first
    first = b"\x00" + made(file, "Other", id=3)
    found = decoder.decode([HEADER + inner, HEADER + first], 5)
    assert found.rows.to_pylist() == [{"id": None, "note": "x"}, {"id": 3, "note": None}]


def test_what_cannot_be_decoded_is_a_reject(file) -> None:
    good = HEADER + ORDER_TYPE + made(file, "Order", id=1, big=5)
    values = [
        HEADER,
        HEADER + b"\x02\x12" + b"\x08\x01",
        good[:-1],
        good,
        HEADER + ORDER_TYPE + made(file, "Order", big=2**63),
        HEADER + ORDER_TYPE + b"\x18\x07",
    ]
    wanted = columns(id=t.IntegerType(), big=t.LongType(), state=t.StringType())
    found = ProtobufMessages(REGISTERED, wanted).decode(values, 5)
    assert found.kept.tolist() == [3]
    assert {each.line: (each.column, each.reason) for each in found.rejects} == {
        0: (None, "the place of its type is damaged"),
        1: (None, "its schema has no type 9"),
        2: (None, "it is not a message of its type"),
        4: ("big", "9223372036854775808 does not fit BIGINT"),
        5: ("state", "its enum has no symbol 7"),
    }


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_any_bytes_are_a_row_or_a_reject(file, values: list[bytes]) -> None:
    found = ProtobufMessages(serialized(file), ORDER).decode([HEADER + v for v in values], 5)
    places = [*found.kept.tolist(), *(reject.line for reject in found.rejects)]
    assert sorted(places) == list(range(len(values)))


def serialized(file: Any) -> RegisteredSchema:
    """Return a file as registries give it when asked for it serialized."""
    item = next(each for each in file.dependencies if each.name == "parts/item.proto")
    texts = [base64.b64encode(each.serialized_pb).decode() for each in (file, item)]
    return RegisteredSchema("PROTOBUF", texts[0], (("parts/item.proto", texts[1]),))


def test_serialized_schemas_need_no_compiler(file, monkeypatch) -> None:
    monkeypatch.setattr("headrace.io.formats.protobuf._compiled", None)
    value = HEADER + ORDER_TYPE + made(file, "Order", id=8)
    found = ProtobufMessages(serialized(file), columns(id=t.LongType())).decode([value], 5)
    assert found.rows["id"].to_pylist() == [8]


def test_decimals_of_confluents_type() -> None:
    decimal = pytest.importorskip("confluent_kafka.schema_registry.confluent.type.decimal_pb2")
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="f", syntax="proto3", dependency=["confluent/type/decimal.proto"]
    )
    field = file.message_type.add(name="M").field.add(name="d", number=1, type=11, label=1)
    field.type_name = f".{decimal.Decimal.DESCRIPTOR.full_name}"
    text = base64.b64encode(file.SerializeToString()).decode()
    inner = decimal.Decimal(value=b"\xfb\x2e", scale=2).SerializeToString()
    value = HEADER + b"\0" + b"\x0a" + bytes([len(inner)]) + inner
    wanted = columns(d=t.DecimalType(9, 2))
    found = ProtobufMessages(RegisteredSchema("PROTOBUF", text), wanted).decode([value], 5)
    assert found.rows["d"].to_pylist() == [Decimal("-12.34")]


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("nonsense", ()),
        ('syntax = "proto3"; import "gone.proto"; message M {}', ()),
        ('syntax = "proto3"; message M {}', (("../outside.proto", ""),)),
        (base64.b64encode(b"\x1a\x04gone").decode(), ()),
    ],
)
def test_schemas_that_cannot_be_read_are_refused(text: str, references: Any) -> None:
    with pytest.raises(RejectedValueError):
        ProtobufMessages(RegisteredSchema("PROTOBUF", text, references), ORDER)
