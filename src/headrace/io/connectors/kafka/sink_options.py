"""The options of a Kafka sink: its topic, the form of messages, and transactions.

Changes of a part as messages of a topic: columns of keys and values.

The *envelope* is how a message describes a change: a table with one row per message value. A format
encodes these rows as bytes.

Creating topics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.zset import WEIGHT
from headrace.algebra.zset.zset import numbers
from headrace.errors import Code, HeadraceError
from headrace.execution.serving.changes import paired
from headrace.io.connectors.kafka.options import Access, count, creation_failure
from headrace.io.connectors.options import Alters, option, seconds
from headrace.io.connectors.schema_registry import RegistryAccess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.types import Epoch


if TYPE_CHECKING:
    Encode = Callable[[pa.Table], pa.Array]
    """A function from a table to an array with the bytes or text of each row."""


class Envelope(StrEnum):
    """How messages describe changes."""

    UPSERT = "upsert"
    DEBEZIUM = "debezium"
    CHANGELOG = "changelog"
    APPEND = "append"


_SOURCE: Final = "headrace"
_DEBEZIUM_OPS: Final = np.array(["c", "d", "u"])


@dataclass(frozen=True, slots=True)
class OutgoingMessages:
    """Messages in their order: keys (None without a key), values (NULL is a deletion), both binary.

    ``rows`` are the indices in the part of the messages' rows, ``unsaid`` of rows that the envelope
    cannot express.
    """

    keys: pa.Array | None
    values: pa.Array
    rows: NDArray[np.int64]
    unsaid: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class EnvelopeEncoder:
    """Turns parts into messages; ``key`` is the unique key of the rows, empty if it is unknown.

    ``encode`` and ``encode_key`` encode values and keys; ``identity`` is the sink's, for messages
    that name their writer.
    """

    envelope: Envelope
    key: tuple[str, ...]
    identity: str
    encode: Encode
    encode_key: Encode

    def messages(self, epoch: Epoch, part: pa.Table) -> OutgoingMessages:
        """Return the messages of a part of an epoch's changes."""
        match self.envelope:
            case Envelope.UPSERT:
                return self._upserts(part)
            case Envelope.APPEND:
                return self._appended(part)
            case Envelope.CHANGELOG:
                return self._changelog(epoch, part)
            case Envelope.DEBEZIUM:
                return self._debezium(epoch, part)

    def _upserts(self, part: pa.Table) -> OutgoingMessages:
        befores, afters = paired(part, self.key)
        written, deleted = afters[afters >= 0], befores[afters < 0]
        values = pa.concat_arrays(
            [
                self.encode(_rows(part, written)).cast(pa.binary()),
                pa.nulls(len(deleted), pa.binary()),
            ]
        )
        places = np.concatenate([written, deleted])
        return OutgoingMessages(self._keys(part, places), values, places)

    def _appended(self, part: pa.Table) -> OutgoingMessages:
        """Return a message for each copy of each new row."""
        weights = numbers(part, WEIGHT)
        places = np.repeat(np.arange(part.num_rows), np.maximum(weights, 0))
        values = self.encode(_rows(part, places)).cast(pa.binary())
        return OutgoingMessages(
            self._keys(part, places), values, places, np.flatnonzero(weights < 0)
        )

    def _changelog(self, epoch: Epoch, part: pa.Table) -> OutgoingMessages:
        befores, afters = paired(part, self.key)
        update = (befores >= 0) & (afters >= 0)
        places = np.stack([befores, afters], axis=1).reshape(-1)
        signs = np.stack([np.where(update, "-U", "-D"), np.where(update, "+U", "+I")], axis=1)
        given = places >= 0
        places = places[given]
        rows = pa.table(
            {
                "epoch": pa.array(np.full(len(places), epoch), pa.int64()),
                "op": pa.array(signs.reshape(-1)[given]),
                "weight": part[WEIGHT].take(pa.array(places)),
                "row": _struct(part, places),
            }
        )
        values = self.encode(rows).cast(pa.binary())
        return OutgoingMessages(self._keys(part, places), values, places)

    def _debezium(self, epoch: Epoch, part: pa.Table) -> OutgoingMessages:
        befores, afters = paired(part, self.key)
        if not self.key:  # one message per copy of a row
            weights = np.abs(numbers(part, WEIGHT))
            copies = weights[np.maximum(befores, afters)]
            befores, afters = np.repeat(befores, copies), np.repeat(afters, copies)
        kinds = np.where(afters < 0, 1, np.where(befores < 0, 0, 2))
        places = np.where(afters < 0, befores, afters)
        now, count = time.time_ns() // 1_000_000, len(places)
        source = {
            "connector": pa.array([_SOURCE] * count, pa.string()),
            "name": pa.array([self.identity] * count, pa.string()),
            "epoch": pa.array(np.full(count, epoch), pa.int64()),
        }
        rows = pa.table(
            {
                "before": _struct(part, befores),
                "after": _struct(part, afters),
                "source": pa.StructArray.from_arrays(list(source.values()), list(source)),
                "op": pa.array(_DEBEZIUM_OPS[kinds], pa.string()),
                "ts_ms": pa.array(np.full(count, now), pa.int64()),
            }
        )
        values = self.encode(rows).cast(pa.binary())
        keys = self._keys(part, places)
        if keys is None:
            return OutgoingMessages(None, values, places)
        # A deletion is followed by a message without a value, for compaction of the topic.
        order = np.repeat(np.arange(count), np.where(kinds == 1, 2, 1))
        repeated = np.zeros(len(order), bool)
        repeated[1:] = order[1:] == order[:-1]
        values = values.take(pa.array(order, mask=repeated))
        return OutgoingMessages(keys.take(pa.array(order)), values, places[order])

    def _keys(self, part: pa.Table, places: NDArray[np.int64]) -> pa.Array | None:
        if not self.key:
            return None
        return self.encode_key(_rows(part, places, self.key)).cast(pa.binary())


