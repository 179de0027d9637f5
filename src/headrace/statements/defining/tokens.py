"""CREATE TOKEN and DROP TOKEN, GRANT and REVOKE, and what SHOW lists of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.dialects import duration_of
from headrace.errors import Code, HeadraceError, unknown
from headrace.parts.access import DATABASE
from headrace.parts.naming import DEFAULT_SCHEMA, SYSTEM_SCHEMA

if TYPE_CHECKING:
    from headrace.parts.access import Access
    from headrace.parts.reader import Reader
    from headrace.parts.schemas import Schemas
    from headrace.sql import CreateToken, DropToken, Fragment, Grant, Name, Revoke

TOKEN_COLUMNS = ("name", "secret", "expires")
LISTED_COLUMNS = ("name", "created", "expires", "state")
GRANT_COLUMNS = ("token", "role", "on", "schema")


@dataclass(frozen=True, slots=True)
class TokenChanges:
    """Changes and lists access tokens, and the roles that they have."""

    access: Access
    reader: Reader
    schemas: Schemas

    def create(self, statement: CreateToken) -> list[tuple[Any, ...]]:
        """Create a token; return its row of ``TOKEN_COLUMNS``: its secret is shown only here."""
        seconds = _seconds(statement.valid_for)
        made, secret = self.access.create(statement.name.dotted, seconds, statement.name.span)
        return [(made.name, secret, _time(made.expires))]

    def drop(self, statement: DropToken) -> str:
        """Drop a token."""
        name = statement.name.dotted
        if statement.if_exists and name not in {token.name for token in self.access}:
            return f'"{name}" does not exist'
        self.access.find(name, statement.name.span)
        self.access.drop(name)
        return f"dropped token {name}"

    def grant(self, statement: Grant) -> str:
        """Grant a token a role."""
        name, place = statement.token.dotted, self._place(statement.schema)
        self.access.grant(name, statement.role, place, statement.token.span)
        return f"granted role {statement.role} {_where(place)} to {name}"

    def revoke(self, statement: Revoke) -> str:
        """Take a granted role back."""
        name = statement.token.dotted
        place = DATABASE if statement.schema is None else statement.schema.dotted
        self.access.revoke(name, statement.role, place, statement.span)
        return f"revoked role {statement.role} {_where(place)} from {name}"

    def listed(self) -> list[tuple[Any, ...]]:
        """Return the tokens, with ``LISTED_COLUMNS``."""
        now = self.access.clock()
        return [
            (
                token.name,
                _time(token.created),
                _time(token.expires),
                "expired" if token.expires is not None and token.expires <= now else "valid",
            )
            for token in self.access
        ]

    def grants(self, name: Name | None, own: str | None) -> list[tuple[Any, ...]]:
        """Return the roles of one token, or of all, with ``GRANT_COLUMNS``; of ``own`` if given."""
        if name is not None:
            self.access.find(name.dotted, name.span)
        wanted = own if name is None else name.dotted
        return [
            (token.name, str(role), "schema" if place else "database", place or None)
            for token in self.access
            if wanted in (None, token.name)
            for place, roles in sorted(token.roles.items())
            for role in sorted(roles)
        ]

    def _place(self, schema: Name | None) -> str:
        """Return where a role is granted.

        Raises:
            HeadraceError: ``invalid``, at its place, for a schema that does not exist;
                ``unsupported`` for the information schema.
        """
        if schema is None:
            return DATABASE
        known = {DEFAULT_SCHEMA, *self.schemas.names(self.reader.catalog)}
        if schema.dotted == SYSTEM_SCHEMA:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"a role in {SYSTEM_SCHEMA} is not supported",
                detail="Everybody reads there what is in the schemas that they may read.",
                span=schema.span,
            )
        if schema.dotted not in known:
            raise unknown("schema", schema, known, f"CREATE SCHEMA {schema} first.", schema.span)
        return schema.dotted


def _where(place: str) -> str:
    return f"on schema {place}" if place else "on the database"


def _seconds(given: Fragment | None) -> float | None:
    if given is None:
        return None
    found = duration_of(given.text)
    if found is None or found <= 0:
        raise HeadraceError(
            Code.INVALID,
            f"'{given.text}' is no constant length of time",
            hint="Write VALID FOR INTERVAL '30' DAY.",
            span=given.span,
        )
    return found / 1_000_000


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
