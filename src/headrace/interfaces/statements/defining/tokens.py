"""CREATE TOKEN and DROP TOKEN, GRANT and REVOKE."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, unknown
from headrace.interfaces.statements.results import Listed
from headrace.lifecycle.states.access import DATABASE
from headrace.planning.catalog.naming import DEFAULT_SCHEMA, SYSTEM_SCHEMA
from headrace.planning.dialects import duration_of

if TYPE_CHECKING:
    from headrace.lifecycle.states.access import Access
    from headrace.lifecycle.states.declarations import Schemas
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import CreateToken, DropToken, Fragment, Grant, Name, Revoke


_CREATED = ("name", "secret", "expires")


@dataclass(frozen=True, slots=True)
class TokenChanges:
    """Changes access tokens, and the roles that they have."""

    access: Access
    reader: Reader
    schemas: Schemas

    def create(self, statement: CreateToken) -> Listed:
        """Create a token; return its name, secret and expiry. The secret is shown only here."""
        seconds = _seconds(statement.valid_for)
        made, secret = self.access.create(statement.name.dotted, seconds, statement.name.span)
        return Listed(_CREATED, [(made.name, secret, second_of(made.expires))])

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
        """Revoke a granted role."""
        name = statement.token.dotted
        place = DATABASE if statement.schema is None else statement.schema.dotted
        self.access.revoke(name, statement.role, place, statement.span)
        return f"revoked role {statement.role} {_where(place)} from {name}"

    def _place(self, schema: Name | None) -> str:
        """Return the schema in which a role is granted, or the database.

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
                detail="Every client reads there what concerns the schemas that it may read.",
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
            f"'{given.text}' is not a constant duration",
            hint="Write VALID FOR INTERVAL '30' DAY.",
            span=given.span,
        )
    return found / 1_000_000


def second_of(seconds: float | None) -> str | None:
    """Return a time as text for a listing: UTC, to the second."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
