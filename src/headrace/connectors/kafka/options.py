"""The options of a Kafka source: its topics, where reading begins, and where it ends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.connectors.kafka.access import Access
from headrace.connectors.message_format import MessageFormat
from headrace.connectors.options import option
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
