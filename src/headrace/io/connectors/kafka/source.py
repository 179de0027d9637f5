"""Kafka topics as sources: every partition is read from its own offset, in order.

The position of a source is the next offset of each partition. It is stored in the same transaction
as the rows, so each message counts once; offsets committed to the broker are only for other tools.
Messages of an aborted or open transaction are not read.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.ports import Part
from headrace.io.connectors.kafka.arrivals import Arrivals, Batch, HeldBack
from headrace.io.connectors.kafka.client import KafkaClient, place_of
from headrace.io.connectors.kafka.options import KafkaStartup, Options, offsets_of
from headrace.io.formats.blocks import is_utf8
from headrace.io.formats.messages import payload
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.io.connectors.kafka.client import Place
    from headrace.io.formats.upserts import ChangeDecoder
    from headrace.types import Column, Schema


_MOST_MESSAGES: Final = 50_000
_DECODING: Final = min(4, os.cpu_count() or 1)
"""How many threads decode parts of a backlog: nearly all of it is done without Python's lock."""
_DECODED_AHEAD: Final = _DECODING + 1
"""How many parts of a backlog are decoded while others are landed."""
_TOPICS: Final = "topics"
"""The key in a position with the ids of the topics."""
_BOUNDS: Final = "bounds"
"""The key in a position with the bounds of a bounded source; all other keys are partitions."""
_TYPES: Final[dict[str, tuple[type[t.DataType], ...]]] = {
    "topic": (t.StringType,),
    "partition": (t.IntegerType, t.LongType),
    "offset": (t.LongType,),
    "timestamp": (t.TimestampType, t.TimestampNTZType),
    "key": (t.StringType, t.BinaryType),
    "headers": (t.MapType,),
}
_DECLARED: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "key": "STRING or BINARY",
    "headers": "MAP<STRING, BINARY> or MAP<STRING, STRING>",
}
_DISCOVER_SECONDS: Final = 30.0
"""The interval at which new topics and partitions are discovered."""


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The columns of a relation, by their origin.

    ``value`` are decoded from message values. ``metadata`` are pairs of a further column and its
    key: ``topic``, ``partition``, ``offset``, ``timestamp``, ``key`` or ``headers``.
    """

    all: Schema
    value: Schema
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Reading:
    """The progress of a source, by partition.

    ``read`` is the next offset to read, ``at`` the offset after the yielded messages: those between
    are held back. ``bounds`` are the offsets before which a bounded source ends, fixed when it
    begins. ``ids`` are the topics' ids by name.
    """

    options: Options
    held: HeldBack
    at: dict[str, int]
    ids: dict[str, str]
    bounds: dict[str, int]
    read: dict[str, int] = field(default_factory=dict)

    @classmethod
    def begun(
        cls,
        client: KafkaClient,
        options: Options,
        held: HeldBack,
        position: Mapping[str, Any] | None,
    ) -> _Reading:
        """Begin to read after a position; without one, where the options say."""
        at = dict(position or {})
        ids, bounds = at.pop(_TOPICS, {}), at.pop(_BOUNDS, {})
        reading = cls(options, held, at, ids, bounds, dict(at))
        if position is None:
            places = reading._discovered(client, options.startup)
            reading.bounds = client.bounds(places)
        else:
            reading.discover(client)
        return reading

    def discover(self, client: KafkaClient) -> None:
        """Assign all existing partitions; new ones are read from their beginning.

        A bounded source only reads partitions that existed when it began.

        Raises:
            HeadraceError: ``conflict`` if a topic was deleted and created again.
        """
        self._discovered(client, KafkaStartup.EARLIEST)

    def _discovered(self, client: KafkaClient, startup: KafkaStartup) -> list[Place]:
        topics = client.topics()
        places = client.places(topics)
        self._require_same(client.ids(topics))
        if self.bounds:
            places = [place for place in places if place_of(place) in self.bounds]
        new = [place for place in places if place_of(place) not in self.at]
        starts = client.starts(new, startup)
        self.at |= starts
        self.read |= starts
        assigned = new if client.reads else places
        if assigned:
            client.read_from(assigned, self.read)
        return places

    def _require_same(self, found: Mapping[str, str]) -> None:
        other = [name for name in found if self.ids.get(name, found[name]) != found[name]]
        if other:
            raise HeadraceError(
                Code.CONFLICT,
                f'topic "{other[0]}" was deleted and created again',
                "The offsets of its messages are not comparable with those that were read.",
                "CREATE OR REPLACE the stream or table to read the new topic.",
            )
        self.ids = {**self.ids, **found}

    def take(self, arrived: Batch, ends: Mapping[str, int]) -> Batch:
        """Add messages that were read; return those to yield now, without those past a bound.

        ``ends`` are the offsets before which a partition has been read completely.
        """
        if self.bounds:
            arrived, ends = self._within(arrived, ends)
        reached = arrived.ends()
        for place, end in (*reached.items(), *ends.items()):
            self.read[place] = max(self.read[place], end)
        batch = self.held.released(arrived)
        holding = self.held.places
        self.at |= reached if batch is arrived else batch.ends()
        self.at |= {place: end for place, end in self.read.items() if place not in holding}
        return batch

    def _within(self, arrived: Batch, ends: Mapping[str, int]) -> tuple[Batch, dict[str, int]]:
        """Return the messages before their bounds, and ``ends`` with the bounds reached."""
        kept: list[int] = []
        reached = dict(ends)
        for place, at in arrived.by_place().items():
            bound = self.bounds[place_of(place)]
            within = [each for each in at if arrived.offsets[each] < bound]
            kept += within
            if len(within) < len(at):
                reached[place_of(place)] = bound
        return arrived.take(np.sort(np.array(kept, np.int64))), reached

    @property
    def finished(self) -> bool:
        """Whether every partition of a bounded source has been read up to its bound."""
        return _is_finished(self.position)

    @property
    def position(self) -> dict[str, Any]:
        """The position after the yielded messages."""
        bounds = {_BOUNDS: self.bounds} if self.bounds else {}
        return {**self.at, _TOPICS: self.ids, **bounds}

    def progress(self, client: KafkaClient) -> tuple[int, int | None]:
        """Return the number of yielded messages, and of all messages; None if that is unknown."""
        read = sum(self.at.values())
        if self.bounds:
            return read, read + sum(max(0, b - self.at[p]) for p, b in self.bounds.items())
        behind = client.behind(self.at)
        return read, None if behind is None else read + behind


def _is_finished(position: Mapping[str, Any] | None) -> bool:
    """Whether a position is the end of a bounded source."""
    if position is None or not position.get(_BOUNDS):
        return False
    return all(position[place] >= bound for place, bound in position[_BOUNDS].items())


@dataclass(slots=True)
class KafkaSource:
    """The topics of one relation, read until it is closed.

    ``secret`` returns the value of a secret. With ``timed``, parts have the times of their rows.
    """

    options: Options
    columns: MessageColumns
    decoder: ChangeDecoder
    secret: Callable[[str], str]
    timed: bool = False
    _closed: threading.Event = field(default_factory=threading.Event)
    _arrivals: Arrivals | None = None

    @property
    def identity(self) -> str:
        """The topics, without the brokers: other addresses do not change the position."""
        return f"kafka|{self.options.named}"

    def close(self) -> None:
        """Make :meth:`parts` end soon."""
        self._closed.set()
        arrivals = self._arrivals
        if arrivals is not None:
            arrivals.interrupt()

    def check(self) -> None:
        """Create the topics that do not exist, if the options give a number of partitions.

        Raises:
            HeadraceError: as :meth:`parts`, if they cannot be read.
        """
        for name, key in self.columns.metadata:
            _require_type(self.columns.all, name, key)
        client = KafkaClient(self.options, self.secret)
        try:
            client.create_missing()
            topics = client.topics()
            if not topics:
                raise HeadraceError(
                    Code.INVALID,
                    f"no topic matches '{self.options.pattern}'",
                    hint="Create one, or correct the pattern: it matches whole names.",
                )
            numbers = {number for _, number in client.places(topics)}
        finally:
            client.close()
        for given in (self.options.startup_offsets, self.options.bounded_offsets):
            unknown = sorted(offsets_of(given).keys() - numbers)
            if unknown:
                raise HeadraceError(
                    Code.INVALID,
                    f'partition {unknown[0]} of topic "{self.options.named}" does not exist',
                    hint=f"There are {len(numbers)}, counted from 0.",
                )

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield messages as they arrive; a part without rows if none arrives for a while.

        A bounded source ends when every partition has reached its bound.

        Raises:
            HeadraceError: ``unavailable`` if no broker answers; ``conflict`` if messages were
                deleted before they were read; ``invalid`` if access is refused.
        """
        if _is_finished(position):
            return
        client = KafkaClient(self.options, self.secret, self._closed.is_set, self._wanted)
        try:
            held = HeldBack(self.decoder.transaction)
            reading = _Reading.begun(client, self.options, held, position)
            self._arrivals = arrivals = Arrivals(client.consume)
            arrivals.start()
            try:
                yield from self._read(client, reading, arrivals)
            finally:
                arrivals.close()
        finally:
            client.close()

    def _read(self, client: KafkaClient, reading: _Reading, arrivals: Arrivals) -> Iterator[Part]:
        # What waits for the source to begin need not wait for a message.
        yield self._part(Batch(), reading.position, reading.progress(client))
        discovered = time.monotonic()
        ahead: deque[tuple[Batch, Callable[[], Part]]] = deque()
        with ThreadPoolExecutor(_DECODING, "headrace-decode") as decoding:
            while not self._closed.is_set():
                arrived = arrivals.take(_MOST_MESSAGES)
                batch = reading.take(arrived.messages, arrived.ends)
                finished, failed = reading.finished, arrived.failed
                decode = partial(self._part, batch, reading.position, reading.progress(client))
                more = arrivals.is_backlog and not finished and failed is None
                ahead.append((batch, decoding.submit(decode).result if more else decode))
                while len(ahead) > (_DECODED_AHEAD if more else 0):
                    batch, part = ahead.popleft()
                    yield part()
                    if self.options.group is not None and len(batch):
                        arrivals.ask(partial(client.acknowledge, batch.ends()))
                if failed is not None:
                    raise client.failure(failed)
                if finished:
                    return
                if time.monotonic() - discovered > _DISCOVER_SECONDS:
                    with suppress(CancelledError):  # the next take says why
                        arrivals.ask(partial(reading.discover, client)).result()
                    discovered = time.monotonic()

    @property
    def _wanted(self) -> frozenset[str]:
        """What of messages is read beside their values, partitions and offsets."""
        wanted = {key for _, key in self.columns.metadata}
        if self.timed:
            wanted.add("timestamp")
        if self.decoder.reads_keys:
            wanted.add("key")
        if self.decoder.reads_lines:
            wanted.add("lines")
        if self.options.pattern is not None or len(self.options.topics) > 1:
            wanted.add("topic")
        return frozenset(wanted)

    # -- rows ------------------------------------------------------------------------------

    def _part(self, batch: Batch, at: Mapping[str, Any], progress: tuple[int, int | None]) -> Part:
        """Return the changes in messages as a part; ``at`` is the position after them."""
        batch, refused = self._readable(batch)
        found = self.decoder.changes(batch.keys, batch.values)
        messages = found.messages
        rows = self._with_metadata(found.rows, batch, messages)
        rows = rows.append_column(WEIGHT, pa.array(found.weights))

        def origin(row: int) -> tuple[str, int]:
            return batch.place(messages[row]), batch.offsets[messages[row]]

        times = None
        if self.timed:
            instant = pa.timestamp("us", "UTC")
            every = pa.array(_metadata(batch, "timestamp", instant), instant)
            times = every.take(pa.array(messages))
        return Part(
            rows,
            (*refused, *(_placed(reject, batch) for reject in found.rejects)),
            dict(at),
            *progress,
            origin=origin,
            origins=partial(batch.origins, messages),
            times=times,
            unchanged=found.unchanged,
            emptied=found.emptied,
            payload=lambda row: payload(batch.values[messages[row]]),
        )

    def _readable(self, batch: Batch) -> tuple[Batch, list[Reject]]:
        """Return the messages, and rejects for those whose key cannot be the text of a column."""
        column = next((name for name, key in self.columns.metadata if key == "key"), None)
        if column is None or not isinstance(_column(self.columns.all, column).type, t.StringType):
            return batch, []
        refused = [at for at, key in enumerate(batch.keys) if key and not is_utf8(key)]
        if not refused:
            return batch, []
        kept = np.setdiff1d(np.arange(len(batch)), refused)
        rejects = [
            Reject(
                batch.place(at), batch.offsets[at], column, "not UTF-8", payload(batch.values[at])
            )
            for at in refused
        ]
        return batch.take(kept), rejects

    def _with_metadata(self, rows: pa.Table, batch: Batch, kept: Any) -> pa.Table:
        """Add metadata columns to rows; ``kept`` are the indices of the rows' messages."""
        metadata = dict(self.columns.metadata)
        columns = []
        for column, arrow in zip(self.columns.all.columns, self.columns.all.arrow, strict=True):
            if column.name in metadata:
                columns.append(_metadata_column(batch, metadata[column.name], kept, arrow.type))
            else:
                columns.append(rows[column.name])
        return pa.table(columns, schema=self.columns.all.arrow)


