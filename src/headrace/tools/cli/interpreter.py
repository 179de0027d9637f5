r"""Runs the statements and ``\`` commands of a script, or of a line typed at the shell.

Splits a script into pieces of SQL and commands of the shell.

A backslash outside of strings and comments, which SQL does not have, starts a command that ends
with its line. The text of a command is not parsed as SQL, so it may contain an unpaired quote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.sql import split
from headrace.planning.sql.lexer import tokens
from headrace.tools.cli.environment import OnError
from headrace.tools.cli.failures import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.tools.cli.environment import Environment
    from headrace.tools.cli.statements import Statements


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


_DEEPEST = 16


@dataclass(slots=True)
class Interpreter:
    """Runs text against one database; stores the statements that commands refer to."""

    statements: Statements
    environment: Environment
    run_command: Callable[[str, Interpreter], None]
    r"""Runs a line that begins with a backslash."""
    on_error: OnError = OnError.STOP
    interactive: bool = False
    debug: bool = False
    failed: bool = False
    """Whether a statement has failed, and later ones were run nevertheless."""
    last: str = ""
    r"""The statements that ran last, to which ``\g``, ``\e`` and ``\watch`` refer."""
    before: str = ""
    """The unfinished statement before the current command, which may use it."""
    typed: str = ""
    """The initial text of the next prompt."""
    _depth: int = field(default=0, init=False)

    def run(self, text: str, file: str | None = None) -> None:
        r"""Run a script.

        Raises:
            HeadraceError: of the first statement or command that fails, with ``OnError.STOP``.
            Quit: ``\q`` was reached.
            KeyboardInterrupt: Ctrl-C was pressed; the rest has not run.
        """
        found = pieces(text)
        for at, piece in enumerate(found):
            following = found[at + 1] if at + 1 < len(found) else None
            match piece:
                case SqlPiece():
                    sql = text[piece.start : piece.end]
                    if isinstance(following, CommandPiece) and not ends(sql):
                        self.before = sql.strip()
                    else:
                        self._run_sql(text, piece, file)
                case CommandPiece():
                    self._run_command(text[piece.start : piece.end])
                case _:
                    assert_never(piece)

    def run_file(self, name: str) -> None:
        """Run the script in a file, as part of the running one.

        Raises:
            HeadraceError: as :meth:`run`; ``invalid`` if it cannot be read or includes itself.
        """
        from headrace.tools.cli.inputs import Input, read_input  # noqa: PLC0415  (needs click)

        if self._depth >= _DEEPEST:
            raise HeadraceError(
                Code.INVALID, f'script "{name}" is included too deep', hint="Does it run itself?"
            )
        script, path = read_input(Input(file=str(Path(name).expanduser())))
        self._depth += 1
        try:
            self.run(script, path)
        finally:
            self._depth -= 1

    def run_again(self, sql: str, *, once: bool = True) -> None:
        """Run statements for a command; they become the last statements."""
        self.last = sql
        self.statements.run(sql, once=once)

    def asked(self) -> str:
        """Return the statement before the command, else the last one that ran.

        Raises:
            HeadraceError: ``invalid`` if none has run.
        """
        sql, self.before = self.before or self.last, ""
        if not sql:
            raise HeadraceError(Code.INVALID, "there is no statement to run yet")
        return sql

    # -- pieces ----------------------------------------------------------------------------

    def _run_sql(self, text: str, piece: SqlPiece, file: str | None) -> None:
        sql = text[piece.start : piece.end]
        self.last = sql.strip()
        if self.on_error is OnError.STOP:
            self._run_part(text, piece, file)
            return
        for source in split(sql):
            part = SqlPiece(piece.start + source.start, piece.start + source.end)
            try:
                self._run_part(text, part, file)
            except HeadraceError as error:
                self._report(error)

    def _run_part(self, text: str, part: SqlPiece, file: str | None) -> None:
        """Run a part of a text; the places of errors are in the whole text."""
        sql = text[part.start : part.end]
        try:
            self.statements.run(sql, file)
        except HeadraceError as error:
            span = error.span
            if span is None or span.text != sql or not part.start:
                raise
            moved = Span(text, span.start + part.start, span.end + part.start, file)
            raise HeadraceError(
                error.code, error.primary, error.detail, error.hint, moved
            ) from error

    def _run_command(self, line: str) -> None:
        try:
            self.run_command(line, self)
            self._require_ended_statement(line)
        except HeadraceError as error:
            if self.on_error is OnError.STOP:
                raise
            self._report(error)
        finally:
            self.typed, self.before = self.typed or self.before, ""

    def _require_ended_statement(self, line: str) -> None:
        if self.before and not self.interactive:
            raise HeadraceError(
                Code.INVALID,
                f"the statement before {line.split(maxsplit=1)[0]} does not end",
                hint="End it with a semicolon.",
            )

    def _report(self, error: HeadraceError) -> None:
        self.failed = True
        report(error, self.statements.err, debug=self.debug)
