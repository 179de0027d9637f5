"""Running statements one by one, and showing what each answers as it finishes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from queue import Empty, Queue
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from headrace.cli.progress import ProgressBar
from headrace.cli.statement_thread import Interrupted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from headrace.cli.ports import Change, Database, Result
    from headrace.cli.printer import Printer
    from headrace.cli.statement_thread import StatementThread

_WAITING = 10_000
"""How many changes are read ahead of what is written."""
_AT_ONCE = 1000
_TOGETHER_SECONDS = 0.02
"""Changes that follow one another faster than this are laid out and written together."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Runs the statements of scripts against one database."""

    database: Database
    thread: StatementThread
    printer: Printer
    err: TextIO

    def run(self, text: str, file: str | None = None) -> None:
        """Run a script and show each result as it comes.

        Raises:
            HeadraceError: by the first statement that fails; those before it stand.
            KeyboardInterrupt: Ctrl-C was pressed; the rest of the script has not run.
        """
        bar = ProgressBar(self.err)
        results: Iterator[Result] | None = None

        def following() -> tuple[Result, Any] | None:
            nonlocal results
            if results is None:
                results = iter(self.database.script(text, file=file, progress=bar.update))
            result = next(results, None)
            if result is None:
                return None
            return result, result.to_arrow() if result.kind == "rows" else None

        while True:
            started = monotonic()
            try:
                with bar:
                    answer = self.thread.call(following, self.database.cancel)
            except Interrupted as interrupted:
                if interrupted.value is not None and interrupted.value[0].kind != "changes":
                    self._show(*interrupted.value, monotonic() - started)
                raise
            if answer is None:
                return
            self._show(*answer, monotonic() - started)

    def _show(self, result: Result, table: Any, seconds: float) -> None:
        if result.kind == "changes":
            self.printer.waiting()
            with closing(together(result, self.thread)) as batches:
                for changes in batches:
                    self.printer.changes(changes)
        elif table is not None:
            self.printer.rows(table, epoch=result.epoch, seconds=seconds)
        elif result.message:
            self.printer.message(result.message, seconds)


def together(result: Result, thread: StatementThread) -> Generator[list[Change]]:
    """Yield the changes of an answer as they come, those that come together in one list.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the answer is closed.
    """
    queue: Queue[Change | None] = Queue(_WAITING)

    def read() -> None:
        try:
            for change in result:
                queue.put(change)
        finally:
            queue.put(None)

    reading = thread.submit(read)
    ended = False
    try:
        while not ended:
            changes, ended = _next_changes(queue)
            if changes:
                yield changes
    finally:
        result.close()
        while not ended:
            _, ended = _next_changes(queue)
    thread.outcome(reading)


def _next_changes(queue: Queue[Change | None]) -> tuple[list[Change], bool]:
    """Wait for the next changes; say whether they are the last."""
    changes: list[Change] = []
    change = queue.get()
    while change is not None:
        changes.append(change)
        if len(changes) == _AT_ONCE:
            return changes, False
        try:
            change = queue.get(timeout=_TOGETHER_SECONDS)
        except Empty:
            return changes, False
    return changes, True
