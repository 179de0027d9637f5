"""Opens a data directory, or connects to a server, for the duration of a command."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headrace.errors import Code, HeadraceError
from headrace.files.directories import LEDGER_ELSEWHERE, require_free
from headrace.tools.cli.terminal import status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.interfaces.connecting import AnyDatabase
    from headrace.planning.functions import Function
    from headrace.tools.cli.functions import FunctionFiles
    from headrace.tools.cli.statement_thread import StatementThread


if TYPE_CHECKING:
    Connect = Callable[..., AnyDatabase]


@dataclass(frozen=True, slots=True)
class Address:
    """A server: its URL, and the files with the token and the certificates to trust."""

    url: str
    token_file: Path | None = None
    ca: Path | None = None

    def token(self) -> str | None:
        """Return the token in the file; None if none is named.

        Raises:
            HeadraceError: ``invalid`` if the file cannot be read, or is empty.
        """
        if self.token_file is None:
            return None
        try:
            found = self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise HeadraceError(
                Code.INVALID, f'token file "{self.token_file}" cannot be read', f"{error}."
            ) from error
        if not found:
            raise HeadraceError(Code.INVALID, f'token file "{self.token_file}" is empty')
        return found


@dataclass(slots=True)
class Invocation:
    """One invocation of the command: how it connects, and whether it shows stack traces.

    ``settings`` are those that its options give, for a data directory.
    """

    connect: Connect
    debug: bool = False
    settings: dict[str, str] = field(default_factory=dict)


def connect_to_headrace(
    target: Path | Address, functions: Sequence[Function], **settings: Any
) -> AnyDatabase:
    """Open a data directory in this process, or connect to a server."""
    import headrace  # noqa: PLC0415  (--help does not wait for Spark's packages)

    if isinstance(target, Path):
        with importing_little():
            import headrace.interfaces.database  # noqa: PLC0415
        return headrace.connect(target, functions=functions, **settings)
    return headrace.connect(target.url, token=target.token(), ca=target.ca)


class _WithoutPandas:
    """Finds no pandas; see :meth:`importlib.abc.MetaPathFinder.find_spec`."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name)


@contextmanager
def importing_little() -> Iterator[None]:
    """Import modules at less cost, while a block runs.

    No garbage is looked for, where there is none: a tenth of the time. Arrow's first conversion,
    here, finds no pandas, which takes longer to import than a lookup; Arrow imports it when a value
    is to become one of pandas.
    """
    gc.disable()
    try:
        import pyarrow as pa  # noqa: PLC0415  (--help is quick)

        if "pandas" not in sys.modules:
            hidden = _WithoutPandas()
            sys.meta_path.insert(0, hidden)
            pa.array([0])
            sys.meta_path.remove(hidden)
        yield
    finally:
        gc.enable()


@contextmanager
def opened(
    target: Path | Address,
    invocation: Invocation,
    thread: StatementThread,
    err: TextIO,
    functions: FunctionFiles,
    **opening: Any,
) -> Iterator[AnyDatabase]:
    """Open the database while a block runs, with functions that queries may call.

    ``opening`` are further keywords of :func:`headrace.connect`.

    Raises:
        HeadraceError: ``invalid`` if it is not a directory; ``conflict`` if it is in use, or if a
            function differs from the one that views use, and ``replace`` is not set; for a URL,
            as :func:`headrace.connect`, and ``unsupported`` for functions.
    """
    if functions.files and isinstance(target, Address):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "--functions with --url is not supported",
            detail="Functions run in the process that has the database open.",
            hint="Start the server with headrace serve --functions FILE.",
        )
    made = functions.made()
    given = () if functions.replace else made
    with status("opening…" if isinstance(target, Path) else "connecting…", err):
        database = thread.call(
            lambda: invocation.connect(target, given, **invocation.settings, **opening)
        )
    try:
        if functions.replace:
            for each in made:
                thread.call(partial(database.register, each, replace=True), database.cancel)
        yield database
    finally:
        thread.call(database.close, database.cancel)


def need_free(target: Path | Address, invocation: Invocation) -> None:
    """Raise ``conflict`` if another process has a data directory open.

    Opening it would say so as well, after all that is imported for that.
    """
    if isinstance(target, Path) and not has_ledger_elsewhere(target, invocation):
        require_free(target)


def has_ledger_elsewhere(directory: Path, invocation: Invocation) -> bool:
    """Whether the ledger of a data directory is not in it, by its own word or by settings."""
    from headrace.interfaces.settings import LEDGER, variable  # noqa: PLC0415  (--help is quick)

    elsewhere = (directory / LEDGER_ELSEWHERE).exists()
    return elsewhere or bool(invocation.settings or variable(LEDGER))


def make_directory(directory: Path | Address, err: TextIO) -> None:
    """Create a missing data directory, and say so, because the path may be mistyped."""
    if isinstance(directory, Address):
        return
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


def need_directory(directory: Path | Address) -> None:
    """Raise ``invalid`` if the data directory does not exist."""
    if isinstance(directory, Address):
        return
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
