"""Access to a PostgreSQL server: options, sessions, and the translation of errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.options import Alters, SecretName, option
from headrace.errors import Code, HeadraceError
from headrace.formats.libraries import library as optional
from headrace.postgres_session import is_refused, is_unreachable, said, session

if TYPE_CHECKING:
    from collections.abc import Callable

_ANSWER_SECONDS: Final = 10
_SETTINGS: Final = {
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "0",
    "intervalstyle": "iso_8601",
    "lock_timeout": "0",
    "row_security": "off",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    "timezone": "UTC",
}
"""Settings of each session, which override the server's.

They fix the text format of values, disable timeouts, and make hidden rows an error.
"""


class SslMode(StrEnum):
    """libpq's modes of encryption and of verification of the server."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Options of a connection; certificates and keys are paths of files."""

    host: str = option("host", "hostname", alters=Alters.ADDRESS)
    port: int = option("port", default=5432, alters=Alters.ADDRESS)
    database: str = option("database", "database-name", "dbname", alters=Alters.ADDRESS)
    user: str = option("user", "username", alters=Alters.FREELY)
    password: SecretName | None = option("password", default=None, alters=Alters.FREELY)
    ssl_mode: SslMode = option(
        "ssl mode", "ssl_mode", "sslmode", default=SslMode.PREFER, alters=Alters.FREELY
    )
    authority: str | None = option(
        "ssl certificate authority", "sslrootcert", default=None, alters=Alters.FREELY
    )
    certificate: str | None = option(
        "ssl certificate", "sslcert", default=None, alters=Alters.FREELY
    )
    private_key: str | None = option("ssl key", "sslkey", default=None, alters=Alters.FREELY)

    @property
    def place(self) -> str:
        """The server and database, for messages."""
        return f"{self.host}:{self.port}/{self.database}"


def connected(access: Access, secret: Callable[[str], str]) -> Any:
    """Open a session of psycopg in autocommit mode; ``secret`` returns the value of a secret.

    It fails if the server stops responding; see :mod:`headrace.postgres_session`.

    Raises:
        HeadraceError: ``unavailable`` if the server does not answer; ``invalid`` if it refuses the
            user, or the database does not exist.
    """
    psycopg = library()
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    given = {
        "host": access.host,
        "port": access.port,
        "dbname": access.database,
        "user": access.user,
        "password": None if access.password is None else secret(access.password),
        "sslmode": str(access.ssl_mode),
        "sslrootcert": access.authority,
        "sslcert": access.certificate,
        "sslkey": access.private_key,
        "application_name": "headrace",
        "connect_timeout": _ANSWER_SECONDS,
        "keepalives_idle": 30,
        "options": settings,
    }
    known = {key: value for key, value in given.items() if value is not None}
    try:
        return session(psycopg, "", **known)
    except psycopg.Error as error:
        raise failure(error, access) from error


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the database cannot be reached; see :func:`connected`."""
    connected(access, secret).close()


def failure(error: Any, access: Access) -> HeadraceError:
    """Translate an error of the client: ``invalid`` if the user or database is refused."""
    if is_refused(error):
        code, what = Code.INVALID, "refused the connection's user or database"
        hint = "Correct the connection's user, password or database, or what the user may do."
    elif is_unreachable(error):
        code, what = Code.UNAVAILABLE, "could not be reached"
        hint = "Start the server, or correct the connection's host and port."
    else:
        code, what = Code.UNAVAILABLE, "did not complete the request"
        hint = "Remove the cause that it names; a source is then tried again by itself."
    return HeadraceError(
        code, f'PostgreSQL at "{access.place}" {what}', f"It says: {said(error)}.", hint
    )


def library() -> Any:
    """Return the client library.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    return optional("psycopg", "client for PostgreSQL", "postgres")
