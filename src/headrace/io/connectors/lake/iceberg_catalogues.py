"""Catalogues of Iceberg tables: an SQL catalogue in a directory, or a REST catalogue.

In both, a commit states the expected version of the table, and fails if it has changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import s3
from headrace.io.connectors.lake.tables import failed, words_of
from headrace.io.connectors.options import Alters, SecretName, option
from headrace.io.formats.libraries import library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_NAME: Final = "headrace"
_WHAT: Final = "library for Iceberg"
_EXTRA: Final = "iceberg"
_TIMEOUTS: Final = (5, 60)
"""Seconds to connect to a catalogue, and to wait for its answer."""
_DENIED: Final = frozenset(
    {"UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError", "OAuthError"}
)
"""The library's errors for refused credentials."""
_UNREADABLE: Final = frozenset({"InvalidSchema", "InvalidURL", "MissingSchema"})
"""The HTTP library's errors for invalid URLs."""
_MISSING: Final = re.compile(r"NoSuch(Namespace|Warehouse)|(?i:warehouse\b.*\bnot found)|NotFound")
_TRIED: Final = "data/headrace-tried.parquet"
"""The object written to test whether files of a table can be written."""


class CatalogueKind(StrEnum):
    """The kind of catalogue that contains the table."""

    SQL = "sql"
    """A database in a local directory, next to the tables."""
    REST = "rest"
    """A server, which chooses the locations of tables."""


def _address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s@]+", text):
        raise HeadraceError(
            Code.INVALID,
            "a catalogue's uri is one of http or https, without a user or password",
            hint="Write uri = 'https://catalog.example.com', and credential = SECRET name.",
        )
    return text.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestAccess(s3.Access):
    """Options of a REST catalogue, and of the store of its tables.

    ``credential`` is ``id:secret`` of a client, which is exchanged for a token. ``signing_name`` is
    the service for which requests are signed by AWS Signature Version 4, with the store's
    credentials.
    """

    catalog: CatalogueKind = option(default=CatalogueKind.REST, alters=Alters.NEVER)
    uri: str | None = option(default=None, convert=_address, alters=Alters.ADDRESS)
    warehouse: str | None = option(default=None, alters=Alters.ADDRESS)
    catalog_token: SecretName | None = option("token", default=None, alters=Alters.FREELY)
    credential: SecretName | None = option(default=None, alters=Alters.FREELY)
    scope: str | None = option(default=None, alters=Alters.FREELY)
    oauth_uri: str | None = option(
        "oauth2-server-uri",
        "oauth2_server_uri",
        "oauth2 server uri",
        default=None,
        convert=_address,
        alters=Alters.FREELY,
    )
    signing_name: str | None = option(
        "rest.signing-name", "signing name", "signing_name", default=None, alters=Alters.FREELY
    )

    def __post_init__(self) -> None:
        """Refuse a REST catalogue without a uri.

        Raises:
            HeadraceError: ``invalid``.
        """
        s3.Access.__post_init__(self)
        if self.catalog is CatalogueKind.REST and self.uri is None:
            raise HeadraceError(
                Code.INVALID,
                "a catalogue of REST has no uri",
                hint="Add uri = 'https://catalog.example.com' to its options.",
            )

    def require_no_server(self) -> None:
        """Refuse options of a server for an SQL catalogue.

        Raises:
            HeadraceError: ``invalid``.
        """
        others = {"catalog", *(each.name for each in fields(s3.Access))}
        for each in fields(RestAccess):
            if each.name not in others and getattr(self, each.name) is not None:
                key = (each.metadata["keys"] or (each.name,))[0]
                raise HeadraceError(
                    Code.INVALID,
                    f'option "{key}" only applies to a catalogue of REST',
                    hint="Add catalog = 'rest', or leave it out.",
                )
        self.require_no_store("add catalog = 'rest'")


def check(access: RestAccess, secret: Callable[[str], str]) -> None:
    """Raise if the catalogue does not answer, or refuses the credentials."""
    if access.catalog is not CatalogueKind.REST:
        raise HeadraceError(
            Code.INVALID,
            "a connection to Iceberg is one to a catalogue of REST",
            hint="Give a sink catalog = 'sql' and path = 'directory' itself.",
        )
    catalogue = RestCatalogue(access, secret)
    try:
        catalogue.opened().close()
    except HeadraceError:
        raise
    except Exception as error:
        raise catalogue.failed("the catalogue of Iceberg", error) from error


