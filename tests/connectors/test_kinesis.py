"""Kinesis streams: every record once and in the order of its key, whatever happens to shards."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import Given
from headrace.io.connectors.kinesis import access
from headrace.io.connectors.kinesis import source as kinesis
from headrace.io.connectors.kinesis.access import Options, Shard, StreamPosition
from headrace.io.connectors.kinesis.source import KinesisSource, RecordColumns
from headrace.io.connectors.options import read_options
from headrace.io.formats.messages import JsonMessages
from headrace.io.formats.upserts import Appended
from headrace.types import Column, Schema
from length import choose

if TYPE_CHECKING:
    from servers.kinesis import Kinesis

VALUE = Schema((Column("k", t.StringType()), Column("n", t.LongType())))
SHARDS = [Shard("a"), Shard("b", ("a",)), Shard("c", ("a",)), Shard("d", ("b", "c")), Shard("e")]


@pytest.fixture
def stream(kinesis_server: Kinesis) -> str:
    return kinesis_server.create(f"s-{uuid4().hex[:8]}", 2)


@dataclass
class Reader:
    """What parts of a stream have led to; each ``read`` opens the source anew."""

    server: Kinesis
    stream: str
    options: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, tuple[str, t.DataType]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[Any] = field(default_factory=list)
    position: Any = None

    def source(self) -> KinesisSource:
        given = {
            "stream": self.stream,
            "aws.endpoint": self.server.endpoint,
            "aws.region": "eu-central-1",
            "aws.credentials.basic.accesskeyid": "test",
            "scan.shard.getrecords.intervalmillis": "1",
            **self.options,
        }
        listed = [Given(key, value) for key, value in given.items()]
        listed.append(Given("aws.credentials.basic.secretkey", "s", secret=True))
        options = read_options(Options, listed, "a kinesis source")
        columns = tuple(Column(name, type_) for name, (_, type_) in self.metadata.items())
        keys = tuple((name, key) for name, (key, _) in self.metadata.items())
        whole = Schema((*VALUE.columns, *columns))
        decoder = Appended(JsonMessages(VALUE))
        return KinesisSource(options, RecordColumns(whole, keys), decoder, lambda _: "test")

    def read(self, upto: int | None = None, parts: int | None = None) -> None:
        """Read until there are as many rows, or for some parts, or until nothing comes."""
        source, ends = self.source(), time.monotonic() + 20
        empty = 0
        for part in source.parts(self.position):
            rows = part.rows.to_pylist()
            assert all(row.pop("__weight") == 1 for row in rows)
            assert part.times is not None
            assert len(part.times) == len(rows)
            self.rows += rows
            self.rejects += part.rejects
            self.position = part.position
            assert StreamPosition.of_json(part.position).to_json() == part.position
            parts = None if parts is None else parts - 1
            empty = 0 if rows else empty + 1
            if parts == 0 or (upto is not None and len(self.rows) >= upto):
                break
            if upto is None and empty == 3:
                break
            assert time.monotonic() < ends
        source.close()


def records(first: int, end: int, keys: int = 5) -> list[tuple[str, bytes]]:
    return [(f"k{n % keys}", b'{"k": "k%d", "n": %d}' % (n % keys, n)) for n in range(first, end)]


def in_order(rows: list[dict[str, Any]], count: int) -> None:
    """Each number is there once, and those of a key are in their order."""
    assert sorted(row["n"] for row in rows) == list(range(count))
    by_key = defaultdict(list)
    for row in rows:
        by_key[row["k"]].append(row["n"])
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


# -- shards --------------------------------------------------------------------------------


def test_a_shard_is_read_when_all_that_it_came_from_were_read_to_their_end() -> None:
    def readable(place: StreamPosition, shards: list[Shard] = SHARDS) -> str:
        return "".join(shard.id for shard in place.readable(shards))

    place = StreamPosition("x")
    assert readable(place) == "ae"
    place = place.after("a", "17")
    assert readable(place) == "ae"
    place = place.after("a", None)
    assert readable(place) == "bce"
    place = place.after("b", None)
    assert readable(place) == "ce"
    place = place.after("c", None)
    assert readable(place) == "de"
    assert readable(StreamPosition("x"), SHARDS[1:]) == "bce"  # a is no longer kept
    assert StreamPosition.of_json(place.to_json()) == place


def test_a_shard_that_is_gone_before_its_end_is_told_apart_from_one_that_was_read() -> None:
    place = StreamPosition("x").after("a", None).after("b", "5").after("e", "7")
    assert place.lost(SHARDS[2:]) == ["b"]
    assert place.without_gone(SHARDS[2:]).read == {"e": "7"}


# -- against the service -------------------------------------------------------------------


def test_records_are_read_once_over_restarts(kinesis_server, stream) -> None:
    reader = Reader(kinesis_server, stream, {"scan.shard.getrecords.maxrecordcount": "20"})
    kinesis_server.put(stream, records(0, 300))
    for _ in range(6):
        reader.read(parts=3)
    assert 0 < len(reader.rows) < 300
    kinesis_server.put(stream, records(300, 400))
    reader.read(upto=400)
    reader.read(parts=3)
    in_order(reader.rows, 400)
    assert reader.rejects == []


@pytest.mark.long
def test_splits_and_merges_keep_the_order_of_each_key(kinesis_server, stream, monkeypatch) -> None:
    monkeypatch.setattr(kinesis, "_DISCOVER_SECONDS", 0.2)
    for seed in range(choose(2, 20)):
        choices = random.Random(seed)
        name = kinesis_server.create(f"{stream}-{seed}", 2)
        reader = Reader(kinesis_server, name, {"scan.shard.getrecords.maxrecordcount": "7"})
        count = 0
        for _ in range(choose(8, 20)):
            match choices.choice(["put", "split", "merge", "read"]):
                case "put":
                    count += 40
                    kinesis_server.put(name, records(count - 40, count))
                case "split":
                    shards = len(kinesis_server.open_shards(name))
                    kinesis_server.split(name, choices.randrange(shards))
                case "merge":
                    if (shards := len(kinesis_server.open_shards(name))) > 1:
                        kinesis_server.merge(name, choices.randrange(shards - 1))
                case "read":
                    reader.read(parts=choices.randrange(1, 12))
        kinesis_server.put(name, records(count, count + 40))
        reader.read(upto=count + 40)
        in_order(reader.rows, count + 40)
        reader.read(parts=2)
        assert len(reader.rows) == count + 40
        assert reader.rejects == []


def test_where_a_new_source_begins(kinesis_server, stream) -> None:
    kinesis_server.put(stream, records(0, 3))
    time.sleep(0.05)
    between = time.time()
    time.sleep(0.05)
    kinesis_server.put(stream, records(3, 5))
    since = Reader(kinesis_server, stream, {"scan.stream.initpos": "AT_TIMESTAMP", "scan.stream.initpos-timestamp": str(between)})  # fmt: skip
    since.read(upto=2)
    assert sorted(row["n"] for row in since.rows) == [3, 4]
    latest = Reader(kinesis_server, stream, {"scan.stream.initpos": "LATEST"})
    latest.read(parts=1)  # nothing yet, but where it begins is known from now on
    kinesis_server.put(stream, records(5, 7))
    latest.read(upto=2)
    assert sorted(row["n"] for row in latest.rows) == [5, 6]
    everything = Reader(kinesis_server, stream)
    everything.read(upto=7)
    assert len(everything.rows) == 7


def test_metadata_and_rejects_name_the_record(kinesis_server, stream) -> None:
    metadata: dict[str, tuple[str, t.DataType]] = {
        "shard": ("shard-id", t.StringType()),
        "number": ("sequence-number", t.StringType()),
        "key": ("partition-key", t.StringType()),
        "at": ("timestamp", t.TimestampType()),
    }
    kinesis_server.put(stream, [("a", b'{"n": 1}'), ("a", b"no"), ("a", b"\xf3\x89\x9a\xc2many")])
    reader = Reader(kinesis_server, stream, metadata=metadata)
    reader.read(upto=1)
    (row,) = reader.rows
    assert row["shard"].startswith("shardId-")
    assert (row["number"], row["key"]) == ("1", "a")
    assert abs(row["at"].timestamp() - time.time()) < 60
    assert [reject.file for reject in sorted(reader.rejects, key=lambda r: r.file)] == [
        f"{stream}/{row['shard']}/2",
        f"{stream}/{row['shard']}/3",
    ]
    assert any("Kinesis Producer Library" in reject.reason for reject in reader.rejects)


def test_throttling_and_expired_iterators_delay_and_lose_nothing(kinesis_server, stream, monkeypatch) -> None:  # fmt: skip
    choices = random.Random(3)
    original = access.Options.client

    def client(self: Options, *arguments: Any) -> Any:
        made = original(self, *arguments)
        get = made.get_records

        def refusing(**asked: Any) -> Any:
            code = choices.choice([None, None, None, "ExpiredIteratorException", "ProvisionedThroughputExceededException"])  # fmt: skip
            if code:
                raise ClientError({"Error": {"Code": code, "Message": "x"}}, "GetRecords")
            return get(**asked)

        made.get_records = refusing
        return made

    monkeypatch.setattr(access.Options, "client", client)
    monkeypatch.setattr(kinesis, "_LONGEST_BACKOFF", 0.01)
    kinesis_server.put(stream, records(0, 300))
    reader = Reader(kinesis_server, stream, {"scan.shard.getrecords.maxrecordcount": "10"})
    reader.read(upto=300)
    in_order(reader.rows, 300)


def test_a_stream_that_was_created_again_is_a_conflict(kinesis_server, stream) -> None:
    reader = Reader(kinesis_server, stream)
    kinesis_server.put(stream, records(0, 3))
    reader.read(upto=3)
    kinesis_server.client.delete_stream(StreamName=stream)
    with pytest.raises(HeadraceError, match="does not exist") as absent:
        reader.read()
    assert absent.value.code is Code.UNAVAILABLE
    time.sleep(0.01)
    kinesis_server.create(stream, 2)
    with pytest.raises(HeadraceError, match="created again") as caught:
        reader.read()
    assert caught.value.code is Code.CONFLICT


def test_a_stream_that_was_not_read_for_longer_than_it_keeps_records_says_so(kinesis_server, stream) -> None:  # fmt: skip
    kinesis_server.put(stream, records(0, 3))
    reader = Reader(kinesis_server, stream)
    reader.read(upto=3)
    reader.position["current"] -= 30
    reader.read(parts=2)
    (reject,) = reader.rejects
    assert "not read for 30 hours" in reject.reason
    reader.read(parts=2)
    assert len(reader.rejects) == 1
    in_order(reader.rows, 3)


@pytest.mark.parametrize(
    ("options", "metadata", "code", "words"),
    [
        ({"aws.endpoint": "http://127.0.0.1:9"}, {}, Code.UNAVAILABLE, "cannot be read"),
        ({"stream": "absent"}, {}, Code.UNAVAILABLE, "does not exist"),
        ({"scan.stream.initpos": "AT_TIMESTAMP"}, {}, Code.INVALID, "need each other"),
        ({"scan.shard.getrecords.maxrecordcount": "0"}, {}, Code.INVALID, "at once"),
        ({}, {"at": ("timestamp", t.LongType())}, Code.INVALID, "cannot have the timestamp"),
    ],
)
def test_what_cannot_be_read_is_refused(kinesis_server, stream, options, metadata, code, words) -> None:  # fmt: skip
    reader = Reader(kinesis_server, stream, options, metadata)
    with pytest.raises(HeadraceError) as caught:
        reader.source().check()
    assert caught.value.code is code
    assert words in caught.value.primary
    assert caught.value.hint


def test_access_that_is_refused_stops_the_source() -> None:
    for code, wanted in (("AccessDeniedException", Code.INVALID), ("InternalFailure", Code.UNAVAILABLE)):  # fmt: skip
        with pytest.raises(HeadraceError) as caught, access.errors("s"):
            raise ClientError({"Error": {"Code": code, "Message": "no."}}, "GetRecords")
        assert caught.value.code is wanted
        assert "The service says: no." in (caught.value.detail or "")
