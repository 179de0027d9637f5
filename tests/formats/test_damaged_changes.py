"""Messages of captured changes with anything in any place: a change or a reject, never a failure."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.io.formats.captured import (
    CANAL_ORIGINS,
    MAXWELL_ORIGINS,
    Canal,
    CapturedMessages,
    Maxwell,
    image_schema,
)
from headrace.io.formats.debezium import ORIGINS, Debezium
from headrace.io.formats.debezium_values import Decimals, Encoding, Times
from headrace.io.formats.messages import JsonMessages
from headrace.io.formats.upserts import KeyFormat, Keys, Upserts
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.io.formats.captured import Capture, Origin
    from headrace.io.formats.upserts import ChangeDecoder

POINT = t.StructType([t.StructField("x", t.DoubleType()), t.StructField("d", t.DateType())])
SCHEMA = Schema(
    (
        Column("id", t.LongType(), nullable=False),
        Column("text", t.StringType()),
        Column("price", t.DecimalType(10, 2)),
        Column("at", t.TimestampType()),
        Column("day", t.DateType()),
        Column("raw", t.BinaryType()),
        Column("ok", t.BooleanType()),
        Column("rate", t.DoubleType()),
        Column("many", t.ArrayType(t.LongType())),
        Column("named", t.MapType(t.StringType(), t.StringType())),
        Column("point", POINT),
        Column("op", t.StringType()),
    )
)
ROW = {
    "id": 1,
    "text": "x",
    "price": "MDk=",
    "at": 1767225600123456,
    "day": 20454,
    "raw": "AAE=",
    "ok": True,
    "rate": {"scale": 2, "value": "MDk="},
    "many": [1, None],
    "named": {"a": "b"},
    "point": {"x": 1.5, "d": 3},
}
FIELDS = [
    {"field": "id", "type": "int64"},
    {
        "field": "price",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    },
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "many", "type": "array", "items": {"type": "int64"}},
    {"field": "point", "type": "struct", "fields": [{"field": "d", "type": "int32"}]},
]
ENVELOPE = {
    "op": "u",
    "before": ROW,
    "after": {**ROW, "id": 2},
    "source": {"ts_ms": 1, "db": "d"},
    "ts_ms": 2,
    "transaction": {"id": "x"},
}
TYPED = {
    "schema": {
        "type": "struct",
        "fields": [{"field": n, "type": "struct", "fields": FIELDS} for n in ("before", "after")],
    },
    "payload": ENVELOPE,
}
BINLOG = {**ROW, "price": "1.5", "at": "2026-01-01 00:00:00", "day": "2026-01-01", "rate": "1"}
MAXWELL = {"type": "update", "data": BINLOG, "old": {"id": 3}, "ts": 5, "xid": 7}
CANAL = {"type": "UPDATE", "data": [BINLOG, BINLOG], "old": [{"id": 3}, {}], "ts": 5, "es": 6}

anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([10**15, -(10**18), 10**19, 10**30, 10**400]),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
        st.sampled_from(
            ["c", "d", "t", "MDk=", "1234", "NaN", "Infinity", "1e999999999", "\ud800"]
        ),
        st.sampled_from(["__debezium_unavailable_value", "2026-01-01T00:00:00Z"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["scale", "value", "id", "op", "x", ""]), inner, max_size=3
        ),
    ),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values within one."""
    found = [path]
    if isinstance(value, dict | list):
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(each, (*path, name))
    return found


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> bytes:
    """Return a message with other values in some places, or without them."""
    message = copy.deepcopy(whole)
    for _ in range(draw(st.integers(0, 3))):
        *path, last = draw(st.sampled_from([path for path in places(message) if path]))
        inner = message
        for name in path:
            inner = inner[name]
        if isinstance(inner, dict) and draw(st.booleans()):
            inner.pop(last, None)
        else:
            inner[last] = draw(anything)
    separators = draw(st.sampled_from([None, (",", ":")]))
    text = json.dumps(message, separators=separators).encode()
    return text if draw(st.integers(0, 9)) else text[: draw(st.integers(0, len(text)))]


def captured(
    make: Callable[..., Capture], key: tuple[str, ...], origins: Mapping[str, Origin]
) -> CapturedMessages:
    """Return a decoder, with all that a message says of its origin if there is a key."""
    of = {name: origin for name, origin in origins.items() if key}
    extra = (
        Column(name, t.StringType() if origin.micros is None else t.TimestampType())
        for name, origin in of.items()
    )
    schema = Schema((*SCHEMA.columns, *extra))
    return CapturedMessages(schema, key, make(image_schema(SCHEMA).columns), of)


def holds(decoder: ChangeDecoder, values: list[bytes | None]) -> None:
    """Every message makes changes that fit, or is one reject, or is about something else."""
    found = decoder.changes([values[-1]] * len(values), values)
    found.rows.validate(full=True)
    assert len(found.weights) == len(found.messages) == found.rows.num_rows
    rejected = [reject.line for reject in found.rejects]
    assert len(set(rejected)) == len(rejected)
    for reject in found.rejects:
        f"{reject.column} {reject.reason} {reject.raw}".encode()
    assert set(rejected).isdisjoint(found.messages.tolist())
    for value in values:
        assert value is None or isinstance(decoder.transaction(value), str | None)


@pytest.mark.parametrize("key", [("id",), (), ("price", "at")])
@given(data=st.data())
def test_debezium(key: tuple[str, ...], data: st.DataObject) -> None:
    encoding = Encoding(
        data.draw(st.sampled_from([None, *Decimals])),
        data.draw(st.sampled_from([None, *Times])),
        precisions=data.draw(st.sampled_from([{}, {"at": 3}, {"at": 9}])),
    )
    made = captured(lambda columns: Debezium(columns, key, encoding), key, ORIGINS)
    one = st.one_of(st.none(), damaged(ENVELOPE), damaged(TYPED))
    holds(made, data.draw(st.lists(one, min_size=1, max_size=5)))


@pytest.mark.parametrize("key", [("id",), ()])
@given(data=st.data())
def test_maxwell_and_canal(key: tuple[str, ...], data: st.DataObject) -> None:
    maxwell = captured(Maxwell, key, MAXWELL_ORIGINS)
    holds(maxwell, data.draw(st.lists(damaged(MAXWELL), min_size=1, max_size=4)))
    canal = captured(Canal, key, CANAL_ORIGINS)
    holds(canal, data.draw(st.lists(damaged(CANAL), min_size=1, max_size=4)))


@given(data=st.data())
def test_keyed_messages(data: st.DataObject) -> None:
    schema = Schema(SCHEMA.columns[:3])
    keys = Keys([schema.columns[0]], data.draw(st.sampled_from(KeyFormat)))
    values = Schema((Column("id", t.LongType()), *schema.columns[1:]))
    made = Upserts(schema, ("id",), JsonMessages(values), keys)
    one = st.one_of(st.none(), damaged({"id": 1, "text": "x", "price": 1.5}), st.binary(max_size=9))
    holds(made, data.draw(st.lists(one, min_size=1, max_size=5)))
