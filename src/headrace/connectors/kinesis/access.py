"""Access to Kinesis: the options of a source, clients, and the translation of errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headrace.connectors import aws
from headrace.connectors.message_format import MessageFormat
from headrace.connectors.options import SecretName, moment, option
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable
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
