"""Kinesis streams as sources: every shard is read from its last record on, parents first.

The position of a source is the number of the last record of each shard (see
:mod:`headrace.connectors.kinesis.shards`). It is stored with the rows that it led to, so each
record counts once. What a stream no longer keeps is a reject that says so.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from headrace.connectors.kinesis.access import Begin, Options, errors
from headrace.connectors.kinesis.shards import Place, Shard
from headrace.errors import Code, HeadraceError
from headrace.formats.messages import payload
from headrace.ledger import Reject
from headrace.runtime.ports import Part
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.formats.changes import ChangeDecoder
    from headrace.types import Schema

_AT_ONCE: Final = 8
"""How many shards are read at the same time: each answer has up to 10 MB."""
_DISCOVER_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 1.0
_LONGEST_BACKOFF: Final = 10.0
_HOUR: Final = 3600
_AGGREGATE: Final = b"\xf3\x89\x9a\xc2"
"""What a record begins with that the Kinesis Producer Library made of several."""
_AGGREGATED: Final = "several records that the Kinesis Producer Library put into one"
_TYPES: Final[dict[str, tuple[tuple[type[t.DataType], ...], str]]] = {
    "shard-id": ((t.StringType,), "STRING"),
    "sequence-number": ((t.StringType,), "STRING"),
    "partition-key": ((t.StringType,), "STRING"),
    "timestamp": ((t.TimestampType, t.TimestampNTZType), "TIMESTAMP"),
}
METADATA: Final = tuple(_TYPES)
_KEY: Final = "key"
"""The metadata of KEY columns: the partition key."""
_THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "KMSThrottlingException",
        "ThrottlingException",
    }
)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a relation, and pairs of one of them and the metadata that it has."""

    all: Schema
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Reading:
    """A shard being read: its iterator, when it may be asked again, and how far behind it is."""

    shard: Shard
    iterator: str | None = None
    due: float = 0.0
    backoff: float = 0.0
    behind_seconds: float | None = None


