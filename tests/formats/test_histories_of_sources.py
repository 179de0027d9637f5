"""Random histories of a source database, as each tool captures them, lead to the same table."""

from __future__ import annotations

import base64
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT
from headrace.execution.runtime.ports import Part
from headrace.io.formats.captured import Canal, CapturedMessages, Maxwell
from headrace.io.formats.debezium import Debezium
from headrace.io.formats.debezium_values import PLACEHOLDER, Decimals, Encoding, Times
from headrace.lifecycle.inputs.rows import depends_on_rows, with_rows_before
from headrace.types import Column, Schema

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

SCHEMA = Schema(
    (
        Column("id", t.LongType(), nullable=False),
        Column("text", t.StringType()),
        Column("price", t.DecimalType(10, 2)),
        Column("at", t.TimestampType()),
    )
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]
Event = tuple[str, Row | None, Row | None]
"""An operation of the source, and the row before and after it."""


class Copy:
    """A table that parts are applied to, as a table here applies them."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self.rows: list[Row] = []
        self.rejects = 0

    def parts(self, columns: list[str]) -> Iterator[pa.Table]:
        yield pa.Table.from_pylist(self.rows, SCHEMA.arrow).select(list(columns))

    def alike(self, rows: pa.Table) -> pa.Table:
        names = rows.column_names
        wanted = [tuple(row.values()) for row in rows.to_pylist()]
        found = [row for row in self.rows if tuple(row[n] for n in names) in wanted]
        return pa.Table.from_pylist(found, SCHEMA.arrow)

    with_keys = alike

    def take(self, decoder: CapturedMessages, messages: list[tuple[Any, Any]]) -> None:
        """Decode messages as one part, and apply it."""
        raw = [[None if x is None else json.dumps(x).encode() for x in pair] for pair in messages]
        found = decoder.changes([key for key, _ in raw], [value for _, value in raw])
        part = Part(
            found.rows.append_column(WEIGHT, pa.array(found.weights)),
            found.rejects,
            {},
            origin=lambda row: ("", int(found.messages[row])),
            unchanged=found.unchanged,
            emptied=found.emptied,
        )
        if depends_on_rows(part, self.key):
            part = with_rows_before(part, self.key, self)
        self.rejects += len(part.rejects)
        for row in part.rows.to_pylist():
            weight = row.pop(WEIGHT)
            if self.key:
                self.rows = [r for r in self.rows if any(r[k] != row[k] for k in self.key)]
            elif weight < 0:
                self.rows.remove(row)
            if weight > 0:
                self.rows.append(row)

    def bag(self) -> Counter:
        return Counter(tuple(row.values()) for row in self.rows)


def history(random: random.Random, length: int, *, keyed: bool) -> Iterator[tuple[Event, Counter]]:
    """Yield the operations of a source, each with its rows after it."""
    rows: list[Row] = []

    def new(former: Row | None = None) -> Row:
        drawn = {
            "id": random.randint(1, 6),
            "text": random.choice([None, "", "long " * 3]),
            "price": random.choice([None, Decimal(random.randint(-99999, 99999)).scaleb(-2)]),
            "at": EPOCH + timedelta(milliseconds=random.randint(-(10**12), 10**13)),
        }
        if former is not None:
            drawn = {k: v if random.random() < 0.4 else former[k] for k, v in drawn.items()}
        return drawn

    for _ in range(length):
        before = random.choice(rows) if rows and random.random() < 0.7 else None
        after = None if before is not None and random.random() < 0.3 else new(before)
        taken = keyed and after is not None
        if random.random() < 0.04:
            rows, event = [], ("t", None, None)
        elif taken and any(r["id"] == after["id"] for r in rows if r is not before):
            continue
        else:
            event = ("d" if after is None else "c" if before is None else "u", before, after)
            rows = [r for r in rows if r is not before] + ([] if after is None else [after])
        yield event, Counter(tuple(row.values()) for row in rows)


@st.composite
def debezium(draw: st.DrawFn) -> tuple[Encoding, Callable[[Event, bool], list[tuple[Any, Any]]]]:
    """Return how a connector of Debezium is configured, and what it writes of an event."""
    decimals = draw(st.sampled_from(Decimals))
    times = draw(st.sampled_from([Times.CONNECT, Times.MICROSECONDS, Times.ISOSTRING]))
    schema, tombstones, toasted, split = (draw(st.booleans()) for _ in range(4))
    image = draw(st.sampled_from(["none", "key", "full"]))
    named = draw(st.booleans()) or not schema
    encoding = Encoding(decimals, times) if named else Encoding()

    def price(value: Decimal | None) -> Any:
        if value is None or decimals is Decimals.STRING:
            return None if value is None else str(value)
        if decimals is Decimals.DOUBLE:
            return float(value)
        unscaled = int(value.scaleb(2))
        raw = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        return base64.b64encode(raw).decode()

    def moment(value: datetime) -> Any:
        if times is Times.ISOSTRING:
            return value.isoformat().replace("+00:00", "Z")
        unit = timedelta(milliseconds=1) if times is Times.CONNECT else timedelta(microseconds=1)
        return (value - EPOCH) // unit

    def encoded(row: Row) -> Row:
        return {**row, "price": price(row["price"]), "at": moment(row["at"])}

    types = {
        Decimals.PRECISE: {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        Decimals.STRING: {"type": "string"},
        Decimals.DOUBLE: {"type": "double"},
    }
    of_time = {
        Times.CONNECT: {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        Times.MICROSECONDS: {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        Times.ISOSTRING: {"type": "string", "name": "io.debezium.time.IsoTimestamp"},
    }
    fields = [
        {"type": "int64", "field": "id"},
        {"type": "string", "field": "text"},
        {**types[decimals], "field": "price"},
        {**of_time[times], "field": "at"},
    ]
    images = [{"type": "struct", "fields": fields, "field": n} for n in ("before", "after")]

    def sent(key: Any, payload: Any) -> tuple[Any, Any]:
        if not schema:
            return key, payload
        typed = {"type": "struct", "fields": fields[:1]}
        whole = {"schema": {"type": "struct", "fields": images}, "payload": payload}
        return key if key is None else {"schema": typed, "payload": key}, whole

    def written(event: Event, keyed: bool) -> list[tuple[Any, Any]]:  # noqa: FBT001
        op, before, after = event
        kind = image if keyed else "full"
        key = (
            {"id": (before if op == "d" or after is None else after or {}).get("id")}
            if (before or after)
            else None
        )
        moved = op == "u" and before["id"] != after["id"]
        if keyed and moved and split:
            # As Debezium writes it: with REPLICA IDENTITY FULL, so that no value is missing.
            return [*written(("d", before, None), keyed), *written(("c", None, after), keyed)]
        old = None if before is None else encoded(before)
        if kind != "full" and old is not None:
            old = {name: value if name == "id" else None for name, value in old.items()}
        if kind == "none" and not (moved or op == "d"):
            old = None
        if kind == "none" and op == "d":
            old = None
        new = None if after is None else encoded(after)
        if new is not None and op == "u" and toasted and keyed and before["text"] == after["text"]:
            new = {**new, "text": PLACEHOLDER}
        messages = [sent(key, {"op": op, "before": old, "after": new, "ts_ms": 1})]
        if op == "d" and tombstones:
            messages.append((sent(key, None)[0], None))
        return messages

    return encoding, written


@given(
    encoding=debezium(),
    random=st.randoms(use_true_random=False),
    length=st.integers(1, 25),
    keyed=st.booleans(),
)
def test_a_table_equals_what_debezium_captures_of_it(
    encoding: tuple[Encoding, Any], random: random.Random, length: int, *, keyed: bool
) -> None:
    known, written = encoding
    key = ("id",) if keyed else ()
    decoder = CapturedMessages(SCHEMA, key, Debezium(SCHEMA.columns, key, known))
    copy = Copy(key)
    waiting: list[tuple[Any, Any]] = []
    sent: list[tuple[Any, Any]] = []
    for event, rows in history(random, length, keyed=keyed):
        waiting += written(event, keyed)
        if random.random() < 0.5:
            continue
        copy.take(decoder, waiting)
        sent += waiting
        waiting = []
        assert copy.bag() == rows
        assert copy.rejects == 0
        if keyed and random.random() < 0.2:
            again = sent[random.randint(0, len(sent)) :]
            cut = random.randint(0, len(again))
            for part in (again[:cut], again[cut:]):
                copy.take(decoder, part)
            copy.rejects = 0  # of rows that are gone by now, of which a value was not sent
            assert copy.bag() == rows


def of_mysql(row: Row, *, text: bool) -> Row:
    at = row["at"].strftime("%Y-%m-%d %H:%M:%S.%f")
    if not text:
        price = row["price"]
        return {**row, "price": None if price is None else float(price), "at": at}
    return {
        name: None if value is None else at if name == "at" else str(value)
        for name, value in row.items()
    }


@given(
    random=st.randoms(use_true_random=False),
    length=st.integers(1, 25),
    keyed=st.booleans(),
    canal=st.booleans(),
)
def test_a_table_equals_what_maxwell_and_canal_capture_of_it(
    random: random.Random, length: int, *, keyed: bool, canal: bool
) -> None:
    key = ("id",) if keyed else ()
    capture = Canal(SCHEMA.columns) if canal else Maxwell(SCHEMA.columns)
    decoder = CapturedMessages(SCHEMA, key, capture)
    copy = Copy(key)
    kinds = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
    waiting: list[tuple[Any, Any]] = []
    for (op, before, after), rows in history(random, length, keyed=keyed):
        if op == "t" and not canal:
            return  # which Maxwell does not capture
        given_ = {"c": after, "u": after, "d": before, "t": None}[op]
        data = None if given_ is None else of_mysql(given_, text=canal)
        old = None
        if op == "u":
            former = of_mysql(before, text=canal)
            old = {name: value for name, value in former.items() if value != data[name]}
        kind = kinds[op]
        message = (
            {"type": kind.upper(), "data": data and [data], "old": None if old is None else [old]}
            if canal
            else {"type": kind, "data": data, **({} if old is None else {"old": old})}
        )
        waiting.append((None, message))
        if random.random() < 0.5:
            copy.take(decoder, waiting)
            waiting = []
            assert copy.bag() == rows
            assert copy.rejects == 0
