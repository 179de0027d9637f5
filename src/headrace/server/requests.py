"""Strict parsing of requests: missing, unknown and wrongly typed values are refused."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, shortened, unknown
from headrace.formats.values import is_number_text
from headrace.server.failures import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

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