def _column(schema: Schema, name: str) -> Column:
    return next(each for each in schema.columns if each.name == name)


def _require_type(schema: Schema, name: str, key: str) -> None:
    """Refuse a column whose type cannot hold the metadata of a key.

    Raises:
        HeadraceError: ``invalid``.
    """
    column = _column(schema, name)
    if not isinstance(column.type, _TYPES[key]):
        raise HeadraceError(
            Code.INVALID,
            f'column "{name}" of type {column.sql} cannot have the {key} of a message',
            hint=f"Declare it as {_DECLARED[key]}.",
        )


def _metadata_column(batch: Batch, key: str, kept: Any, type_: pa.DataType) -> pa.Array:
    """Return one kind of metadata of the messages at some indices, as a column."""
    match key:
        case "partition":
            return pa.array(np.asarray(batch.partitions, np.int64)[kept]).cast(type_)
        case "offset":
            return pa.array(np.asarray(batch.offsets, np.int64)[kept]).cast(type_)
        case _:
            values = _metadata(batch, key, type_)
            return _array([values[i] for i in kept], type_)


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return metadata as a column; times are in microseconds since 1970."""
    if pa.types.is_timestamp(type_) or pa.types.is_integer(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def _metadata(batch: Batch, key: str, type_: pa.DataType) -> list[Any]:
    """Return one kind of metadata of the messages; times in microseconds since 1970."""
    match key:
        case "topic":
            return list(batch.topics)
        case "timestamp":
            return [None if at is None else at * 1000 for at in batch.timestamps]
        case "key":
            if pa.types.is_binary(type_):
                return list(batch.keys)
            return [None if key is None else key.decode() for key in batch.keys]
        case "headers":
            text = pa.types.is_string(type_.item_type)
            return [_headers(headers or (), text=text) for headers in batch.headers]
    raise HeadraceError(Code.INTERNAL, f'messages have no metadata "{key}"')


def _headers(headers: Sequence[tuple[str, bytes | None]], *, text: bool) -> list[tuple[str, Any]]:
    """Return headers as the entries of a map; the last one of several with the same name."""
    found = dict(headers)
    if not text:
        return list(found.items())
    return [
        (name, None if value is None else value.decode("utf-8", "replace"))
        for name, value in found.items()
    ]


def _placed(reject: Reject, batch: Batch) -> Reject:
    """Replace a reject's index of a message by its partition and offset."""
    return replace(reject, file=batch.place(reject.line), line=batch.offsets[reject.line])
