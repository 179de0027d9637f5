"""What a client sends and is answered: requests, tokens, errors and results.

Requests are parsed strictly: missing, unknown and wrongly typed values are refused.

Tokens: what a client has seen or written, so that a later read can be required to show it.

The text of a token is the epoch, ``7``, and after ``@`` the ends of the logs that the client wrote
to,
``7@3:1200,4:88``.

Error answers: a status for each code, and a body from which clients rebuild the error.

Encodes results as HTTP answers in the format that the request accepts.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from starlette.responses import Response, StreamingResponse

from headrace.errors import Code, HeadraceError, shortened, unknown
from headrace.execution.serving.values import csv_line, json_rows, json_text, rows
from headrace.interfaces.server.logs import request_id
from headrace.io.formats.values import is_number_text
from headrace.types import Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from starlette.requests import Request

    from headrace.execution.runtime.published import Published
    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.session import Result


_WRITTEN = re.compile(r"(?P<epoch>\d{1,18})(@(?P<ends>\d{1,18}:\d{1,18}(,\d{1,18}:\d{1,18})*))?")


@dataclass(frozen=True, slots=True)
class StateToken:
    """An epoch, and the ends of logs by relation id."""

    epoch: Epoch
    ends: Mapping[RelationId, Offset] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> StateToken:
        """Parse a token; a number alone is an epoch.

        Raises:
            HeadraceError: ``invalid`` for any other text.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise HeadraceError(
                Code.INVALID,
                "this is not a token",
                hint="Give the token of an earlier answer, or the number of an epoch.",
            )
        pairs = (pair.split(":") for pair in (found["ends"] or "").split(",") if pair)
        ends = {RelationId(int(relation)): Offset(int(end)) for relation, end in pairs}
        return cls(Epoch(int(found["epoch"])), ends)

    def __str__(self) -> str:
        """Return the text that :meth:`of` reads."""
        ends = ",".join(f"{relation}:{end}" for relation, end in sorted(self.ends.items()))
        return f"{self.epoch}@{ends}" if ends else str(self.epoch)

    def shown_by(self, state: Published) -> bool:
        """Whether a state includes the epoch and all writes of the token."""
        return state.epoch >= self.epoch and state.has_read(self.ends)


_log = logging.getLogger(__name__)

_STATUS: Final[Mapping[Code, int]] = {
    Code.INVALID: 400,
    Code.UNSUPPORTED: 422,
    Code.FORBIDDEN: 403,
    Code.CONFLICT: 409,
    Code.UNAVAILABLE: 503,
    Code.CANCELLED: 499,
    Code.CORRUPT: 500,
    Code.INTERNAL: 500,
}


_UNKNOWN: Final = 401


class StatusError(Exception):
    """An error with its own HTTP status, in place of the status of its code."""

    def __init__(self, status: int, error: HeadraceError) -> None:
        super().__init__(error)
        self.status = status
        self.error = error


def failure(error: HeadraceError, status: int | None = None) -> Response:
    """Return an error as an answer, ``{"error": {...}}``; see :meth:`HeadraceError.to_json`."""
    headers = {"Retry-After": "1"} if error.code is Code.UNAVAILABLE else {}
    if status == _UNKNOWN:
        headers["WWW-Authenticate"] = 'Bearer realm="headrace"'
    return Response(
        json_text({"error": error.to_json()}),
        status or _STATUS[error.code],
        headers,
        "application/json",
    )


def shown(error: BaseException, directory: Path) -> HeadraceError:
    """Return an error as clients see it: without details of the server's machine.

    A defect is shown as the id of the request, with which the server's log records it.
    """
    if isinstance(error, StatusError):
        error = error.error
    if not isinstance(error, HeadraceError) or error.code is Code.INTERNAL:
        number = request_id()
        fields = {"fields": {"request": number}}
        _log.error("request failed (%s)", number, exc_info=error, extra=fields)
        return HeadraceError(
            Code.INTERNAL,
            "the server failed to answer this request",
            hint=f"The server's log has the reason under {number}.",
        )
    return HeadraceError(
        error.code,
        _without(directory, error.primary) or "",
        _without(directory, error.detail),
        _without(directory, error.hint),
        error.span,
    )


