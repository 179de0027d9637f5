"""Statements that are refused over HTTP although the shell may run them.

A statement that makes the server read a file or an environment variable would show it to the
client, so files may be read only below the directories named when the server was started. Backups
may be made below other ones, and in object stores. A request that is answered once cannot follow
changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from headrace.errors import Code, HeadraceError
from headrace.files import StoreAddress
from headrace.planning.sql import (
    Backup,
    Copy,
    CopyTo,
    CreateSecret,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateToken,
    Print,
    Query,
    ShowBackups,
    Subscribe,
)
from headrace.planning.sql.parameters import bind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.errors import Span
    from headrace.lifecycle.states.access import Principal
    from headrace.planning.sql import Statement


_MAY_BE_REFUSED: Final = re.compile(
    r"(?i)\b(backups?|copy|emit|print|secret|subscribe|token|with)\b"
)
"""Only statements with one of these words can be refused; the others are not parsed here."""
_OF_FILES: Final = frozenset({"file", "filesystem"})


@dataclass(frozen=True, slots=True)
class Roots:
    """The directories below which statements may ``read`` files, and may make ``backups``."""

    read: tuple[Path, ...] = ()
    backups: tuple[Path, ...] = ()


def require_served(sql: str, parameters: Any, roots: Roots, principal: Principal) -> None:
    """Check a whole script before any of it runs.

    Raises:
        HeadraceError: ``unsupported``, at the place; ``invalid`` if it cannot be parsed.
    """
    if _MAY_BE_REFUSED.search(sql) is None:
        return
    for statement in bind(sql, parameters).statements():
        if isinstance(statement, Backup | ShowBackups):
            _require_place(statement, roots.backups)
        _require(statement, roots.read, principal)


def _require_place(statement: Backup | ShowBackups, roots: Sequence[Path]) -> None:
    """Refuse a directory that is not one for backups."""
    url = statement.url
    if StoreAddress.is_store(url):
        return
    place = Path(unquote(urlsplit(url).path) if url.startswith("file:") else url).resolve()
    if not any(place.is_relative_to(root.resolve()) for root in roots):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "backups in this directory over HTTP are not supported",
            detail="A server writes them only below the directories of headrace serve --backups,"
            " and to object stores.",
            hint="Have the server started with --backups DIR; or give a URL such as"
            " s3://bucket/prefix.",
            span=statement.url_span,
        )


def _require(statement: Statement, roots: Sequence[Path], principal: Principal) -> None:
    match statement:
        case Subscribe() | Print():
            raise no_push()
        case Query() if statement.emit_changes:
            raise no_push()
        case Copy():
            _require_below(statement.path, roots, statement.path_span)
        case CopyTo():
            raise HeadraceError(
                Code.UNSUPPORTED,
                "writing a file over HTTP is not supported",
                detail="A server does not write files at paths of clients.",
                hint="Read the rows with SELECT, as text/csv for instance, and write them on the"
                " client's machine; or run the statement with headrace sql, while the database is"
                " not served.",
                span=statement.path_span,
            )
        case CreateSecret():
            raise HeadraceError(
                Code.UNSUPPORTED,
                "creating a secret over HTTP is not supported",
                detail="It would read the server's files or environment.",
                hint="Create it with headrace sql, while the database is not served.",
                span=statement.span,
            )
        case CreateToken() if principal.name is None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "creating the first token over HTTP is not supported",
                detail="From then on a token is required, and this client has none.",
                hint="Use headrace --data DIR token create NAME --role owner, while the database is"
                " not served.",
                span=statement.span,
            )
        case CreateStream() | CreateTable() | CreateTableAs():
            of = {option.key.lower(): option for option in statement.options}
            if "connector" in of and of["connector"].value.lower() in _OF_FILES and "path" in of:
                _require_below(of["path"].value, roots, of["path"].span)


def _require_below(path: str, roots: Sequence[Path], span: Span) -> None:
    place = Path(path.removeprefix("file://")).resolve()
    if any(place.is_relative_to(root.resolve()) for root in roots):
        return
    raise HeadraceError(
        Code.UNSUPPORTED,
        "reading this file over HTTP is not supported",
        detail="A server reads files only below the directories of headrace serve --files.",
        hint="Append the rows with insert or POST /v1/streams; or have the server started with"
        " --files DIR.",
        span=span,
    )


def no_push() -> HeadraceError:
    """Return the error for a query that would follow changes."""
    return HeadraceError(
        Code.UNSUPPORTED,
        "following changes is not supported in this request, which is answered once",
        hint="Use GET /v1/subscribe, with ?sql=... or ?view=....",
    )
