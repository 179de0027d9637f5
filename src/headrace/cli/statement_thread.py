"""The thread that statements run on, so that Ctrl-C asks them to stop and never tears them.

Python raises Ctrl-C in the main thread, wherever that happens to be. While a call runs, the main
thread only waits and counts: a commit, or a call into the JVM, is not cut in two, and no call is
left running unseen.
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
"""How long the main thread waits at a stretch: a signal that the system hands to another thread
does not wake it."""
_CANCEL_AGAIN_SECONDS = 0.3
_PATIENCE = 3
"""How many times Ctrl-C is pressed until a statement that will not stop is left behind."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed while a call ran, and the call has ended since.

    ``finished`` says whether it ended well all the same; ``value`` is then what it returned.
    """

    def __init__(self, *, finished: bool, value: Any = None) -> None:
        super().__init__()
        self.finished = finished
        self.value = value


class Abandoned(KeyboardInterrupt):
    """Ctrl-C was pressed until the wait was given up; the call may still be running."""


class Presses:
    """Counts Ctrl-C instead of raising it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        """Count one."""
        self.count += 1


class StatementThread:
    """Runs calls one after another; the caller waits, and can be interrupted while it does."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        # A daemon: a statement that is left behind does not keep the process alive.
        threading.Thread(target=self._run, name="statements", daemon=True).start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Begin a call as soon as those before it have ended."""
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
        heeded, cancelling = 0, False
        while not future.done():
            wait([future], _LISTEN_SECONDS)
            if presses.count == heeded or future.done():
                continue
            heeded = presses.count
            if cancel is None or heeded >= _PATIENCE:
                raise Abandoned
            if heeded == _PATIENCE - 1:
                self._notice("still cancelling; press Ctrl-C once more to leave at once")
            if not cancelling:
                cancelling = True
                # Beside, so that this thread goes on listening to Ctrl-C.
                threading.Thread(target=_until_ended, args=(future, cancel), daemon=True).start()

    def _run(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                value = function()
            except BaseException as error:  # noqa: BLE001  (it is raised where it is waited for)
                future.set_exception(error)
            else:
                future.set_result(value)


def let_finish() -> None:
    """Cancel nothing: a short call is let finish."""


def _until_ended(future: Future[Any], cancel: Callable[[], None]) -> None:
    """Cancel until the call has ended: while a query is planned, there is no job to cancel yet.

    Where cancelling fails, the statement's own end is what is reported.
    """
    while not future.done():
        with suppress(Exception):
            cancel()
        wait([future], _CANCEL_AGAIN_SECONDS)