def _without(directory: Path, text: str | None) -> str | None:
    """Return a text without the path of the data directory."""
    if text is None:
        return None
    for path in {str(directory.resolve()), str(directory.absolute())}:
        text = text.replace(path, "DATA")
    return text


_TOO_LONG: Final = 413
_OTHER_TYPE: Final = 415
_TOO_SLOW: Final = 408
_BYTES_PER_SECOND: Final = 64 << 10


async def body(
    request: Request,
    most: int,
    seconds: float,
    take: Callable[[int], None] = lambda _length: None,
) -> bytes:
    """Return the body of a request. ``take`` is called with each part's length, and may raise.

    Raises:
        StatusError: ``unsupported`` if it is longer than ``most`` bytes; ``cancelled`` if it takes
            longer than ``seconds`` plus one second per 64 KiB.
    """
    parts: list[bytes] = []
    length, arriving = 0, request.stream()
    until = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            async with asyncio.timeout_at(until + length / _BYTES_PER_SECOND):
                part = await anext(arriving, None)
        except TimeoutError:
            raise _too_slow(seconds) from None
        if part is None:
            break
        parts.append(part)
        length += len(part)
        take(len(part))
        if length > most:
            raise StatusError(
                _TOO_LONG,
                HeadraceError(
                    Code.UNSUPPORTED,
                    f"a request of more than {most:,} bytes is not supported",
                    hint="Send it in several parts.",
                ),
            )
    return b"".join(parts)


def _too_slow(seconds: float) -> StatusError:
    return StatusError(
        _TOO_SLOW,
        HeadraceError(
            Code.CANCELLED,
            f"the body of the request did not arrive within {seconds:g} seconds",
            detail="It has had no effect.",
            hint="Send the whole body at once; rows in several requests.",
        ),
    )


async def json_object(
    request: Request, most: int, seconds: float, fields: Mapping[str, tuple[type, ...]]
) -> dict[str, Any]:
    """Return the JSON object in a request's body, checked against the types of ``fields``.

    Raises:
        HeadraceError: ``invalid`` if the body is not such an object.
        StatusError: ``invalid`` if its media type is not JSON; as :func:`body`.
    """
    declared(request, "application/json")
    try:
        text = await body(request, most, seconds)
        found = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise HeadraceError(Code.INVALID, "the body is not JSON", f"{error}.") from error
    if not isinstance(found, dict):
        raise HeadraceError(Code.INVALID, "the body is not a JSON object")
    _require_known(found, tuple(fields), "field")
    for name, value in found.items():
        if value is not None and (
            not isinstance(value, fields[name])
            or (isinstance(value, bool) and bool not in fields[name])
        ):
            kinds = " or ".join(_KINDS[kind] for kind in fields[name] if kind in _KINDS)
            raise HeadraceError(Code.INVALID, f'field "{name}" is not {kinds}')
    return found


def _finite(text: str) -> float:
    """Parse a number of a JSON document.

    Raises:
        HeadraceError: ``invalid`` for ``NaN``, ``Infinity``, and numbers beyond a DOUBLE.
    """
    value = float(text)
    if math.isfinite(value):
        return value
    raise HeadraceError(
        Code.INVALID,
        f"{shortened(text, _SHOWN)} is not a finite number",
        hint="Give the value as text, and CAST it in the statement.",
    )


