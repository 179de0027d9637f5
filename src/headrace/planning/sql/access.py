"""``CREATE TOKEN``, ``GRANT`` and ``REVOKE``: access over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.fragments import take_expression
from headrace.planning.sql.parts import Role
from headrace.planning.sql.statements import CreateToken, Grant, Revoke

if TYPE_CHECKING:
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.lexer import Token
    from headrace.planning.sql.parts import Name


_PRIVILEGES = frozenset(
    """
    ALL ALTER CONNECT CREATE CREATEDB CREATEROLE DELETE DROP EXECUTE INSERT MANAGE MODIFY OWNERSHIP
    REFERENCES SELECT TRIGGER TRUNCATE UPDATE USAGE USE
    """.split()  # noqa: SIM905
)
"""Privileges of other systems, which roles include."""
_ROLES = tuple(role.upper() for role in Role)
_EXAMPLE = "GRANT READER ON SCHEMA name TO token, or GRANT READER ON DATABASE TO token."


def take_token(cursor: Cursor, first: Token) -> CreateToken:
    """Take ``name [VALID FOR INTERVAL ...]``."""
    name = _token(cursor)
    valid_for = take_expression(cursor) if cursor.accept("VALID", "FOR") else None
    cursor.expect_end(*(() if valid_for else ("VALID FOR",)))
    return CreateToken(name, cursor.span(first), valid_for)


def take_grant(cursor: Cursor) -> Grant:
    """Take ``GRANT role ON SCHEMA name | DATABASE TO token``."""
    first = cursor.token
    cursor.expect("GRANT")
    role, schema, token = _granted(cursor, "TO")
    return Grant(role, token, cursor.span(first), schema)


def take_revoke(cursor: Cursor) -> Revoke:
    """Take ``REVOKE role ON SCHEMA name | DATABASE FROM token``."""
    first = cursor.token
    cursor.expect("REVOKE")
    role, schema, token = _granted(cursor, "FROM")
    return Revoke(role, token, cursor.span(first), schema)


def _granted(cursor: Cursor, before: str) -> tuple[Role, Name | None, Name]:
    """Take ``role ON SCHEMA name | DATABASE``, then ``before``, then the token."""
    place = cursor.token
    if place.word in _PRIVILEGES:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"privilege {place.word} is not supported",
            detail="A reader reads; a writer also changes rows; an owner also creates and drops.",
            hint=f"Use a role: {_EXAMPLE}",
            span=cursor.span(place, place),
        )
    role = next((role for role in Role if cursor.accept(role.upper())), None)
    if role is None:
        raise cursor.expected_word(*_ROLES)
    cursor.expect("ON")
    place = cursor.token
    if cursor.accept("SCHEMA"):
        schema: Name | None = cursor.name("a schema's name")
    elif cursor.accept("DATABASE"):
        schema = None
    else:
        raise cursor.expected(
            "SCHEMA", "DATABASE", hint=f"Roles are granted for schemas, not for tables: {_EXAMPLE}"
        )
    cursor.expect(before)
    token = _token(cursor)
    cursor.expect_end()
    return role, schema, token


def _token(cursor: Cursor) -> Name:
    """Take the name of a token, which is not qualified."""
    name = cursor.name("a token's name")
    if len(name.parts) > 1:
        raise HeadraceError(Code.INVALID, "the name of a token has no dots", span=name.span)
    return name