@dataclass(frozen=True, slots=True)
class SqlCatalogue:
    """An SQL catalogue, a SQLite database in the directory of its tables."""

    directory: Path

    def opened(self) -> Any:
        """Open the catalogue, creating a missing one."""
        sql = library("pyiceberg.catalog.sql", _WHAT, _EXTRA)
        self.directory.mkdir(parents=True, exist_ok=True)
        database = self.directory / "catalog.db"
        return sql.SqlCatalog(_NAME, uri=f"sqlite:///{database}", warehouse=self.directory.as_uri())

    def require_writable(self, table: Any) -> None:
        """Do nothing: the directory has been written to."""

    def failed(self, target: str, error: Exception) -> HeadraceError:
        """Translate a failure, without the path of the directory."""
        return failed(target, "Iceberg", words_of(error, self.directory), lake=False)


@dataclass(frozen=True, slots=True)
class RestCatalogue:
    """A REST catalogue; ``secret`` returns a secret's value."""

    access: RestAccess
    secret: Callable[[str], str] = field(repr=False)

    def opened(self) -> Any:
        """Open the catalogue, which requests its configuration."""
        rest = library("pyiceberg.catalog.rest", _WHAT, _EXTRA)
        if self.access.signing_name is not None:
            library("boto3", "client that signs requests", "s3")
        return _with_timeouts(rest.RestCatalog)(_NAME, **self._properties())

    def require_writable(self, table: Any) -> None:
        """Write a file into a table's location and delete it; raise if that fails."""
        tried = table.io.new_output(f"{table.location().rstrip('/')}/{_TRIED}")
        with tried.create(overwrite=True) as file:
            file.write(b"1")
        table.io.delete(tried.location)

    def failed(self, target: str, error: Exception) -> HeadraceError:
        """Translate a failure, without the values of secrets."""
        said = s3.reason(str(error))
        for value in self._secrets().values():
            said = said.replace(value, "...").replace(value.rpartition(":")[2] or value, "...")
        primary, detail = f"{target} cannot be written to", f"Iceberg says: {said}."
        if type(error).__name__ in _DENIED:
            return HeadraceError(Code.INVALID, primary, detail, s3.CREDENTIALS)
        if type(error).__name__ in _UNREADABLE or _MISSING.search(said):
            hint = "Create the warehouse, or correct its name or the uri."
            return HeadraceError(Code.INVALID, primary, detail, hint)
        return failed(target, "Iceberg", said, lake=True)

    def _properties(self) -> dict[str, str]:
        """Return the properties of the library's catalogue."""
        access = self.access
        given = {
            "uri": access.uri,
            "warehouse": access.warehouse,
            "scope": access.scope,
            "oauth2-server-uri": access.oauth_uri or f"{access.uri}/v1/oauth/tokens",
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            "s3.endpoint": access.endpoint,
            "s3.region": access.region or ("us-east-1" if access.endpoint else None),
            "s3.access-key-id": access.access_key,
            "s3.connect-timeout": str(_TIMEOUTS[0]),
            "s3.request-timeout": str(_TIMEOUTS[1]),
        }
        if access.signing_name is not None:
            given |= {
                "rest.sigv4-enabled": "true",
                "rest.signing-name": access.signing_name,
                "rest.signing-region": access.region,
                "rest.sigv4.max-retries": "1",
                "client.region": access.region,
                "client.access-key-id": access.access_key,
            }
        found = {key: value for key, value in given.items() if value is not None}
        return found | self._secrets()

    def _secrets(self) -> dict[str, str]:
        """Return those of the library's properties that are secrets, as far as they are given."""
        access, signs = self.access, self.access.signing_name is not None
        named = {
            "token": access.catalog_token,
            "credential": access.credential,
            "s3.secret-access-key": access.secret_key,
            "s3.session-token": access.session_token,
            "client.secret-access-key": access.secret_key if signs else None,
            "client.session-token": access.session_token if signs else None,
        }
        return {key: self.secret(name) for key, name in named.items() if name is not None}


def _with_timeouts(catalogue: Any) -> Any:
    """Return a subclass of a catalogue class whose requests have a timeout."""

    class WithTimeouts(catalogue):  # type: ignore[misc]
        def _config_headers(self, session: Any) -> None:
            session.request = partial(session.request, timeout=_TIMEOUTS)
            super()._config_headers(session)

    return WithTimeouts
