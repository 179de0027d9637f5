"""Error answers: a status for each code, and a body from which clients rebuild the error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from headrace.errors import Code, HeadraceError
from headrace.server.logs import request_id
from headrace.serving.values import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
