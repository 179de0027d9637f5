"""Kinesis: the options of a source, the client that they make, and what its errors mean."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.message_format import MessageFormat
from headrace.connectors.options import SecretName, moment, option
from headrace.errors import Code, HeadraceError
from headrace.formats.libraries import library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DENIED: Final = frozenset(
    {
        "AccessDeniedException",
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationTokenException",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "KMSAccessDeniedException",
    }
)


class Begin(StrEnum):
    """Where a source begins that has read nothing yet."""

    TRIM_HORIZON = "trim_horizon"
    LATEST = "latest"
    AT_TIMESTAMP = "at_timestamp"


def _seconds(text: str) -> float:
    """Return a moment in Unix seconds: a timestamp in UTC, or such a number."""
    try:
        return float(text)
    except ValueError:
        return moment(text) / 1_000_000


@dataclass(frozen=True)
class Options(MessageFormat):
    """Which stream is read, from where on, and with which rights."""

    stream: str = option("stream", "stream.arn")
    region: str | None = option("aws.region", default=None)
    endpoint: str | None = option("aws.endpoint", default=None)
    access_key: str | None = option("aws.credentials.basic.accesskeyid", default=None)
    secret_key: SecretName | None = option("aws.credentials.basic.secretkey", default=None)
    token: SecretName | None = option("aws.credentials.basic.sessiontoken", default=None)
    begin: Begin = option("scan.stream.initpos", default=Begin.TRIM_HORIZON)
    begin_at: float | None = option("scan.stream.initpos-timestamp", default=None, convert=_seconds)
    most_records: int = option("scan.shard.getrecords.maxrecordcount", default=10_000)
    pause_millis: int = option("scan.shard.getrecords.intervalmillis", default=200)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            HeadraceError: ``invalid``.
        """
        if (self.begin is Begin.AT_TIMESTAMP) != (self.begin_at is not None):
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
        """The stream, as requests name it."""
        key = "StreamARN" if self.stream.startswith("arn:") else "StreamName"
        return {key: self.stream}

    def client(self, secret: Callable[[str], str], connections: int = 10) -> Any:
        """Return a client with the rights of the options, or of the environment.

        ``secret`` returns the value of a secret; as many requests run at the same time as there
        are ``connections``.
        """
        boto3, config = _library()
        with errors(self.stream):
            return boto3.client(
                "kinesis",
                region_name=self.region or ("us-east-1" if self.endpoint else None),
                endpoint_url=self.endpoint,
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.secret_key and secret(self.secret_key),
                aws_session_token=self.token and secret(self.token),
                config=config(
                    connect_timeout=5,
                    read_timeout=20,
                    retries={"max_attempts": 2, "mode": "standard"},
                    max_pool_connections=connections,
                ),
            )


@contextmanager
def errors(stream: str) -> Iterator[None]:
    """Return what the service and its client say as errors of a source."""
    from botocore import exceptions  # noqa: PLC0415

    try:
        yield
    except exceptions.ClientError as error:
        said = error.response["Error"]
        raise _failure(stream, said["Code"], said.get("Message") or said["Code"]) from error
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.NoRegionError,
        exceptions.ProfileNotFound,
        ValueError,
    ) as error:
        raise HeadraceError(
            Code.INVALID,
            f'stream "{stream}" cannot be read',
            f"The client says: {error}.".replace("..", "."),
            "Give aws.region and credentials as options, or in the environment.",
        ) from error
    except exceptions.BotoCoreError as error:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f'stream "{stream}" cannot be read',
            f"The client says: {error}.".replace("..", "."),
            "Correct the region or the endpoint, or the way to it.",
        ) from error


def _failure(stream: str, code: str, said: str) -> HeadraceError:
    """Return an error of the service."""
    detail = f"The service says: {said.rstrip('.')}."
    if code == "ResourceNotFoundException":
        return HeadraceError(
            Code.UNAVAILABLE,
            f'stream "{stream}" does not exist',
            detail,
            "Create the stream, or correct its name, region or endpoint.",
        )
    if code in _DENIED:
        return HeadraceError(
            Code.INVALID,
            f'stream "{stream}" cannot be read',
            detail,
            "Correct the credentials, or what they are allowed to do.",
        )
    if code == "InvalidArgumentException":
        return HeadraceError(
            Code.CONFLICT,
            f'stream "{stream}" does not continue where it was read to',
            detail,
            "CREATE OR REPLACE the stream or table to read what there is.",
        )
    return HeadraceError(
        Code.UNAVAILABLE, f'stream "{stream}" cannot be read', detail, "It is tried again."
    )


def _library() -> tuple[Any, Any]:
    """Return the client library, and what its settings are made of.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    boto3 = library("boto3", "client for Kinesis", "kinesis")
    return boto3, library("botocore.config", "client for Kinesis", "kinesis").Config
