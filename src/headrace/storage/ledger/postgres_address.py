"""Where a ledger in PostgreSQL is, and how its sessions are opened."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.errors import Code, HeadraceError
from headrace.postgres_session import session

if TYPE_CHECKING:
    from pathlib import Path


SCHEMES: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
_DEFAULTS: Final = {
    "application_name": "headrace",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Parameters of each session that the URL does not give."""
_SCHEMA: Final = "headrace"
"""What the schemas of branches begin with, if that of their parent is not named."""
_LONGEST: Final = 63
"""The longest name of a schema, in bytes."""


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where a ledger is: the URL that libpq takes, and the schema of its tables.

    Without ``schema``, it is the first one of the role's ``search_path``. ``password_file`` has the
    password, if the URL, ``PGPASSWORD`` and ``~/.pgpass`` do not; it is read for each session.
    """

    url: str = field(repr=False)
    schema: str = ""
    password_file: Path | None = None

    @classmethod
    def of(cls, url: str, schema: str = "", password_file: Path | None = None) -> Self:
        """Return the address of a URL.

        Raises:
            HeadraceError: INVALID if libpq cannot read it, or its client is not installed.
        """
        for scheme in SCHEMES:
            if url.startswith(scheme):
                address = cls(f"{SCHEMES[0]}{url.removeprefix(scheme)}", schema, password_file)
                address.parameters()
                return address
        raise HeadraceError(
            Code.INVALID,
            "ledger's address is not a URL of PostgreSQL",
            hint='Write "postgresql://user@host/database".',
        )

    def of_branch(self, name: str) -> PostgresAddress:
        """Return the address of the ledger of a branch: in a schema beside this one.

        Raises:
            HeadraceError: INVALID if the name of the schema would be too long.
        """
        schema = f"{self.schema or _SCHEMA}_branch_{name}"
        if len(schema.encode()) > _LONGEST:
            raise HeadraceError(
                Code.INVALID,
                f'name "{name}" of a branch is too long',
                f'Its ledger would be in the schema "{schema}", of more than {_LONGEST} bytes.',
                "Give a shorter name.",
            )
        return replace(self, schema=schema)

    def parameters(self) -> dict[str, str]:
        """Return the parameters that the URL gives."""
        psycopg = client()
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415  (an optional library)

        try:
            return {name: str(value) for name, value in conninfo_to_dict(self.url).items()}
        except psycopg.Error:
            # Neither the URL nor the client's error is shown: both may have the password.
            raise HeadraceError(
                Code.INVALID,
                "ledger's address is not a URL of PostgreSQL",
                "Its client cannot read it; what it says may contain the password.",
                'Write "postgresql://user:password@host:5432/database", with special characters'
                " of the password percent-encoded, as in %40 for @.",
            ) from None

    @property
    def place(self) -> str:
        """The server and database, for messages: without user and password."""
        known = self.parameters()
        hosts = (known.get("host") or known.get("hostaddr") or "").split(",")
        ports = known.get("port", "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        places = [f"{h}:{p}" if p else h for h, p in zip(hosts, ports, strict=False)]
        found = f"{SCHEMES[0]}{','.join(places)}/{known.get('dbname', '')}"
        return f"{found}, schema {self.schema}" if self.schema else found

    def connect(self) -> Any:
        """Open a session of psycopg in autocommit mode.

        Raises:
            psycopg.Error: if the server does not answer, or refuses the user or the database.
            HeadraceError: UNAVAILABLE if the file with the password cannot be read.
        """
        known = self.parameters()
        given = {name: value for name, value in _DEFAULTS.items() if name not in known}
        if self.password_file is not None:
            given["password"] = _password(self.password_file)
        return session(client(), self.url, **given)


def client() -> Any:
    """Return the client of PostgreSQL.

    Raises:
        HeadraceError: INVALID if it is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415  (an optional library)
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            "driver for PostgreSQL is not installed",
            f"{error}.",
            'Install it: pip install "headrace[postgres]".',
        ) from error
    return psycopg


def _password(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is not UTF-8"
        raise HeadraceError(
            Code.UNAVAILABLE,
            f'password file "{file}" of the ledger cannot be read',
            f"{reason}.",
            "Correct the setting ledger_password_file, or make the file readable.",
        ) from error
