"""Parses server-sent events from a response."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MEDIA_TYPE = "text/event-stream"
WITH_ARROW = f"{MEDIA_TYPE}; rows=arrow"
"""The media type of events whose rows are Arrow."""


class Event(NamedTuple):
    """One complete event; an incomplete one is discarded."""

    kind: str
    data: bytes

    @property
    def json(self) -> Any:
        """The data as JSON."""
        return json.loads(self.data)


def events(lines: Iterable[bytes]) -> Iterator[Event | None]:
    """Yield the events in lines of a response; None for each comment, a keep-alive.

    Headrace writes one line of data for each event.
    """
    kind, data = "", b""
    for raw in lines:
        line = raw.rstrip(b"\r\n")
        if line.startswith(b":"):
            yield None
        elif line:
            name, _, value = line.partition(b": ")
            if name == b"event":
                kind = value.decode()
            elif name == b"data":
                data = value
        elif raw:
            if kind:
                yield Event(kind, data)
            kind, data = "", b""
