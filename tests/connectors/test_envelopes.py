"""Messages of changes, by what they say: read back, they make the rows that were changed."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectors.sink_histories import KEY, SCHEMA, Histories, row, table
from headrace.algebra.zset import WEIGHT
from headrace.execution.serving.values import json_objects
from headrace.io.connectors.kafka.sink_options import Envelope, EnvelopeEncoder, changes_of
from headrace.io.formats.avro_encoding import AvroEncoder
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.sink_histories import Row

fastavro = pytest.importorskip("fastavro")


def as_json(rows: pa.Table) -> pa.Array:
    return json_objects(dict(zip(rows.column_names, rows.columns, strict=True)), rows.num_rows)


def formats(envelope: Envelope) -> list[tuple[Any, Callable[[bytes], Any]]]:
    """Return what encodes values of an envelope, and what reads them: JSON and Avro."""
    encoder = AvroEncoder("value", changes_of(SCHEMA.arrow, envelope))
    parsed = fastavro.parse_schema(json.loads(encoder.text))
    return [
        (as_json, json.loads),
        (encoder.encode, lambda v: fastavro.schemaless_reader(io.BytesIO(v), parsed, None)),
    ]


def history() -> tuple[Histories, list[pa.Table]]:
    """Return a history, and the parts of its epochs."""
    random_, histories, parts = random.Random(5), Histories(), []
    for _ in range(12):
        ids = random_.sample(range(9), 5)
        histories.change({id_: random_.choice([None, row(random_, id_)]) for id_ in ids})
        parts += histories.delta(Epoch(histories.last - 1), histories.last, 4)
    return histories, parts


def ids(rows: Counter[Row]) -> Counter[int]:
    return Counter({each[0]: count for each, count in rows.items()})


@pytest.mark.parametrize("form", [0, 1], ids=["json", "avro"])
@pytest.mark.parametrize("key", [KEY, ()])
def test_envelopes_of_debezium_have_each_row_before_and_after(form, key) -> None:
    encode, read = formats(Envelope.DEBEZIUM)[form]
    making = EnvelopeEncoder(Envelope.DEBEZIUM, key, "db/7", encode, as_json)
    histories, parts = history()
    rows: dict[int, Any] = {}
    tombstone = None
    for part in parts:
        found = making.messages(Epoch(3), part)
        for value in found.values.to_pylist():
            if value is None:
                assert key
                assert tombstone == "d"
                tombstone = None
                continue
            said = read(value)
            tombstone = said["op"]
            assert said["source"] == {"connector": "headrace", "name": "db/7", "epoch": 3}
            assert {"c": (True, False), "d": (False, True), "u": (False, False)}[said["op"]] == (
                said["before"] is None,
                said["after"] is None,
            )
            if said["before"] is not None:
                assert rows.pop(said["before"]["id"]) == said["before"]
            if said["after"] is not None:
                rows[said["after"]["id"]] = said["after"]
        assert key or found.keys is None
    assert Counter(rows.keys()) == ids(histories.at(histories.last))


@pytest.mark.parametrize("form", [0, 1], ids=["json", "avro"])
def test_changelogs_add_up_to_the_rows(form) -> None:
    encode, read = formats(Envelope.CHANGELOG)[form]
    making = EnvelopeEncoder(Envelope.CHANGELOG, KEY, "db/7", encode, as_json)
    histories, parts = history()
    total: Counter[int] = Counter()
    for part in parts:
        found = making.messages(Epoch(3), part)
        said = [read(value) for value in found.values.to_pylist()]
        for first, second in pairwise(said):
            if first["op"] == "-U":
                assert (second["op"], second["row"]["id"]) == ("+U", first["row"]["id"])
        for each, at in zip(said, found.rows.tolist(), strict=True):
            assert each["row"]["id"] == part["id"][at].as_py()
            assert each["weight"] == part[WEIGHT][at].as_py()
            total[each["row"]["id"]] += each["weight"]
    assert +total == ids(histories.at(histories.last))


def test_copies_of_a_row_are_as_many_messages_where_there_is_no_weight() -> None:
    new = row(random.Random(1), 1)
    part = pa.concat_tables([table([(new, 3)]), table([((2, *new[1:]), -2)])])
    for envelope, wanted in ((Envelope.DEBEZIUM, ["d", "d", "c", "c", "c"]), (Envelope.APPEND, 3)):
        made = EnvelopeEncoder(envelope, (), "db/7", as_json, as_json).messages(Epoch(1), part)
        said = [json.loads(value) for value in made.values.to_pylist()]
        if envelope is Envelope.DEBEZIUM:
            assert [each["op"] for each in said] == wanted
        else:
            assert [each["id"] for each in said] == [1] * 3
            assert made.unsaid.tolist() == [1]
