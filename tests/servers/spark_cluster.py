"""A standalone cluster of Spark: a master and workers, each in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from servers.machine import Unavailable, free_port, java

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 60
_OVERLAY = (
    'mount -t tmpfs none "$1" && mkdir "$1/up" "$1/work" && mount -t overlay overlay '
    '-o "lowerdir=$2,upperdir=$1/up,workdir=$1/work" "$2" && shift 2 && exec "$@"'
)

_HIDDEN = 'mount -t tmpfs none "$1" && shift && exec "$@"'


@dataclass
class SparkCluster:
    """A master, and the workers that were started; ``directory`` has their logs."""

    directory: Path
    port: int = field(default_factory=free_port)
    _started: list[subprocess.Popen[Any]] = field(default_factory=list)
    _master: subprocess.Popen[Any] | None = None

    @property
    def url(self) -> str:
        """The master's URL."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the master, and wait until it listens; it knows what it knew before it ended."""
        ports = ["--port", str(self.port), "--webui-port", str(free_port())]
        recovery = self.directory / "recovery.conf"
        recovery.write_text(
            "spark.deploy.recoveryMode FILESYSTEM\n"
            f"spark.deploy.recoveryDirectory {self.directory / 'recovery'}\n"
        )
        given = ["--properties-file", str(recovery), "--host", "127.0.0.1", *ports]
        self._master = self._start([], "master.Master", *given)
        until = time.monotonic() + _START_SECONDS
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if time.monotonic() > until:
                raise Unavailable("Spark's master does not start")
            time.sleep(0.1)

    def worker(
        self, cores: int = 1, *, apart: Path | None = None, hidden: Path | None = None
    ) -> subprocess.Popen[Any]:
        """Start a worker; what it writes below the directory ``apart`` is seen by nobody else.

        The directory ``hidden`` is another one for it, which is empty at first.

        Raises:
            Unavailable: if mount namespaces are not permitted here.
        """
        number, before = len(self._started), list[str]()
        if apart is not None:
            layer = self.directory / f"layer-{number}"
            layer.mkdir()
            before = ["unshare", "-m", "sh", "-c", _OVERLAY, "sh", str(layer), str(apart)]
        elif hidden is not None:
            before = ["unshare", "-m", "sh", "-c", _HIDDEN, "sh", str(hidden)]
        if before:
            tried = subprocess.run([*before, "true"], capture_output=True, text=True, check=False)
            if tried.returncode:
                raise Unavailable(f"no directory of its own can be mounted: {tried.stderr.strip()}")
        given = ["--cores", str(cores), "--memory", "1g", "--host", "127.0.0.1"]
        work = ["--work-dir", str(self.directory / f"work-{number}")]
        return self._start(before, "worker.Worker", *given, *work, self.url)

    def executors(self) -> list[int]:
        """The processes of executors: they run in the directories of workers."""
        found = []
        for each in Path("/proc").iterdir():
            with suppress(OSError):
                program = (each / "cmdline").read_bytes() if each.name.isdecimal() else b""
                place = (each / "cwd").resolve() if b"ExecutorBackend" in program else None
                if place is not None and place.is_relative_to(self.directory):
                    found.append(int(each.name))
        return found

    def kill_master(self) -> None:
        """Kill the master; the workers and executors go on."""
        assert self._master is not None
        self._master.kill()
        self._master.wait(30)

    def kill_worker(self) -> None:
        """Kill the worker that was started first, with its executors."""
        workers = [p for p in self._started if p is not self._master]
        killed = next(p for p in workers if p.poll() is None)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(30)

    def _start(self, before: list[str], name: str, *given: str) -> subprocess.Popen[Any]:
        home = Path(pyspark.__file__).parent
        program = [java(), "-Xmx256m", "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{name}"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        log = (self.directory / f"{name}-{len(self._started)}.log").open("ab")
        self._started.append(
            subprocess.Popen(
                [*before, *program, *given],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )
        return self._started[-1]

    def stop(self) -> None:
        """End all of it, with the executors."""
        for process in reversed(self._started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(30)


@contextmanager
def spark_cluster(directory: Path) -> Iterator[SparkCluster]:
    """Start a master for the duration of a block; workers are started by the block."""
    cluster = SparkCluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
