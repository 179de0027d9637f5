"""How far a long statement has come, on the terminal and only there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headrace.session import Progress


def status(text: str, stream: TextIO) -> AbstractContextManager[object]:
    """Show a line while a block runs, if the stream is a terminal."""
    if not stream.isatty():
        return ProgressBar(stream)
    return Console(file=stream).status(text)


class ProgressBar:
    """Shows progress while a block runs: nothing until some is reported, nothing afterwards."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def update(self, progress: Progress) -> None:
        """Show the latest report; may be called from another thread."""
        if not self._stream.isatty():
            return
        if self._bars is None:
            self._bars = _bars(self._stream)
            self._bars.start()
        task = self._tasks.get(progress.what)
        if task is None:
            task = self._tasks[progress.what] = self._bars.add_task(progress.what, count="")
        self._bars.update(
            task, completed=progress.done, total=progress.total, count=count_text(progress)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        bars, self._bars = self._bars, None
        self._tasks = {}
        if bars is not None:
            bars.stop()


def count_text(progress: Progress) -> str:
    """Return how much is done, such as ``1,200 of 3,000 rows, 2 rejected``."""
    measured = decimal if progress.unit == "bytes" else "{:,}".format
    done = measured(progress.done)
    if progress.total is not None:
        done += f" of {measured(progress.total)}"
    if progress.unit != "bytes":
        done += f" {progress.unit}"
    return f"{done}, {progress.rejected:,} rejected" if progress.rejected else done


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
