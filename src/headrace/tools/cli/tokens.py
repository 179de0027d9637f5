"""``headrace token``: creates the first access token of a database that is not served."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.tools.cli.connection import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import TextIO

    from headrace.planning.sql import Role
    from headrace.storage.ledger import Ledger


def create_token(
    directory: Path,
    name: str,
    role: Role,
    schema: str | None,
    err: TextIO,
    settings: Mapping[str, str],
) -> str:
    """Create an access token with a role in a schema, or in the whole database; return its secret.

    Only the ledger is opened, so Spark is not started.

    Raises:
        HeadraceError: ``conflict`` if the database is in use, or has a token of this name;
            ``invalid`` for a malformed name.
    """
    from headrace.lifecycle.states.access import DATABASE, Access  # noqa: PLC0415  (--help is quick)
    from headrace.planning.sql import CreateToken, parse, quote  # noqa: PLC0415

    (statement,) = parse(f"CREATE TOKEN {quote(name)}")
    known = statement.name.dotted if isinstance(statement, CreateToken) else name
    make_directory(directory, err)
    with _ledger(directory, settings) as ledger:
        access = Access(ledger)
        _, secret = access.create(known)
        access.grant(known, role, DATABASE if schema is None else schema.lower())
    return secret


@contextmanager
def _ledger(directory: Path, given: Mapping[str, str]) -> Iterator[Ledger]:
    """Open the ledger of a directory exclusively while a block runs."""
    from headrace.interfaces.settings import Settings  # noqa: PLC0415
    from headrace.storage.ledger import open_ledger  # noqa: PLC0415

    with open_ledger(directory, Settings.of(given).ledger_address) as ledger:
        yield ledger
