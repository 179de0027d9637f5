"""The shell in a pseudo-terminal, as a person at the keyboard has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli.shell import complete

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_SECONDS = 60
_CONTROL = re.compile(r"\x1b\][^\x07]*\x07|\x1b[\[?][0-9;?]*[ -/]*[@-~]|\x1b[=>]|\r")
_CTRL_C, _CTRL_D, _TAB, _UP = "\x03", "\x04", "\t", "\x1b[A"
_PROMPT = "headrace>"


class Terminal:
    """A person at a terminal of 100 columns: types, and reads what is shown."""

    def __init__(self, directory: Path) -> None:
        self._fd, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        self._shown = ""
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("fake_shell.py")),
                *("--data", str(directory), "sql"),
            ],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        )
        os.close(terminal)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def see(self, *expected: str) -> str:
        """Read until each text has been shown, in this order; return what was read."""
        read = ""
        for text in expected:
            while text not in self._shown:
                self._read(text)
            before, _, self._shown = self._shown.partition(text)
            read += before + text
        return read

    def enter(self, line: str) -> None:
        """Type a line when the shell is ready for it."""
        self.see(_PROMPT)
        self.type(line + "\r")

    def ended(self) -> int:
        return self.process.wait(_PATIENCE_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def _read(self, text: str) -> None:
        ready, _, _ = select.select([self._fd], [], [], _PATIENCE_SECONDS)
        assert ready, f"{text!r} was not shown after {self._shown!r}"
        try:
            data = os.read(self._fd, 65536)
        except OSError as ended:
            raise AssertionError(f"ended without {text!r} after {self._shown!r}") from ended
        self._shown = _CONTROL.sub("", self._shown + data.decode(errors="replace"))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def test_a_statement_may_take_several_lines_and_ends_with_a_semicolon(terminal: Terminal) -> None:
    terminal.see(r"\q or Ctrl-D leaves.")
    terminal.enter("SELECT 1")
    terminal.see("...")
    terminal.type(";\r")
    terminal.see("user", "total", "ann", "30", "NULL", "4", "2 rows (epoch 7, ")
    terminal.enter(r"\q")
    assert terminal.ended() == 0


def test_errors_do_not_end_the_shell_and_ctrl_d_does(terminal: Terminal) -> None:
    terminal.enter("BAD thing;")
    terminal.see("error[invalid]: it is bad", "^^^^", "hint: Make it good.")
    terminal.enter("BUG;")
    terminal.see("error[internal]: ZeroDivisionError: of nobody's making")
    terminal.enter(r"\tming")
    terminal.see(r'command "\tming" does not exist', r"Did you mean \timing?")
    terminal.enter("CREATE x;")
    terminal.see("create is done (")
    terminal.see(_PROMPT)
    terminal.type(_CTRL_D)
    assert terminal.ended() == 0


def test_ctrl_c_drops_what_is_typed(terminal: Terminal) -> None:
    terminal.see(_PROMPT)
    terminal.type("SELECT half" + _CTRL_C)
    terminal.enter("CREATE x;")
    terminal.see("create is done (")
    terminal.enter("exit")
    assert terminal.ended() == 0


def test_ctrl_c_cancels_the_running_statement_and_not_the_shell(terminal: Terminal) -> None:
    terminal.enter("WAIT; CREATE x;")
    terminal.see("waiting for Ctrl-C")
    terminal.type(_CTRL_C)
    assert "is done" not in terminal.see("stopped")
    terminal.enter("CREATE x;")
    terminal.see("create is done (")


def test_changes_are_shown_until_ctrl_c(terminal: Terminal) -> None:
    terminal.enter("SUBSCRIBE totals;")
    terminal.see("Ctrl-C ends them", "+I", "ann", "-U", "+U", "1000000", "NULL", "NULL")
    terminal.type(_CTRL_C)
    terminal.see("stopped")
    terminal.enter("CREATE x;")
    terminal.see("create is done (")


def test_tab_completes_what_is_typed(terminal: Terminal) -> None:
    terminal.see(_PROMPT)
    terminal.type("SAY tot" + _TAB)
    terminal.see("als")
    terminal.type(" WHERE use" + _TAB)
    terminal.see("WHERE", "r")
    terminal.type(";\r")
    terminal.see("said: SAY totals WHERE user")


def test_commands_describe_and_switch(terminal: Terminal) -> None:
    terminal.enter(r"\d")
    terminal.see("kind", "stream", "readings", "view", "totals")
    terminal.enter(r"\d totals;")
    terminal.see("describe is done")
    terminal.enter(r"\timing off")
    terminal.see("timing is off")
    terminal.enter("SELECT 1;")
    terminal.see("2 rows (epoch 7)")
    terminal.enter(r"\f json")
    terminal.see("format is json")
    terminal.enter("SELECT 1;")
    terminal.see('{"user":null,"total":4}')
    terminal.enter(r"\f xml")
    terminal.see('format "xml" does not exist')
    terminal.enter(r"\?")
    terminal.see(r"\d NAME")


def test_statements_are_remembered_without_their_secrets(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.enter("CREATE x WITH (password = 'hush');")
    terminal.see("create is done")
    terminal.see(_PROMPT)
    terminal.type(_UP + "\r")
    terminal.see("create is done")
    terminal.enter(r"\q")
    assert terminal.ended() == 0
    history = tmp_path / "shell-history"
    assert "CREATE x WITH (password = '****')" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o077 == 0


def test_progress_is_shown_on_a_terminal_and_gone_afterwards(terminal: Terminal) -> None:
    terminal.enter("LOAD x;")
    terminal.see("copying a.csv", "512 bytes of 2.0 kB, 3 rejected", "9 rows copied (")


@pytest.mark.parametrize("text", ["", "SELECT 1;", "SELECT 1; -- done", "-- note", r"\d", "quit"])
def test_enter_runs_what_is_complete(text: str) -> None:
    assert complete(text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT ';", "/* ;", "SELECT 1; SELECT 2", "SELEC"])
def test_enter_continues_what_is_not(text: str) -> None:
    assert not complete(text)