def changes_of(schema: pa.Schema, envelope: Envelope) -> pa.Schema:
    """Return the columns of message values for rows of a schema."""
    row = pa.struct(list(schema))
    match envelope:
        case Envelope.CHANGELOG:
            fields: list[tuple[str, Any]] = [
                ("epoch", pa.int64()),
                ("op", pa.string()),
                ("weight", pa.int64()),
                ("row", row),
            ]
            return pa.schema(fields)
        case Envelope.DEBEZIUM:
            source = pa.struct(
                [("connector", pa.string()), ("name", pa.string()), ("epoch", pa.int64())]
            )
            fields = [("before", row), ("after", row), ("source", source)]
            return pa.schema([*fields, ("op", pa.string()), ("ts_ms", pa.int64())])
    return schema


def _rows(
    part: pa.Table, places: NDArray[np.int64], names: Sequence[str] | None = None
) -> pa.Table:
    columns = [name for name in part.column_names if name != WEIGHT]
    return part.select(list(names or columns)).take(pa.array(places))


def _struct(part: pa.Table, places: NDArray[np.int64]) -> pa.Array:
    """Return rows as structs; NULL for a negative index."""
    columns = [name for name in part.column_names if name != WEIGHT]
    rows = part.select(columns).to_struct_array()
    found = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    return found.take(pa.array(places, mask=places < 0))


class ValueFormat(StrEnum):
    """The formats of values."""

    JSON = "json"
    AVRO = "avro"


class SinkKeyFormat(StrEnum):
    """The formats of keys: ``string`` is the text of a single column."""

    JSON = "json"
    STRING = "string"
    AVRO = "avro"


class Compression(StrEnum):
    """How batches of messages are compressed."""

    NONE = "none"
    GZIP = "gzip"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access, RegistryAccess):
    """The options of a sink.

    If ``partitions`` is given, the sink creates the topic, with ``settings`` from options that
    begin with ``topic.``.
    """

    topic: str = option(alters=Alters.NEVER)
    envelope: Envelope | None = option(default=None, alters=Alters.NEVER)
    format: ValueFormat = option(
        "format", "value.format", default=ValueFormat.JSON, alters=Alters.NEVER
    )
    key_format: SinkKeyFormat = option(
        "key.format", default=SinkKeyFormat.JSON, alters=Alters.NEVER
    )
    compression: Compression = option(
        "properties.compression.type", default=Compression.LZ4, alters=Alters.FREELY
    )
    transaction_timeout: float = option(
        "transaction.timeout", default=600.0, convert=seconds, alters=Alters.FREELY
    )
    partitions: int | None = option(default=None, convert=count, alters=Alters.NEVER)
    replicas: int | None = option(default=None, convert=count, alters=Alters.NEVER)
    settings: tuple[tuple[str, str], ...] = option(prefix="topic.", default=(), alters=Alters.NEVER)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            HeadraceError: ``invalid``.
        """
        avro = ValueFormat.AVRO in (self.format, self.key_format)
        if avro and self.registry is None:
            raise HeadraceError(
                Code.INVALID,
                "messages of Avro need a schema registry",
                hint="Give it, as 'schema.registry.url' = 'http://...'.",
            )
        if self.settings and self.partitions is None:
            raise HeadraceError(
                Code.INVALID,
                f'option "{self.settings[0][0]}" only applies to a topic that the sink creates',
                hint="Add partitions = '...', or set it with Kafka's tools.",
            )

    def envelope_of(self, key: tuple[str, ...]) -> Envelope:
        """Return the envelope for rows with a key; by default upsert, changelog without a key."""
        return self.envelope or (Envelope.UPSERT if key else Envelope.CHANGELOG)


_ANSWER_SECONDS: Final = 10.0


def create_topics(
    kafka: Any,
    admin: Any,
    names: Iterable[str],
    size: tuple[int, int],
    settings: Mapping[str, str],
) -> None:
    """Create topics; ``size`` is the number of partitions and of replicas, -1 for the default.

    A topic that exists is left unchanged.

    Raises:
        HeadraceError: ``invalid`` or ``unavailable`` if the brokers refuse or do not answer.
    """
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    made = [NewTopic(name, *size, config=dict(settings)) for name in names]
    for name, created in admin.create_topics(made).items():
        try:
            created.result(_ANSWER_SECONDS)
        except kafka.KafkaException as error:
            if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise creation_failure(name, error.args[0]) from error
