"""Messages with the id of a schema: each is decoded by its own; what cannot be is a reject."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pytest
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.formats.avro import AvroRecords
from headrace.io.formats.protobuf import RegisteredMessages, RegisteredSchema
from headrace.types import Column, Schema

COLUMNS = Schema((Column("id", t.LongType()), Column("name", t.StringType())))


def schema(*fields: tuple[str, Any]) -> dict[str, Any]:
    named = [{"name": name, "type": type_} for name, type_ in fields]
    return {"type": "record", "name": "r", "fields": named}


OLD = schema(("id", "int"))
NEW = schema(("name", ["null", "string"]), ("extra", "double"), ("id", "long"))


@dataclass
class Registry:
    """Schemas by id; every question is counted."""

    known: dict[int, RegisteredSchema]
    asked: list[int] = field(default_factory=list)

    def schema(self, id_: int) -> RegisteredSchema | None:
        self.asked.append(id_)
        return self.known.get(id_)

    def latest(self, subject: str) -> RegisteredSchema | None:
        raise NotImplementedError(subject)


def registered(avro: Any) -> RegisteredSchema:
    return RegisteredSchema("AVRO", json.dumps(avro))


def message(id_: int, avro: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro), value)
    return b"\0" + id_.to_bytes(4, "big") + out.getvalue()


def messages(registry: Any) -> RegisteredMessages:
    return RegisteredMessages(
        COLUMNS, registry, "AVRO", lambda found: AvroRecords(found.text, COLUMNS)
    )


def test_each_message_is_read_by_its_own_schema_in_order() -> None:
    registry = Registry({1: registered(OLD), 70_000: registered(NEW)})
    values = [
        message(1, OLD, {"id": n})
        if n % 2
        else message(70_000, NEW, {"id": n, "name": f"n{n}", "extra": 0.5})
        for n in range(100)
    ]
    decoder = messages(registry)
    for _ in range(2):
        found = decoder.decode(values)
        assert found.kept.tolist() == list(range(100))
        assert found.rows.to_pylist() == [
            {"id": n, "name": None if n % 2 else f"n{n}"} for n in range(100)
        ]
    assert registry.asked == [1, 70_000]


def test_what_cannot_be_decoded_is_a_reject_in_its_place() -> None:
    good = message(1, OLD, {"id": 5})
    registry = Registry(
        {
            1: registered(OLD),
            2: RegisteredSchema("JSON", "{}"),
            3: registered(schema(("other", "int"))),
        }
    )
    values = [b"", good, b"{}", good[:4], message(9, OLD, {"id": 1}), good, good + b"x"]
    values += [message(2, OLD, {"id": 1}), message(3, OLD, {"id": 1})]
    found = messages(registry).decode(values)
    assert found.kept.tolist() == [1, 5]
    assert found.rows["id"].to_pylist() == [5, 5]
    assert {each.line: each.reason for each in found.rejects} == {
        0: "it does not begin with the id of a schema",
        2: "it does not begin with the id of a schema",
        3: "it does not begin with the id of a schema",
        4: "the registry has no schema 9",
        6: "bytes are left after its end",
        7: "schema 2 is of kind JSON, not AVRO",
        8: "schema 3: none of the columns is in its schema",
    }


def test_a_schema_that_is_registered_later_is_found_then() -> None:
    registry = Registry({})
    decoder = messages(registry)
    value = message(4, OLD, {"id": 1})
    assert len(decoder.decode([value]).rejects) == 1
    registry.known[4] = registered(OLD)
    assert decoder.decode([value]).rows["id"].to_pylist() == [1]


def test_a_registry_that_does_not_answer_makes_no_rejects() -> None:
    class Silent(Registry):
        def schema(self, id_: int) -> RegisteredSchema | None:
            raise HeadraceError(Code.UNAVAILABLE, f"no answer about {id_}")

    with pytest.raises(HeadraceError, match="no answer about 4"):
        messages(Silent({})).decode([message(4, OLD, {"id": 1})])
