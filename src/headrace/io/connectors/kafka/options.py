"""The options of a Kafka source: its topics, where reading begins, and where it ends.

Access to Kafka's brokers: options of connections, sources and sinks.

Translation of errors of Kafka's client: codes, messages and hints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.message_formats import MessageFormat
from headrace.io.connectors.options import Alters, SecretName, option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Options of a connection, with the keys of librdkafka and of Flink, Materialize and others."""

    brokers: str = option(
        "properties.bootstrap.servers",
        "bootstrap.servers",
        "brokers",
        "broker",
        alters=Alters.ADDRESS,
    )
    protocol: str | None = option(
        "properties.security.protocol", "security protocol", default=None, alters=Alters.FREELY
    )
    mechanism: str | None = option(
        "properties.sasl.mechanism",
        "properties.sasl.mechanisms",
        "sasl mechanisms",
        "sasl mechanism",
        default=None,
        alters=Alters.FREELY,
    )
    username: str | None = option(
        "properties.sasl.username", "sasl username", default=None, alters=Alters.FREELY
    )
    password: SecretName | None = option(
        "properties.sasl.password", "sasl password", default=None, alters=Alters.FREELY
    )
    authority: str | None = option(
        "properties.ssl.ca.location",
        "ssl certificate authority",
        default=None,
        alters=Alters.FREELY,
    )
    certificate: str | None = option(
        "properties.ssl.certificate.location", "ssl certificate", default=None, alters=Alters.FREELY
    )
    private_key: str | None = option(
        "properties.ssl.key.location", "ssl key", default=None, alters=Alters.FREELY
    )

    def client(self, secret: Callable[[str], str]) -> dict[str, Any]:
        """Return settings for librdkafka; ``secret`` returns the value of a secret."""
        found = {
            "bootstrap.servers": self.brokers,
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": None if self.password is None else secret(self.password),
            "ssl.ca.location": self.authority,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.private_key,
        }
        return {key: value for key, value in found.items() if value is not None}


def unreachable(kafka: Any) -> frozenset[int]:
    """Return the client's error codes for connections that it cannot restore by itself."""
    error = kafka.KafkaError
    return frozenset({error._ALL_BROKERS_DOWN, error._AUTHENTICATION, error._SSL})  # noqa: SLF001


def failure(
    kafka: Any, topic: str, error: Any, trouble: Any = None, use: str = "read"
) -> HeadraceError:
    """Translate an error of the client.

    ``trouble`` is its last report about its connections, often the cause. ``use`` is ``read`` or
    ``written``: what failed.
    """
    said = error.str()
    if trouble is not None and trouble is not error:
        said += f": {trouble.str()}"
    codes = {error.code(), None if trouble is None else trouble.code()}
    code, what, hint = _meaning(kafka.KafkaError, codes, said, use)
    return HeadraceError(code, f'topic "{topic}" {what}', f"The client says: {said}.", hint)


def _meaning(kafka: Any, codes: set[int | None], said: str, use: str) -> tuple[Code, str, str]:
    """Return an error's code, the end of its message after the topic, and a hint."""
    if codes & {kafka.OFFSET_OUT_OF_RANGE, kafka._AUTO_OFFSET_RESET}:  # noqa: SLF001
        what = "has lost messages: some were deleted before they were read"
        hint = "Keep them longer in the topic. CREATE OR REPLACE the stream to read the others."
        return Code.CONFLICT, what, hint
    what = f"cannot be {use}"
    allowed = {
        kafka.TOPIC_AUTHORIZATION_FAILED: "Allow the user to describe it, and to read or write it.",
        kafka.GROUP_AUTHORIZATION_FAILED: 'Allow the user to read as "properties.group.id".',
        kafka.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Allow the user to use transactional"
        " ids that begin with headrace-sink-.",
        kafka.CLUSTER_AUTHORIZATION_FAILED: "Allow the user to describe the cluster.",
    }
    for code, hint in allowed.items():
        if code in codes:
            return Code.INVALID, what, hint
    if codes & {kafka._SSL} or "certificate verify failed" in said:  # noqa: SLF001
        hint = (
            "Give the certificate of the authority that signed the brokers', as"
            " 'properties.ssl.ca.location' = '/path', or use the name that it is for."
        )
        return Code.INVALID, what, hint
    if codes & {kafka._AUTHENTICATION, kafka.SASL_AUTHENTICATION_FAILED}:  # noqa: SLF001
        hint = (
            "Correct 'properties.sasl.username', the secret of the password, or"
            " 'properties.sasl.mechanism'."
        )
        return Code.INVALID, what, hint
    if codes & {kafka.UNKNOWN_TOPIC_OR_PART, kafka._UNKNOWN_TOPIC, kafka._UNKNOWN_PARTITION}:  # noqa: SLF001
        hint = "Create the topic, or correct its name."
        if use == "written":
            hint += " CREATE SINK creates it if its options give the number of partitions."
        return Code.UNAVAILABLE, what, hint
    down = {
        kafka._ALL_BROKERS_DOWN,  # noqa: SLF001
        kafka._RESOLVE,  # noqa: SLF001
        kafka._TIMED_OUT,  # noqa: SLF001
        kafka._TRANSPORT,  # noqa: SLF001
    }
    if codes & down:
        hint = "Start the brokers, or correct their addresses and 'properties.security.protocol'."
        return Code.UNAVAILABLE, what, hint
    return Code.UNAVAILABLE, what, "It is tried again; look into the brokers' logs if it stays."


