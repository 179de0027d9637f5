"""The lock that admits one writer per data directory on a machine; the kernel releases it.

Safety comes from the fence in the ledger: a second writer's changes fail. This lock only reports
the conflict earlier.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import TYPE_CHECKING, Self

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path


class DirectoryLock:
    """Holds ``<directory>/lock`` until :meth:`release` or the end of the process, even by a crash.

    Child processes do not hold it: the file is closed when one executes a program or is forked.

    Raises:
        HeadraceError: CONFLICT if another holder is alive; INVALID if there is no such directory.
    """

    def __init__(self, directory: Path) -> None:
        self._file: int | None = None
        path = directory / "lock"
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise HeadraceError(
                Code.INVALID, f'data directory "{directory}" cannot be written', f"{error}."
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 400, 0).decode("utf-8", "replace")
            os.close(file)
            raise _taken(directory, holder) from error
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        self._file = file
        os.register_at_fork(after_in_child=self._close)

    def release(self) -> None:
        """Release the lock. The lock file stays: removing it would be a race."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _close(self) -> None:
        """Close the file; in a forked child too, since any open descriptor keeps the lock."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _taken(directory: Path, holder: str) -> HeadraceError:
    number, _, host = holder.strip().partition(" ")
    process = f"process {number}" if number else "another process"
    elsewhere = f' on host "{host}"' if host and host != socket.gethostname() else ""
    return HeadraceError(
        Code.CONFLICT,
        f'data directory "{directory}" is open for writing in {process}{elsewhere}',
        hint="Stop that process first: one process at a time writes to a data directory."
        " If it is a server, use it with --url, such as headrace --url http://127.0.0.1:8088 sql.",
    )
