"""Commands of the shell: the lines that begin with a backslash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.cli.formats import Format
from headrace.errors import Code, HeadraceError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.cli.statements import Statements


class Quit(Exception):  # noqa: N818  (it is a request)
    r"""``\q`` was typed."""


def run_command(line: str, statements: Statements) -> None:
    """Run a command.

    Raises:
        Quit: the shell shall end.
        HeadraceError: ``invalid`` if there is no such command, or not with these words.
    """
    word, _, rest = line.strip().partition(" ")
    run = COMMANDS.get(word)
    if run is None:
        near = nearest(word, COMMANDS)
        raise HeadraceError(
            Code.INVALID,
            f'command "{word}" does not exist',
            hint=f"Did you mean {near}?" if near else r"Type \? for the commands.",
        )
    run(rest.strip().rstrip(";").strip(), statements)


def _quit(_: str, __: Statements) -> None:
    raise Quit


def _help(_: str, statements: Statements) -> None:
    statements.printer.note(HELP)


def _describe(name: str, statements: Statements) -> None:
    if name:
        statements.run(f"DESCRIBE {name}")
        return
    found = statements.thread.call(statements.database.relations)
    kinds, names = [kind for kind, _ in found], [name for _, name in found]
    arrays = [pa.array(column, pa.string()) for column in (kinds, names)]
    statements.printer.rows(pa.Table.from_arrays(arrays, names=["kind", "name"]))


def _timing(word: str, statements: Statements) -> None:
    printer = statements.printer
    match word.lower():
        case "":
            printer.timing = not printer.timing
        case "on" | "off":
            printer.timing = word.lower() == "on"
        case _:
            raise HeadraceError(
                Code.INVALID, f'timing "{word}" does not exist', hint="Type on or off."
            )
    printer.note(f"timing is {'on' if printer.timing else 'off'}")


def _format(word: str, statements: Statements) -> None:
    printer = statements.printer
    if word:
        try:
            printer.form = Format(word.lower())
        except ValueError as error:
            raise HeadraceError(
                Code.INVALID,
                f'format "{word}" does not exist',
                hint=f"Type one of {', '.join(Format)}.",
            ) from error
    printer.note(f"format is {printer.form}")


COMMANDS: dict[str, Callable[[str, Statements], None]] = {
    r"\?": _help,
    r"\d": _describe,
    r"\f": _format,
    r"\q": _quit,
    r"\timing": _timing,
}
"""Each command with what runs it, given the rest of the line."""

HELP = r"""Statements may take several lines and end with a semicolon.

  \?             show this
  \d             list streams, tables and views
  \d NAME        describe one of them
  \f FORMAT      write results as table, json or csv
  \timing        switch elapsed times on or off
  \q             leave, as Ctrl-D does

  Tab            complete a keyword, a name or a column
  Up, Ctrl-R     earlier statements, search in them
  Ctrl-C         drop what is typed, or cancel the statement that runs"""
