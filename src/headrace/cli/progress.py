"""The progress of long statements, shown only on terminals."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Self, TextIO

from rich.cells import set_cell_size
from rich.filesize import decimal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.session import Progress


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
