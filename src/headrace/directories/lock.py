"""The lock that admits one writer per data directory on a machine; the kernel releases it.

Safety comes from the fence in the ledger: a second writer's changes fail. This lock only reports
the conflict earlier.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

Waits = Callable[[HeadraceError], bool]
"""Whether to wait, asked about every second with the error that says who writes."""


def refuses(_error: HeadraceError) -> bool:
    """Do not wait."""
    return False


_RETRY_SECONDS: Final = 0.1


class DirectoryLock:
    """Holds ``<directory>/lock`` until :meth:`release` or the end of the process, even by a crash.

    Child processes do not hold it: the file is closed when one executes a program or is forked.
    While another holder is alive, ``waits`` is asked again and again whether to wait for its end.

    Raises:
        HeadraceError: CONFLICT if another holder is alive, and ``waits`` returns false; INVALID if
            there is no such directory.
    """

    def __init__(self, directory: Path, waits: Waits = refuses) -> None:
        self._file: int | None = None
        path = directory / "lock"
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise HeadraceError(
                Code.INVALID, f'data directory "{directory}" cannot be written', f"{error}."
            ) from error
        while not _locked(file):
            taken = _taken(directory, os.pread(file, 400, 0).decode("utf-8", "replace"))
            if not waits(taken):
                os.close(file)
                raise taken
            time.sleep(_RETRY_SECONDS)
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


def holder_of(directory: Path) -> str | None:
    """Return the process that holds the lock of a directory; None if nobody does.

    It is tried for an instant, which a process that opens the directory just then would notice.
    """
    holder = _holder(directory)
    return None if holder is None else _process(holder)


def _holder(directory: Path) -> str | None:
    """Return what the holder of a lock has written into it; None if nobody holds it."""
    try:
        file = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(file, 400, 0).decode("utf-8", "replace")
    else:
        return None
    finally:
        os.close(file)


def require_free(directory: Path) -> None:
    """Raise CONFLICT if another process has a directory open: an early answer.

    Opening it has the last word, also on what this process has open.
    """
    holder = _holder(directory)
    if holder is not None and not _is_this(holder):
        raise _taken(directory, holder)


def open_elsewhere(what: str, writer: str) -> HeadraceError:
    """Return the error for a data directory or a ledger that a process has open."""
    return HeadraceError(
        Code.CONFLICT,
        f"{what} is open for writing in {writer}",
        hint="Stop that process first: one process at a time writes to a data directory."
        " If it is a server, use it with --url, such as headrace --url http://127.0.0.1:8088 sql.",
    )


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _taken(directory: Path, holder: str) -> HeadraceError:
    if _is_this(holder):
        return HeadraceError(
            Code.CONFLICT,
            f'data directory "{directory}" is open in this process already',
            hint="Use the database that connect returned, with a session() for each thread, or"
            " close it first.",
        )
    return open_elsewhere(f'data directory "{directory}"', _process(holder))


def _is_this(holder: str) -> bool:
    return holder.strip() == f"{os.getpid()} {socket.gethostname()}"


def _process(holder: str) -> str:
    number, _, host = holder.strip().partition(" ")
    process = f"process {number}" if number else "another process"
    elsewhere = f' on host "{host}"' if host and host != socket.gethostname() else ""
    return f"{process}{elsewhere}"
