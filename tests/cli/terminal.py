"""A person at a terminal: types keys, and reads the screen until it shows what is expected."""

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
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS, LINES = 100, 40
CTRL_C, CTRL_D, TAB, UP, ENTER = "\x03", "\x04", "\t", "\x1b[A", "\r"
PROMPT = "headrace>"
_PATIENCE_SECONDS = 120
_PROGRAM = Path(__file__).with_name("on_terminal.py")
_SEQUENCE = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[([?>]?[0-9;]*)([ -/]*[@-~])|\x1b[=>78cHMDE]")


class Screen:
    """What a terminal shows after it was written to: the moves and erasures that programs use.

    ``above`` are the lines that have scrolled away.
    """

    def __init__(self) -> None:
        self.lines = [""] * LINES
        self.above: list[str] = []
        self.row = self.column = 0
        self._rest = ""

    def write(self, text: str) -> None:
        text, at = self._rest + text, 0
        self._rest = ""
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
                continue
            found = _SEQUENCE.match(text, at)
            if found is None:
                if len(text) - at < 30:  # its end has not come yet
                    self._rest = text[at:]
                    return
                at += 1
                continue
            if found[2]:
                self._steer(found[2], [int(n) for n in re.findall(r"\d+", found[1])])
            at = found.end()

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()

    def _put(self, character: str) -> None:
        match character:
            case "\n":
                self.row += 1
                if self.row == LINES:
                    self.above.append(self.lines.pop(0).rstrip())
                    self.lines.append("")
                    self.row -= 1
            case "\r":
                self.column = 0
            case "\b":
                self.column = max(0, self.column - 1)
            case _ if character.isprintable():
                if self.column >= COLUMNS:
                    self._put("\r")
                    self._put("\n")
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += cell_len(character)

    def _steer(self, what: str, numbers: list[int]) -> None:
        first = numbers[0] if numbers else 0
        steps = max(1, first)
        match what:
            case "A":
                self.row = max(0, self.row - steps)
            case "B":
                self.row = min(LINES - 1, self.row + steps)
            case "C":
                self.column = min(COLUMNS - 1, self.column + steps)
            case "D":
                self.column = max(0, self.column - steps)
            case "F":
                self.row, self.column = max(0, self.row - steps), 0
            case "G":
                self.column = steps - 1
            case "H":
                self.row = min(LINES, steps) - 1
                self.column = (numbers[1] if len(numbers) > 1 else 1) - 1
            case "K":
                line = self.lines[self.row]
                kept = {0: line[: self.column], 1: " " * self.column + line[self.column :]}
                self.lines[self.row] = kept.get(first, "")
            case "J" if first == 2:
                self.lines = [""] * LINES
            case "J":
                self.lines[self.row] = self.lines[self.row][: self.column]
                self.lines[self.row + 1 :] = [""] * (LINES - self.row - 1)


class Terminal:
    """Runs the command on a pseudo-terminal of 100 columns and 40 lines.

    ``kind`` is ``fake`` or ``real``: with what database.
    """

    def __init__(self, kind: str, arguments: Sequence[str], home: Path, **environment: str) -> None:
        self._fd, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.screen = Screen()
        self._stream = ""
        self.written = ""
        """All that the program has written, as it wrote it."""
        self.process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), kind, *arguments],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            env={
                **os.environ,
                "TERM": "xterm",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                "XDG_STATE_HOME": str(home / "state"),
                "PAGER": "cat",
                **environment,
            },
        )
        os.close(inside)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def see(self, *expected: str) -> str:
        """Read until each text has been written, in this order; return what was read."""
        read = ""
        for text in expected:
            while text not in self._stream:
                self._read(text)
            before, _, self._stream = self._stream.partition(text)
            read += before + text
        return read

    def watch(self, pattern: str) -> re.Match[str]:
        """Read until the screen as a whole matches a pattern."""
        while (found := re.search(pattern, self.screen.text())) is None:
            self._read(pattern)
        return found

    def enter(self, line: str) -> None:
        """Type a line when the shell is ready for it."""
        self.see(PROMPT)
        self.type(line + ENTER)

    def ended(self) -> int:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            ready, _, _ = select.select([self._fd], [], [], 0.1)
            if ready:
                try:
                    os.read(self._fd, 65536)
                except OSError:
                    break
        return self.process.wait(_PATIENCE_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def _read(self, wanted: str) -> None:
        ready, _, _ = select.select([self._fd], [], [], _PATIENCE_SECONDS)
        assert ready, f"{wanted!r} was not shown on\n{self.screen.text()}"
        try:
            data = os.read(self._fd, 65536).decode(errors="replace")
        except OSError as ended:
            raise AssertionError(f"ended without {wanted!r} on\n{self.screen.text()}") from ended
        self.screen.write(data)
        self.written += data
        self._stream = _SEQUENCE.sub("", self._stream + data).replace("\r", "")
