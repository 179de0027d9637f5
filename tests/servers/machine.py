"""What servers need of the machine: free ports, Java, and jars, fetched by the Ivy of PySpark."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pyspark

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace" / "servers"
_FETCH_SECONDS = 120


class Unavailable(Exception):  # noqa: N818 - a state of the machine, with its reason
    """A server cannot be had here."""


def free_port() -> int:
    """Return a port of the loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Freezes:
    """A server in a process of its own, which can be made neither to answer nor to refuse."""

    _process: subprocess.Popen[Any] | None

    def freeze(self) -> None:
        """Stop all that the server does, until :meth:`thaw`; the machine still takes bytes for it."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have the server go on where it was."""
        self._send(signal.SIGCONT)

    def _send(self, signal_: signal.Signals) -> None:
        """Send a signal to the process, and to the children that it has then."""
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, signal_)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        for child in children.split():
            os.kill(int(child), signal_)


def java(*, major: int | None = None) -> str:
    """Return the program that runs Java, of a major version if one is given.

    Raises:
        Unavailable: if there is none.
    """
    found = shutil.which("java")
    if found is None:
        raise Unavailable("no Java is installed")
    if major is not None:
        said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
        if f'version "{major}.' not in said.stderr:
            raise Unavailable(f"Java {major} is needed, and this is {said.stderr.splitlines()[0]}")
    return found


def jars(organisation: str, module: str, version: str) -> Path:
    """Return the directory of a module's jars, fetched if need be, by one process at a time.

    Raises:
        Unavailable: if they cannot be fetched.
    """
    target = CACHE / f"{module.partition('_')[0]}-{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(organisation, module, version, target)
    return target


def _fetch(organisation: str, module: str, version: str, target: Path) -> None:
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    draft = target.with_name(f".{target.name}-{os.getpid()}")
    command = [java(), "-jar", str(ivy), "-dependency", organisation, module, version]
    command += ["-confs", "default", "-cache", str(CACHE / "ivy"), "-retrieve"]
    command.append(f"{draft}/[artifact]-[revision](-[classifier]).[ext]")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{module} cannot be fetched: {error}") from error
    if done.returncode or not list(draft.glob(f"{module}-{version}.jar")):
        shutil.rmtree(draft, ignore_errors=True)
        raise Unavailable(f"{module} cannot be fetched: {done.stdout[-500:]}{done.stderr[-500:]}")
    draft.rename(target)
