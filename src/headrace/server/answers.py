"""Encodes results as HTTP answers in the format that the request accepts."""

from __future__ import annotations

import io
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from starlette.responses import Response, StreamingResponse

from headrace.errors import Code, HeadraceError
from headrace.server.failures import StatusError
from headrace.serving.texts import csv_line, json_rows, rows
from headrace.serving.values import json_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.server.limits import Limits
    from headrace.server.tokens import StateToken
    from headrace.session import Result

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
