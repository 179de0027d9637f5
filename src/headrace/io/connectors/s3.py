"""S3 and compatible stores: the objects below a prefix, and a test of conditional writes.

Exactly-once delivery rests on one request: a PUT that fails if an object of that name exists. A
store that ignores the condition and overwrites the object is detected when a sink is created.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import aws
from headrace.io.connectors.systems import ConnectionKind, System

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager


SCHEME: Final = "s3://"
_LOCATION: Final = re.compile(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([^\0\\]+)")
_TRIED: Final = ".headrace"
"""The object written to test whether the store supports conditional writes."""
_TAKEN: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
"""Errors of a conditional PUT: the object exists, or another PUT of it is in progress."""
_EXTRA: Final = "s3"
_REQUEST_ID: Final = re.compile(r" \(Request ID: \w*\)")
_XML: Final = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
_STEP: Final = re.compile(r"\s*\x1b\[[\d;]*m[^\x1b]*\x1b\[[\d;]*m\s*")
"""The decorated prefix of a cause's line in error messages of Delta's library."""
MISSING: Final = "Create the bucket, or correct its name, the region or the endpoint."
CREDENTIALS: Final = "Correct the credentials, or what they are allowed to do."
_CONDITIONAL: Final = (
    "Use a store with conditional writes, such as S3 itself, or a newer version of this one."
)
_DENIED: Final = frozenset(code.lower() for code in aws.DENIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(aws.Access):
    """Options of a connection to the store."""

    def __post_init__(self) -> None:
        """Refuse an access key without a secret key, and a secret key without an access key.

        Raises:
            HeadraceError: ``invalid``.
        """
        if (self.access_key is None) != (self.secret_key is None):
            raise HeadraceError(
                Code.INVALID,
                'options "access key" and "secret key" need each other',
                hint="Give both, or neither: then the environment's credentials are used.",
            )

    def require_no_store(self, instead: str) -> None:
        """Refuse these options for a sink into local files; ``instead`` is for the hint.

        Raises:
            HeadraceError: ``invalid``.
        """
        given = [each for each in fields(Access) if getattr(self, each.name) is not None]
        if given:
            key = given[0].metadata["keys"][1]
            raise HeadraceError(
                Code.INVALID,
                f'option "{key}" is of S3, and the sink writes to this machine',
                hint=f"Leave it out, or {instead}.",
            )


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the store does not answer or rejects the credentials.

    A user who may write to one bucket need not be allowed to list buckets.
    """
    with errors("S3 cannot be reached"):
        client = aws.client("s3", _EXTRA, access.settings(secret))
    try:
        with errors("S3 cannot be reached"):
            client.list_buckets()
    except HeadraceError as error:
        cause = error.__cause__
        response = getattr(cause, "response", {})
        if response.get("Error", {}).get("Code") != "AccessDenied":
            raise


def is_location(text: str) -> bool:
    """Whether a path is a URL of an object store."""
    return "://" in text


def location(text: str) -> str:
    """Return a location in its stored form, ``s3://bucket/prefix``.

    Raises:
        HeadraceError: ``unsupported`` for another store; ``invalid`` if it has no prefix.
    """
    if not text.startswith((SCHEME, "s3a://")):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"sinks into {text.partition('://')[0]}:// are not supported",
            hint="Write to s3://bucket/prefix, or into a directory of this machine.",
        )
    found = _LOCATION.fullmatch(text.rstrip("/"))
    if found is None or not all(part.strip(". ") for part in found[2].split("/")):
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not a location in S3",
            hint="Write a bucket and a prefix, as in s3://bucket/orders/daily.",
        )
    return f"{SCHEME}{found[1]}/{found[2]}"


