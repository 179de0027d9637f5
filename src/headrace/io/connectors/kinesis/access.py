"""Access to Kinesis: the options of a source, clients, and the translation of errors.

The shards of a Kinesis stream: which ones may be read, and the position in each.

A shard that is split or merged ends, and other shards continue its keys. The records of a key are
in order if a shard is read only after its parents have been read to their end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import aws
from headrace.io.connectors.message_formats import MessageFormat
from headrace.io.connectors.options import SecretName, moment, option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager


class KinesisStartup(StrEnum):
    """Where a new source begins to read."""

    TRIM_HORIZON = "trim_horizon"
    LATEST = "latest"
    AT_TIMESTAMP = "at_timestamp"


def _seconds(text: str) -> float:
    """Parse a timestamp in UTC, or Unix seconds; return Unix seconds."""
    try:
        return float(text)
    except ValueError:
        return moment(text) / 1_000_000


@dataclass(frozen=True)
class Options(MessageFormat):
    """Options of a source: the stream, where reading begins, and access to the service."""

    stream: str = option("stream", "stream.arn")
    region: str | None = option("aws.region", default=None)
    endpoint: str | None = option("aws.endpoint", default=None)
    access_key: str | None = option("aws.credentials.basic.accesskeyid", default=None)
    secret_key: SecretName | None = option("aws.credentials.basic.secretkey", default=None)
    token: SecretName | None = option("aws.credentials.basic.sessiontoken", default=None)
    begin: KinesisStartup = option("scan.stream.initpos", default=KinesisStartup.TRIM_HORIZON)
    begin_at: float | None = option("scan.stream.initpos-timestamp", default=None, convert=_seconds)
    most_records: int = option("scan.shard.getrecords.maxrecordcount", default=10_000)
    pause_millis: int = option("scan.shard.getrecords.intervalmillis", default=200)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            HeadraceError: ``invalid``.
        """
        if (self.begin is KinesisStartup.AT_TIMESTAMP) != (self.begin_at is not None):
            raise HeadraceError(
                Code.INVALID,
                "options \"scan.stream.initpos\" = 'AT_TIMESTAMP' and"
                ' "scan.stream.initpos-timestamp" need each other',
                hint="Give both, or neither.",
            )
        if (self.access_key is None) != (self.secret_key is None):
            raise HeadraceError(
                Code.INVALID,
                'options "aws.credentials.basic.accesskeyid" and'
                ' "aws.credentials.basic.secretkey" need each other',
                hint="Give both, or neither: then the environment's credentials are used.",
            )
        if not 0 < self.most_records <= 10_000:  # noqa: PLR2004 (the service's own bound)
            raise HeadraceError(
                Code.INVALID,
                f"{self.most_records} records cannot be read at once",
                hint="Use a number from 1 to 10000.",
            )

    @property
    def named(self) -> dict[str, str]:
        """The arguments of requests that identify the stream: its name or ARN."""
        key = "StreamARN" if self.stream.startswith("arn:") else "StreamName"
        return {key: self.stream}

    def client(self, secret: Callable[[str], str], connections: int = 10) -> Any:
        """Return a client with the credentials of the options, or of the environment.

        ``secret`` returns the value of a secret; at most ``connections`` requests run at once.
        """
        settings = aws.ClientSettings(
            self.region,
            self.endpoint,
            self.access_key,
            self.secret_key and secret(self.secret_key),
            self.token and secret(self.token),
        )
        with errors(self.stream):
            return aws.client("kinesis", "kinesis", settings, connections=connections)


def errors(stream: str) -> AbstractContextManager[None]:
    """Translate errors of the service and its client to a HeadraceError about the stream."""
    return aws.errors(
        f'stream "{stream}" cannot be read',
        {
            "ResourceNotFoundException": lambda detail: HeadraceError(
                Code.UNAVAILABLE,
                f'stream "{stream}" does not exist',
                detail,
                "Create the stream, or correct its name, region or endpoint.",
            ),
            "InvalidArgumentException": lambda detail: HeadraceError(
                Code.CONFLICT,
                f'stream "{stream}" cannot be continued from the position that was read',
                detail,
                "CREATE OR REPLACE the stream or table to start again.",
            ),
        },
    )


_END: Final = "end"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard and its parents: one after a split, two after a merge."""

    id: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far a stream was read.

    ``created``, the time of the stream's creation, distinguishes it from others of its name.
    ``read`` has the sequence number of the last record that was read in a shard, None for a shard
    that was read to its end. Other shards begin with the records from ``since`` on, in Unix
    seconds; None for their first record. ``current`` is a time in whole hours since 1970: all
    records written before it have been read.
    """

    created: str
    since: float | None = None
    read: Mapping[str, str | None] = field(default_factory=dict)
    current: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON; :meth:`of_json` is the inverse."""
        shards = {shard: _END if last is None else last for shard, last in self.read.items()}
        return {
            "created": self.created,
            "since": self.since,
            "shards": shards,
            "current": self.current,
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> StreamPosition:
        """Return the position from the result of :meth:`to_json`."""
        read = {shard: None if at == _END else at for shard, at in value["shards"].items()}
        return cls(value["created"], value["since"], read, value["current"])

    def after(self, shard: str, last: str | None) -> StreamPosition:
        """Return the position after a record of a shard; ``last`` is None for the shard's end."""
        return replace(self, read={**self.read, shard: last})

    def readable(self, shards: Iterable[Shard]) -> list[Shard]:
        """Return the shards to read now, given all listed ones."""
        listed = {shard.id: shard for shard in shards}
        ended = {shard for shard, last in self.read.items() if last is None}
        return [
            shard
            for shard in listed.values()
            if shard.id not in ended
            and all(parent in ended for parent in shard.parents if parent in listed)
        ]

    def lost(self, shards: Iterable[Shard]) -> list[str]:
        """Return the ids of shards that no longer exist, but were not read to their end."""
        listed = {shard.id for shard in shards}
        return [
            shard for shard, last in self.read.items() if last is not None and shard not in listed
        ]

    def without_gone(self, shards: Iterable[Shard]) -> StreamPosition:
        """Return the position without shards that no longer exist."""
        listed = {shard.id for shard in shards}
        return replace(self, read={s: last for s, last in self.read.items() if s in listed})
