"""A schema registry: franz-go's, in memory, built once by Go into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from servers.machine import CACHE, Unavailable, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE = Path(__file__).parent / "registry"
_BUILD_SECONDS = 180
_START_SECONDS = 20


@contextmanager
def registry(port: int | None = None, login: str | None = None) -> Iterator[str]:
    """Run a registry, which asks for a login of the form ``user:password``; yield its URL.

    Raises:
        Unavailable: if it cannot be built, or does not start.
    """
    port = port or free_port()
    address = f"127.0.0.1:{port}"
    process = subprocess.Popen(
        [_program(), address, *([login] if login else [])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise Unavailable("the schema registry does not start")
            time.sleep(0.02)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _program() -> Path:
    """Return the registry of this source, built once, by one process at a time.

    It goes by the text of the source: every clone has files of its own time.
    """
    source = b"".join(path.read_bytes() for path in sorted(_SOURCE.iterdir()))
    program = CACHE / f"registry-{sha256(source).hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(program)
    return program


def _build(program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no Go is installed")
    draft = program.with_name(f".registry-{os.getpid()}")
    try:
        done = subprocess.run(
            [go, "build", "-o", str(draft), "."],
            cwd=_SOURCE,
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"the schema registry cannot be built: {error}") from error
    if done.returncode:
        raise Unavailable(f"the schema registry cannot be built: {done.stderr[-500:]}")
    draft.rename(program)
