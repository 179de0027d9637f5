"""Debezium's events: each encoding of its documentation, with values worked out by hand."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as t

from headrace.io.formats.captured import CapturedMessages
from headrace.io.formats.debezium import ORIGINS, Debezium
from headrace.io.formats.debezium_values import Binaries, Decimals, Encoding, Times
from headrace.types import Column, Schema

DECIMAL = "org.apache.kafka.connect.data.Decimal"
KEPT = "(kept)"


def decoder(
    columns: dict[str, t.DataType], key: tuple[str, ...] = ("id",), **encoding: Any
) -> CapturedMessages:
    schema = Schema(tuple(Column(n, type_, n not in key) for n, type_ in columns.items()))
    images = tuple(c for c in schema.columns if c.name != "op")
    return CapturedMessages(schema, key, Debezium(images, key, Encoding(**encoding)))


def typed(payload: Any, /, **fields: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its schema; each field has the attributes of its type."""
    row = [{"type": "int32", "optional": False, "field": "id"}]
    row += [{"optional": True, "field": name, **given} for name, given in fields.items()]
    images = [{"type": "struct", "fields": row, "field": name} for name in ("before", "after")]
    op = {"type": "string", "field": "op"}
    return {"schema": {"type": "struct", "fields": [*images, op]}, "payload": payload}


def changes(
    made: CapturedMessages, *messages: Any, keys: list[Any] | None = None
) -> tuple[list[tuple], list[tuple]]:
    """Return the changes of messages, each with its weight, and the rejects."""
    values = [
        None if m is None else m if isinstance(m, bytes) else json.dumps(m).encode()
        for m in messages
    ]
    raw = [None if k is None else json.dumps(k).encode() for k in keys or [None] * len(values)]
    found = made.changes(raw, values)
    rows = [list(row.values()) for row in found.rows.to_pylist()]
    for name, mask in found.unchanged.items():
        at = found.rows.column_names.index(name)
        for row, kept in zip(rows, mask.to_pylist(), strict=True):
            row[at] = KEPT if kept else row[at]
    weighted = [(int(w), *row) for w, row in zip(found.weights, rows, strict=True)]
    for at in reversed(found.emptied):
        weighted.insert(at, ("empty",))
    return weighted, [(r.line, r.column, r.reason) for r in found.rejects]


def value_of(type_: t.DataType, value: Any, schema: dict | None = None, **encoding: Any) -> Any:
    """Return the value of a column, or the reason why it is refused."""
    made = decoder({"id": t.IntegerType(), "x": type_}, **encoding)
    event = {"op": "c", "before": None, "after": {"id": 1, "x": value}}
    rows, rejects = changes(made, event if schema is None else typed(event, x=schema))
    return rejects[0][2] if rejects else rows[0][2]


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


BYTES = {"type": "bytes", "name": DECIMAL, "version": 1}
SCALE4 = {**BYTES, "parameters": {"scale": "4", "connect.decimal.precision": "4"}}


@pytest.mark.parametrize(
    ("value", "type_", "schema", "mode", "wanted"),
    [
        ("BAg=", t.DecimalType(4, 4), None, None, "0.1032"),
        ("BAg=", t.DecimalType(4, 4), SCALE4, None, "0.1032"),
        ("+/g=", t.DecimalType(4, 4), None, None, "-0.1032"),
        ("+/g=", t.DecimalType(4, 4), SCALE4, None, "-0.1032"),
        ("BAg=", t.DecimalType(8, 6), SCALE4, None, "0.103200"),
        ("MDk=", t.DecimalType(5, 2), None, Decimals.PRECISE, "123.45"),
        ("AA==", t.DecimalType(5, 2), None, None, "0.00"),
        ("/w==", t.DecimalType(5, 2), None, None, "-0.01"),
        # 10^37 + 1 takes 16 bytes, more than a double or 28 digits hold
        (
            base64.b64encode((10**37 + 1).to_bytes(16, "big")).decode(),
            t.DecimalType(38, 0),
            None,
            None,
            str(10**37 + 1),
        ),
        ({"scale": 2, "value": "MDk="}, t.DecimalType(8, 3), None, None, "123.450"),
        ({"scale": 0, "value": "ew=="}, t.DecimalType(3, 0), {"type": "struct"}, None, "123"),
        (0.1032, t.DecimalType(4, 4), None, None, "0.1032"),
        (12.5, t.DecimalType(4, 2), {"type": "double"}, Decimals.DOUBLE, "12.50"),
        ("0.1032", t.DecimalType(4, 4), None, None, "0.1032"),
        ("-123", t.DecimalType(4, 0), None, None, "-123"),
        ("1234", t.DecimalType(6, 2), None, Decimals.STRING, "1234.00"),
        ("1234", t.DecimalType(6, 2), {"type": "string"}, None, "1234.00"),
        # the bytes D7 6D F8: -2658824
        ("1234", t.DecimalType(9, 2), None, Decimals.PRECISE, "-26588.24"),
        ("1234", t.DecimalType(9, 4), SCALE4, None, "-265.8824"),
    ],
)
def test_decimals(value: Any, type_: Any, schema: Any, mode: Any, wanted: str) -> None:
    assert value_of(type_, value, schema, decimals=mode) == Decimal(wanted)


