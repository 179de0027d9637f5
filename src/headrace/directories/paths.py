"""The data directory: created if it is missing, and refused if it is not one of Headrace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from headrace.errors import Code, HeadraceError, unknown
from headrace.objects.address import BRANCHES

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
