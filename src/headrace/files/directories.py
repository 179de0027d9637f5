"""The lock that admits one writer per data directory on a machine; the kernel releases it.

Safety comes from the fence in the ledger: a second writer's changes fail. This lock only reports
the conflict earlier.

The data directory: created if it is missing, and refused if it is not one of Headrace.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from headrace.errors import Code, HeadraceError, unknown
from headrace.files.store import BRANCHES

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


_FOLDERS: Final = ("log", "runs", "attempts")
LEDGER: Final = "ledger.db"
"""The file of a ledger in SQLite."""
LEDGER_ELSEWHERE: Final = "ledger.json"
"""The file that names a ledger in PostgreSQL."""
RESTORING: Final = "restoring.json"
"""The file of a directory that is not restored completely."""
_OWN: Final = frozenset(
    {*_FOLDERS, LEDGER_ELSEWHERE, BRANCHES, "lock", "seen", "programs", "quarantine", "sinks"}
    | {"lost+found"}
)
_BRANCH: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_URL: Final = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.:-]+):/")


def data_directory(target: str | Path) -> Path:
    """Return the path of a data directory, given as a path or a ``file://`` URL.

    Raises:
        HeadraceError: ``unsupported`` for any other URL; ``invalid`` for a ``file://`` URL of
            another host, and for an empty text, which would be the current directory.
    """
    if target == "":
        raise HeadraceError(
            Code.INVALID,
            "data directory has an empty path",
            hint='Give a path, such as "data"; the current directory is ".".',
        )
    url = _URL.match(str(target))
    if url is None:
        return Path(target)
    if url["scheme"].lower() != "file":
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'data directory at a URL of scheme "{url["scheme"]}" is not supported',
            "A data directory is a directory of a file system that the driver and all executors"
            " see.",
            "Give a path or a file:// URL, the URL of an object store (s3://, gs:// or az://), or"
            " the http:// URL of a server of Headrace.",
        )
    parts = urlsplit(str(target))
    if parts.netloc not in ("", "localhost"):
        raise HeadraceError(
            Code.INVALID,
            f'"{target}" names a file of host "{parts.netloc}"',
            hint="Write file:///path, with three slashes.",
        )
    return Path(unquote(parts.path))


def branch_directory(directory: Path, name: str) -> Path:
    """Return the data directory of a branch of a database, whether or not it exists.

    Raises:
        HeadraceError: ``invalid`` for a text that is no name of a branch.
    """
    if _BRANCH.fullmatch(name) is None:
        raise HeadraceError(
            Code.INVALID,
            f'"{name}" is not a name of a branch',
            "Such a name has letters, digits, _ and -, at most 63, and begins with a letter or a"
            " digit.",
        )
    return directory / BRANCHES / name


def existing_branch(directory: Path, name: str) -> Path:
    """Return the data directory of a branch that exists; names are in lower case.

    Raises:
        HeadraceError: ``invalid`` if there is no such branch.
    """
    place = branch_directory(directory, name.lower())
    if not (place / LEDGER).exists():
        known = sorted(path.parent.name for path in (directory / BRANCHES).glob(f"*/{LEDGER}"))
        raise unknown("branch", name, known, "CREATE BRANCH makes one; SHOW BRANCHES lists them.")
    return place


def prepare_directory(directory: Path) -> None:
    """Create a data directory, or its missing parts.

    Raises:
        HeadraceError: ``invalid`` for a path that is a file, cannot be made or written to, or is
            a directory with files of other programs.
    """
    if directory.exists() and not directory.is_dir():
        raise HeadraceError(
            Code.INVALID,
            f'data directory "{directory}" is a file',
            hint="Give a directory, or a path that does not exist yet.",
        )
    require_restored(directory)
    try:
        _refuse_foreign(directory)
        for folder in (directory, *(directory / name for name in _FOLDERS)):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadraceError(
            Code.INVALID,
            f'data directory "{directory}" cannot be written to',
            detail=f"{error.strerror}.",
            hint="Give a path where this user may make a directory.",
        ) from error


def require_restored(directory: Path) -> None:
    """Raise ``invalid`` if a data directory is being restored, or that was interrupted."""
    if (directory / RESTORING).exists():
        raise HeadraceError(
            Code.INVALID,
            f'data directory "{directory}" is not restored completely',
            "Restoring it from a backup was interrupted, or is still running.",
            "Run headrace restore again: it goes on with what is missing.",
        )


def _refuse_foreign(directory: Path) -> None:
    if not directory.exists() or (directory / LEDGER).exists():
        return
    foreign = sorted(
        path.name
        for path in directory.iterdir()
        if path.name not in _OWN and not path.name.startswith((".", LEDGER))
    )
    if foreign:
        raise HeadraceError(
            Code.INVALID,
            f'directory "{directory}" is no data directory of Headrace',
            detail=f"It holds {foreign[0]!r}, and no ledger.",
            hint="Give an empty directory, or a path that does not exist yet.",
        )
