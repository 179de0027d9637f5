r"""The shell's commands: lines that begin with a backslash.

The commands that list and describe objects: ``\d`` and others.

The commands that run statements: ``\g``, ``\watch``, ``\e``, ``\i``.

The commands that change how results are shown, such as ``\x`` and ``\timing``.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import Code, HeadraceError, meant
from headrace.tools.cli import terminal
from headrace.tools.cli.environment import Format
from headrace.tools.cli.interpreter import complete
from headrace.tools.cli.statement_help import help_on
from headrace.tools.cli.statement_thread import let_finish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.interfaces.connecting import AnyDatabase
    from headrace.tools.cli.interpreter import Interpreter


_WILD = ("*", "?")


def describe(words: str, interpreter: Interpreter) -> None:
    """Describe the relation of that name, or list the relations that match a pattern, or all."""
    if words and not any(mark in words for mark in _WILD):
        interpreter.statements.run(f"DESCRIBE {words}")
    else:
        _list(words, interpreter)


def describe_all(words: str, interpreter: Interpreter) -> None:
    """Describe a relation with its query, key and sizes."""
    if not words:
        raise HeadraceError(Code.INVALID, r"\d+ needs the name of a relation")
    interpreter.statements.run(f"DESCRIBE EXTENDED {words}")


def tables(words: str, interpreter: Interpreter) -> None:
    """List tables."""
    _list(words, interpreter, "table")


def streams(words: str, interpreter: Interpreter) -> None:
    """List streams."""
    _list(words, interpreter, "stream")


def views(words: str, interpreter: Interpreter) -> None:
    """List views."""
    _list(words, interpreter, "view")


def schemas(_: str, interpreter: Interpreter) -> None:
    """List schemas."""
    interpreter.statements.run("SHOW SCHEMAS")


def functions(words: str, interpreter: Interpreter) -> None:
    """List the functions that queries can call."""
    from headrace.planning.catalyst.allowed import FUNCTIONS  # noqa: PLC0415  (only this command needs it)

    database, thread = interpreter.statements.database, interpreter.statements.thread
    own = thread.call(database.functions, let_finish)
    known = {**dict.fromkeys(FUNCTIONS, "built in"), **dict.fromkeys(own, "Python")}
    named = sorted((name, kind) for name, kind in known.items() if _fits(name, words))
    _show(interpreter, ("function", "kind"), named)


def opened(_: str, interpreter: Interpreter) -> None:
    """Show the opened database, and how fresh it is."""
    database = interpreter.statements.database

    def facts() -> list[tuple[str, str]]:
        return [
            database.origin,
            ("relations", counted(database) or "none"),
            ("last epoch", f"{database.last_epoch():,}"),
            ("changes that no epoch has read yet", f"{database.pending():,}"),
        ]

    rows = interpreter.statements.thread.call(facts, let_finish)
    _show(interpreter, ("what", "value"), rows)


def counted(database: AnyDatabase) -> str:
    """Return how many relations of each kind there are, such as ``1 stream, 2 views``."""
    kinds = Counter(kind for kind, _ in database.relations())
    return ", ".join(f"{n:,} {kind}{'' if n == 1 else 's'}" for kind, n in sorted(kinds.items()))


def _list(pattern: str, interpreter: Interpreter, kind: str = "") -> None:
    database = interpreter.statements.database

    def found() -> list[tuple[str, str, str]]:
        return [
            (name, of, ", ".join(f"{column} {type_}" for column, type_ in database.columns(name)))
            for of, name in sorted(database.relations(), key=lambda each: each[1])
            if kind in of and _fits(name, pattern)
        ]

    rows = interpreter.statements.thread.call(found, let_finish)
    printer = interpreter.statements.printer
    if not rows and printer.on_terminal and printer.display.chosen.for_people:
        what = f"{kind or 'relation'}s" + (f' like "{pattern}"' if pattern else "")
        printer.note(rf"There are no {what}; \h CREATE shows how to make one.")
        return
    _show(interpreter, ("name", "kind", "columns"), rows)


def _fits(name: str, pattern: str) -> bool:
    return not pattern or fnmatchcase(name.lower(), pattern.lower())


def _show(interpreter: Interpreter, names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [pa.array(column, pa.string()) for column in columns]
    interpreter.statements.printer.rows(pa.Table.from_arrays(arrays, names=list(names)))


_WATCH = re.compile(r"(?:(?:i=)?(?P<seconds>\d+(?:\.\d+)?))?\s*(?:c=(?P<times>[1-9]\d*))?\Z")
_EVERY_SECONDS = 2.0
_LONGEST_SECONDS = 86400.0
_SHOWN_SQL = 60


def go(words: str, interpreter: Interpreter) -> None:
    """Run the statement before the command, or repeat the last one."""
    _need_nothing(r"\g", words)
    interpreter.run_again(interpreter.asked())


def go_expanded(words: str, interpreter: Interpreter) -> None:
    """Run the same statement as ``go``, and show its result expanded."""
    _need_nothing(r"\gx", words)
    display = interpreter.statements.printer.display
    before, display.expanded = display.expanded, True
    try:
        interpreter.run_again(interpreter.asked())
    finally:
        display.expanded = before


def watch(words: str, interpreter: Interpreter) -> None:
    """Run the statement repeatedly until Ctrl-C; on a terminal, each result replaces the last."""
    found = _WATCH.match(words)
    if found is None:
        raise HeadraceError(
            Code.INVALID,
            rf'"\watch {words}" cannot be read',
            hint=r"Type \watch 5 to run it every 5 seconds, \watch 5 c=3 to run it three times.",
        )
    seconds = min(float(found["seconds"] or _EVERY_SECONDS), _LONGEST_SECONDS)
    left = int(found["times"]) if found["times"] else None
    sql = interpreter.asked()
    printer = interpreter.statements.printer
    place = terminal.ScreenArea(printer.out) if printer.on_terminal else None
    pause = threading.Event()
    with terminal.keys_unseen():
        while True:
            if place is None:
                interpreter.run_again(sql, once=False)
            else:
                with printer.collected() as lines:
                    interpreter.run_again(sql, once=False)
                place.draw([_watched(sql, seconds, interpreter), *lines])
            left = None if left is None else left - 1
            if left == 0:
                return
            pause.wait(seconds)


def include(words: str, interpreter: Interpreter) -> None:
    """Run a script."""
    if not words:
        raise HeadraceError(Code.INVALID, r"\i needs the name of a file")
    interpreter.run_file(words.strip("'\""))


def edit(words: str, interpreter: Interpreter) -> None:
    """Edit the last statement, or a file, and run it.

    A statement that is incomplete or unchanged is put at the prompt instead.
    """
    if not interpreter.interactive:
        raise HeadraceError(Code.INVALID, r"\e needs a terminal")
    editor = interpreter.environment.editor
    if words:
        path = Path(words.strip("'\"")).expanduser()
        terminal.edit(str(path), editor)
        interpreter.run_file(str(path))
        return
    sql, interpreter.before = interpreter.before or interpreter.last, ""
    with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
        path = Path(directory, "statement.sql")
        path.write_text(f"{sql}\n", encoding="utf-8")
        terminal.edit(str(path), editor)
        edited = path.read_text(encoding="utf-8", errors="replace").strip()
    if not edited or edited == sql or not complete(edited):
        interpreter.typed = edited
        return
    interpreter.statements.printer.note(edited)
    interpreter.run(edited)


def _watched(sql: str, seconds: float, interpreter: Interpreter) -> str:
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    flat = " ".join(sql.split())
    shown = flat if len(flat) <= _SHOWN_SQL else flat[:_SHOWN_SQL] + "…"
    line = f"{now}, every {seconds:g} s, Ctrl-C ends it: {shown}"
    return interpreter.statements.printer.look.paint(line[: terminal.size()[0] - 1], "dim")


def _need_nothing(name: str, words: str) -> None:
    if words:
        raise HeadraceError(
            Code.INVALID, f"nothing can follow {name}", hint=r"Use \o FILE to write to a file."
        )


def timing(words: str, interpreter: Interpreter) -> None:
    """Switch whether elapsed times are shown."""
    display = interpreter.statements.printer.display
    display.timing = _switched("timing", words, interpreter, before=display.timing)


def expanded(words: str, interpreter: Interpreter) -> None:
    """Switch between tables and the expanded display: a line per value."""
    display = interpreter.statements.printer.display
    display.expanded = _switched("expanded display", words, interpreter, before=display.expanded)


def live(words: str, interpreter: Interpreter) -> None:
    """Switch between showing the current rows of followed queries, and showing their changes."""
    display = interpreter.statements.printer.display
    display.live = _switched("live", words, interpreter, before=display.live)


def pager(words: str, interpreter: Interpreter) -> None:
    """Switch the paging of long results."""
    display = interpreter.statements.printer.display
    display.paged = _switched("pager", words, interpreter, before=display.paged)


def null(words: str, interpreter: Interpreter) -> None:
    """Set the text for NULL."""
    printer = interpreter.statements.printer
    if words:
        printer.display.null = _unquoted(words)
    printer.note(f'NULL is shown as "{printer.display.null}"')


def form(words: str, interpreter: Interpreter) -> None:
    """Set the format."""
    printer = interpreter.statements.printer
    if words:
        try:
            printer.display.form = Format(words.lower())
        except ValueError as error:
            raise HeadraceError(
                Code.INVALID,
                f'format "{words}" does not exist',
                hint=f"Type one of {', '.join(Format)}.",
            ) from error
        printer.display.expanded = False
    printer.note(f"format is {printer.display.form}")


def by_name(words: str, interpreter: Interpreter) -> None:
    """Change the setting named by the first word to the remaining words."""
    name, _, value = words.partition(" ")
    switch = _NAMED.get(name.lower())
    if switch is None:
        there = f"There are: {', '.join(_NAMED)}."
        raise HeadraceError(
            Code.INVALID,
            f'setting "{name}" does not exist' if name else r"\pset needs the name of a setting",
            hint=meant(name, _NAMED, there, shown="{}"),
        )
    switch(value.strip(), interpreter)


def output(words: str, interpreter: Interpreter) -> None:
    """Write results to a file from now on or, without a name, to standard output again."""
    printer = interpreter.statements.printer
    if not words:
        printer.redirect(None)
        return
    path = Path(_unquoted(words)).expanduser()
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise HeadraceError(
            Code.INVALID, f'file "{path}" cannot be written', detail=f"{error.strerror}."
        ) from error
    printer.redirect(file)
    printer.note(f'results go to "{path}"; \\o ends it')


def echo(words: str, interpreter: Interpreter) -> None:
    """Write a line."""
    interpreter.statements.printer.line(words)


def _switched(what: str, words: str, interpreter: Interpreter, *, before: bool) -> bool:
    match words.lower():
        case "":
            after = not before
        case "on" | "off":
            after = words.lower() == "on"
        case _:
            raise HeadraceError(
                Code.INVALID, f'"{words}" is no setting of {what}', hint="Type on or off."
            )
    interpreter.statements.printer.note(f"{what} is {'on' if after else 'off'}")
    return after


def _unquoted(words: str) -> str:
    quoted = len(words) > 1 and words[0] == words[-1] and words[0] in "'\""
    return words[1:-1] if quoted else words


_NAMED: dict[str, Callable[[str, Interpreter], None]] = {
    "expanded": expanded,
    "format": form,
    "live": live,
    "null": null,
    "pager": pager,
    "timing": timing,
}


class Quit(Exception):  # noqa: N818  (it is a request)
    r"""``\q`` was reached."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, its arguments, a description, and the function that runs it."""

    name: str
    arguments: str
    does: str
    run: Callable[[str, Interpreter], None]
    aliases: tuple[str, ...] = ()