def test_decimals_in_columns_of_other_types() -> None:
    assert value_of(t.LongType(), "MDk=", BYTES | {"parameters": {"scale": "0"}}) == 12345
    assert value_of(t.DoubleType(), "MDk=", BYTES | {"parameters": {"scale": "2"}}) == 123.45
    assert value_of(t.StringType(), "MDk=", BYTES | {"parameters": {"scale": "2"}}) == "123.45"
    assert value_of(t.LongType(), "MDk=", BYTES | {"parameters": {"scale": "2"}}) == (
        "123.45 does not fit BIGINT"
    )
    assert "scale is not known" in value_of(t.DoubleType(), "MDk=", decimals=Decimals.PRECISE)


@pytest.mark.parametrize(
    ("value", "type_"),
    [("1234", t.DecimalType(9, 2)), ("+123", t.DecimalType(9, 2)), ("12345678", t.LongType())],
)
def test_text_that_is_a_number_and_the_binary_form_of_another_is_refused(value, type_) -> None:
    assert value_of(type_, value) == (
        f'"{value}" may be a number, or the binary form of another: set'
        " 'debezium.decimal-handling-mode'"
    )


NAMED = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."
MOMENT = 1767225600123456  # 2026-01-01 00:00:00.123456 in microseconds


@pytest.mark.parametrize(
    ("name", "kind", "value", "type_", "wanted"),
    [
        (NAMED + "Date", "int32", 20454, t.DateType(), date(2026, 1, 1)),
        (NAMED + "Date", "int32", -719162, t.DateType(), date(1, 1, 1)),
        (CONNECT + "Date", "int32", 20454, t.DateType(), date(2026, 1, 1)),
        (NAMED + "Timestamp", "int64", 1767225600000, t.DateType(), date(2026, 1, 1)),
        (NAMED + "IsoDate", "string", "2026-01-01Z", t.DateType(), date(2026, 1, 1)),
        (NAMED + "Timestamp", "int64", MOMENT // 1000, t.TimestampType(), 123000),
        (CONNECT + "Timestamp", "int64", MOMENT // 1000, t.TimestampNTZType(), 123000),
        (NAMED + "MicroTimestamp", "int64", MOMENT, t.TimestampType(), 123456),
        (NAMED + "MicroTimestamp", "int64", MOMENT, t.TimestampNTZType(), 123456),
        (NAMED + "NanoTimestamp", "int64", MOMENT * 1000 + 789, t.TimestampType(), 123456),
        (NAMED + "Date", "int32", 20454, t.TimestampType(), 0),
        (
            NAMED + "ZonedTimestamp",
            "string",
            "2026-01-01T02:00:00.123456+02:00",
            t.TimestampType(),
            123456,
        ),
        (
            NAMED + "IsoTimestamp",
            "string",
            "2026-01-01T00:00:00.123456Z",
            t.TimestampNTZType(),
            123456,
        ),
        (NAMED + "Time", "int32", 3_661_001, t.StringType(), "01:01:01.001"),
        (CONNECT + "Time", "int32", 3_661_000, t.StringType(), "01:01:01"),
        (NAMED + "MicroTime", "int64", 86_399_999_999, t.StringType(), "23:59:59.999999"),
        (NAMED + "NanoTime", "int64", 1, t.StringType(), "00:00:00.000000001"),
        (NAMED + "MicroTime", "int64", 5, t.LongType(), 5),
        (NAMED + "Time", "int32", 3_661_001, t.TimeType(3), time(1, 1, 1, 1000)),
        (CONNECT + "Time", "int32", 0, t.TimeType(0), time(0)),
        (NAMED + "MicroTime", "int64", 86_399_999_999, t.TimeType(1), time(23, 59, 59, 900000)),
        (NAMED + "NanoTime", "int64", 1_999, t.TimeType(6), time(0, 0, 0, 1)),
        (NAMED + "IsoTime", "string", "01:01:01Z", t.TimeType(6), time(1, 1, 1)),
        (NAMED + "Year", "int32", 2026, t.IntegerType(), 2026),
    ],
)
def test_times_by_their_name_in_the_schema(name, kind, value, type_, wanted) -> None:
    found = value_of(type_, value, {"type": kind, "name": name})
    if isinstance(type_, t.TimestampType | t.TimestampNTZType):
        zone = UTC if isinstance(type_, t.TimestampType) else None
        wanted = datetime(2026, 1, 1, 0, 0, 0, wanted, zone)
    assert found == wanted


@pytest.mark.parametrize(
    ("value", "times", "digits", "wanted"),
    [
        (MOMENT // 1000, Times.CONNECT, None, at(2026, 1, 1, 0, 0, 0, 123000)),
        (MOMENT, Times.MICROSECONDS, None, at(2026, 1, 1, 0, 0, 0, 123456)),
        (1000, Times.MICROSECONDS, None, at(1970, 1, 1, 0, 0, 0, 1000)),
        (MOMENT * 1000, Times.NANOSECONDS, None, at(2026, 1, 1, 0, 0, 0, 123456)),
        (-1, Times.CONNECT, None, at(1969, 12, 31, 23, 59, 59, 999000)),
        (1000, Times.ADAPTIVE, 3, at(1970, 1, 1, 0, 0, 1)),
        (1000, Times.ADAPTIVE, 6, at(1970, 1, 1, 0, 0, 0, 1000)),
        (1000, Times.ADAPTIVE, 9, at(1970, 1, 1, 0, 0, 0, 1)),
        (MOMENT // 1000, None, 3, at(2026, 1, 1, 0, 0, 0, 123000)),
        (MOMENT, None, None, at(2026, 1, 1, 0, 0, 0, 123456)),
        (MOMENT * 1000, None, None, at(2026, 1, 1, 0, 0, 0, 123456)),
        ("2026-01-01T00:00:00Z", None, None, at(2026, 1, 1)),
        ("2026-01-01 00:00:00.5", None, None, at(2026, 1, 1, 0, 0, 0, 500000)),
    ],
)
def test_times_without_a_schema(value, times, digits, wanted) -> None:
    precisions = {} if digits is None else {"x": digits}
    assert value_of(t.TimestampType(), value, times=times, precisions=precisions) == wanted


@pytest.mark.parametrize("times", [None, Times.ADAPTIVE])
def test_a_number_whose_unit_is_not_known_is_no_time(times) -> None:
    for digits in ({}, {"x": 6} if times is None else {}):
        found = value_of(t.TimestampType(), MOMENT // 1000, times=times, precisions=digits)
        assert "has no unit: set 'debezium.time-precision-mode'" in found
    assert value_of(t.TimestampType(), 5, {"type": "int64"}) == "5 is not a TIMESTAMP"
    assert value_of(t.DateType(), 1767225600000) == "1767225600000 does not fit DATE"
    infinity = 9223372036825200000
    name = {"type": "int64", "name": NAMED + "MicroTimestamp"}
    assert value_of(t.TimestampType(), infinity, name) == f"{infinity} does not fit TIMESTAMP"
    late = {"type": "int64", "name": NAMED + "MicroTime"}
    assert value_of(t.TimeType(), 86_400_000_000, late) == "86400000000 does not fit TIME(6)"
    zoned = {"type": "string", "name": NAMED + "ZonedTime"}
    assert value_of(t.TimeType(), "10:00:00Z", zoned) == '"10:00:00Z" is not a TIME(6)'
    unknown = "5 has no unit: it is known from messages with schemas"
    assert value_of(t.TimeType(), 5) == unknown
    half = {"type": "int64", "name": NAMED + "Timestamp"}
    assert value_of(t.DateType(), 1767225600001, half) == "1767225600001 is not a DATE"


def test_bytes_truths_and_arrays() -> None:
    assert value_of(t.BinaryType(), "3q2+7w==") == b"\xde\xad\xbe\xef"
    assert value_of(t.BinaryType(), "3q2-7w==", binaries=Binaries.BASE64_URL_SAFE) == (
        b"\xde\xad\xbe\xef"
    )
    assert value_of(t.BinaryType(), "deadbeef", binaries=Binaries.HEX) == b"\xde\xad\xbe\xef"
    assert value_of(t.BinaryType(), "no base64!") == '"no base64!" is not base64'
    assert value_of(t.BooleanType(), value=True) is True
    assert value_of(t.BooleanType(), 0, {"type": "int16"}) is False
    assert value_of(t.BooleanType(), 2) == "2 is not a BOOLEAN"
    items = {"type": "array", "items": SCALE4}
    assert value_of(t.ArrayType(t.DecimalType(4, 4)), ["BAg=", None], items) == [
        Decimal("0.1032"),
        None,
    ]
    point = t.StructType([t.StructField("d", t.DateType()), t.StructField("n", t.LongType())])
    inner = [{"field": "D", "type": "int32", "name": NAMED + "Date"}]
    found = value_of(point, {"D": 20454, "n": 4}, {"type": "struct", "fields": inner})
    assert found == {"d": date(2026, 1, 1), "n": 4}


WIDE = {
    "id": t.IntegerType(),
    "a": t.StringType(),
    "b": t.BinaryType(),
    "l": t.ArrayType(t.LongType()),
}
LOST = "__debezium_unavailable_value"


def test_a_value_that_was_not_sent_is_kept() -> None:
    after = {
        "id": 1,
        "a": LOST,
        "b": base64.b64encode(LOST.encode()).decode(),
        "l": list(LOST.encode()),
    }
    made = decoder(WIDE)
    rows, rejects = changes(made, {"op": "u", "before": None, "after": after})
    assert (rows, rejects) == ([(1, 1, KEPT, KEPT, KEPT)], [])
    before = {"id": 1, "a": "x", "b": None, "l": [7]}
    rows, _ = changes(made, {"op": "u", "before": before, "after": after})
    assert rows == [(1, 1, "x", KEPT, [7])]
    other = decoder(WIDE, placeholder="?")
    rows, _ = changes(other, {"op": "u", "before": None, "after": {"id": 1, "a": "?"}})
    assert rows == [(1, 1, KEPT, None, None)]
    rows, rejects = changes(decoder(WIDE, key=("a",)), {"op": "c", "after": {**before, "a": LOST}})
    assert (rows, rejects[0][1]) == ([], "a")
    rows, rejects = changes(decoder(WIDE, key=()), {"op": "c", "after": after})
    assert rows == []
    assert rejects[0][1:] == (
        "a",
        "its value was not sent, and the row has no key to look it up by",
    )


ROW = {"id": t.IntegerType(), "v": t.StringType(), "op": t.StringType()}


@pytest.mark.parametrize("schema", [False, True])
def test_operations_by_key(*, schema: bool) -> None:
    events = [
        {"op": "r", "before": None, "after": {"id": 1, "v": "a"}},
        {"op": "c", "before": None, "after": {"id": 2, "v": "b"}, "ts_ms": 5},
        {"op": "u", "before": None, "after": {"id": 1, "v": "c"}},
        {"op": "u", "before": {"id": 2, "v": "b"}, "after": {"id": 3, "v": "b"}},
        {"op": "u", "before": {"id": 3, "v": None}, "after": {"id": 3, "v": "d"}},
        {"op": "d", "before": {"id": 3, "v": None}, "after": None},
        {"op": "m", "message": {"prefix": "x", "content": "eA=="}},
        {"op": "t", "before": None, "after": None},
        {"op": "c", "before": None, "after": {"id": 9, "v": None}},
    ]
    sent = [typed(e, v={"type": "string"}) if schema else e for e in events]
    rows, rejects = changes(decoder(ROW), *sent)
    assert rejects == []
    assert rows == [
        (1, 1, "a", "r"),
        (1, 2, "b", "c"),
        (1, 1, "c", "u"),
        (-1, 2, None, None),
        (1, 3, "b", "u"),
        (1, 3, "d", "u"),
        (-1, 3, None, None),
        ("empty",),
        (1, 9, None, "c"),
    ]


def test_operations_without_a_key() -> None:
    rows, rejects = changes(
        decoder(ROW, key=()),
        {"op": "c", "after": {"id": 1, "v": "a"}},
        {"op": "u", "before": {"id": 1, "v": "a"}, "after": {"id": 1, "v": "b"}},
        {"op": "d", "before": {"id": 1, "v": "b"}, "after": None},
        {"op": "u", "before": None, "after": {"id": 1, "v": "b"}},
        None,
    )
    assert rows == [(1, 1, "a", "c"), (-1, 1, "a", KEPT), (1, 1, "b", "u"), (-1, 1, "b", KEPT)]
    assert rejects == [(3, "before", "no before in a change with op u")]


def test_deletions_by_the_key_of_the_message() -> None:
    gone = {"op": "d", "before": None, "after": None}
    keys = [
        {"id": 1},
        {
            "schema": {"type": "struct", "fields": [{"field": "id", "type": "int32"}]},
            "payload": {"id": 2},
        },
        {"id": 3},
        {"id": 4},
        {"id": 5, "more": 1},
        {"other": 6},
        "text",
        None,
    ]
    rows, rejects = changes(
        decoder(ROW), gone, typed(gone), None, b"null", None, None, None, None, keys=keys
    )
    assert rows == [(-1, n, None, None) for n in (1, 2, 3, 4)]
    assert rejects == []
    rows, rejects = changes(decoder(ROW), gone, gone, keys=[{"other": 1}, None])
    assert (rows, [line for line, *_ in rejects]) == ([], [0, 1])


def test_messages_about_something_else_make_no_change() -> None:
    others = [
        {"status": "BEGIN", "id": "571:53195829", "event_count": None, "ts_ms": 1},
        {"status": "END", "id": "571:53195829", "event_count": 2, "data_collections": []},
        {"ts_ms": 1767225600000},
        typed({"ts_ms": 1767225600000}),
        typed(None),
        {"op": "m", "source": {}},
    ]
    assert changes(decoder(ROW), *others) == ([], [])


def test_columns_have_where_and_when_a_change_was_made() -> None:
    columns = (
        Column("at", t.TimestampType()),
        Column("id", t.IntegerType(), nullable=False),
        Column("op", t.StringType()),
        Column("db", t.StringType()),
        Column("v", t.StringType()),
    )
    origins = {"at": ORIGINS["value.source.timestamp"], "db": ORIGINS["value.source.database"]}
    made = CapturedMessages(
        Schema(columns), ("id",), Debezium((columns[1], columns[4]), ("id",), Encoding()), origins
    )
    source = {"ts_ms": 1767225600123, "db": "shop"}
    rows, rejects = changes(
        made,
        {"op": "c", "after": {"id": 1, "v": "x", "db": "no"}, "source": source, "ts_ms": 5},
        {"op": "u", "after": {"id": 1, "v": "y"}, "source": {"ts_ms": "x", "db": 7}},
        {"op": "d", "before": {"id": 1}, "source": source},
    )
    assert rejects == []
    assert rows == [
        (1, at(2026, 1, 1, 0, 0, 0, 123000), 1, "c", "shop", "x"),
        (1, None, 1, "u", None, "y"),
        (-1, None, 1, None, None, None),
    ]


@pytest.mark.parametrize(
    ("message", "column", "reason"),
    [
        (b"no json", None, "not JSON"),
        (b"\xff{}", None, "not UTF-8"),
        ([1], None, "not a JSON object"),
        ({}, "op", "no op: an envelope has op c, r, u, d, t or m"),
        ({"op": "x", "after": {"id": 1}}, "op", "op 'x'"),
        ({"op": ["c"]}, "op", "op ['c']"),
        ({"op": "c", "before": None}, "after", "no after in an envelope with op c"),
        ({"op": "c", "after": 7}, "after", "after is not an object"),
        ({"op": "c", "after": {"v": "x"}}, "id", "NULL in a NOT NULL column"),
        ({"op": "c", "after": {"x": 1}}, "after", "none of the columns is in it"),
        ({"op": "c", "after": {"id": "one"}}, "id", '"one" is not an INT'),
        ({"op": "d", "before": {"v": "x"}}, "id", "the key of the deleted row is not in it"),
        (b'{"schema": {}, "payload": [1]}', None, "its payload is not a JSON object"),
        (b'{"schema":{"a":1},"payload":{"op":"c"}', None, "not JSON"),
        (b'{"op": "c", "after": {"id": 1, "id": 2}}', "id", "it is given twice"),
    ],
)
def test_what_is_no_envelope_is_a_reject(message, column, reason) -> None:
    good = {"op": "c", "after": {"id": 5, "v": "y"}}
    rows, rejects = changes(decoder(ROW), good, message, good)
    assert rows == [(1, 5, "y", "c")] * 2
    ((line, found, why),) = rejects
    assert (line, found) == (1, column)
    assert reason in why


def test_schemas_may_change_between_messages_and_hold_any_name() -> None:
    made = decoder({"id": t.IntegerType(), "x": t.DecimalType(9, 4)})
    event = {"op": "c", "after": {"id": 1, "x": "BAg="}}
    scales = [typed(event, x={**BYTES, "parameters": {"scale": str(n)}}) for n in (4, 1, 4)]
    odd = typed(event, x={**SCALE4, "doc": 'a "payload":{ in it'}, payload={"type": "int32"})
    compact = json.dumps(odd, separators=(",", ":")).encode()
    nested = json.dumps(
        {"schema": {**scales[0]["schema"], "payload": 1}, "payload": event}, separators=(",", ":")
    ).encode()
    swapped = {"payload": event, "schema": scales[1]["schema"]}
    packed = [json.dumps(s, separators=(",", ":")).encode() for s in scales]
    rows, rejects = changes(made, *scales, *packed, compact, nested, swapped)
    assert rejects == []
    assert [str(row[2]) for row in rows] == [
        *["0.1032", "103.2000", "0.1032"] * 2,
        "0.1032",
        "0.1032",
        "103.2000",
    ]


def test_an_event_may_say_its_transaction() -> None:
    made = decoder(ROW)

    def of(**message: Any) -> str | None:
        return made.transaction(json.dumps({"op": "c", "after": {"id": 1}, **message}).encode())

    assert of(transaction={"id": "571:5", "total_order": 1}) == "571:5"
    assert of(transaction=None) is None
    assert of() is None
    assert of(transaction={"id": 7}) is None
    assert made.transaction(b'{"transaction"') is None
    event = {"op": "c", "transaction": {"id": "x"}}
    assert made.transaction(json.dumps(typed(event), separators=(",", ":")).encode()) == "x"


def test_half_of_a_surrogate_pair_is_in_no_reason_and_in_no_column() -> None:
    half = "\ud800"
    for type_ in (t.IntegerType(), t.DecimalType(4, 2), t.StringType(), t.BinaryType()):
        reason = value_of(type_, f"x{half}")
        assert isinstance(reason, str)
        reason.encode()
    columns = (Column("id", t.IntegerType()), Column("db", t.StringType()))
    made = CapturedMessages(
        Schema(columns),
        ("id",),
        Debezium(columns[:1], ("id",), Encoding()),
        {"db": ORIGINS["value.source.database"]},
    )
    rows, _ = changes(made, {"op": "c", "after": {"id": 1}, "source": {"db": half}})
    assert rows == [(1, 1, "?")]
