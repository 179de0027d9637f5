"""``headrace.connect``: opens a directory in this process, or connects to a server's URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, overload

from headrace.errors import Code, HeadraceError
from headrace.interfaces import remote, settings
from headrace.interfaces.remote.connection import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Unpack

    from pyspark.sql import SparkSession

    from headrace.files.directories import Waits
    from headrace.interfaces.database import Database
    from headrace.interfaces.settings import GivenSettings
    from headrace.planning.functions import Function


AnyDatabase: TypeAlias = "Database | remote.RemoteDatabase"
"""What :func:`connect` returns: a database in this process, or on a server."""


@overload
def connect(
    target: Path,
    *,
    spark: SparkSession | None = None,
    clock: Callable[[], int] | None = None,
    functions: Sequence[Function] = (),
    standby: bool | Waits = False,
    branch: str | None = None,
    warm: bool = True,
    **settings: Unpack[GivenSettings],
) -> Database: ...
@overload
def connect(
    target: str = "data",
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    spark: SparkSession | None = None,
    clock: Callable[[], int] | None = None,
    functions: Sequence[Function] = (),
    standby: bool | Waits = False,
    branch: str | None = None,
    warm: bool = True,
    **settings: Unpack[GivenSettings],
) -> AnyDatabase: ...
def connect(
    target: str | Path = "data",
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    **opening: Any,
) -> AnyDatabase:
    """Open the database in a directory, or connect to the server at a URL.

    ``connect("http://127.0.0.1:8088")`` connects to a server, without starting Spark; see
    :func:`headrace.interfaces.remote.connect` for ``token`` and ``ca``. The default token is the
    environment variable ``HEADRACE_TOKEN``. Any other text is a path or a ``file://`` URL of a
    directory, which this process opens; see :func:`headrace.interfaces.database.connect` for the
    other keywords.

    Raises:
        HeadraceError: as these two functions; ``invalid`` for a keyword of the other one.
    """
    if is_url(target):
        if opening:
            raise _not_of_a_server(next(iter(opening)))
        token = settings.variable(settings.TOKEN) if token is None else token
        return remote.connect(str(target), token=token or None, ca=ca)
    for name, value in (("token", token), ("ca", ca)):
        if value is not None:
            raise HeadraceError(
                Code.INVALID,
                f'"{name}" is of a connection to a server, and "{target}" is a directory',
                hint="Give the URL of a server, or leave it out.",
            )
    from headrace.interfaces import database  # noqa: PLC0415  (clients of a server need no Spark)

    return database.connect(target, **opening)


def _not_of_a_server(name: str) -> HeadraceError:
    if name == "branch":
        return HeadraceError(
            Code.UNSUPPORTED,
            "a branch of a database on a server is not supported",
            "A server has one database open, and a branch is a database of its own.",
            "Serve the branch, with headrace --data DIR --branch NAME serve, and give that URL.",
        )
    if (
        name in {"spark", "clock", "functions", "standby", "warm"}
        or name in settings.setting_names()
    ):
        return HeadraceError(
            Code.UNSUPPORTED,
            f'"{name}" for a database on a server is not supported',
            detail="It belongs to the process that has the database open.",
            hint="Give it where the server is started: headrace serve.",
        )
    return HeadraceError(
        Code.INVALID,
        f'"{name}" is not a keyword of a connection to a server',
        hint="There are: token, ca.",
    )
