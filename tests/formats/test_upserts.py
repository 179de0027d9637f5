"""Topics whose last message of each key counts: keys in their formats, and messages without value."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from pyspark.sql import types as t

from headrace.errors import HeadraceError
from headrace.io.formats.messages import JsonMessages
from headrace.io.formats.upserts import Appended, KeyFormat, Keys, Upserts
from headrace.types import Column, Schema

ID, PLACE, V = (
    Column("id", t.LongType(), nullable=False),
    Column("place", t.StringType()),
    Column("v", t.IntegerType()),
)


def upserts(form: KeyFormat | None, *, within: bool = True) -> Upserts:
    """Return a decoder of a table with the key ``id``, which the values may have as well."""
    values = Schema((Column("id", t.LongType()), PLACE, V) if within else (PLACE, V))
    keys = None if form is None else Keys([ID], form)
    return Upserts(Schema((ID, PLACE, V)), ("id",), JsonMessages(values), keys)


def changes(made: Any, *messages: tuple[bytes | None, Any]) -> tuple[list[tuple], list[tuple]]:
    values = [
        None if v is None else v if isinstance(v, bytes) else json.dumps(v).encode()
        for _, v in messages
    ]
    found = made.changes([key for key, _ in messages], values)
    rows = [
        (int(weight), *row.values(), int(at))
        for weight, row, at in zip(
            found.weights, found.rows.to_pylist(), found.messages, strict=True
        )
    ]
    return rows, [(r.line, r.column, r.reason) for r in found.rejects]


@pytest.mark.parametrize(
    ("form", "key"),
    [
        (KeyFormat.JSON, b'{"id": 7}'),
        (KeyFormat.JSON, b'{"schema": {}, "payload": {"ID": 7}}'),
        (KeyFormat.JSON, b"7"),
        (KeyFormat.STRING, b"7"),
        (KeyFormat.RAW, struct.pack(">q", 7)),
        (KeyFormat.KAFKA, struct.pack(">q", 7)),
    ],
)
@pytest.mark.parametrize("within", [False, True])
def test_a_value_replaces_and_none_deletes(form, key, *, within) -> None:
    value = {"place": "x", "v": 1} | ({"id": 7} if within else {})
    found = changes(upserts(form, within=within), (key, value), (key, None), (key, {"v": 2}))
    assert found == ([(1, 7, "x", 1, 0), (-1, 7, None, None, 1), (1, 7, None, 2, 2)], [])


def test_keys_are_of_the_declared_types() -> None:
    cases = [
        (t.StringType(), KeyFormat.KAFKA, "gr\u00fcn".encode(), "gr\u00fcn"),
        (t.BinaryType(), KeyFormat.RAW, b"\xff\x00", b"\xff\x00"),
        (t.IntegerType(), KeyFormat.KAFKA, struct.pack(">i", -5), -5),
        (t.ShortType(), KeyFormat.RAW, struct.pack(">h", -5), -5),
        (t.ByteType(), KeyFormat.RAW, b"\xfb", -5),
        (t.DoubleType(), KeyFormat.KAFKA, struct.pack(">d", 1.5), 1.5),
        (t.BooleanType(), KeyFormat.RAW, b"\x01", True),
        (t.DateType(), KeyFormat.STRING, b"2026-01-01", "2026-01-01"),
        (t.DecimalType(4, 2), KeyFormat.JSON, b"1.5", "1.50"),
    ]
    for type_, form, key, wanted in cases:
        rows, refused = Keys([Column("k", type_)], form).decode([key])
        assert refused == {}
        found = rows["k"].to_pylist()[0]
        assert found == wanted or str(found) == wanted
    both = Keys([Column("a", t.LongType()), Column("b", t.StringType())], KeyFormat.JSON)
    rows, refused = both.decode([b'{"b": "x", "a": 1}', b'{"a": 1}', b"1"])
    assert rows.slice(0, 1).to_pylist() == [{"a": 1, "b": "x"}]
    assert {at: reason for at, (_, reason) in refused.items()} == {
        1: "NULL in the primary key",
        2: "the key of the message is not a JSON object",
    }


def test_what_has_no_key_or_another_than_its_value_is_a_reject() -> None:
    rows, rejects = changes(
        upserts(KeyFormat.JSON),
        (b'{"id": 1}', {"id": 2, "v": 1}),
        (None, {"id": 2, "v": 1}),
        (None, None),
        (b"nonsense", None),
        (b'{"id": null}', {"v": 1}),
        (b'{"id": 3}', b"nonsense"),
        (b'{"id": 4}', {"v": 4}),
        (b'{"id": "x"}', None),
    )
    assert rows == [(1, 4, None, 4, 6)]
    assert [line for line, *_ in rejects] == [0, 1, 2, 3, 4, 5, 7]
    assert rejects[0][1:] == ("id", "the key of the message and its value differ in these columns")
    assert rejects[1][1:] == ("id", "the message has no key")
    short = changes(upserts(KeyFormat.KAFKA), (b"1234", None))[1]
    assert short == [(0, "id", "4 bytes are not a BIGINT")]
    latin = Keys([PLACE], KeyFormat.STRING).decode([b"\xff"])[1]
    assert latin == {0: ("place", "the key of the message is not UTF-8")}


def test_without_a_format_of_keys_the_values_have_the_key() -> None:
    rows, rejects = changes(upserts(None), (b"?", {"id": 1, "v": 1}), (b"?", None))
    assert rows == [(1, 1, None, 1, 0)]
    assert rejects == [(1, None, "a message without a value, in a table without a key.format")]
    plain = changes(Appended(JsonMessages(Schema((V,)))), (None, {"v": 1}), (b"k", None))
    assert plain == ([(1, 1, 0)], [(1, None, "a message without a value")])


def test_formats_that_a_key_cannot_have_are_refused() -> None:
    with pytest.raises(HeadraceError, match="is one column, not id, place"):
        Keys([ID, PLACE], KeyFormat.RAW)
    with pytest.raises(HeadraceError, match="cannot be of type DATE"):
        Keys([Column("d", t.DateType())], KeyFormat.KAFKA)
