"""The shell: reads statements from a terminal and runs them one by one, until Ctrl-D.

Syntax highlighting of the statement that is being typed.

Completion in the shell: keywords, names of relations, their columns, and commands.

The greeting of the shell.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import style_from_pygments_cls
from pygments.lexers.sql import SqlLexer
from pygments.styles import get_style_by_name
from pygments.token import (
    Keyword,
    Name,
)

from headrace.errors import HeadraceError, masked
from headrace.planning.sql import KEYWORDS, quote, split
from headrace.tools.cli.commands import NAMES, Quit, counted
from headrace.tools.cli.environment import Format
from headrace.tools.cli.failures import report
from headrace.tools.cli.interpreter import BARE, SqlPiece, complete, pieces
from headrace.tools.cli.statement_help import STATEMENTS
from headrace.tools.cli.statement_thread import Abandoned, Interrupted, let_finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from headrace.interfaces.connecting import AnyDatabase
    from headrace.tools.cli.interpreter import Interpreter


_COMMAND = re.compile(r"\\\S*")
_OURS = frozenset(KEYWORDS)


class StatementLexer(SqlLexer):  # type: ignore[misc]
    r"""A lexer of SQL with the keywords of Headrace's statements, and ``\`` commands."""

    def get_tokens_unprocessed(self, text: str, *args: Any) -> Iterator[tuple[int, Any, str]]:
        """Yield the positions, kinds and texts of tokens."""
        command = _COMMAND.match(text)
        if command is not None:
            yield 0, Keyword, command[0]
            yield command.end(), Name, text[command.end() :]
            return
        for at, kind, value in super().get_tokens_unprocessed(text, *args):
            ours = kind in Name and value.upper() in _OURS
            yield at, Keyword if ours else kind, value


_WORD = re.compile(r"\w+$")
_WORDS = re.compile(r"\w+")
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_COMPLETION_COMMAND = re.compile(r"\\(?P<name>\S*)(?P<rest>\s.*)?\Z")
_AFTER_THESE = re.compile(
    r"\b(FROM|JOIN|INTO|UPDATE|DESCRIBE|EXTENDED|SUBSCRIBE|VERIFY|REPAIR|COPY|TRUNCATE\s+TABLE|"
    r"(INVALIDATE|REPLAY|RECONCILE)\s+VIEW|RECONCILE\s+TABLE|"
    r"(PAUSE|RESUME|RESET|ALTER|RECONCILE)\s+SINK|(PAUSE|RESUME)\s+FILL\s+OF|"
    r"ALTER\s+(STREAM|TABLE|(MATERIALIZED\s+)?VIEW)|"
    r"(DIRTY|RECONCILIATION|EVIDENCE|ERRORS)\s+FOR)"
    r"\s+\w*$",
    re.IGNORECASE,
)
"""Matches text after which only a relation can follow."""
_MEMBER = re.compile(r"(\w+)\.\w*$")
_ALIAS = r"(?i)\b`?{relation}`?\s+(?:AS\s+)?{alias}\b"
_READING = frozenset({"select", "with"})
_BEGINNINGS = tuple(dict.fromkeys(name.split()[0] for name in STATEMENTS))


