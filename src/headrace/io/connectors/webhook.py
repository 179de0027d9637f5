"""A sink that sends a view's changes to an HTTP server: each request has changes of one epoch.

A request that may have arrived is sent again with the same ``Idempotency-Key``, a hash of the
sink's identity and the body: a server that remembers these keys takes each change once. With a
signing secret, requests are signed as specified by Standard Webhooks.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import re
import ssl
import time
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

import xxhash

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.offenders import offenders
from headrace.execution.runtime.ports import RefusedRow
from headrace.io.connectors.options import Alters, SecretName, option, seconds
from headrace.io.connectors.sinks import Lines, change_lines, number_of_rows
from headrace.io.connectors.systems import ConnectionKind, SinkConnector, System

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from headrace.io.connectors.sinks import SinkContext
    from headrace.types import Epoch


_UNFIT: Final = frozenset({400, 413, 422})
"""Statuses with which a server rejects the contents of a request."""
_DENIED: Final = frozenset({401, 403, 407})
_PASSING: Final = frozenset({408, 409, 425, 429})
_SERVER_FAILED: Final = 500
_REDIRECTED: Final = 300
_SHOWN_BYTES: Final = 500
_LONGEST_WAIT: Final = 3600.0


_SECRET_NAME: Final = re.compile(
    r"authorization|cookie|token|secret|passw|signature|credential|api[-_.]?key|access[-_.]?key",
    re.IGNORECASE,
)
"""Matches in the names of headers and parameters whose values are secret."""
_SECRET_PARAMETERS: Final = frozenset({"key", "sig", "auth", "code"})


class BodyFormat(StrEnum):
    """The body of a request: one JSON object, or a line of JSON for each change."""

    JSON = "json"
    JSON_LINES = "json-lines"


class Method(StrEnum):
    """The HTTP method of requests."""

    POST = "post"
    PUT = "put"


def _url(text: str) -> str:
    found = urlsplit(text)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not the URL of an HTTP server",
            hint="Write it as in: https://example.com/orders.",
        )
    if found.username is not None or found.password is not None:
        raise HeadraceError(
            Code.INVALID,
            "a URL with a password cannot be used",
            hint="Leave it out, and give authorization = SECRET name.",
        )
    for name, _ in parse_qsl(found.query, keep_blank_values=True):
        if _SECRET_NAME.search(name) or name.lower() in _SECRET_PARAMETERS:
            raise HeadraceError(
                Code.INVALID,
                f'a URL with "{name}" in its query cannot be used: it would be shown with the sink',
                hint="Leave it out, and give authorization = SECRET name, or api.key = SECRET name"
                " with its api.key.header.",
            )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Options of a connection to a server.

    ``authorization`` is the value of the header Authorization, ``api_key`` that of the header named
    by ``api_key_header``; ``headers`` are further headers.
    """

    url: str = option("url", convert=_url, alters=Alters.NEVER)
    authorization: SecretName | None = option(default=None, alters=Alters.FREELY)
    api_key: SecretName | None = option("api.key", default=None, alters=Alters.FREELY)
    api_key_header: str = option("api.key.header", default="X-API-Key", alters=Alters.FREELY)
    signing: SecretName | None = option("signing.secret", default=None, alters=Alters.FREELY)
    authority: str | None = option("ssl.ca.location", default=None, alters=Alters.FREELY)
    timeout: float = option(default=30.0, convert=seconds, alters=Alters.FREELY)
    headers: tuple[tuple[str, str], ...] = option(
        prefix="header.", alters=Alters.FREELY, default=()
    )

    def __post_init__(self) -> None:
        """Refuse secret headers, since options are shown with the sink.

        Raises:
            HeadraceError: ``invalid``.
        """
        for key, _ in self.headers:
            name = key.removeprefix("header.")
            if _SECRET_NAME.search(name):
                hint = "authorization = SECRET name"
                if name != "authorization":
                    hint = f"api.key = SECRET name, 'api.key.header' = '{name}'"
                raise HeadraceError(
                    Code.INVALID,
                    f'header "{name}" is a secret, and is not written into a statement',
                    hint=f"CREATE SECRET name FROM ENV 'VARIABLE', then {hint}.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access):
    """Options of a sink; ``rows`` is the most changes in a request, an update counting as one."""

    format: BodyFormat = option(default=BodyFormat.JSON, alters=Alters.NEVER)
    method: Method = option(default=Method.POST, alters=Alters.NEVER)
    rows: int = option("request.rows", default=1_000, convert=number_of_rows, alters=Alters.FREELY)


def opened(options: Options, context: SinkContext) -> WebhookSink:
    """Return the writer of a sink; it connects at the first write."""
    return WebhookSink(options, context.identity, context.key, context.secrets.value)


@dataclass(slots=True)
class WebhookSink:
    """Sends the changes of an epoch in requests of at most ``options.rows`` changes.

    ``secret`` returns the value of a secret; it is read for each request, so a new value is used.
    """

    options: Options
    identity: str
    key: tuple[str, ...]
    secret: Callable[[str], str]
    guarantee: str = "at least once: a request that is sent again has the same Idempotency-Key"
    _connection: HTTPConnection | None = field(default=None, repr=False)
    _not_before: float = 0.0

    def durable(self) -> None:
        """Return None: the server does not report which epochs it has."""
        return

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Send the changes, and return those that the server rejects.

        Raises:
            HeadraceError: ``unavailable`` if the server does not answer, fails, or asks for a later
                attempt; ``invalid`` for any other status, such as a refused access or a wrong URL.
        """
        self._require_time()
        refused: list[RefusedRow] = []
        for part in parts:
            for lines in change_lines(epoch, part, self.key).cut(self.options.rows):
                send = partial(self._taken, epoch, lines)
                for at, why in offenders(lines.changes, send).items():
                    refused += [RefusedRow(line, why) for line in lines.of_changes(at, at + 1)]
        return refused

    def stored(self) -> None:
        """Return None: the server's rows cannot be read."""
        return

    def clear(self) -> None:
        """Do nothing: what was sent cannot be removed."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- one request -----------------------------------------------------------------------

    def _taken(self, epoch: Epoch, lines: Lines, start: int, stop: int) -> str | None:
        """Send the changes in ``[start, stop)``; return None, or why the server rejects them."""
        body = self._body(epoch, lines.of_changes(start, stop))
        status, said, headers = self._answer(body)
        if status < _REDIRECTED:
            return None
        answer = f"{status}: {said}" if said else str(status)
        if status in _UNFIT:
            return answer
        if status in _PASSING or status >= _SERVER_FAILED:
            self._wait(headers.get("Retry-After"))
            raise self._failed(Code.UNAVAILABLE, f"It says: {answer}.", "It is tried again.")
        if status in _DENIED:
            hint = "Correct the value of the secret of option authorization or api.key."
            raise self._failed(Code.INVALID, f"It says: {answer}.", hint)
        hint = "Correct the URL; redirections are not followed."
        raise self._failed(Code.INVALID, f"It says: {answer}.", hint)

    def _body(self, epoch: Epoch, lines: Sequence[str]) -> bytes:
        if self.options.format is BodyFormat.JSON_LINES:
            return "".join(f"{line}\n" for line in lines).encode()
        return f'{{"epoch":{epoch},"changes":[{",".join(lines)}]}}'.encode()

    def _answer(self, body: bytes) -> tuple[int, str, Any]:
        """Send a request; return the status, the beginning of the response's text, its headers.

        Secret values of headers are masked in the text.
        """
        headers, hidden = self._headers(body)
        if not all(map(_is_header, headers.values())):
            hint = "Correct the secrets and headers: a value is one line of Latin-1."
            raise self._failed(Code.INVALID, "The value of a header cannot be sent.", hint)
        fresh = self._connection is None
        try:
            found = self._asked(body, headers)
        except ssl.SSLError as error:
            self.close()
            hint = "Correct the URL, or give the authority's certificates by ssl.ca.location."
            raise self._failed(Code.INVALID, f"{error.reason}.", hint) from error
        except (OSError, HTTPException) as error:
            self.close()
            if not fresh and isinstance(error, ConnectionError):  # the server closed it while idle
                return self._answer(body)
            detail = f"{type(error).__name__}: {error}."
            hint = "Start the server, or correct its URL."
            raise self._failed(Code.UNAVAILABLE, detail, hint) from error
        status, said, answered = found
        for each in hidden:
            said = said.replace(each, "***")
        return status, said, answered

    def _asked(self, body: bytes, headers: dict[str, str]) -> tuple[int, str, Any]:
        url = urlsplit(self.options.url)
        if self._connection is None:
            self._connection = self._connected(url)
        path = url.path or "/"
        target = f"{path}?{url.query}" if url.query else path
        self._connection.request(self.options.method.upper(), target, body, headers)
        with self._connection.getresponse() as response:
            said = response.read(_SHOWN_BYTES)
            if not response.isclosed():  # reconnecting is cheaper than reading the rest
                self.close()
            text = said.decode("utf-8", "replace").strip()
            return response.status, text, response.headers

    def _connected(self, url: SplitResult) -> HTTPConnection:
        host = url.hostname or ""
        if url.scheme == "http":
            return HTTPConnection(host, url.port, timeout=self.options.timeout)
        trusted = ssl.create_default_context(cafile=self.options.authority)
        return HTTPSConnection(host, url.port, timeout=self.options.timeout, context=trusted)

    def _headers(self, body: bytes) -> tuple[dict[str, str], list[str]]:
        """Return the headers of a request, and a list of those values that are secret."""
        options = self.options
        id_ = xxhash.xxh3_128(self.identity.encode() + b"\n" + body).hexdigest()
        lines = options.format is BodyFormat.JSON_LINES
        found = {
            "Content-Type": "application/x-ndjson" if lines else "application/json",
            "User-Agent": "headrace",
            "Idempotency-Key": id_,
        }
        found |= {key.removeprefix("header."): value for key, value in options.headers}
        hidden = []
        for name, secret in (
            ("Authorization", options.authorization),
            (options.api_key_header, options.api_key),
        ):
            if secret is not None:
                found[name] = self.secret(secret)
                hidden.append(found[name])
        if options.signing is not None:
            found |= _signed(id_, body, self.secret(options.signing))
        return found, hidden

    # -- failures --------------------------------------------------------------------------

    def _wait(self, asked: str | None) -> None:
        """Store the time of the next attempt from a Retry-After header: seconds, or a date."""
        if asked is None:
            return
        try:
            wait = float(asked)
        except ValueError:
            try:
                wait = email.utils.parsedate_to_datetime(asked).timestamp() - time.time()
            except (ValueError, OverflowError):
                return
        self._not_before = time.monotonic() + min(max(wait, 0.0), _LONGEST_WAIT)

    def _require_time(self) -> None:
        left = self._not_before - time.monotonic()
        if left > 0:
            detail = f"It asked for the next attempt to be in {left:.0f} s."
            raise self._failed(Code.UNAVAILABLE, detail, "It is tried again.")

    def _failed(self, code: Code, detail: str, hint: str) -> HeadraceError:
        url = urlsplit(self.options.url)
        server = f"{url.scheme}://{url.netloc}{url.path}"
        return HeadraceError(code, f"{server} does not take changes", detail, hint)


def _is_header(value: str) -> bool:
    return value.isprintable() and value.encode("latin-1", "replace").decode("latin-1") == value


def _signed(id_: str, body: bytes, secret: str) -> dict[str, str]:
    """Return the headers of Standard Webhooks: HMAC-SHA256 of the id, the time and the body."""
    coded = secret.removeprefix("whsec_")
    try:
        key = base64.b64decode(coded, validate=True) if coded != secret else secret.encode()
    except ValueError:
        raise HeadraceError(
            Code.INVALID,
            "the secret of option signing.secret is not one of Standard Webhooks",
            "What follows whsec_ has to be base64.",
            "Correct the value of the secret.",
        ) from None
    at = str(int(time.time()))
    signature = hmac.new(key, f"{id_}.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


SYSTEM: Final = System(
    sink=SinkConnector("webhook", Options, also=("http",), open=opened),
    connection=ConnectionKind("webhook", Access, also=("http",)),
)
