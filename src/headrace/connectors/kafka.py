"""Kafka topics as sources: every partition is read from its own offset, in order.

The position of a source is the next offset of each partition. It is stored with the rows that it
led to, so each message counts once; what is committed to the broker is for people's tools only.
Messages of a transaction that was aborted, or is still open, are not read.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from headrace.connectors.kafka_access import Access
from headrace.connectors.kafka_batch import Batch, HeldBack
from headrace.connectors.message_format import MessageFormat
from headrace.connectors.options import option
from headrace.errors import Code, HeadraceError
from headrace.formats.changes import payload
from headrace.runtime.ports import Part
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.formats.changes import ChangeDecoder
    from headrace.ledger import Reject
    from headrace.types import Schema

_MOST_MESSAGES: Final = 50_000
_POLL_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 10.0
_TOPICS: Final = "topics"
"""The key in a position with the ids of the topics; all others are of partitions."""
_TYPES: Final[dict[str, tuple[type[t.DataType], ...]]] = {
    "topic": (t.StringType,),
    "partition": (t.IntegerType, t.LongType),
    "offset": (t.LongType,),
    "timestamp": (t.TimestampType, t.TimestampNTZType),
    "key": (t.StringType,),
    "headers": (t.MapType,),
}
_DECLARED: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "key": "STRING",
    "headers": "MAP<STRING, BINARY> or MAP<STRING, STRING>",
}
_DISCOVER_SECONDS: Final = 30.0
"""How often new partitions are looked for."""


class Startup(StrEnum):
    """Where a source begins that has read nothing yet."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    TIMESTAMP = "timestamp"
    OFFSETS = "specific-offsets"


