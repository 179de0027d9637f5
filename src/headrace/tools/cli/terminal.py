"""The terminal: its size, pager and editor, and an area of lines that are redrawn.

The progress of long statements, shown only on terminals.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Self, TextIO

from rich.cells import set_cell_size
from rich.filesize import decimal

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.interfaces.session import Progress


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


_DELAY_SECONDS = 0.7
"""The delay before a running statement is shown."""
_FRAME_SECONDS = 0.1
_BAR_CELLS = 30
_ERASE = "\r\x1b[2K"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class StatusLine:
    """A line at the bottom of a terminal, redrawn with the elapsed time, then erased.

    It never ends with a line break, so it leaves nothing in the terminal's history. It is written
    to a duplicated descriptor, because starting Spark redirects standard error meanwhile.
    """

    def __init__(self, stream: TextIO, text: str, began: float) -> None:
        stream.flush()
        self._terminal = os.dup(stream.fileno())
        self._text = text
        self._began = began
        self._frame = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="status", daemon=True)

    def show(self, text: str) -> None:
        """Show another text from the next frame on; may be called from any thread."""
        self._text = text

    def start(self) -> None:
        """Show the line until :meth:`stop`."""
        self._write(_HIDE_CURSOR)
        self._thread.start()

    def stop(self) -> None:
        """Erase the line."""
        self._ended.set()
        self._thread.join()
        self._write(_ERASE + _SHOW_CURSOR)
        os.close(self._terminal)

    def _redraw(self) -> None:
        while True:
            frame = _FRAMES[self._frame % len(_FRAMES)]
            line = f"{frame} {self._text} {_clock(monotonic() - self._began)}"
            self._write(_ERASE + set_cell_size(line, _width(self._terminal)).rstrip())
            self._frame += 1
            if self._ended.wait(_FRAME_SECONDS):
                return

    def _write(self, text: str) -> None:
        # A terminal that is closed meanwhile ends the command by its own signal.
        with suppress(OSError):
            os.write(self._terminal, text.encode())


@contextmanager
def status(text: str, stream: TextIO) -> Iterator[None]:
    """Show a line with the elapsed time while a block runs, if the stream is a terminal."""
    if not stream.isatty():
        yield
        return
    line = StatusLine(stream, text, monotonic())
    line.start()
    try:
        yield
    finally:
        line.stop()


class ProgressBar:
    """Shows the reported progress while a block runs, and removes it afterwards.

    If nothing is reported for a moment, it shows that a statement runs, and for how long.
    """

    def __init__(self, stream: TextIO, *, shown: bool = True) -> None:
        self._stream = stream
        self._shown = shown and stream.isatty()
        self._line: StatusLine | None = None
        self._changing = threading.Lock()
        self._delay: threading.Timer | None = None
        self._began = 0.0

    def update(self, progress: Progress) -> None:
        """Show the latest report; may be called from another thread."""
        if not self._shown:
            return
        with self._changing:
            if self._delay is None:
                return
            self._delay.cancel()
            self._show(progress_text(progress))

    def __enter__(self) -> Self:
        if self._shown:
            self._began = monotonic()
            self._delay = threading.Timer(_DELAY_SECONDS, self._show_running)
            self._delay.daemon = True
            self._delay.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing:
            if self._delay is not None:
                self._delay.cancel()
            self._delay = None
            line, self._line = self._line, None
        if line is not None:
            line.stop()

    def _show_running(self) -> None:
        with self._changing:
            if self._delay is not None and self._line is None:
                self._show("running; Ctrl-C cancels")

    def _show(self, text: str) -> None:
        if self._line is not None:
            self._line.show(text)
            return
        self._line = StatusLine(self._stream, text, self._began)
        self._line.start()


def progress_text(progress: Progress) -> str:
    """Return the work done, with a bar and the share done if the total is known."""
    if not progress.unit:
        return f"{progress.what}…"
    shown = [progress.what, count_text(progress)]
    if progress.total:
        full = min(_BAR_CELLS, _BAR_CELLS * progress.done // progress.total)
        shown.insert(1, "━" * full + "─" * (_BAR_CELLS - full))
    return " ".join(shown)


def count_text(progress: Progress) -> str:
    """Return the work done so far, such as ``1,200 of 3,000 rows, 2 rejected``.

    The rate and the remaining time are added if they are known.
    """
    measured = decimal if progress.unit == "bytes" else "{:,}".format
    done = measured(progress.done)
    if progress.total is not None:
        done += f" of {measured(progress.total)}"
    if progress.unit != "bytes":
        done += f" {progress.unit}"
    if progress.rejected:
        done += f", {progress.rejected:,} rejected"
    if progress.rate is None:
        return done
    unit = "/s" if progress.unit == "bytes" else f" {progress.unit}/s"
    done += f", {measured(int(progress.rate))}{unit}"
    return f"{done}, {_clock(progress.seconds_left)} left" if progress.seconds_left else done


def _clock(seconds: float) -> str:
    """Return a duration such as ``0:05`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _width(terminal: int) -> int:
    """Return how many cells of a line can be used without a wrap to the next one."""
    with suppress(OSError):
        return max(1, os.get_terminal_size(terminal).columns - 1)
    return 79
