"""The thread that runs statements, so that Ctrl-C cancels them instead of interrupting them.

Python raises KeyboardInterrupt anywhere in the main thread. So while a statement runs, the main
thread only waits and counts Ctrl-C: a commit or a call into the JVM is never interrupted, and no
call continues unnoticed.
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


T = TypeVar("T")

_LISTEN_SECONDS = 0.1
"""How long each wait of the main thread is: a signal that the system delivers to another thread
does not end the wait."""
_CANCEL_AGAIN_SECONDS = 0.3
_MOST_PRESSES = 3
"""The number of Ctrl-C after which the wait for a statement is abandoned."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed while a call ran, and the call has ended since.

    ``finished``: whether it succeeded nevertheless; then ``value`` is its result.
    """

    def __init__(self, *, finished: bool, value: Any = None) -> None:
        super().__init__()
        self.finished = finished
        self.value = value


class Abandoned(KeyboardInterrupt):
    """Ctrl-C was pressed so often that the wait was abandoned; the call may still be running."""


class Presses:
    """Counts Ctrl-C instead of raising it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        """Count one Ctrl-C."""
        self.count += 1


class StatementThread:
    """Runs calls one after another; the caller waits, and its wait can be interrupted."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        # A daemon, so that an abandoned statement does not keep the process alive.
        threading.Thread(target=self._run, name="statements", daemon=True).start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a call after those submitted before it; return its future."""
        future: Future[T] = Future()
        self._calls.put((future, function))
        return future

    def call(self, function: Callable[[], T], cancel: Callable[[], None] | None = None) -> T:
        """Run a call to its end and return its value, or raise its error; in the main thread.

        Raises:
            Interrupted: Ctrl-C was pressed, ``cancel`` was called, and the call has ended.
            Abandoned: Ctrl-C was pressed and the call has not ended.
        """
        presses = Presses()
        before = signal.signal(signal.SIGINT, presses)
        try:
            future = self.submit(function)
            self._wait(future, presses, cancel)
        finally:
            signal.signal(signal.SIGINT, before)
        if not presses.count:
            return future.result()
        if future.exception() is not None:
            raise Interrupted(finished=False) from future.exception()
        raise Interrupted(finished=True, value=future.result())

    def _wait(
        self, future: Future[Any], presses: Presses, cancel: Callable[[], None] | None
    ) -> None:
        handled, cancelling = 0, False
        while not future.done():
            wait([future], _LISTEN_SECONDS)
            if presses.count == handled or future.done():
                continue
            handled = presses.count
            if cancel is None or handled >= _MOST_PRESSES:
                raise Abandoned
            if handled == _MOST_PRESSES - 1:
                self._notice("still cancelling; press Ctrl-C once more to leave at once")
            if not cancelling:
                cancelling = True
                # In another thread, so that this one keeps counting Ctrl-C.
                threading.Thread(target=_until_ended, args=(future, cancel), daemon=True).start()

    def _run(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                value = function()
            except BaseException as error:  # noqa: BLE001  (raised in the waiting thread)
                future.set_exception(error)
            else:
                future.set_result(value)


def let_finish() -> None:
    """Do nothing: for calls too short to be cancelled."""


def _until_ended(future: Future[Any], cancel: Callable[[], None]) -> None:
    """Cancel repeatedly until the call has ended: a query that is being planned has no job yet.

    Errors of cancelling are ignored: the result of the statement itself is reported.
    """
    while not future.done():
        with suppress(Exception):
            cancel()
        wait([future], _CANCEL_AGAIN_SECONDS)
