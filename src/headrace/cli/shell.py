"""The shell: reads statements from a terminal and runs them one by one, until Ctrl-D."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import style_from_pygments_cls
from pygments.styles import get_style_by_name  # type: ignore[import-untyped]

from headrace.cli.commands import Quit
from headrace.cli.completion import Names, ShellCompleter
from headrace.cli.failures import report
from headrace.cli.highlighting import StatementLexer
from headrace.cli.pieces import BARE, complete
from headrace.cli.statement_thread import Abandoned, Interrupted, let_finish
from headrace.cli.welcome import welcome
from headrace.errors import HeadraceError, masked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from headrace.cli.interpreter import Interpreter

_PROMPT = "headrace> "
_CONTINUED = "      ... "
_HOW_TO_LEAVE = r"Type \q or press Ctrl-D to leave."


class Shell:
    """Reads statements and commands; errors and Ctrl-C end a statement, never the shell."""

    def __init__(
        self, interpreter: Interpreter, *, terminal: tuple[Input, Output] | None = None
    ) -> None:
        self._interpreter = interpreter
        self._statements = interpreter.statements
        self._names = Names(self._relations, self._columns)
        given, shown = terminal or (None, create_output(always_prefer_tty=True))
        self._session: PromptSession[str] = PromptSession(
            _PROMPT,
            multiline=Condition(lambda: not complete(self._session.default_buffer.text)),
            prompt_continuation=lambda width, _, folded: " " * width if folded else _CONTINUED,
            lexer=PygmentsLexer(StatementLexer),
            style=style_from_pygments_cls(get_style_by_name("default")),
            include_default_pygments_style=False,
            completer=ShellCompleter(self._names),
            complete_while_typing=False,
            history=_private_history(interpreter.environment.history),
            enable_open_in_editor=False,
            key_bindings=_key_bindings(),
            input=given,
            output=shown,
        )

    def run(self, seconds: float = 0.0) -> None:
        r"""Read and run until Ctrl-D or ``\q``; ``seconds`` is how long opening took."""
        lines = self._statements.thread.call(
            lambda: welcome(self._statements.database, seconds), let_finish
        )
        self._note("\n".join(lines))
        self._refresh()
        while True:
            try:
                text = self._read()
                if text:
                    self._answer(BARE.get(text.lower().rstrip("; "), text))
                    self._refresh()
            except Abandoned:
                raise
            except KeyboardInterrupt:
                continue
            except (EOFError, Quit):
                return

    def _read(self) -> str:
        """Return the input; Ctrl-C discards it or, if it is empty, shows how to leave."""
        typed, self._interpreter.typed = self._interpreter.typed, ""
        try:
            # Errors inside the prompt, for example in a key sequence, do not end the shell.
            traced = self._interpreter.debug
            return self._session.prompt(default=typed, set_exception_handler=traced).strip()
        except KeyboardInterrupt:
            if not self._session.default_buffer.text:
                self._note(_HOW_TO_LEAVE)
            return ""

    def _answer(self, text: str) -> None:
        try:
            self._interpreter.run(text)
        except (Abandoned, Quit):
            raise
        except KeyboardInterrupt as interrupt:
            self._note_interrupt(interrupt)
        except Exception as error:  # noqa: BLE001  (the shell continues)
            report(error, self._statements.err, debug=self._interpreter.debug)

    def _note(self, text: str) -> None:
        self._statements.printer.note(text)

    def _note_interrupt(self, interrupt: KeyboardInterrupt) -> None:
        finished = isinstance(interrupt, Interrupted) and interrupt.finished
        self._note(
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


def _key_bindings() -> KeyBindings:
    """Return key bindings that ignore mouse events: pasted colour codes may look like them."""
    bindings = KeyBindings()
    bindings.add(Keys.Vt100MouseEvent)(lambda _: None)
    return bindings


class _PrivateHistory(FileHistory):
    """Statements of earlier sessions, with secrets masked."""

    def store_string(self, string: str) -> None:
        super().store_string(masked(string))


def _private_history(path: Path) -> History:
    """Return the history in a file that only the user can read, or in memory if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.open("a").close()
    except OSError as error:
        sys.stderr.write(f'statements are not stored in "{path}": {error.strerror}\n')
        return InMemoryHistory()
    return _PrivateHistory(str(path))
