"""Edits of SQL text: names replaced in place, all else as it was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql.keywords import NOT_NAMES, WORDS, double_quoted, quote
from headrace.sql.lexer import TokenKind, identifier_value, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sql.lexer import Token

NAMES = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED, TokenKind.DQUOTED})
"""The kinds of tokens that may be names."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The text that replaces a range of another one."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits, which do not overlap."""
    for each in sorted(edits, key=lambda edit: -edit.start):
        text = text[: each.start] + each.text + text[each.end :]
    return text


def as_name(name: str) -> str:
    """Return a name as it is written in SQL, between backticks where that is needed."""
    plain = name.replace("_", "a").isalnum() and name.isascii() and not name[:1].isdigit()
    return name if plain and name.upper() not in NOT_NAMES | frozenset(WORDS) else quote(name)


def dotted_as_name(name: str) -> str:
    """Return a dotted name as it is written in SQL."""
    return ".".join(map(as_name, name.split(".")))


def in_place_of(token: Token, parts: Iterable[str]) -> str:
    """Return a name of some parts as it is written where a token was a name.

    A name between double quotes stays one: it may say that others in the query are names.
    """
    written = double_quoted if token.kind is TokenKind.DQUOTED else as_name
    return ".".join(map(written, parts))


def is_name(token: Token, name: str) -> bool:
    """Whether a token may be a name, regardless of case."""
    return token.kind in NAMES and identifier_value(token).lower() == name.lower()


def names_column(expression: str, column: str) -> bool:
    """Whether an expression over the columns of one relation may name a column."""
    return any(is_name(each, column) for each in tokens(expression))


def with_column(expression: str, column: str, to: str) -> str:
    """Return an expression over the columns of one relation with another name of a column."""
    every = list(tokens(expression))
    return edited(
        expression,
        [
            Edit(token.start, token.end, as_name(to))
            for i, token in enumerate(every)
            if is_name(token, column)
            and not (i and every[i - 1].text == ".")
            and not (i + 1 < len(every) and every[i + 1].text == "(")
        ],
    )
