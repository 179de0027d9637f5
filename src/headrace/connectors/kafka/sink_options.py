"""The options of a Kafka sink: its topic, the form of messages, and transactions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.connectors.kafka.access import Access
from headrace.connectors.kafka.envelopes import Envelope
from headrace.connectors.kafka.options import count
from headrace.connectors.options import Alters, option, seconds
from headrace.connectors.schema_registry import RegistryAccess
from headrace.errors import Code, HeadraceError


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
