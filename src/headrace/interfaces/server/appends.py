"""``POST /v1/streams/{name}``: appends JSON lines or Arrow, all rows of a request or none.

With an idempotency key, a repeated request takes effect once. Each key is its own producer, whose
sequence number is a checksum of the request: the log appends a producer's number once, and the same
key with another number is a conflict.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import xxhash

from headrace.errors import Code, HeadraceError, Span
from headrace.interfaces.server.catalog import resolved
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.requests import (
    StateToken,
    StatusError,
    body,
    count,
    declared,
    done,
    number,
)
from headrace.io.formats.blocks import FilePosition, RecordBlock, after_mark, lines_of
from headrace.io.formats.frames import table_of_stream
from headrace.io.formats.json_lines import JsonDecoder, require_lines
from headrace.lifecycle.states.former_names import as_present, with_former
from headrace.planning.catalog import Stream, Table
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.server.running import RequestCalls
    from headrace.interfaces.session import Session
    from headrace.lifecycle.states.reader import Reader
    from headrace.types import Column


LINES: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
_DOES_NOT_FIT: Final = 422
_LONGEST_KEY: Final = 255
_READABLE: Final = "readable"
_LOCKS: Final = 64
_SIGNED: Final = (1 << 63) - 1


@dataclass(slots=True)
class Appends:
    """State shared by append requests: the memory they hold, and locks for their keys."""

    limits: Limits
    held: int = 0
    """Bytes of request bodies in memory; changed on the event loop's thread only."""
    _locks: tuple[threading.Lock, ...] = field(
        default_factory=lambda: tuple(threading.Lock() for _ in range(_LOCKS))
    )

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts bytes held until the block ends.

        The function raises ``unavailable`` if all requests together hold more than the limit.
        """
        mine = 0

        def take(length: int) -> None:
            nonlocal mine
            mine += length
            self.held += length
            if self.held > self.limits.held_bytes:
                raise HeadraceError(
                    Code.UNAVAILABLE,
                    "the server had too many rows in memory",
                    hint="Try again in a second, or send fewer rows at a time.",
                )

        try:
            yield take
        finally:
            self.held -= mine

    def alone(self, name: str, key: str) -> threading.Lock:
        """Return the lock of a key; requests with the same key are appended one at a time."""
        return self._locks[xxhash.xxh64_intdigest(f"{name}\n{key}".encode()) % _LOCKS]


@dataclass(frozen=True, slots=True)
class AppendNumber:
    """A producer's sequence number. ``once``: every other number of this producer is a conflict.

    ``lock`` is held while the request is appended.
    """

    producer: str
    sequence: int
    lock: threading.Lock
    once: bool


@dataclass(frozen=True, slots=True)
class AppendHandlers:
    """Appends rows to streams and tables."""

    reader: Reader
    calls: RequestCalls
    appends: Appends
    limits: Limits

    async def append_rows(self, request: Request) -> Response:
        """Append the rows of a request to a stream or table, durably: all or none."""
        name, wait = request.path_params["name"], request.query_params.get("wait")
        if wait not in (None, _READABLE):
            raise HeadraceError(
                Code.INVALID, f"wait={wait} is not known", hint="Use wait=readable."
            )
        relation = resolved(self.reader.catalog, name, asking(request))
        kind, seconds = declared(request, LINES, ARROW), number(request, "timeout")
        limits = self.limits
        with self.appends.holding() as take:
            data = await body(request, limits.rows_bytes, limits.body_seconds, take)
            numbered = _numbered(self.appends, request, name, data)

            def call(session: Session) -> Response:
                try:
                    rows = table_of_stream(data) if kind == ARROW else _lines(data, relation)
                    appended = _append(session, name, rows, numbered)
                except HeadraceError as error:
                    if error.code is Code.INVALID:
                        raise StatusError(_DOES_NOT_FIT, error) from error
                    raise
                token = StateToken(self.reader.published.epoch, session.written)
                if wait == _READABLE:
                    session.wait_for(token.epoch, token.ends)
                    token = StateToken(self.reader.published.epoch, session.written)
                return done({"rows": appended, "token": str(token)})

            id_ = request.query_params.get("session")
            return await self.calls.run(request, call, seconds, id_)


def _append(session: Session, name: str, rows: pa.Table, numbered: AppendNumber | None) -> int:
    if numbered is None:
        return session.insert(name, rows)
    with numbered.lock:
        last = session.last_sequence(name, numbered.producer)
        if numbered.once and last not in (None, numbered.sequence):
            raise HeadraceError(
                Code.CONFLICT,
                "this idempotency key was used for another request",
                detail="Nothing was appended.",
                hint="Use a new key for new rows.",
            )
        return session.insert(name, rows, producer=numbered.producer, sequence=numbered.sequence)


def _numbered(appends: Appends, request: Request, name: str, data: bytes) -> AppendNumber | None:
    """Return a request's number, from its idempotency key or its producer; None without either.

    Raises:
        HeadraceError: ``invalid`` for a key that is too long, and for a producer without a
            sequence or the reverse.
    """
    key = request.headers.get("idempotency-key")
    producer, sequence = request.query_params.get("producer"), count(request, "sequence")
    if (producer is None) != (sequence is None) or (producer is not None and key is not None):
        raise HeadraceError(
            Code.INVALID,
            "a request has a producer and a sequence, or an Idempotency-Key, or neither",
        )
    if producer is not None and sequence is not None:
        return AppendNumber(producer, sequence, appends.alone(name, producer), once=False)
    if key is None:
        return None
    if not 0 < len(key) <= _LONGEST_KEY:
        raise HeadraceError(
            Code.INVALID, f"an Idempotency-Key has from 1 to {_LONGEST_KEY} characters"
        )
    checksum = xxhash.xxh3_64_intdigest(data) & _SIGNED
    return AppendNumber(f"key {key}", checksum, appends.alone(name, key), once=True)


def _lines(data: bytes, relation: object) -> pa.Table:
    """Return the rows of JSON lines, with those columns of the relation that the lines give.

    Raises:
        HeadraceError: ``invalid`` for the first line that does not fit, with its line number.
    """
    if not isinstance(relation, Stream | Table):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "JSON lines for a view are not supported",
            hint="Append to the streams and tables that it reads.",
        )
    require_lines("the body of the request", data)
    text = data[after_mark(data).position :]
    schema = Schema(_given(relation, text))
    decoder = _decoder(with_former(relation, schema))
    decoded = decoder.decode(RecordBlock(text, 1, FilePosition(), len(text)))
    if decoded.rejects:
        first = min(decoded.rejects, key=lambda reject: reject.line or 0)
        at = "" if first.column is None else f'column "{first.column}": '
        raise HeadraceError(
            Code.INVALID,
            f'line {first.line} does not fit {relation.kind} "{relation.name}"',
            detail=f"{at}{first.reason}. Nothing of the request was appended.",
            hint="Correct the line, and send the request again.",
            span=Span(first.raw, 0, len(first.raw), None, first.line or 1),
        )
    tables = [as_present(relation, table) for table in decoded.tables]
    return (
        tables[0] if len(tables) == 1 else pa.concat_tables(tables or [schema.arrow.empty_table()])
    )


@lru_cache(maxsize=256)
def _decoder(schema: Schema) -> JsonDecoder:
    """Return what decodes lines: to create it takes longer than a few lines do."""
    return JsonDecoder("", schema)


def _given(relation: Stream | Table, text: bytes) -> tuple[Column, ...]:
    """Return the columns of the lines: all but generated ones and those left to a DEFAULT.

    Raises:
        HeadraceError: ``invalid`` if some lines leave a column to its DEFAULT and others do not.
    """
    declaration = relation.declaration
    columns = [c for c in relation.schema.columns if c.name not in declaration.generated]
    defaults = [name for name, _ in declaration.defaults]
    left = _left_to_defaults(text, defaults) if defaults else frozenset()
    return tuple(column for column in columns if column.name not in left)


def _left_to_defaults(text: bytes, defaults: Sequence[str]) -> frozenset[str]:
    """Return the columns with a DEFAULT that are missing from every line."""
    spans, found = lines_of(text, 1), dict.fromkeys(defaults, 0)
    for span in spans:
        try:
            parsed = json.loads(text[span.start : span.end])
        except (ValueError, RecursionError):
            continue  # the decoder rejects the line
        names = {key.lower() for key in parsed} if isinstance(parsed, dict) else set()
        for name in defaults:
            found[name] += name.lower() in names
    for name, times in found.items():
        if 0 < times < len(spans):
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}", which has a DEFAULT, is left out in some lines only',
                hint="Give it in all lines, or in none.",
            )
    return frozenset(name for name, times in found.items() if times == 0)