_CREATION: Mapping[str, str] = {
    "INVALID_REPLICATION_FACTOR": "Give at most as many replicas as there are brokers, or leave the"
    ' option "replicas" out.',
    "INVALID_PARTITIONS": "Give a number of partitions that the brokers accept.",
    "TOPIC_AUTHORIZATION_FAILED": "Allow the user to create it, or create it with Kafka's tools.",
    "CLUSTER_AUTHORIZATION_FAILED": "Allow the user to create it, or create it with Kafka's tools.",
    "POLICY_VIOLATION": "Create it with Kafka's tools as the brokers' policy asks.",
}


def creation_failure(topic: str, error: Any) -> HeadraceError:
    """Return the error for a topic that could not be created."""
    hint = _CREATION.get(error.name(), 'Create it with Kafka\'s tools, and leave "partitions" out.')
    code = Code.UNAVAILABLE if error.retriable() else Code.INVALID
    said = f"The broker says: {error.str()}."
    return HeadraceError(code, f'topic "{topic}" cannot be created', said, hint)


class KafkaStartup(StrEnum):
    """Where a new source begins to read."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    GROUP = "group-offsets"
    TIMESTAMP = "timestamp"
    OFFSETS = "specific-offsets"


class Bounded(StrEnum):
    """Where a source ends."""

    NEVER = "unbounded"
    LATEST = "latest-offset"
    TIMESTAMP = "timestamp"
    OFFSETS = "specific-offsets"


def _offsets(text: str) -> str:
    """Return the text, which must be accepted by :func:`offsets_of`."""
    offsets_of(text)
    return text


def offsets_of(text: str | None) -> dict[int, int]:
    """Parse ``partition:0,offset:42;partition:1,offset:300`` into offsets by partition."""
    found = {}
    for each in filter(None, (text or "").split(";")):
        parts = dict(part.strip().partition(":")[::2] for part in each.split(","))
        if set(parts) != {"partition", "offset"} or not all(v.isdigit() for v in parts.values()):
            raise HeadraceError(
                Code.INVALID,
                f"'{each}' is not the offset of a partition",
                hint="Write partition:0,offset:42;partition:1,offset:300.",
            )
        found[int(parts["partition"])] = int(parts["offset"])
    return found


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not a regular expression",
            f"It says: {error}.",
            "Write one that matches whole names of topics, such as 'orders-.*'.",
        ) from error
    return text


def count(text: str) -> int:
    """Parse a number of partitions or replicas, at least 1."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not a number of partitions or replicas",
            hint="Write a whole number from 1 on, or leave the option out.",
        )
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access, MessageFormat):
    """Options of a source; keys after ``properties.`` are librdkafka's."""

    topic: str | None = option("topic", "kafka_topic", default=None)
    pattern: str | None = option("topic-pattern", default=None, convert=_pattern)
    startup: KafkaStartup = option("scan.startup.mode", default=KafkaStartup.EARLIEST)
    startup_timestamp: int | None = option("scan.startup.timestamp-millis", default=None)
    startup_offsets: str | None = option(
        "scan.startup.specific-offsets", default=None, convert=_offsets
    )
    bounded: Bounded = option("scan.bounded.mode", default=Bounded.NEVER)
    bounded_timestamp: int | None = option("scan.bounded.timestamp-millis", default=None)
    bounded_offsets: str | None = option(
        "scan.bounded.specific-offsets", default=None, convert=_offsets
    )
    group: str | None = option("properties.group.id", "group.id", default=None)
    isolation: str = option("properties.isolation.level", default="read_committed")
    partitions: int | None = option("partitions", default=None, convert=count)
    replicas: int | None = option("replicas", default=None, convert=count)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            HeadraceError: ``invalid``.
        """
        _require(
            "scan.startup",
            self.startup,
            {
                KafkaStartup.GROUP: ("properties.group.id", self.group),
                KafkaStartup.TIMESTAMP: ("scan.startup.timestamp-millis", self.startup_timestamp),
                KafkaStartup.OFFSETS: ("scan.startup.specific-offsets", self.startup_offsets),
            },
        )
        _require(
            "scan.bounded",
            self.bounded,
            {
                Bounded.TIMESTAMP: ("scan.bounded.timestamp-millis", self.bounded_timestamp),
                Bounded.OFFSETS: ("scan.bounded.specific-offsets", self.bounded_offsets),
            },
        )
        if self.pattern is None and not self.topics:
            raise HeadraceError(
                Code.INVALID,
                "a kafka source has no topic",
                hint="Add topic = '...' to its options.",
            )
        if self.pattern is not None and self.topic is not None:
            raise HeadraceError(
                Code.INVALID,
                'options "topic" and "topic-pattern" are given together',
                hint="Give one of them.",
            )

    @property
    def topics(self) -> tuple[str, ...]:
        """The names in option ``topic``, where semicolons separate them."""
        names = (name.strip() for name in (self.topic or "").split(";"))
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def named(self) -> str:
        """The topics or the pattern as given, for the source's identity and messages."""
        return self.topic if self.topic is not None else f"/{self.pattern}/"


def _require(group: str, mode: StrEnum, needed: Mapping[StrEnum, tuple[str, object]]) -> None:
    """Refuse a mode without the option that it needs, and an option without its mode."""
    for each, (key, value) in needed.items():
        of_group = key.startswith(group)
        if (value is None and each is mode) or (
            value is not None and each is not mode and of_group
        ):
            primary = f'option "{group}.mode" = \'{each}\' needs option "{key}"'
            if value is not None:
                primary = f'option "{key}" needs option "{group}.mode" = \'{each}\''
            raise HeadraceError(
                Code.INVALID,
                primary,
                hint="Give both, or neither.",
            )