def run_command(line: str, interpreter: Interpreter) -> None:
    """Run a command.

    Raises:
        Quit: the command ends the shell.
        HeadraceError: ``invalid`` for an unknown command, or invalid arguments.
    """
    word, _, rest = line.strip().rstrip(";").rstrip().partition(" ")
    command = _BY_NAME.get(word)
    if command is None:
        raise HeadraceError(
            Code.INVALID,
            f'command "{word}" does not exist',
            hint=meant(word, _BY_NAME, r"Type \? for the commands.", shown="{}"),
        )
    command.run(rest.strip(), interpreter)


def _quit(_: str, __: Interpreter) -> None:
    raise Quit


def _help(_: str, interpreter: Interpreter) -> None:
    interpreter.statements.printer.note(HELP)


def _statement_help(words: str, interpreter: Interpreter) -> None:
    interpreter.statements.printer.note(help_on(words))


SECTIONS: dict[str, tuple[Command, ...]] = {
    "Looking around": (
        Command(r"\d", "[NAME|PATTERN]", "list relations, or describe one", describe),
        Command(r"\d+", "NAME", "describe one with its query and sizes", describe_all),
        Command(r"\dt", "[PATTERN]", "list tables", tables),
        Command(r"\ds", "[PATTERN]", "list streams", streams),
        Command(r"\dv", "[PATTERN]", "list views", views),
        Command(r"\dn", "", "list schemas", schemas),
        Command(r"\df", "[PATTERN]", "list functions", functions),
        Command(r"\l", "", "show the database and its freshness", opened, (r"\conninfo",)),
    ),
    "Running": (
        Command(r"\g", "", "run the statement before it, or the last one", go),
        Command(r"\gx", "", "the same, expanded", go_expanded),
        Command(r"\watch", "[SECONDS] [c=N]", "run it again and again, in place", watch),
        Command(r"\e", "[FILE]", "edit the last statement, then run it", edit),
        Command(r"\i", "FILE", "run a script", include),
    ),
    "Showing results": (
        Command(
            r"\format",
            "[FORMAT]",
            "table, vertical, markdown, json or csv",
            form,
            (r"\f",),
        ),
        Command(r"\x", "[on|off]", "expanded display: a line per value", expanded),
        Command(r"\live", "[on|off]", "show followed rows in place, or changes", live),
        Command(r"\pager", "[on|off]", "page long results", pager),
        Command(r"\null", "[TEXT]", "how NULL is shown", null),
        Command(r"\timing", "[on|off]", "show elapsed times", timing),
        Command(r"\pset", "NAME [VALUE]", "set one of those by its name", by_name),
        Command(r"\o", "[FILE]", "write results to a file, or here again", output),
        Command(r"\echo", "[TEXT]", "write a line", echo),
    ),
    "Help": (
        Command(r"\?", "", "show this", _help),
        Command(r"\h", "[STATEMENT]", "show how a statement is written", _statement_help),
        Command(r"\q", "", "leave, as Ctrl-D, exit and quit do", _quit),
    ),
}
"""All commands, in the order of the help."""

COMMANDS: tuple[Command, ...] = tuple(c for section in SECTIONS.values() for c in section)
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}
NAMES: Sequence[str] = tuple(sorted(_BY_NAME))

_KEYS = (
    ("Tab", "complete a keyword, a name or a column"),
    ("Up, Ctrl-R", "earlier statements, search in them"),
    ("Ctrl-C", "discard the input, or cancel the running statement"),
)


def _help_text() -> str:
    lines = ["Statements may take several lines and end with a semicolon."]
    for title, commands in SECTIONS.items():
        lines += ["", title]
        lines += [f"  {f'{c.name} {c.arguments}'.rstrip():<24}{c.does}" for c in commands]
    lines += ["", "Keys", *(f"  {key:<24}{does}" for key, does in _KEYS)]
    return "\n".join(lines)


HELP = _help_text()
