"""A child process: asked one thing at a time, and ended with all that it has started."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.errors import HeadraceError
from headrace.processes.messages import Cancel, Done, Failed, Needed
from headrace.runtime.cancelling import cancelled, check_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import Popen

_LISTEN_SECONDS: Final = 0.1
"""The interval at which a waiting thread checks whether its statement was cancelled."""

_SHOWN: Final = 2000
"""The most characters of a process's standard error that are shown."""
_FROM_OUTSIDE: Final = (signal.SIGKILL, signal.SIGTERM)


class EndedError(Exception):
    """The process has ended without an answer."""


class Child:
    """A Python process in its own session, and this process's end of the connection to it.

    It exits when this end is closed, so also when this process is killed. Processes that it starts,
    such as a JVM, are in its process group and are killed with it.
    """

    def __init__(self, process: Popen[bytes], connection: Connection, errors: Path) -> None:
        self._process = process
        self._connection = connection
        self._errors = errors
        self._killing = threading.Lock()
        self._unread = 0

    @classmethod
    def started(cls, module: str, errors: Path, *descriptors: int) -> Self:
        """Start a module as a process; its arguments are the descriptor of its end, and others.

        Standard error is written to the file ``errors``.
        """
        ours, theirs = socket.socketpair()
        with theirs, errors.open("wb") as written:
            inherited = (theirs.fileno(), *descriptors)
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", module, *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=written,
                pass_fds=inherited,
                start_new_session=True,
            )
        return cls(process, Connection(ours.detach()), errors)

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs. Its id is not reused until :meth:`kill` has been called."""
        with self._killing:
            if self._process.returncode is not None:
                return False
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, how) is None

    @property
    def ending(self) -> str:
        """Describe how the process ended: by which signal, or with which status.

        Its standard error is added unless it was killed by a signal.
        """
        status = self._process.returncode
        how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        if -status in _FROM_OUTSIDE:
            return how
        try:
            written = self._errors.read_text(errors="replace")[-_SHOWN:].strip()
        except OSError:
            return how
        return f"{how}: {written}" if written else how

    def begin(self, message: object) -> None:
        """Send a message whose answer nobody waits for: the next :meth:`ask` skips it.

        Raises:
            OSError: the process has ended.
        """
        self._connection.send(message)
        self._unread += 1

    def ask(
        self,
        message: object,
        grace: float,
        seconds: float = math.inf,
        give: Callable[[Any], object] | None = None,
    ) -> Any:
        """Send a message and return its answer; kill the process if it does not answer in time.

        What the process needs for it, ``give`` returns by its question.

        If this thread's statement is cancelled meanwhile, the question is cancelled; if no answer
        follows within ``grace`` seconds, the process is killed.

        Raises:
            HeadraceError: ``cancelled`` in that case.
            EndedError: the process has ended, or has not answered within ``seconds``.
        """
        until = time.monotonic() + seconds
        try:
            self._connection.send(message)
            while self._unread:
                self._await_answer(until, grace)
                self._connection.recv()
                self._unread -= 1
            while True:
                self._await_answer(until, grace)
                answer = self._connection.recv()
                if give is None or not isinstance(answer, Needed):
                    return answer
                self._connection.send(_given(give, answer.question))
        except (EOFError, OSError) as error:
            self.kill()
            raise EndedError from error

    def _await_answer(self, until: float, grace: float) -> None:
        """Return when there is an answer; as :meth:`ask`."""
        while not self._connection.poll(_LISTEN_SECONDS):
            if time.monotonic() > until:
                self.kill()  # so no answer was received
            try:
                check_cancelled()
            except HeadraceError:
                self._cancel(grace)
                raise

    def _cancel(self, grace: float) -> None:
        try:
            self._connection.send(Cancel())
            while self._connection.poll(grace):
                if not isinstance(self._connection.recv(), Needed):
                    return
                self._connection.send(Failed(cancelled()))
        except (EOFError, OSError):
            pass
        self.kill()

    def kill(self) -> None:
        """Kill the process and its whole group. Thread-safe.

        This end of the connection is closed when it is no longer referenced: another thread may be
        reading it.
        """
        with self._killing:
            if self._process.returncode is None:  # so the process id has not been reused
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def _given(give: Callable[[Any], object], question: object) -> Done | Failed:
    try:
        return Done(give(question))
    except HeadraceError as error:
        return Failed(error)
