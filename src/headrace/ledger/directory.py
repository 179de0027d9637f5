"""The data directory: made where there is none, and refused where it is something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

_FOLDERS: Final = ("log", "runs", "attempts")
_OWN: Final = frozenset({*_FOLDERS, "lock", "quarantine", "sinks", "lost+found"})
_LEDGER: Final = "ledger.db"


def prepare_directory(directory: Path) -> None:
    """Make a data directory, or what is missing of one.

    Raises:
        HeadraceError: ``invalid`` for a path that is a file, cannot be made or written to, or is
            a directory with files that are none of ours.
    """
    if directory.exists() and not directory.is_dir():
        raise HeadraceError(
            Code.INVALID,
            f'data directory "{directory}" is a file',
            hint="Give a directory, or a path that does not exist yet.",
        )
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


def _refuse_foreign(directory: Path) -> None:
    if not directory.exists() or (directory / _LEDGER).exists():
        return
    foreign = sorted(
        path.name
        for path in directory.iterdir()
        if path.name not in _OWN and not path.name.startswith((".", _LEDGER))
    )
    if foreign:
        raise HeadraceError(
            Code.INVALID,
            f'directory "{directory}" is no data directory of Headrace',
            detail=f"It holds {foreign[0]!r}, and no ledger.",
            hint="Give an empty directory, or a path that does not exist yet.",
        )