def _offsets(text: str) -> str:
    """Check ``partition:0,offset:42;partition:1,offset:300``, and return it."""
    _specific(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access, MessageFormat):
    """The options of a topic; those of the client have librdkafka's names after ``properties.``."""

    topic: str = option("topic", "kafka_topic")
    startup: Startup = option("scan.startup.mode", default=Startup.EARLIEST)
    startup_timestamp: int | None = option("scan.startup.timestamp-millis", default=None)
    startup_offsets: str | None = option(
        "scan.startup.specific-offsets", default=None, convert=_offsets
    )
    group: str | None = option("properties.group.id", "group.id", default=None)
    isolation: str = option("properties.isolation.level", default="read_committed")
    partitions: int | None = option("partitions", default=None)
    replicas: int | None = option("replicas", default=None)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            HeadraceError: ``invalid``.
        """
        needed = {
            Startup.TIMESTAMP: ("scan.startup.timestamp-millis", self.startup_timestamp),
            Startup.OFFSETS: ("scan.startup.specific-offsets", self.startup_offsets),
        }
        for mode, (key, value) in needed.items():
            if (value is None) == (self.startup is mode):
                lacks = "needs" if value is None else "is what makes use of"
                raise HeadraceError(
                    Code.INVALID,
                    f'option "scan.startup.mode" = \'{mode}\' {lacks} option "{key}"',
                    hint="Give both, or neither.",
                )
        if not self.topics:
            raise HeadraceError(Code.INVALID, "a kafka source has no topic")

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, which are written with semicolons between them."""
        names = (name.strip() for name in self.topic.split(";"))
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of a relation are taken from.

    ``value`` are those of a message's value. ``metadata`` are pairs of a column and what it has:
    ``topic``, ``partition``, ``offset``, ``timestamp``, ``key`` or ``headers``.
    """

    all: Schema
    value: Schema
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class KafkaSource:
    """The topics of one relation, read until it is closed.

    ``secret`` returns the value of a secret.
    """

    options: Options
    columns: Columns
    decoder: ChangeDecoder
    secret: Callable[[str], str]
    _closed: threading.Event = field(default_factory=threading.Event)
    _trouble: Any = None
    """What the client last said of its connections."""

    @property
    def identity(self) -> str:
        """The topics: what is read there continues where it ended, whatever the brokers' names."""
        return f"kafka|{self.options.topic}"

    def close(self) -> None:
        """End :meth:`parts` soon."""
        self._closed.set()

    def check(self) -> None:
        """Create the topics that do not exist, if the options give a number of partitions.

        Raises:
            HeadraceError: as :meth:`parts`, if they cannot be read.
        """
        kafka = _client()
        for name, key in self.columns.metadata:
            _require_type(self.columns.all, name, key)
        consumer = self._consumer(kafka)
        try:
            known = consumer.list_topics(timeout=_ANSWER_SECONDS).topics
            missing = [name for name in self.options.topics if name not in known]
            if missing and self.options.partitions is not None:
                self._create(missing)
            numbers = [n for t in self.options.topics for n in self._numbers(consumer, t)]
            unknown = sorted(_specific(self.options.startup_offsets or "").keys() - set(numbers))
            if unknown:
                raise HeadraceError(
                    Code.INVALID,
                    f'partition {unknown[0]} of topic "{self.options.topic}" does not exist',
                    hint=f"There are {len(numbers)}, counted from 0.",
                )
        except kafka.KafkaException as error:
            raise self._failure(error.args[0]) from error
        finally:
            consumer.close()

    def _create(self, topics: Sequence[str]) -> None:
        from confluent_kafka import admin  # noqa: PLC0415

        client = admin.AdminClient({**self.options.client(self.secret), "logger": _Silent()})
        replicas = self.options.replicas or -1
        made = [admin.NewTopic(name, self.options.partitions, replicas) for name in topics]
        for created in client.create_topics(made).values():
            created.result(_ANSWER_SECONDS)
        while client.list_topics(timeout=_ANSWER_SECONDS).topics.keys().isdisjoint(topics):
            time.sleep(_POLL_SECONDS)

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield messages as they arrive, and a part without rows where none does for a while.

        Raises:
            HeadraceError: ``unavailable`` if no broker answers; ``conflict`` if messages that were
                not read yet are no longer there; ``invalid`` if access is refused.
        """
        kafka = _client()
        consumer = self._consumer(kafka)
        at = {place: end for place, end in (position or {}).items() if place != _TOPICS}
        topics = dict((position or {}).get(_TOPICS, {}))
        try:
            topics = self._same_topics(topics)
            read = self._begin(kafka, consumer, at)
            at, held = dict(read), HeldBack(self.decoder.transaction)
            discovered = time.monotonic()
            while not self._closed.is_set():
                arrived, failed = self._consumed(consumer)
                read |= arrived.ends()
                batch = held.released(arrived)
                at |= batch.ends()
                done, ends = sum(at.values()), self._ends(consumer)
                reached: dict[str, Any] = {**at, _TOPICS: topics}
                yield replace(self._part(batch, reached), done=done, total=ends)
                self._acknowledge(kafka, consumer, batch)
                if failed is not None:
                    raise self._failure(failed)
                if time.monotonic() - discovered > _DISCOVER_SECONDS:
                    topics = self._same_topics(topics)
                    read = self._begin(kafka, consumer, read)
                    at = {**read, **at}
                    discovered = time.monotonic()
        except kafka.KafkaException as error:
            raise self._failure(error.args[0]) from error
        finally:
            consumer.close()

    def _consumer(self, kafka: Any) -> Any:
        """Return a client with the settings of the options."""
        try:
            return kafka.Consumer(self._settings())
        except kafka.KafkaException as error:
            raise HeadraceError(
                Code.INVALID,
                f'the client for topic "{self.options.topic}" cannot be made',
                f"It says: {error.args[0].str()}.",
                "Correct the option.",
            ) from error

    def _same_topics(self, known: Mapping[str, str]) -> dict[str, str]:
        """Return the ids of the topics.

        Raises:
            HeadraceError: ``conflict`` if a topic has another id than before: it was deleted and
                created again, so offsets mean other messages.
        """
        from confluent_kafka import KafkaException, TopicCollection, admin  # noqa: PLC0415

        client = admin.AdminClient({**self.options.client(self.secret), "logger": _Silent()})
        asked = client.describe_topics(
            TopicCollection(list(self.options.topics)), request_timeout=_ANSWER_SECONDS
        )
        found = {}
        for name, described in asked.items():
            try:
                found[name] = str(described.result().topic_id)
            except KafkaException:
                continue  # whether it can be read is said when it is
        other = [name for name in found if known.get(name, found[name]) != found[name]]
        if other:
            raise HeadraceError(
                Code.CONFLICT,
                f'topic "{other[0]}" was deleted and created again',
                "Its messages have other offsets than those that were read.",
                "CREATE OR REPLACE the stream or table to read the new topic.",
            )
        return {**known, **found}

    def _settings(self) -> dict[str, Any]:
        return {
            **self.options.client(self.secret),
            "group.id": self.options.group or "headrace",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": self.options.isolation,
            "enable.partition.eof": False,
            "error_cb": self._note,
            "logger": _Silent(),
        }

    def _note(self, error: Any) -> None:
        """Keep what the client says of its connections: it goes on trying, without a failure."""
        self._trouble = error

    def _begin(self, kafka: Any, consumer: Any, at: dict[str, int]) -> dict[str, int]:
        """Read from ``at`` on; partitions that are not in it, from where the options say.

        Return the offsets of all partitions.
        """
        known = dict(at)
        topics = self.options.topics
        found = [(topic, number) for topic in topics for number in self._numbers(consumer, topic)]
        new = [place for place in found if f"{place[0]}/{place[1]}" not in at]
        # A partition that is added to a topic which is read already is read from its beginning.
        startup = Startup.EARLIEST if at else self.options.startup
        known |= self._starts(kafka, consumer, new, startup)
        if new or not consumer.assignment():
            consumer.assign([kafka.TopicPartition(t, n, known[f"{t}/{n}"]) for t, n in found])
        return known

    def _numbers(self, consumer: Any, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        described = consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
        if described.error is not None:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f'topic "{topic}" cannot be read',
                f"The broker says: {described.error.str()}.",
                "Create the topic, or correct its name.",
            )
        return sorted(described.partitions)

    def _starts(
        self, kafka: Any, consumer: Any, places: Sequence[tuple[str, int]], startup: Startup
    ) -> dict[str, int]:
        """Return the first offset to read of partitions."""
        if not places:
            return {}
        if startup is Startup.TIMESTAMP:
            since = self.options.startup_timestamp or 0
            asked = [kafka.TopicPartition(t, n, since) for t, n in places]
            answered = consumer.offsets_for_times(asked, timeout=_ANSWER_SECONDS)
            times = {(p.topic, p.partition): p.offset for p in answered}
        given = _specific(self.options.startup_offsets or "")
        starts = {}
        for topic, number in places:
            low, high = consumer.get_watermark_offsets(
                kafka.TopicPartition(topic, number), timeout=_ANSWER_SECONDS
            )
            match startup:
                case Startup.EARLIEST:
                    start = low
                case Startup.LATEST:
                    start = high
                case Startup.TIMESTAMP:
                    start = times[topic, number] if times[topic, number] >= 0 else high
                case Startup.OFFSETS:
                    start = given.get(number, low)
            starts[f"{topic}/{number}"] = start
        return starts

    def _consumed(self, consumer: Any) -> tuple[Batch, Any]:
        """Return the messages that have arrived, and the error that came among them, if any.

        There are none after a while without any, or if no broker answers any more.
        """
        batch, failed = Batch(), None
        for message in consumer.consume(_MOST_MESSAGES, _POLL_SECONDS):
            if message.error() is None:
                batch.add(message)
            else:
                failed = message.error()
        if batch.offsets:
            self._trouble = None
        elif self._trouble is not None and self._trouble.code() in _down():
            failed = failed or self._trouble
        return batch, failed

    def _ends(self, consumer: Any) -> int | None:
        """Return the sum of the partitions' ends, as the broker last gave them; None at first."""
        ends = 0
        for each in consumer.assignment():
            _, high = consumer.get_watermark_offsets(each, cached=True)
            if high < 0:
                return None
            ends += high
        return ends

    def _acknowledge(self, kafka: Any, consumer: Any, batch: Batch) -> None:
        """Tell the broker how far the group has read, for tools that show its lag."""
        if self.options.group is None or not batch.offsets:
            return
        ends = [
            kafka.TopicPartition(place.rpartition("/")[0], int(place.rpartition("/")[2]), end)
            for place, end in batch.ends().items()
        ]
        consumer.commit(offsets=ends, asynchronous=True)

    def _failure(self, error: Any) -> HeadraceError:
        """Return an error of the client as one of ours."""
        trouble, kafka = self._trouble, _client().KafkaError
        said = error.str()
        if trouble is not None and trouble is not error:
            said += f": {trouble.str()}"
        if error.code() in (kafka.OFFSET_OUT_OF_RANGE, kafka._AUTO_OFFSET_RESET):  # noqa: SLF001
            return HeadraceError(
                Code.CONFLICT,
                f'messages of topic "{self.options.topic}" that were not read yet are gone',
                f"The broker says: {said}.",
                "Keep them longer in the topic. CREATE OR REPLACE the stream to read what is left.",
            )
        refused = (
            kafka._AUTHENTICATION,  # noqa: SLF001
            kafka.SASL_AUTHENTICATION_FAILED,
            kafka.TOPIC_AUTHORIZATION_FAILED,
            kafka.GROUP_AUTHORIZATION_FAILED,
            kafka.CLUSTER_AUTHORIZATION_FAILED,
        )
        codes = {error.code(), None if trouble is None else trouble.code()}
        denied = not codes.isdisjoint(refused)
        return HeadraceError(
            Code.INVALID if denied else Code.UNAVAILABLE,
            f'topic "{self.options.topic}" cannot be read',
            f"The client says: {said}.",
            "Correct the name or password, or what they are allowed to do."
            if denied
            else "Start the brokers, or correct their addresses.",
        )

    # -- rows ------------------------------------------------------------------------------

    def _part(self, batch: Batch, at: Mapping[str, Any]) -> Part:
        """Return the changes that messages make, and the position after them."""
        found = self.decoder.changes(batch.keys, batch.values)
        messages = found.messages
        rows = self._with_metadata(found.rows, batch, messages)
        rows = rows.append_column(WEIGHT, pa.array(found.weights))

        def origin(row: int) -> tuple[str, int]:
            return batch.place(messages[row]), batch.offsets[messages[row]]

        instant = pa.timestamp("us", "UTC")
        times = pa.array(_metadata(batch, "timestamp", instant), instant)
        return Part(
            rows,
            tuple(_placed(reject, batch) for reject in found.rejects),
            dict(at),
            origin=origin,
            times=times.take(pa.array(messages)),
            unchanged=found.unchanged,
            emptied=found.emptied,
            payload=lambda row: payload(batch.values[messages[row]]),
        )

    def _with_metadata(self, rows: pa.Table, batch: Batch, kept: Any) -> pa.Table:
        """Return rows with all columns, in the order of the relation."""
        metadata = dict(self.columns.metadata)
        columns = []
        for column, arrow in zip(self.columns.all.columns, self.columns.all.arrow, strict=True):
            if column.name in metadata:
                values = _metadata(batch, metadata[column.name], arrow.type)
                columns.append(_array([values[i] for i in kept], arrow.type))
            else:
                columns.append(rows[column.name])
        return pa.table(columns, schema=self.columns.all.arrow)


