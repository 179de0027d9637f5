"""``POST /v1/as_of``: a table of keys and times, answered with the values of views then."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.appends import ARROW, LINES
from headrace.interfaces.server.requests import StateToken, accepted, answer, body, declared, number
from headrace.io.formats.frames import table_of, table_of_stream

if TYPE_CHECKING:
    import pyarrow as pa
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.interfaces.server.appends import Appends
    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.server.running import RequestCalls
    from headrace.interfaces.session import Session


@dataclass(frozen=True, slots=True)
class PointInTimeHandlers:
    """Reads views as of the times of the rows that are sent."""

    calls: RequestCalls
    appends: Appends
    limits: Limits

    async def read_as_of(self, request: Request) -> Response:
        """Return the rows of a request with the values of views, each as of its own time."""
        asked, views = request.query_params, request.query_params.getlist("view")
        if not views:
            raise HeadraceError(
                Code.INVALID,
                "no view is asked for",
                hint="Give view= once for each: view=name, or view=name(column, column AS new).",
            )
        form = accepted(request.headers.get("accept"))
        kind, seconds = declared(request, LINES, ARROW), number(request, "timeout")
        least = asked.get("min_epoch")
        token = None if least is None else StateToken.of(least)
        limits = self.limits
        with self.appends.holding() as take:
            data = await body(request, limits.rows_bytes, limits.body_seconds, take)

            def call(session: Session) -> Response:
                pairs = table_of_stream(data) if kind == ARROW else _lines(data)
                if token is not None:
                    session.wait_for(token.epoch, token.ends)
                result = session.as_of(pairs, views, time=asked.get("time"))
                return answer(result, StateToken(result.epoch, session.written), form, limits)

            return await self.calls.run(request, call, seconds, asked.get("session"))


def _lines(data: bytes) -> pa.Table:
    """Return JSON lines as a table; texts stay texts, and are converted to the types of keys.

    Raises:
        HeadraceError: ``invalid`` for a line that is not an object.
    """
    rows: list[dict[str, Any]] = []
    for number_, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise HeadraceError(
                Code.INVALID, f"line {number_} of the body is not JSON", f"{error}."
            ) from error
        if not isinstance(row, dict):
            raise HeadraceError(Code.INVALID, f"line {number_} of the body is not a JSON object")
        rows.append(row)
    return table_of(rows)
