"""A server in a process of its own, which is killed and started again."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from served import Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

GONE = (ConnectionError, http.client.HTTPException, TimeoutError)
"""How a client sees that the server has been killed."""


@dataclass
class Killed:
    """``headrace serve`` in a process of its own; it can be killed and started again.

    ``directory`` is that of the data, or the URL of a store.
    """

    directory: Path | str
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    port: int = 0
    deaths: int = 0
    query_processes: int = 0
    program: tuple[str, ...] = ("-m", "headrace")
    """The arguments of Python before those of Headrace."""
    errors: Path | None = None
    """The file to which it writes its log; by default, nowhere."""

    def start(self) -> None:
        """Return when it serves, at the port that it had before."""
        self.begin()
        self.wait()

    def begin(self, *options: str) -> None:
        """Start the process, with further options."""
        command = [sys.executable, *self.program, "--data", str(self.directory), "serve"]
        command += ["--query-processes", f"{self.query_processes}", "--query-memory", "512m"]
        errors = subprocess.DEVNULL if self.errors is None else self.errors.open("ab")
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={
                **os.environ,
                "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
                **self.environment,
            },
            start_new_session=True,
        )

    def wait(self) -> None:
        """Return when it serves."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
        raise AssertionError("the server has not started")

    def kill(self) -> None:
        """Kill it and the processes that it has started."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.deaths += 1

    def kill_jvm(self) -> bool:
        """Kill the JVM that it has started, if there is one; return whether there was."""
        assert self.process is not None
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "java"],
            capture_output=True,
            text=True,
            check=False,
        )
        for each in found.stdout.split():
            os.kill(int(each), signal.SIGKILL)
        return bool(found.stdout.strip())

    @property
    def client(self) -> Client:
        return Client(self.port)


@contextmanager
def killed(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Killed]:
    server = Killed(directory, environment or {})
    try:
        server.start()
        yield server
    finally:
        server.kill()
