"""The terminal: its size, pager and editor, and an area of lines that are redrawn."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import termios
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def size() -> tuple[int, int]:
    """Return the number of columns and lines of the terminal."""
    found = shutil.get_terminal_size((80, 24))
    return found.columns, found.lines


def page(text: str, pager: Sequence[str]) -> bool:
    """Show text in the pager; return False if there is no such program.

    Ctrl-C is handled by the pager meanwhile.
    """
    try:
        process = subprocess.Popen(pager, stdin=subprocess.PIPE)  # noqa: S603  (the user's choice)
    except OSError:
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # A pager may be quit before it has read the whole text.
        with suppress(BrokenPipeError):
            process.communicate(text.encode(errors="replace"))
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def edit(path: str, editor: Sequence[str]) -> None:
    """Let the user edit a file.

    Raises:
        HeadraceError: ``unavailable`` if the editor cannot be run, or ends with an error.
    """
    try:
        ended = subprocess.run([*editor, path], check=False)  # noqa: S603  (the user's choice)
    except OSError as error:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f'editor "{editor[0]}" could not be run',
            detail=f"{error.strerror}.",
            hint="Set VISUAL or EDITOR.",
        ) from error
    if ended.returncode:
        raise HeadraceError(
            Code.UNAVAILABLE, f'editor "{editor[0]}" ended with {ended.returncode}; nothing is run'
        )


@contextmanager
def keys_unseen() -> Iterator[None]:
    """Turn off the echo of typed keys while a block redraws the screen."""
    try:
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (termios.error, OSError, ValueError):
        yield
        return
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(fd, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class ScreenArea:
    """Lines of the screen, redrawn at the same position from the cursor on."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines = 0
        self._size = size()

    def draw(self, lines: Sequence[str]) -> None:
        """Draw lines, none wider than the terminal; lines beyond its height are left out."""
        now = size()
        shown = lines[: now[1] - 1]
        if now != self._size:
            # The terminal has wrapped the lines differently, so their position is unknown.
            start, self._size = "\x1b[2J\x1b[H", now
        else:
            start = f"\x1b[{self._lines}F" if self._lines else "\r"
        self._out.write(start + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
        self._out.flush()
        self._lines = len(shown)