def _require_type(schema: Schema, name: str, key: str) -> None:
    """Refuse a column whose type does not hold what it is to have.

    Raises:
        HeadraceError: ``invalid``.
    """
    column = next(each for each in schema.columns if each.name == name)
    if not isinstance(column.type, _TYPES[key]):
        raise HeadraceError(
            Code.INVALID,
            f'column "{name}" of type {column.sql} cannot have the {key} of a message',
            hint=f"Declare it as {_DECLARED[key]}.",
        )


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return metadata as a column; times are given in microseconds."""
    if pa.types.is_timestamp(type_) or pa.types.is_integer(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def _metadata(batch: Batch, key: str, type_: pa.DataType) -> list[Any]:
    """Return what the messages have of one kind of metadata."""
    match key:
        case "topic":
            return list(batch.topics)
        case "partition":
            return list(batch.partitions)
        case "offset":
            return list(batch.offsets)
        case "timestamp":
            return [None if at is None else at * 1000 for at in batch.timestamps]
        case "key":
            return [None if key is None else key.decode("utf-8", "replace") for key in batch.keys]
        case "headers":
            text = pa.types.is_string(type_.item_type)
            return [_headers(headers or (), text=text) for headers in batch.headers]
    raise HeadraceError(Code.INTERNAL, f'messages have no metadata "{key}"')


def _headers(headers: Sequence[tuple[str, bytes | None]], *, text: bool) -> list[tuple[str, Any]]:
    """Return headers as the entries of a map; of equal names the last, as in a dict."""
    found = dict(headers)
    if not text:
        return list(found.items())
    return [
        (name, None if value is None else value.decode("utf-8", "replace"))
        for name, value in found.items()
    ]


def _placed(reject: Reject, batch: Batch) -> Reject:
    """Return the reject of a message with its partition and offset."""
    return replace(reject, file=batch.place(reject.line), line=batch.offsets[reject.line])


def _specific(text: str) -> dict[int, int]:
    """Return the offset by partition, of ``partition:0,offset:42;partition:1,offset:300``."""
    found = {}
    for each in filter(None, text.split(";")):
        parts = dict(part.strip().partition(":")[::2] for part in each.split(","))
        if set(parts) != {"partition", "offset"} or not all(v.isdigit() for v in parts.values()):
            raise HeadraceError(
                Code.INVALID,
                f"'{each}' is not the offset of a partition",
                hint="Write partition:0,offset:42;partition:1,offset:300.",
            )
        found[int(parts["partition"])] = int(parts["offset"])
    return found


def _down() -> tuple[int, ...]:
    """Return the codes by which the client says that it cannot go on by itself."""
    kafka = _client().KafkaError
    return (kafka._ALL_BROKERS_DOWN, kafka._AUTHENTICATION)  # noqa: SLF001 (their names)


class _Silent:
    """Takes the client's log: what matters of it comes as an error."""

    def log(self, *_: object) -> None:
        """Ignore a line."""


def _client() -> Any:
    """Return the client library.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    try:
        import confluent_kafka  # noqa: PLC0415
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            "the client for Kafka is not installed",
            f"{error}.",
            'Install it: pip install "headrace[kafka]".',
        ) from error
    return confluent_kafka