def declared(request: Request, *taken: str) -> str:
    """Return the media type of a request's body, which must be one of the accepted types.

    The types that another site's page can send without a CORS preflight are never accepted.

    Raises:
        StatusError: ``invalid`` for another type.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found in taken:
        return found
    raise StatusError(
        _OTHER_TYPE,
        HeadraceError(
            Code.INVALID,
            f"a body of type '{found}' is not accepted here",
            hint=f"Send it with the header Content-Type: {' or '.join(taken)}.",
        ),
    )


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A query parameter of a route; ``type`` is a name of JSON Schema."""

    name: str
    meaning: str
    type: str = "string"
    repeated: bool = False


def require_known(request: Request, known: Sequence[QueryParameter]) -> None:
    """Raise if a query parameter is unknown or given twice."""
    names = [name for name, _ in request.query_params.multi_items()]
    _require_known(names, tuple(query.name for query in known), "query parameter")
    if len(names) == len(set(names)):
        return
    for query in known:
        if not query.repeated and names.count(query.name) > 1:
            raise HeadraceError(Code.INVALID, f'query parameter "{query.name}" is given twice')


def number(request: Request, name: str) -> float | None:
    """Return a query parameter that is a finite number of 0 or more; None if it is not given.

    Raises:
        HeadraceError: ``invalid`` if it is not a number of 0 or more.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not is_number_text(text) or not 0 <= float(text) < math.inf:
        raise _not_a("a number of 0 or more", name)
    return float(text)


def count(request: Request, name: str) -> int | None:
    """Return a query parameter that is a whole number of 0 or more; None if it is not given.

    Raises:
        HeadraceError: ``invalid`` if it is not a whole number of 0 or more.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_COUNT:
        raise _not_a("a whole number of 0 or more", name)
    return int(text)


_LONGEST_COUNT = 18
_SHOWN = 40
_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    bool: "true or false",
}


def _not_a(what: str, name: str) -> HeadraceError:
    return HeadraceError(Code.INVALID, f'query parameter "{name}" is not {what}')


def _require_known(given: Any, known: tuple[str, ...], kind: str) -> None:
    for name in given:
        if name not in known:
            raise unknown(kind, name, known, f"There are: {', '.join(known) or 'none'}.")


EPOCH: Final = "Headrace-Epoch"
"""The header with the epoch of an answer."""
_NOT_ACCEPTABLE: Final = 406
_LINES: Final = 500
"""The number of lines of text that are sent together."""
_BATCH_ROWS: Final = 16_384


class AnswerFormat(StrEnum):
    """The media types of answers with rows; the first is the default."""

    JSON = "application/json"
    LINES = "application/x-ndjson"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"


@lru_cache(1024)
def accepted(accept: str | None) -> AnswerFormat:
    """Return the format that an Accept header prefers.

    Raises:
        StatusError: ``invalid`` if it accepts no known format.
    """
    asked = [_weighed(part) for part in (accept or "*/*").split(",")]
    best: tuple[float, AnswerFormat] | None = None
    for form in AnswerFormat:
        kind = form.split("/")[0]
        weights = [q for name, q in asked if name == form]
        weights = weights or [q for name, q in asked if name in (f"{kind}/*", "*/*")]
        if weights and max(weights) > (best[0] if best else 0.0):
            best = (max(weights), form)
    if best is None:
        raise StatusError(
            _NOT_ACCEPTABLE,
            HeadraceError(
                Code.INVALID,
                "no accepted format is available",
                hint=f"Accept one of: {', '.join(AnswerFormat)}.",
            ),
        )
    return best[1]


def _weighed(part: str) -> tuple[str, float]:
    """Return a media type of an Accept header, and its weight."""
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter[2:])
            except ValueError:
                return name, 0.0
    return name, 1.0


