"""Whatever is typed, the shell answers with a message and goes on; there is never a stack trace."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from cli.fake_database import FakeDatabase
from headrace.errors import Code, HeadraceError
from headrace.planning.sql import KEYWORDS
from headrace.tools.cli.commands import NAMES, Quit, run_command
from headrace.tools.cli.environment import Environment
from headrace.tools.cli.interpreter import Interpreter, complete
from headrace.tools.cli.printer import Display, Printer
from headrace.tools.cli.shell import Names, Shell, ShellCompleter
from headrace.tools.cli.statement_thread import StatementThread
from headrace.tools.cli.statements import Statements

if TYPE_CHECKING:
    from pathlib import Path

_SAFE = [name for name in NAMES if name not in (r"\watch", r"\o", r"\e", r"\q")]
"""Commands that neither wait for Ctrl-C nor write files of a random name."""
_FRAGMENTS = [
    *KEYWORDS,
    *_SAFE,
    *["SELECT 1;", "BAD;", "SAY x;", "LONG;", "WIDE;", "LOAD x;", ";", "\n", " ", "\t", "\\"],
    *["'", '"', "`", "/*", "*/", "--", "\u2018", "\u201d", "''", "\\\\", "\\'"],
    *["totals", "`total sum`", "on", "off", "json", "csv", "vertical", "markdown", "table", "*"],
    *["1", "-1", "1e400", "c=0", "i=-3", "null", "\x00", "\x1b[31m", "\ufeff", "\u200b", "é", "水"],
]


def _end() -> None:
    """End what is followed."""
    raise HeadraceError(Code.UNAVAILABLE, "the database is closed")


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    database, out, err = FakeDatabase(at_end=_end), io.StringIO(), io.StringIO()
    thread = StatementThread(lambda _: None)
    statements = Statements(database, thread, Printer(Display(), out, err), err)
    environment = Environment.of({"HEADRACE_HISTORY": str(tmp_path / "history"), "EDITOR": "true"})
    return Interpreter(statements, environment, run_command, interactive=True)


def _texts(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    return [
        chance.choice(["", " "]).join(chance.choices(_FRAGMENTS, k=chance.randint(1, 12)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_random_fragments_are_answered_or_refused(interpreter: Interpreter, seed: int) -> None:
    completer = ShellCompleter(
        Names(lambda: ["totals", "readings"], lambda _: ["user", "total sum"])
    )
    for text in _texts(seed, 100):
        list(completer.get_completions(Document(text), CompleteEvent()))
        complete(text)
        try:
            interpreter.run(text)
        except (HeadraceError, Quit):
            interpreter.before = ""


@pytest.mark.parametrize("seed", range(2))
def test_random_keys_never_end_the_shell_or_show_a_trace(
    interpreter: Interpreter, seed: int
) -> None:
    chance = random.Random(seed)
    keys = (
        b"".join(
            chance.choice(
                [
                    bytes(chance.randrange(256) for _ in range(6)).replace(b"\x04", b""),
                    chance.choice(_texts(chance.random().__hash__(), 1)).encode() + b"\r",
                    chance.choice(
                        [b"\t", b"\x1b[A", b"\x1b[B", b"\x03", b"\x12x\r", b"\x1b[200~;\x1b[201~"]
                    ),
                ]
            )
            for _ in range(100)
        )
        .replace(b"\x1a", b"")
        .replace(b"\x1c", b"")
    )
    with create_pipe_input() as given:
        given.send_bytes(keys + b"\x1b\x03\x03\r\x03")
        given.close()
        Shell(interpreter, terminal=(given, DummyOutput())).run()
    err = interpreter.statements.err
    assert isinstance(err, io.StringIO)
    assert "Traceback" not in err.getvalue()
    assert "error[internal]" not in err.getvalue()


def test_pasted_colours_are_not_taken_for_a_mouse(interpreter: Interpreter) -> None:
    with create_pipe_input() as given:
        given.send_text("SAY \x1b[31mred\x1b[0m;\r")
        given.close()
        Shell(interpreter, terminal=(given, DummyOutput())).run()
    out = interpreter.statements.printer.out
    assert isinstance(out, io.StringIO)
    assert out.getvalue().startswith("said: SAY")
