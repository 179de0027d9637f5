r"""The commands that run statements: ``\g``, ``\watch``, ``\e``, ``\i``."""

from __future__ import annotations

import re
import tempfile
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli import terminal
from headrace.cli.pieces import complete
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.cli.interpreter import Interpreter

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