@dataclass(slots=True)
class Names:
    """The relations and columns that can be completed, as of the last :meth:`refresh`.

    ``read_relations`` returns names; ``read_columns`` returns the columns of a relation, and is
    called once for each until the next refresh.
    """

    read_relations: Callable[[], Iterable[str]]
    read_columns: Callable[[str], Sequence[str]]
    relations: list[str] = field(default_factory=list)
    _columns: dict[str, Sequence[str]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the relations again: statements may have changed them."""
        self.relations = sorted(self.read_relations())
        self._columns = {}

    def columns(self, relation: str) -> Sequence[str]:
        """Return the columns of a relation."""
        if relation not in self._columns:
            self._columns[relation] = self.read_columns(relation)
        return self._columns[relation]


@dataclass(slots=True)
class ShellCompleter(Completer):
    """Completes the word before the cursor: columns first, then relations, then keywords.

    The columns are those of the relations in the statement; after ``alias.``, only of that one.
    """

    names: Names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield the completions of the word."""
        del complete_event
        command = _COMPLETION_COMMAND.search(document.current_line_before_cursor)
        if command is not None:
            yield from self._of_command(command["name"], command["rest"])
            return
        found = _WORD.search(document.text_before_cursor)
        word = found[0] if found else ""
        before, after = _statement(document)
        for text, kind in self._candidates(before, before + after, word):
            yield Completion(text, -len(word), display_meta=kind)

    # -- statements ------------------------------------------------------------------------

    def _candidates(self, before: str, statement: str, word: str) -> Iterator[tuple[str, str]]:
        start = word.lower()
        member = _MEMBER.search(before)
        if member is not None:
            yield from self._members(member[1], statement, start)
            return
        if before.strip() == word:
            yield from (
                (keyword.lower() if word.islower() else keyword, "keyword")
                for keyword in _BEGINNINGS
                if keyword.startswith(word.upper())
            )
            return
        relations_only = _AFTER_THESE.search(before) is not None
        if not relations_only:
            yield from self._columns(statement, start)
        for name in self.names.relations:
            if name.lower().startswith(start):
                yield _written(name), "relation"
        if word and not relations_only:
            for keyword in KEYWORDS:
                if keyword.startswith(word.upper()):
                    yield keyword.lower() if word.islower() else keyword, "keyword"

    def _columns(self, statement: str, start: str) -> Iterator[tuple[str, str]]:
        mentioned = {mention.lower() for mention in _WORDS.findall(statement)}
        used = [n for n in self.names.relations if n.lower().rpartition(".")[2] in mentioned]
        if "from" not in mentioned and mentioned & _READING:
            # The select list precedes FROM, so any relation may follow.
            used = used or self.names.relations
        columns = {column: name for name in used for column in self.names.columns(name)}
        for column, name in columns.items():
            if column.lower().startswith(start):
                yield _written(column), f"column of {name}"

    def _members(self, alias: str, statement: str, start: str) -> Iterator[tuple[str, str]]:
        for name in self.names.relations:
            if name.lower().startswith(f"{alias.lower()}.{start}"):
                yield _written(name[len(alias) + 1 :]), "relation"
        for name in self.names.relations:
            pattern = _ALIAS.format(relation=re.escape(name), alias=re.escape(alias))
            if name.lower() == alias.lower() or re.search(pattern, statement):
                for column in self.names.columns(name):
                    if column.lower().startswith(start):
                        yield _written(column), f"column of {name}"
                return

    # -- commands --------------------------------------------------------------------------

    def _of_command(self, name: str, rest: str | None) -> Iterator[Completion]:
        if rest is None:
            word = f"\\{name}"
            for command in NAMES:
                if command.startswith(word):
                    yield Completion(command, -len(word), display_meta="command")
            return
        word = rest.lstrip()
        for text, kind in self._arguments(name, word):
            if text.lower().startswith(word.lower()):
                yield Completion(text, -len(word), display_meta=kind)

    def _arguments(self, name: str, word: str) -> Iterator[tuple[str, str]]:
        match name:
            case "d" | "d+" | "dt" | "ds" | "dv":
                yield from ((_written(relation), "relation") for relation in self.names.relations)
            case "h":
                yield from ((statement, "statement") for statement in STATEMENTS)
            case "format" | "f":
                yield from ((form.value, "format") for form in Format)
            case "x" | "live" | "pager" | "timing":
                yield from (("on", ""), ("off", ""))
            case "i" | "o" | "e":
                yield from _paths(word)


def _paths(start: str) -> Iterator[tuple[str, str]]:
    """Yield the files and directories whose path begins with ``start``."""
    folder, _, _ = start.rpartition("/")
    root = Path(folder or ("/" if start.startswith("/") else ".")).expanduser()
    try:
        entries = sorted(root.iterdir())
    except (OSError, RuntimeError):
        return
    prefix = start[: len(start) - len(start.rpartition("/")[2])]
    for entry in entries:
        yield prefix + entry.name + ("/" if entry.is_dir() else ""), "file"


def _statement(document: Document) -> tuple[str, str]:
    """Return the statement under the cursor in two parts: before the cursor, and after it."""
    before, after = document.text_before_cursor, document.text_after_cursor
    try:
        parts = pieces(before)
        last = parts[-1] if parts else None
        if not isinstance(last, SqlPiece):
            return "", after
        found = split(before[last.start :])
        whole = before[last.start :]
        if not found:
            return "", after
        start = found[-1].end + 1 if found[-1].terminated else found[-1].start
        return whole[start:], after.partition(";")[0]
    except HeadraceError:  # inside a string or comment
        return before, ""


def _written(name: str) -> str:
    """Return a name as it is written in SQL."""
    return name if _PLAIN.match(name) else quote(name)


FIRST_STEPS = (
    "CREATE TABLE orders (id INT, name STRING, amount DECIMAL(10,2), PRIMARY KEY (id));",
    "CREATE MATERIALIZED VIEW totals AS SELECT name, sum(amount) AS sum FROM orders GROUP BY name;",
    "INSERT INTO orders VALUES (1, 'ann', 30), (2, 'bob', 12.50); SELECT * FROM totals;",
)
"""Three statements to try, in this order, in an empty database."""


def welcome(database: AnyDatabase, seconds: float) -> list[str]:
    """Return the lines that describe the opened database, and the first steps if it is empty."""
    relations, (kind, name) = counted(database), database.origin
    lines = [
        f'headrace {version("headrace")}, {kind} "{name}"',
        f"{relations or 'empty'}, epoch {database.last_epoch():,} (opened in {seconds:.1f} s)",
        r"Statements end with a semicolon. \? shows commands, \h statements, \q or Ctrl-D leaves.",
    ]
    if not relations:
        lines += ["", "Three things to try:", *(f"  {step}" for step in FIRST_STEPS)]
    return lines


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
