r"""The shell's commands: lines that begin with a backslash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli import listings, running, switches
from headrace.cli.statement_help import help_on
from headrace.errors import Code, HeadraceError, meant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.cli.interpreter import Interpreter


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
        Command(r"\d", "[NAME|PATTERN]", "list relations, or describe one", listings.describe),
        Command(r"\d+", "NAME", "describe one with its query and sizes", listings.describe_all),
        Command(r"\dt", "[PATTERN]", "list tables", listings.tables),
        Command(r"\ds", "[PATTERN]", "list streams", listings.streams),
        Command(r"\dv", "[PATTERN]", "list views", listings.views),
        Command(r"\dn", "", "list schemas", listings.schemas),
        Command(r"\df", "[PATTERN]", "list functions", listings.functions),
        Command(r"\l", "", "show the database and its freshness", listings.opened, (r"\conninfo",)),
    ),
    "Running": (
        Command(r"\g", "", "run the statement before it, or the last one", running.go),
        Command(r"\gx", "", "the same, expanded", running.go_expanded),
        Command(r"\watch", "[SECONDS] [c=N]", "run it again and again, in place", running.watch),
        Command(r"\e", "[FILE]", "edit the last statement, then run it", running.edit),
        Command(r"\i", "FILE", "run a script", running.include),
    ),
    "Showing results": (
        Command(
            r"\format",
            "[FORMAT]",
            "table, vertical, markdown, json or csv",
            switches.form,
            (r"\f",),
        ),
        Command(r"\x", "[on|off]", "expanded display: a line per value", switches.expanded),
        Command(r"\live", "[on|off]", "show followed rows in place, or changes", switches.live),
        Command(r"\pager", "[on|off]", "page long results", switches.pager),
        Command(r"\null", "[TEXT]", "how NULL is shown", switches.null),
        Command(r"\timing", "[on|off]", "show elapsed times", switches.timing),
        Command(r"\pset", "NAME [VALUE]", "set one of those by its name", switches.by_name),
        Command(r"\o", "[FILE]", "write results to a file, or here again", switches.output),
        Command(r"\echo", "[TEXT]", "write a line", switches.echo),
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
