"""The progress of long statements, shown only on terminals."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.session import Progress


_DELAY_SECONDS = 0.7
"""After how long a running statement is shown as such, and a rate is meaningful."""


@contextmanager
def status(text: str, stream: TextIO) -> Iterator[None]:
    """Show a line with the elapsed time while a block runs, if the stream is a terminal."""
    if not stream.isatty():
        yield
        return
    with _spinner(stream) as bars:
        bars.add_task(text, total=None)
        yield


class ProgressBar:
    """Shows the reported progress while a block runs, and removes it afterwards.

    If nothing is reported for a moment, it shows that a statement runs, and for how long.
    """

    def __init__(self, stream: TextIO, *, shown: bool = True) -> None:
        self._stream = stream
        self._shown = shown and stream.isatty()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
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
            task = self._tasks.get(progress.what)
            if task is None:
                bars = self._start(_bars(self._stream))
                task = self._tasks[progress.what] = bars.add_task(progress.what, count="")
            if self._bars is not None:
                shown = count_text(progress, monotonic() - self._began)
                self._bars.update(task, completed=progress.done, total=progress.total, count=shown)

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
            bars, self._bars = self._bars, None
            self._tasks = {}
        if bars is not None:
            bars.stop()

    def _show_running(self) -> None:
        with self._changing:
            if self._delay is not None and self._bars is None:
                self._start(_spinner(self._stream)).add_task("running; Ctrl-C cancels")

    def _start(self, bars: Bars) -> Bars:
        """Show bars in place of the spinner of :meth:`_show_running`."""
        if self._tasks and self._bars is not None:
            return self._bars
        if self._bars is not None:
            self._bars.stop()
        self._bars = bars
        bars.start()
        return bars


def count_text(progress: Progress, seconds: float = 0.0) -> str:
    """Return the work done so far, such as ``1,200 of 3,000 rows, 2 rejected``.

    After some ``seconds``, the rate is added and, if the total is known, the remaining time.
    """
    measured = decimal if progress.unit == "bytes" else "{:,}".format
    done = measured(progress.done)
    if progress.total is not None:
        done += f" of {measured(progress.total)}"
    if progress.unit != "bytes":
        done += f" {progress.unit}"
    if progress.rejected:
        done += f", {progress.rejected:,} rejected"
    if seconds < _DELAY_SECONDS or progress.done <= 0:
        return done
    rate = progress.done / seconds
    unit = "/s" if progress.unit == "bytes" else f" {progress.unit}/s"
    done += f", {measured(int(rate))}{unit}"
    if progress.total is None or progress.done >= progress.total:
        return done
    return f"{done}, {_clock((progress.total - progress.done) / rate)} left"


def _clock(seconds: float) -> str:
    """Return a duration such as ``0:05`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _bars(stream: TextIO) -> Bars:
    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )


def _spinner(stream: TextIO) -> Bars:
    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )
