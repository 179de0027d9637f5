"""Runs statements one by one, and shows each result when its statement finishes."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.results import Subscription
from headrace.tools.cli.live import LiveTable
from headrace.tools.cli.statement_thread import Interrupted, let_finish
from headrace.tools.cli.terminal import ProgressBar, ScreenArea, keys_unseen, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.execution.serving import Change
    from headrace.interfaces.connecting import AnyDatabase
    from headrace.interfaces.statements.results import Result
    from headrace.tools.cli.printer import Printer
    from headrace.tools.cli.statement_thread import StatementThread


_POLL_SECONDS = 0.5
"""How long one wait for changes is; Ctrl-C is handled between waits."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Runs the statements of scripts against one database."""

    database: AnyDatabase
    thread: StatementThread
    printer: Printer
    err: TextIO

    def run(self, text: str, file: str | None = None, *, once: bool = True) -> None:
        """Run a script and show each result when it is available.

        ``once`` is false for a script that is run repeatedly: it shows no progress and cannot
        follow changes.

        Raises:
            HeadraceError: of the first statement that fails; those before it have taken effect.
            KeyboardInterrupt: Ctrl-C was pressed; the rest of the script has not run.
        """
        bar = ProgressBar(self.err, shown=once)
        script: Iterator[Result] | None = None

        def following() -> Result | None:
            nonlocal script
            if script is None:
                script = self.database.results(text, file=file, progress=bar.update)
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
            if not isinstance(answer, Subscription):
                self._show(answer, monotonic() - started)
            elif once:
                self._follow(answer)
            else:
                self.thread.call(answer.close, let_finish)
                raise HeadraceError(
                    Code.INVALID,
                    "a statement that follows changes cannot be watched",
                    hint=r"It shows changes by itself: run it without \watch, with \live on.",
                )

    def _show_finished(self, answer: Result | None, started: float) -> None:
        """Show the result of a statement that finished although Ctrl-C was pressed."""
        if isinstance(answer, Subscription):
            self.thread.call(answer.close)
        elif answer is not None:
            self._show(answer, monotonic() - started)

    def _show(self, result: Result, seconds: float) -> None:
        show(result, self.printer, seconds)

    def _follow(self, subscription: Subscription) -> None:
        """Show changes as they arrive, by whole epochs, until Ctrl-C or the query's own end."""
        printer = self.printer
        try:
            if printer.display.live and printer.display.chosen.for_people and printer.on_terminal:
                self._redraw(subscription)
            else:
                printer.waiting()
                while subscription.is_open:
                    printer.changes(self._changes(subscription))
        finally:
            self.thread.call(subscription.close, let_finish)

    def _redraw(self, subscription: Subscription) -> None:
        table, place = LiveTable(subscription.columns), ScreenArea(self.printer.out)
        with keys_unseen():
            while True:
                place.draw(table.lines(self.printer.look, size()[1] - 1))
                changes: list[Change] = []
                while subscription.is_open and not changes:
                    changes = self._changes(subscription)
                if not changes:
                    return
                table.apply(changes)

    def _changes(self, subscription: Subscription) -> list[Change]:
        try:
            return self.thread.call(lambda: subscription.poll(_POLL_SECONDS), let_finish) or []
        except Interrupted as interrupted:
            # Following has no result, so there is nothing to show as finished.
            raise KeyboardInterrupt from interrupted


def show(result: Result, printer: Printer, seconds: float) -> None:
    """Show a result that took some seconds."""
    if result.kind == "rows":
        printer.rows(
            result.to_arrow(), epoch=result.epoch, seconds=seconds, freshness=result.freshness
        )
    elif result.message:
        printer.message(result.message, seconds)
