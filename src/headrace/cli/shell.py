"""The shell: statements typed at a terminal, answered one by one until Ctrl-D."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import style_from_pygments_cls
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]
from pygments.styles import get_style_by_name  # type: ignore[import-untyped]

from headrace.cli.commands import COMMANDS, Quit, run_command
from headrace.cli.completion import Names, SqlCompleter
from headrace.cli.failures import report
from headrace.cli.statement_thread import Abandoned, Interrupted, let_finish
from headrace.errors import HeadraceError, masked
from headrace.sql import split

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from headrace.cli.statements import Statements

_PROMPT = "headrace> "
_CONTINUED = "      ... "
_HISTORY = "shell-history"
_BARE = {"exit": r"\q", "quit": r"\q", "help": r"\?"}


class Shell:
    """Reads statements and commands; errors and Ctrl-C end a statement, never the shell."""

    def __init__(
        self,
        statements: Statements,
        directory: Path,
        *,
        debug: bool = False,
        terminal: tuple[Input, Output] | None = None,
    ) -> None:
        self._statements = statements
        self._directory = directory
        self._debug = debug
        self._names = Names(self._relations, self._columns)
        given, shown = terminal or (None, create_output(always_prefer_tty=True))
        self._session: PromptSession[str] = PromptSession(
            _PROMPT,
            multiline=Condition(lambda: not complete(self._session.default_buffer.text)),
            prompt_continuation=_CONTINUED,
            lexer=PygmentsLexer(SqlLexer),
            style=style_from_pygments_cls(get_style_by_name("default")),
            include_default_pygments_style=False,
            completer=SqlCompleter(self._names, tuple(COMMANDS)),
            complete_while_typing=False,
            history=_private_history(directory),
            input=given,
            output=shown,
        )

    def run(self) -> None:
        r"""Read and run until Ctrl-D or ``\q``."""
        note = self._statements.printer.note
        note(f'headrace {version("headrace")}, data directory "{self._directory}"')
        note(r"Statements end with a semicolon. \? shows the commands, \q or Ctrl-D leaves.")
        self._refresh()
        while True:
            try:
                text = self._session.prompt().strip()
                self._answer(_BARE.get(text.lower(), text))
                self._refresh()
            except Abandoned:
                raise
            except KeyboardInterrupt:
                continue
            except (EOFError, Quit):
                return

    def _answer(self, text: str) -> None:
        try:
            if text.startswith("\\"):
                run_command(text, self._statements)
            elif text:
                self._statements.run(text)
        except (Abandoned, Quit):
            raise
        except KeyboardInterrupt as interrupt:
            self._note_interrupt(interrupt)
        except Exception as error:  # noqa: BLE001  (the shell goes on)
            report(error, sys.stderr, debug=self._debug)

    def _note_interrupt(self, interrupt: KeyboardInterrupt) -> None:
        finished = isinstance(interrupt, Interrupted) and interrupt.finished
        self._statements.printer.note(
            "stopped; the statement had finished before it could be cancelled"
            if finished
            else "stopped"
        )

    # -- completion ------------------------------------------------------------------------

    def _refresh(self) -> None:
        try:
            self._statements.thread.call(self._names.refresh, let_finish)
        except HeadraceError:
            self._names.relations = []

    def _relations(self) -> list[str]:
        return [name for _, name in self._statements.database.relations()]

    def _columns(self, relation: str) -> Sequence[str]:
        database, thread = self._statements.database, self._statements.thread
        try:
            return thread.submit(lambda: [n for n, _ in database.columns(relation)]).result()
        except HeadraceError:  # dropped meanwhile
            return []


@lru_cache(maxsize=1)
def complete(text: str) -> bool:
    """Say whether Enter runs the text: a command, nothing, or statements that all end."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped.lower() in _BARE:
        return True
    try:
        pieces = split(text)
    except HeadraceError:  # a string or comment that is still open
        return False
    return not pieces or pieces[-1].terminated


class _PrivateHistory(FileHistory):
    """Statements of earlier sessions, without the secrets that stood in them."""

    def store_string(self, string: str) -> None:
        super().store_string(masked(string))


def _private_history(directory: Path) -> FileHistory:
    path = directory / _HISTORY
    path.touch(mode=0o600)
    return _PrivateHistory(str(path))