def answer(result: Result, token: StateToken, form: AnswerFormat, limits: Limits) -> Response:
    """Return a result as an answer. A result without rows is always JSON.

    Headers give its epoch and freshness, in every format.

    Raises:
        HeadraceError: ``unsupported`` if it exceeds the limit; the errors of the format's writer.
    """
    table, headers = result.to_arrow(), _headers(result, token)
    require_served_size(table, form, limits)
    if form is AnswerFormat.JSON or result.kind == "done":
        return Response(document(result, table, token), 200, headers, AnswerFormat.JSON)
    match form:
        case AnswerFormat.LINES:
            content: Iterable[bytes] = _sent(json_rows(table.column_names, rows(table)))
        case AnswerFormat.CSV:
            lines = chain([csv_line(table.column_names)], map(csv_line, rows(table)))
            content = _sent(lines)
        case AnswerFormat.ARROW:
            content = ipc(table)
    return StreamingResponse(content, 200, headers, form)


def require_served_size(table: pa.Table, form: AnswerFormat, limits: Limits) -> None:
    """Refuse a result that is too large for its format.

    Raises:
        HeadraceError: ``unsupported``.
    """
    if table.num_rows > 1 and table.nbytes > limits.result_bytes:
        raise _too_large(f"{table.nbytes:,} bytes", f"{limits.result_bytes:,}", "Use LIMIT.")
    if form is AnswerFormat.JSON and table.num_rows > limits.json_rows:
        hint = f"Use LIMIT, or accept {AnswerFormat.ARROW}, which is streamed."
        raise _too_large(f"{table.num_rows:,} rows", f"{limits.json_rows:,} in JSON", hint)


def document(result: Result, table: pa.Table | None, token: StateToken) -> str:
    """Return a result as a JSON object in one line; without a table, it lacks the rows."""
    about = {
        "message": result.message,
        "epoch": result.epoch,
        "token": str(token),
        "freshness": None if result.freshness is None else result.freshness.as_dict(),
    }
    shown = ""
    if table is not None:
        shown = f'"columns":{_columns(table.schema)},"rows":{json_text(list(rows(table)))},'
    return f'{{"kind":"{result.kind}",{shown}{json_text(about)[1:]}'


@lru_cache(1024)
def _columns(schema: pa.Schema) -> str:
    return json_text([{"name": field.name, "type": type_name(field.type)} for field in schema])


def _headers(result: Result, token: StateToken) -> dict[str, str]:
    headers = {
        "Cache-Control": "no-store",
        EPOCH: str(result.epoch),
        "Headrace-Token": str(token),
    }
    if result.freshness is not None:
        headers["Headrace-Committed-At"] = repr(float(result.freshness.committed_at))
        headers["Headrace-Pending"] = str(result.freshness.pending)
        if result.freshness.dirty:
            headers["Headrace-Dirty"] = ", ".join(map(quote, result.freshness.dirty))
        if result.freshness.frontier is not None:
            headers["Headrace-Frontier"] = str(result.freshness.frontier)
    return headers


def type_name(type_: pa.DataType) -> str:
    """Return Spark SQL's name of an Arrow type."""
    try:
        return str(from_arrow_type(type_, prefer_timestamp_ntz=True).simpleString())
    except TypeError:  # listings have counts of this type; Spark lacks it
        return str(type_)


def _sent(lines: Iterator[str]) -> Iterator[bytes]:
    """Yield lines as bytes, many at a time; the first are made before this returns.

    Raises:
        HeadraceError: the error of the first lines.
    """
    first = "".join(islice(lines, _LINES)).encode()

    def later() -> Iterator[bytes]:
        yield first
        while part := "".join(islice(lines, _LINES)):
            yield part.encode()

    return later()


def ipc(table: pa.Table) -> Iterator[bytes]:
    """Yield a table as an Arrow IPC stream, batch by batch."""
    sink = io.BytesIO()

    def written() -> bytes:
        part = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return part

    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
            writer.write_batch(batch)
            yield written()
    yield written()


def _too_large(what: str, most: str, hint: str) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED, f"a result of {what} is too large", f"The limit is {most}.", hint
    )


def done(values: dict[str, Any], status: int = 200) -> Response:
    """Return a small JSON object as an answer."""
    return Response(json_text(values), status, {"Cache-Control": "no-store"}, AnswerFormat.JSON)
