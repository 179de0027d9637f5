"""Open a data directory for the duration of a command."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TextIO

from headrace.cli.progress import status
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.cli.functions import FunctionFiles
    from headrace.cli.statement_thread import StatementThread
    from headrace.database import Database
    from headrace.functions import Function

    Connect = Callable[[Path, Sequence[Function]], Database]


@dataclass(slots=True)
class Invocation:
    """One invocation of the command: how it connects, and whether it shows stack traces."""

    connect: Connect
    debug: bool = False


def connect_to_headrace(directory: Path, functions: Sequence[Function]) -> Database:
    """Open a data directory in this process."""
    import headrace  # noqa: PLC0415  (--help does not wait for Spark's packages)

    return headrace.connect(directory, functions=functions)


@contextmanager
def opened(
    directory: Path,
    invocation: Invocation,
    thread: StatementThread,
    err: TextIO,
    functions: FunctionFiles,
) -> Iterator[Database]:
    """Open the data directory while a block runs, with functions that queries may call.

    Raises:
        HeadraceError: ``invalid`` if it is not a directory; ``conflict`` if it is in use, or if a
            function differs from the one that views use, and ``replace`` is not set.
    """
    made = functions.made()
    given = () if functions.replace else made
    with status("starting Spark…", err):
        database = thread.call(lambda: invocation.connect(directory, given))
    try:
        if functions.replace:
            for each in made:
                thread.call(partial(database.register, each, replace=True), database.cancel)
        yield database
    finally:
        thread.call(database.close, database.cancel)


def make_directory(directory: Path, err: TextIO) -> None:
    """Create a missing data directory, with a message, so that a mistyped path is noticed."""
    need_no_file(directory)
    if directory.exists():
        return
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise HeadraceError(
            Code.INVALID,
            f'data directory "{directory}" cannot be created',
            detail=f"{error.strerror}.",
        ) from error
    err.write(f'created data directory "{directory}"\n')
    err.flush()


def need_directory(directory: Path) -> None:
    """Raise ``invalid`` if the data directory does not exist."""
    need_no_file(directory)
    if not directory.exists():
        raise HeadraceError(
            Code.INVALID,
            f'data directory "{directory}" does not exist',
            hint="Check the path given to --data.",
        )


def need_no_file(directory: Path) -> None:
    """Raise ``invalid`` if the path exists and is not a directory."""
    if directory.exists() and not directory.is_dir():
        raise HeadraceError(
            Code.INVALID,
            f'data directory "{directory}" is a file',
            hint="Give --data a directory, or a path that does not exist yet.",
        )
