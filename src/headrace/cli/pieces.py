r"""A script cut into what is SQL and what are commands of the shell.

A backslash outside of strings and comments begins a command, which ends with its line: SQL itself
has no use for one. The text of a command is never read as SQL, so it may hold a lone quote.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headrace.errors import HeadraceError
from headrace.sql import split
from headrace.sql.lexer import tokens

BARE = {"exit": r"\q", "quit": r"\q", "help": r"\?"}
"""Words that people type where there is nothing else to read them as, with what they mean."""


@dataclass(frozen=True, slots=True)
class SqlPiece:
    """The stretch ``[start, end)`` of a script that holds statements; never blank."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CommandPiece:
    """The stretch ``[start, end)`` of a script from a backslash to the end of its line."""

    start: int
    end: int


Piece = SqlPiece | CommandPiece


def pieces(text: str) -> list[Piece]:
    """Cut a script into its pieces, in order; what is only blank or comment is left out.

    Raises:
        HeadraceError: ``invalid`` where a string, quoted identifier or comment is not closed.
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
    """Say whether the last statement of the text is ended by a semicolon, or there is none."""
    found = split(sql)
    return not found or found[-1].terminated


@lru_cache(maxsize=1)
def complete(text: str) -> bool:
    """Say whether Enter runs the text: a command, nothing, or statements that all end."""
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