@dataclass(slots=True)
class KinesisSource:
    """The stream of one relation, read until it is closed.

    ``secret`` returns the value of a secret.
    """

    options: Options
    columns: Columns
    decoder: ChangeDecoder
    secret: Callable[[str], str]
    _closed: threading.Event = field(default_factory=threading.Event)

    @property
    def identity(self) -> str:
        """The stream, as it was written."""
        return f"kinesis|{self.options.stream}"

    def close(self) -> None:
        """End :meth:`parts` soon."""
        self._closed.set()

    def check(self) -> None:
        """Raise if the stream cannot be read.

        Raises:
            HeadraceError: as :meth:`parts`; ``invalid`` for a column that cannot have its metadata.
        """
        for name, key in self.columns.metadata:
            if key != _KEY:
                _require_type(self.columns.all, name, key)
        client = self.options.client(self.secret, _AT_ONCE)
        with errors(self.options.stream):
            client.describe_stream_summary(**self.options.named)
            client.list_shards(**self.options.named)

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield records as they arrive, and a part without rows where none does for a while.

        Raises:
            HeadraceError: ``unavailable`` if the service does not answer, or the stream does not
                exist; ``conflict`` if it was deleted and created again; ``invalid`` if access is
                refused.
        """
        client = self.options.client(self.secret, _AT_ONCE)
        place, rejects = self._begin(client, position)
        yield self._part(place, [], rejects)
        readings: dict[str, _Reading] = {}
        shards: list[Shard] = []
        discovered = answered = 0.0
        with ThreadPoolExecutor(_AT_ONCE, "kinesis") as pool:
            while not self._closed.is_set():
                now = time.monotonic()
                if not shards or now - discovered > _DISCOVER_SECONDS:
                    shards, discovered = self._listed(client), now
                    place, rejects = self._without_gone(place, shards)
                    if rejects:
                        yield self._part(place, [], rejects)
                readable = place.readable(shards)
                readings = {s.id: readings.get(s.id) or _Reading(s) for s in readable}
                due = sorted((r for r in readings.values() if r.due <= now), key=lambda r: r.due)
                answers = pool.map(partial(self._fetched, client, place), due[:_AT_ONCE])
                for reading, found in zip(due, answers, strict=False):
                    if found is None:
                        continue
                    before, place = place, self._after(place, reading, found)
                    if place.read.get(reading.shard.id, "") is None:
                        discovered = 0.0  # others may have taken over
                    place = self._current(place, readings)
                    if place != before:
                        answered = now
                        yield self._part(place, [(reading.shard.id, r) for r in found["Records"]])
                if now - answered > _IDLE_SECONDS:
                    answered = now
                    yield replace(self._part(place, []), total=self._behind(readings))
                wait = min((r.due for r in readings.values()), default=now + _IDLE_SECONDS)
                self._closed.wait(max(0.0, min(wait - time.monotonic(), _IDLE_SECONDS)))

    # -- where it continues ----------------------------------------------------------------

    def _begin(self, client: Any, position: Mapping[str, Any] | None) -> tuple[Place, list[Reject]]:
        """Return where to continue, and a reject if records may be gone meanwhile."""
        with errors(self.options.stream):
            found = client.describe_stream_summary(**self.options.named)
        summary = found["StreamDescriptionSummary"]
        created, now = str(summary["StreamCreationTimestamp"].timestamp()), time.time()
        hour = int(now // _HOUR)
        if position is None:
            since = {
                Begin.TRIM_HORIZON: None,
                Begin.LATEST: now,
                Begin.AT_TIMESTAMP: self.options.begin_at,
            }[self.options.begin]
            return Place(created, since, {}, hour), []
        place = Place.of_json(position)
        if place.created != created:
            raise HeadraceError(
                Code.CONFLICT,
                f'stream "{self.options.stream}" was deleted and created again',
                "Its records have other numbers than those that were read.",
                "CREATE OR REPLACE the stream or table to read the new one.",
            )
        keeps = summary["RetentionPeriodHours"]
        if hour - place.current <= keeps:
            return place, []
        reason = (
            f"not read for {hour - place.current} hours, while the stream keeps its records for"
            f" {keeps}: some may be gone"
        )
        return replace(place, current=hour), [self._reject(reason)]

    def _listed(self, client: Any) -> list[Shard]:
        """Return all shards that the stream has records of, or will have."""
        shards: list[Shard] = []
        asked: dict[str, Any] = dict(self.options.named)
        with errors(self.options.stream):
            while True:
                found = client.list_shards(**asked)
                for each in found["Shards"]:
                    parents = (each.get("ParentShardId"), each.get("AdjacentParentShardId"))
                    shards.append(Shard(each["ShardId"], tuple(p for p in parents if p)))
                if not found.get("NextToken"):
                    return shards
                asked = {"NextToken": found["NextToken"]}

    def _without_gone(self, place: Place, shards: list[Shard]) -> tuple[Place, list[Reject]]:
        """Return the place without the shards that are gone, and rejects for what they had."""
        rejects = [
            self._reject("the shard is gone, before it was read to its end", shard)
            for shard in place.lost(shards)
        ]
        return place.without_gone(shards), rejects

    def _after(self, place: Place, reading: _Reading, found: Mapping[str, Any]) -> Place:
        """Return the place after an answer, and note what it says of the shard."""
        records, shard = found["Records"], reading.shard.id
        reading.iterator = found.get("NextShardIterator")
        reading.behind_seconds = found.get("MillisBehindLatest", 0) / 1000
        reading.backoff = 0.0
        reading.due = time.monotonic() + self.options.pause_millis / 1000
        if reading.iterator is None:
            return place.after(shard, None)
        return place.after(shard, records[-1]["SequenceNumber"]) if records else place

    @staticmethod
    def _current(place: Place, readings: Mapping[str, _Reading]) -> Place:
        """Return the place with the hour up to which all shards were read."""
        behind = [reading.behind_seconds for reading in readings.values()]
        if None in behind:
            return place
        hour = int((time.time() - max((b for b in behind if b), default=0.0)) // _HOUR)
        return replace(place, current=max(hour, place.current))

    @staticmethod
    def _behind(readings: Mapping[str, _Reading]) -> int | None:
        """Return 0 if everything was read; it is not known how many records are left otherwise."""
        return 0 if all(r.behind_seconds == 0 for r in readings.values()) else None

    # -- requests --------------------------------------------------------------------------

    def _fetched(self, client: Any, place: Place, reading: _Reading) -> Mapping[str, Any] | None:
        """Return the next records of a shard; None if it has to be asked again later."""
        from botocore.exceptions import ClientError  # noqa: PLC0415

        with errors(self.options.stream):
            try:
                if reading.iterator is None:
                    reading.iterator = self._iterator(client, reading.shard, place)
                found: Mapping[str, Any] = client.get_records(
                    ShardIterator=reading.iterator, Limit=self.options.most_records
                )
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == "ExpiredIteratorException":
                    reading.iterator = None
                elif code in _THROTTLED:
                    reading.backoff = min(2 * reading.backoff or 0.5, _LONGEST_BACKOFF)
                    reading.due = time.monotonic() + reading.backoff
                else:
                    raise
                return None
        return found

    def _iterator(self, client: Any, shard: Shard, place: Place) -> str:
        asked: dict[str, Any] = {**self.options.named, "ShardId": shard.id}
        last = place.read.get(shard.id)
        if last is not None:
            asked |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": last}
        elif place.since is not None:
            since = dt.datetime.fromtimestamp(place.since, dt.UTC)
            asked |= {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": since}
        else:
            asked |= {"ShardIteratorType": "TRIM_HORIZON"}
        return str(client.get_shard_iterator(**asked)["ShardIterator"])

    # -- rows ------------------------------------------------------------------------------

    def _part(
        self, place: Place, records: list[tuple[str, Any]], rejects: list[Reject] | None = None
    ) -> Part:
        """Return the changes that records make, and the position after them."""
        refused = list(rejects or ())
        refused += [
            self._reject(_AGGREGATED, shard, record)
            for shard, record in records
            if record["Data"].startswith(_AGGREGATE)
        ]
        records = [each for each in records if not each[1]["Data"].startswith(_AGGREGATE)]
        values: list[bytes | None] = [record["Data"] for _, record in records]
        keys: list[bytes | None] = [record["PartitionKey"].encode() for _, record in records]
        found = self.decoder.changes(keys, values)
        arrived = pa.array(
            [int(record["ApproximateArrivalTimestamp"].timestamp() * 1e6) for _, record in records],
            pa.timestamp("us", "UTC"),
        ).take(pa.array(found.messages))
        rows = self._with_metadata(found.rows, [records[at] for at in found.messages], arrived)
        rows = rows.append_column(WEIGHT, pa.array(found.weights))

        refused += [
            self._reject(r.reason, *records[r.line], column=r.column, raw=r.raw)
            for r in found.rejects
        ]

        def origin(row: int) -> tuple[str, int]:
            return self._named(*records[found.messages[row]]), 0

        return Part(
            rows,
            tuple(refused),
            place.to_json(),
            origin=origin,
            partition=lambda place: place.rpartition("/")[0],
            times=arrived,
            unchanged=found.unchanged,
            emptied=found.emptied,
            payload=lambda row: payload(values[found.messages[row]]),
        )

    def _with_metadata(
        self, rows: pa.Table, records: list[tuple[str, Any]], arrived: pa.Array
    ) -> pa.Table:
        """Return rows, each of a record, with all columns in the order of the relation."""
        metadata, columns = dict(self.columns.metadata), []
        for name, arrow in zip(self.columns.all.names, self.columns.all.arrow, strict=True):
            match metadata.get(name):
                case None:
                    columns.append(rows[name])
                case "timestamp":
                    columns.append(arrived.cast(arrow.type))
                case "shard-id":
                    columns.append(pa.array([shard for shard, _ in records], arrow.type))
                case "sequence-number":
                    numbers = [record["SequenceNumber"] for _, record in records]
                    columns.append(pa.array(numbers, arrow.type))
                case _:
                    keys = [record["PartitionKey"] for _, record in records]
                    columns.append(pa.array(keys, arrow.type))
        return pa.table(columns, schema=self.columns.all.arrow)

    def _named(self, shard: str = "", record: Mapping[str, Any] | None = None) -> str:
        """Return the stream, and a shard and record of it, as rejects name them."""
        number = "" if record is None else record["SequenceNumber"]
        return "/".join(filter(None, (self.options.stream, shard, number)))

    def _reject(
        self,
        reason: str,
        shard: str = "",
        record: Mapping[str, Any] | None = None,
        *,
        column: str | None = None,
        raw: str = "",
    ) -> Reject:
        return Reject(self._named(shard, record), 0, column, reason, raw)


def _require_type(schema: Schema, name: str, key: str) -> None:
    """Refuse a column whose type does not hold what it is to have.

    Raises:
        HeadraceError: ``invalid``.
    """
    column = next(each for each in schema.columns if each.name == name)
    kinds, declared = _TYPES[key]
    if not isinstance(column.type, kinds):
        raise HeadraceError(
            Code.INVALID,
            f'column "{name}" of type {column.sql} cannot have the {key} of a record',
            hint=f"Declare it as {declared}.",
        )
