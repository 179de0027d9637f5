"""An HTTP server that takes what sinks send, in a process of its own: ``webhook PORT FILE``.

A request is in the file before it is answered, so it outlives the process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers.machine import Freezes, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Webhook(Freezes):
    """The server; what it has taken outlives :meth:`stop`."""

    file: Path
    port: int
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it takes requests."""
        return f"http://127.0.0.1:{self.port}/changes"

    def start(self) -> None:
        """Start the server, and wait until it takes requests."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "servers.webhook", str(self.port), str(self.file)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def stop(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def changes(self) -> list[dict[str, Any]]:
        """Return the changes that were taken, in order; a request that came again counts once."""
        found, known = [], set()
        for line in self.file.read_text().splitlines():
            key, body = json.loads(line)
            if key not in known:
                known.add(key)
                found += json.loads(body)["changes"]
        return found


@contextmanager
def webhook(file: Path) -> Iterator[Webhook]:
    """Run a server."""
    file.touch()
    server = Webhook(file, free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    """Take requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            # One write: the lines of requests that are taken at the same time are not mixed.
            file.write(json.dumps([self.headers["Idempotency-Key"], body]) + "\n")
            file.flush()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with (
        Path(sys.argv[2]).open("a") as file,
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server,
    ):
        print("started", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
