r"""Splits a script into pieces of SQL and commands of the shell.

A backslash outside of strings and comments, which SQL does not have, starts a command that ends
with its line. The text of a command is not parsed as SQL, so it may contain an unpaired quote.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headrace.errors import HeadraceError
from headrace.sql import split
from headrace.sql.lexer import tokens

BARE = {"exit": r"\q", "quit": r"\q", "help": r"\?"}
"""Words that are commands when typed alone, with the commands that they abbreviate."""


@dataclass(frozen=True, slots=True)
class SqlPiece:
    """A range ``[start, end)`` of a script with statements; never blank."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CommandPiece:
    """A range ``[start, end)`` of a script, from a backslash to the end of its line."""

    start: int
    end: int


Piece = SqlPiece | CommandPiece


def pieces(text: str) -> list[Piece]:
    """Split a script into its pieces, in order, without blank ones.

    Raises:
        HeadraceError: ``invalid`` if a string, quoted identifier or comment is not closed.
    """
    found: list[Piece] = []
    at = 0
    while at < len(text):
        slash = _backslash(text, at)
        end = len(text) if slash is None else slash
        if text[at:end].strip():
            found.append(SqlPiece(at, end))
        if slash is None:
            break
        newline = text.find("\n", slash)
        at = len(text) if newline < 0 else newline
        found.append(CommandPiece(slash, at))
    return found


def ends(sql: str) -> bool:
    """Whether the text has no statements, or its last one ends with a semicolon."""
    found = split(sql)
    return not found or found[-1].terminated


@lru_cache(maxsize=1)
def complete(text: str) -> bool:
    """Whether Enter runs the text: it is blank, ends with a command, or its statements all end."""
    stripped = text.strip()
    if not stripped or stripped.lower() in BARE:
        return True
    try:
        found = pieces(text)
        last = found[-1] if found else None
        return not isinstance(last, SqlPiece) or ends(text[last.start : last.end])
    except HeadraceError:  # a string or comment that is still open
        return False


def _backslash(text: str, start: int) -> int | None:
    if text.find("\\", start) < 0:
        return None
    return next((token.start for token in tokens(text, start) if token.text == "\\"), None)
