"""Changes that reach subscribers by server-sent events, with few and with many of them."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import headrace
from benchmarks.counters import percentiles
from headrace.server.address import Address
from headrace.server.listener import Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WARM_SECONDS: Final = 5.0
_FEED_SECONDS: Final = 0.1
_GROUPS: Final = 100
_MOST_EPOCHS: Final = 1000
_FILES: Final = 8192
"""File descriptors: both ends of a thousand connections."""
CROWDS: Final = ((0, 0), (1000, 10))
"""How many subscribers follow what does not change, and how many take nothing of what does."""


@dataclass(frozen=True, slots=True)
class Following:
    """Subscribers: one whose events are timed, ``idle`` ones, and ``slow`` ones."""

    port: int
    idle: int
    slow: int
    seconds: float


def measure(directory: Path, seconds: float, partitions: int) -> list[dict[str, Any]]:
    """Return, for each crowd, the milliseconds from commit to client, and those of epochs."""
    _allow_files()
    address = Address.of("127.0.0.1:0")
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=partitions) as db,
        Server(db, address, address.bound()) as server,
    ):
        db.sql(
            "CREATE STREAM s (k INT, x INT); CREATE STREAM quiet (k INT);"
            "CREATE MATERIALIZED VIEW busy AS SELECT k, count(*) AS n FROM s GROUP BY k;"
            "CREATE MATERIALIZED VIEW still AS SELECT k FROM quiet"
        )
        _feed(db, _WARM_SECONDS)
        return [
            _measured(db, Following(server.address.port, idle, slow, seconds))
            for idle, slow in CROWDS
        ]


def _measured(db: Any, following: Following) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        ended = pool.submit(_follow, following)
        while not ended.done():
            _feed(db, 1.0)
        arrived: dict[int, float] = ended.result()
    epochs = [each for each in db.parts.ledger.epochs(_MOST_EPOCHS) if each.epoch in arrived]
    late = [arrived[each.epoch] - each.committed_at for each in epochs]
    return {
        "idle": following.idle,
        "slow": following.slow,
        "push": percentiles(late),
        "epoch": percentiles([each.counters["seconds"] for each in epochs]),
    }


def _feed(db: Any, seconds: float) -> None:
    """Insert rows ten times a second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        db.insert("s", [(k, 1) for k in range(_GROUPS)])
        time.sleep(_FEED_SECONDS)


def _allow_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most), most))


# -- the process of the subscribers ---------------------------------------------------------------


def _follow(following: Following) -> dict[int, float]:
    """Return when each epoch's changes arrived, once all subscribers are connected."""
    _allow_files()
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
