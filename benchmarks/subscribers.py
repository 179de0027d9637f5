"""Subscribers to server-sent events, from a process of their own that knows nothing of Headrace."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES: Final = 8192
"""File descriptors: both ends of a thousand connections."""


@dataclass(frozen=True, slots=True)
class Following:
    """Subscribers: one whose events are timed, ``idle`` ones, and ``slow`` ones."""

    port: int
    idle: int
    slow: int
    seconds: float


def follow(following: Following) -> dict[int, float]:
    """Return when each epoch's changes arrived, once all subscribers are connected."""
    allow_files()
    return asyncio.run(_followed(following))


async def _followed(following: Following) -> dict[int, float]:
    crowd = [await _connected(following.port, "busy") for _ in range(following.slow)]
    idle = [await _connected(following.port, "still") for _ in range(following.idle)]
    taking = [asyncio.create_task(_take(reader)) for reader, _ in idle]
    reader, writer = await _connected(following.port, "busy")
    arrived: dict[int, float] = {}
    try:
        async with asyncio.timeout(following.seconds):
            await _time(reader, arrived)
    except TimeoutError:
        pass
    for task in taking:
        task.cancel()
    _close([*crowd, *idle, (reader, writer)])
    return arrived


async def _connected(port: int, view: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Subscribe to a view; return once its answer begins."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET /v1/subscribe?view={view} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    )
    status = await reader.readline()
    if b" 200 " not in status:
        raise ConnectionError(status.decode())
    return reader, writer


async def _take(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def _time(reader: asyncio.StreamReader, arrived: dict[int, float]) -> None:
    changes = False
    while line := await reader.readline():
        if line.startswith(b"event: "):
            changes = line.strip() == b"event: changes"
        elif changes and line.startswith(b"id: "):
            arrived[int(line[4:].split(b"~")[0])] = time.time()


def _close(pairs: Sequence[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in pairs:
        writer.transport.abort()


def allow_files() -> None:
    """Allow this process as many open files as a thousand subscribers need."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most), most))
