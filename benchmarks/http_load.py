"""A load of HTTP requests over connections that are kept, from a process of its own.

It knows nothing of Headrace, and of HTTP only what is needed: each connection sends a request,
waits for the whole answer, and sends the next.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.counters import percentiles

if TYPE_CHECKING:
    from collections.abc import Sequence

_OK: Final = b"HTTP/1.1 200"
_LENGTH: Final = b"content-length:"


@dataclass(frozen=True, slots=True)
class Load:
    """Requests for paths with a random number below ``keys``, in the place of ``{key}``."""

    port: int
    paths: tuple[str, ...]
    clients: int
    seconds: float
    keys: int


def run(load: Load) -> dict[str, Any]:
    """Return the rate and the latencies of a load, which another process makes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_run, load).result()


def _run(load: Load) -> dict[str, Any]:
    times = asyncio.run(_load(load))
    return {
        "clients": load.clients,
        "per_second": round(len(times) / load.seconds),
        **percentiles(times),
    }


async def _load(load: Load) -> list[float]:
    loop, until = asyncio.get_running_loop(), time.perf_counter() + load.seconds
    rng = np.random.default_rng(load.clients)
    made = [
        _Connection(load, rng.integers(0, load.keys, 4096).tolist(), until)
        for _ in range(load.clients)
    ]
    for each in made:
        await loop.create_connection(lambda each=each: each, "127.0.0.1", load.port)  # type: ignore[misc]
    await asyncio.gather(*(each.ended for each in made))
    return [seconds for each in made for seconds in each.times]


@dataclass(slots=True)
class _Connection(asyncio.Protocol):
    load: Load
    keys: Sequence[int]
    until: float
    times: list[float] = field(default_factory=list)
    ended: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _transport: Any = None
    _sent: int = 0
    _begun: float = 0.0
    _buffer: bytearray = field(default_factory=bytearray)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.lower().find(_LENGTH, 0, head) + len(_LENGTH)
        length = int(self._buffer[at : self._buffer.find(b"\r\n", at)])
        if len(self._buffer) < head + 4 + length:
            return
        now = time.perf_counter()
        if not self._buffer.startswith(_OK):
            self._end(AssertionError(bytes(self._buffer).decode()))
            return
        self.times.append(now - self._begun)
        self._buffer.clear()
        if now < self.until:
            self._send()
        else:
            self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self._end(error or ConnectionError("the server closed a connection"))

    def _send(self) -> None:
        path = self.load.paths[self._sent % len(self.load.paths)]
        path = path.replace("{key}", str(self.keys[self._sent % len(self.keys)]))
        self._sent += 1
        self._begun = time.perf_counter()
        self._transport.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.load.port}\r\n\r\n".encode()
        )

    def _end(self, error: Exception | None) -> None:
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
        self._transport.close()
