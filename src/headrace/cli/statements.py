"""Running statements one by one, and showing what each answers as it finishes."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from headrace.cli.progress import ProgressBar
from headrace.cli.statement_thread import Interrupted, let_finish
from headrace.session import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cli.printer import Printer
    from headrace.cli.statement_thread import StatementThread
    from headrace.database import Database
    from headrace.session import Subscription

_POLL_SECONDS = 0.5
"""How long one wait for changes is: Ctrl-C is heeded between waits."""


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
        script: Iterator[Result | Subscription] | None = None

        def following() -> Result | Subscription | None:
            nonlocal script
            if script is None:
                script = self.database.script(text, file=file, progress=bar.update)
            return next(script, None)

        while True:
            started = monotonic()
            try:
                with bar:
                    answer = self.thread.call(following, self.database.cancel)
            except Interrupted as interrupted:
                self._show_finished(interrupted.value, started)
                raise
            if answer is None:
                return
            if isinstance(answer, Result):
                self._show(answer, monotonic() - started)
            else:
                self._follow(answer)

    def _show_finished(self, answer: Result | Subscription | None, started: float) -> None:
        """Show what was answered although Ctrl-C was pressed, as it cannot be undone."""
        if isinstance(answer, Result):
            self._show(answer, monotonic() - started)
        elif answer is not None:
            self.thread.call(answer.close)

    def _show(self, result: Result, seconds: float) -> None:
        if result.kind == "rows":
            self.printer.rows(result.to_arrow(), epoch=result.epoch, seconds=seconds)
        elif result.message:
            self.printer.message(result.message, seconds)

    def _follow(self, subscription: Subscription) -> None:
        """Show changes as they come, by whole epochs, until Ctrl-C."""
        self.printer.waiting()
        try:
            while True:
                changes = self.thread.call(lambda: subscription.poll(_POLL_SECONDS), let_finish)
                self.printer.changes(changes or [])
        finally:
            self.thread.call(subscription.close, let_finish)