def errors(primary: str) -> AbstractContextManager[None]:
    """Translate errors of the store and its client to a HeadraceError with this message."""

    def wrong(hint: str, code: Code = Code.INVALID) -> Callable[[str], HeadraceError]:
        return lambda detail: HeadraceError(code, primary, detail, hint)

    region = wrong("Correct the region or the endpoint.")
    known: Mapping[str, Callable[[str], HeadraceError]] = {
        "NoSuchBucket": wrong(MISSING),
        "PermanentRedirect": region,
        "AuthorizationHeaderMalformed": region,
        "IllegalLocationConstraintException": region,
        "NotImplemented": wrong(_CONDITIONAL, Code.UNSUPPORTED),
    }
    return aws.errors(primary, known)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The objects of a bucket below a prefix; ``secret`` returns a secret's value."""

    uri: str
    access: Access
    secret: Callable[[str], str] = field(repr=False)

    @property
    def name(self) -> str:
        """The location, for messages."""
        return self.uri

    @property
    def path(self) -> PurePosixPath:
        """Endpoint, bucket and key as a path, to compare locations."""
        return PurePosixPath(self.access.endpoint or "aws", self._bucket, self._key)

    @property
    def storage(self) -> dict[str, str]:
        """The storage options of Delta's library: it commits by a conditional PUT.

        Raises:
            HeadraceError: ``invalid`` if the client's library is not installed.
        """
        settings = aws.resolved(self.access.settings(self.secret), "client for S3", _EXTRA)
        given = {
            "AWS_REGION": settings.region,
            "AWS_ENDPOINT_URL": settings.endpoint,
            "AWS_ACCESS_KEY_ID": settings.access_key,
            "AWS_SECRET_ACCESS_KEY": settings.secret_key,
            "AWS_SESSION_TOKEN": settings.token,
            "AWS_ALLOW_HTTP": str((settings.endpoint or "").startswith("http://")).lower(),
            "AWS_S3_ALLOW_UNSAFE_RENAME": "false",
            "aws_conditional_put": "etag",
            "connect_timeout": "5s",
            "timeout": "60s",
            "max_retries": "2",
            "retry_timeout": "20s",
        }
        return {key: value for key, value in given.items() if value is not None}

    def client(self, attempts: int = 2) -> Any:
        """Return a client of the store."""
        return aws.client("s3", _EXTRA, self.access.settings(self.secret), attempts=attempts)

    def require_empty(self, primary: str) -> None:
        """Raise unless the store supports conditional writes and the prefix is empty.

        Raises:
            HeadraceError: with the message ``primary``, ``invalid`` or ``unavailable`` if the store
                refuses or does not answer; ``unsupported`` if it overwrites an object;
                ``conflict`` if the prefix has objects, or is within a Delta table.
        """
        with errors(primary):
            client = self.client()
            self._require_conditions(client, primary)
            tried = self.key(_TRIED)
            found = client.list_objects_v2(Bucket=self._bucket, Prefix=self.key(""), MaxKeys=2)
            others = [each["Key"] for each in found.get("Contents", ()) if each["Key"] != tried]
            above = [each for each in PurePosixPath(self._key).parents if each.name]
            within = any(
                client.list_objects_v2(
                    Bucket=self._bucket, Prefix=f"{each}/_delta_log/", MaxKeys=1
                ).get("Contents")
                for each in above
            )
            client.delete_object(Bucket=self._bucket, Key=tried)
        if others or within:
            raise HeadraceError(
                Code.CONFLICT,
                f"{self.uri} is within a table of Delta" if within else f"{self.uri} has objects",
                "They may be those of another sink, also one that was dropped.",
                "Choose another path, or remove the objects.",
            )

    def key(self, name: str) -> str:
        """Return the key of an object of a name."""
        return f"{self._key}/{name}"

    def put(self, name: str, body: Any, metadata: Mapping[str, str]) -> bool:
        """Write an object unless the name is taken; return whether it was written."""
        return _put(self.client(), self._bucket, self.key(name), body, metadata)

    def names(self) -> Iterator[str]:
        """Yield the names of the objects in ascending order."""
        pages = self.client().get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=self.key("")):
            yield from (each["Key"].removeprefix(self.key("")) for each in page.get("Contents", ()))

    def metadata(self, name: str) -> Mapping[str, str]:
        """Return the metadata of an object."""
        found = self.client().head_object(Bucket=self._bucket, Key=self.key(name))
        metadata: Mapping[str, str] = found["Metadata"]
        return metadata

    def remove(self, name: str) -> None:
        """Remove an object."""
        self.client().delete_object(Bucket=self._bucket, Key=self.key(name))

    def said(self, error: Exception) -> str:
        """Return the reason in an error of a library."""
        return reason(str(error))

    @property
    def _bucket(self) -> str:
        return self.uri.removeprefix(SCHEME).partition("/")[0]

    @property
    def _key(self) -> str:
        return self.uri.removeprefix(SCHEME).partition("/")[2]

    def _require_conditions(self, client: Any, primary: str) -> None:
        """Raise unless the second of two conditional PUTs of one object fails."""
        _put(client, self._bucket, self.key(_TRIED), b"")
        if _put(client, self._bucket, self.key(_TRIED), b""):
            with suppress(Exception):
                client.delete_object(Bucket=self._bucket, Key=self.key(_TRIED))
            raise HeadraceError(
                Code.UNSUPPORTED,
                primary,
                "The store overwrites an object in spite of If-None-Match: two competing commits"
                " would both succeed.",
                _CONDITIONAL,
            )


def _put(
    client: Any, bucket: str, key: str, body: Any, metadata: Mapping[str, str] | None = None
) -> bool:
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        client.put_object(
            Bucket=bucket, Key=key, Body=body, IfNoneMatch="*", Metadata=dict(metadata or {})
        )
    except ClientError as error:
        if error.response["Error"]["Code"] in _TAKEN:
            return False
        raise
    return True


def reason(text: str) -> str:
    """Return the reason in an error message of a lake library, as one line."""
    if found := _XML.search(text):
        return f"{found[1]}: {found[2]}".rstrip(".")
    lines = [_STEP.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    first, last = (lines[0], lines[-1]) if lines else ("", "")
    said = first if first == last else f"{first}: {last}"
    return _REQUEST_ID.sub("", said).rstrip(".")


def is_denied(text: str) -> bool:
    """Whether an error message is about wrong credentials or a missing permission."""
    words = re.findall(r"\w+", text.replace("_", "").replace("Access Denied", "AccessDenied"))
    return any(word.lower() in _DENIED for word in words)


def is_missing(text: str) -> bool:
    """Whether an error message says that the bucket does not exist."""
    return "nosuchbucket" in text.replace("_", "").lower()


SYSTEM: Final = System(connection=ConnectionKind("s3", Access, check))
"""Connections only: sinks into files and tables of files use them (``SinkConnector.over``)."""
