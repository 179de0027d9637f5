"""Kinesis streams as sources: every shard is continued after its last record, parents first.

The position of a source has the sequence number of the last record of each shard (see
:mod:`headrace.io.connectors.kinesis.access`). It is stored in the same transaction as the rows, so
each record counts once. Records that the stream has deleted before they were read are a reject.
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

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.ports import Part
from headrace.io.connectors.kinesis.access import (
    KinesisStartup,
    Options,
    Shard,
    StreamPosition,
    errors,
)
from headrace.io.formats.messages import payload
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.io.formats.upserts import ChangeDecoder
    from headrace.types import Schema


_AT_ONCE: Final = 8
"""The number of shards read concurrently: an answer has up to 10 MB."""
_DISCOVER_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 1.0
_LONGEST_BACKOFF: Final = 10.0
_HOUR: Final = 3600
_AGGREGATE: Final = b"\xf3\x89\x9a\xc2"
"""The first bytes of a record into which the Kinesis Producer Library has put several records."""
_AGGREGATED: Final = "several records that the Kinesis Producer Library put into one"
_TYPES: Final[dict[str, tuple[tuple[type[t.DataType], ...], str]]] = {
    "shard-id": ((t.StringType,), "STRING"),
    "sequence-number": ((t.StringType,), "STRING"),
    "partition-key": ((t.StringType,), "STRING"),
    "timestamp": ((t.TimestampType, t.TimestampNTZType), "TIMESTAMP"),
}
METADATA: Final = tuple(_TYPES)
_KEY: Final = "key"
"""The metadata key of KEY columns, which contain the partition key."""
_THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "KMSThrottlingException",
        "ThrottlingException",
    }
)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of a relation, and pairs of a metadata column and its key."""

    all: Schema
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Reading:
    """A shard being read: its iterator, when the next request is due, and how far behind it is."""

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
    columns: RecordColumns
    decoder: ChangeDecoder
    secret: Callable[[str], str]
    _closed: threading.Event = field(default_factory=threading.Event)

    @property
    def identity(self) -> str:
        """The stream's name or ARN in the options."""
        return f"kinesis|{self.options.stream}"

    def close(self) -> None:
        """Make :meth:`parts` end soon."""
        self._closed.set()

    def check(self) -> None:
        """Raise if the stream cannot be read.

        Raises:
            HeadraceError: as :meth:`parts`; ``invalid`` for a type that cannot hold the metadata.
        """
        for name, key in self.columns.metadata:
            if key != _KEY:
                _require_type(self.columns.all, name, key)
        client = self.options.client(self.secret, _AT_ONCE)
        with errors(self.options.stream):
            client.describe_stream_summary(**self.options.named)
            client.list_shards(**self.options.named)

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield records as they arrive; a part without rows if none arrives for a while.

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
                        discovered = 0.0  # list the shards that continue its keys
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

    def _begin(
        self, client: Any, position: Mapping[str, Any] | None
    ) -> tuple[StreamPosition, list[Reject]]:
        """Return the position from which to continue; a reject if records may have expired."""
        with errors(self.options.stream):
            found = client.describe_stream_summary(**self.options.named)
        summary = found["StreamDescriptionSummary"]
        created, now = str(summary["StreamCreationTimestamp"].timestamp()), time.time()
        hour = int(now // _HOUR)
        if position is None:
            since = {
                KinesisStartup.TRIM_HORIZON: None,
                KinesisStartup.LATEST: now,
                KinesisStartup.AT_TIMESTAMP: self.options.begin_at,
            }[self.options.begin]
            return StreamPosition(created, since, {}, hour), []
        place = StreamPosition.of_json(position)
        if place.created != created:
            raise HeadraceError(
                Code.CONFLICT,
                f'stream "{self.options.stream}" was deleted and created again',
                "The sequence numbers of its records are not comparable with those that were read.",
                "CREATE OR REPLACE the stream or table to read the new one.",
            )
        keeps = summary["RetentionPeriodHours"]
        if hour - place.current <= keeps:
            return place, []
        reason = (
            f"not read for {hour - place.current} hours, while the stream keeps its records for"
            f" {keeps}: some may have been lost"
        )
        return replace(place, current=hour), [self._reject(reason)]

    def _listed(self, client: Any) -> list[Shard]:
        """Return all shards of the stream, also closed ones that still have records."""
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

    def _without_gone(
        self, place: StreamPosition, shards: list[Shard]
    ) -> tuple[StreamPosition, list[Reject]]:
        """Return the position without deleted shards; a reject for each one not read to its end."""
        rejects = [
            self._reject("the shard was deleted before it was read to its end", shard)
            for shard in place.lost(shards)
        ]
        return place.without_gone(shards), rejects

    def _after(
        self, place: StreamPosition, reading: _Reading, found: Mapping[str, Any]
    ) -> StreamPosition:
        """Update ``reading`` from an answer; return the position after its records."""
        records, shard = found["Records"], reading.shard.id
        reading.iterator = found.get("NextShardIterator")
        reading.behind_seconds = found.get("MillisBehindLatest", 0) / 1000
        reading.backoff = 0.0
        reading.due = time.monotonic() + self.options.pause_millis / 1000
        if reading.iterator is None:
            return place.after(shard, None)
        return place.after(shard, records[-1]["SequenceNumber"]) if records else place

    @staticmethod
    def _current(place: StreamPosition, readings: Mapping[str, _Reading]) -> StreamPosition:
        """Return the position with ``current`` set to the hour up to which all shards were read."""
        behind = [reading.behind_seconds for reading in readings.values()]
        if None in behind:
            return place
        hour = int((time.time() - max((b for b in behind if b), default=0.0)) // _HOUR)
        return replace(place, current=max(hour, place.current))

    @staticmethod
    def _behind(readings: Mapping[str, _Reading]) -> int | None:
        """Return 0 if everything was read; None otherwise: the number of records is unknown."""
        return 0 if all(r.behind_seconds == 0 for r in readings.values()) else None

    # -- requests --------------------------------------------------------------------------

    def _fetched(
        self, client: Any, place: StreamPosition, reading: _Reading
    ) -> Mapping[str, Any] | None:
        """Return the answer with the next records of a shard; None if it must be retried later."""
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

    def _iterator(self, client: Any, shard: Shard, place: StreamPosition) -> str:
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
        self,
        place: StreamPosition,
        records: list[tuple[str, Any]],
        rejects: list[Reject] | None = None,
    ) -> Part:
        """Return the changes in records, pairs of shard and record, as a part with its position."""
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
        """Add metadata columns to rows; ``records`` and ``arrived`` have an entry for each row."""
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
        """Return the origin of a reject: the stream, shard and sequence number between slashes."""
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
    """Refuse a column whose type cannot hold the metadata of a key.

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
