r"""The commands that change how results are shown, such as ``\x`` and ``\timing``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.choices import Format
from headrace.errors import Code, HeadraceError, meant

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.cli.interpreter import Interpreter


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
