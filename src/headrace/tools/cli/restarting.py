"""A server starts again when Spark has ended, or when another process has taken over.

What Spark had planned ended with it; and a server that may not write is only in the way: it keeps
clients, and executors that the other one needs. Nothing is lost by that: clients go on by their
tokens, and repeat what was not answered.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator


_LEAST_SECONDS: Final = 30.0
"""A server that has lost something earlier ends: it would happen again and again."""
_CLOSING_SECONDS: Final = 10.0
"""How long closing may take; afterwards, the server starts again as after a crash."""


class LostDatabaseError(HeadraceError):
    """The database has to be opened again."""


class Restarts:
    """Starts a server again, as another process of the same command, when it has lost something.

    With ``--standby``, it waits there for the end of a process that has taken over.
    """

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def is_early(self) -> bool:
        """Whether the server has begun so lately that it ends instead."""
        return time.monotonic() - self._begun < _LEAST_SECONDS

    @contextmanager
    def on_loss(self) -> Iterator[None]:
        """Start again when a block ends for a loss.

        Raises:
            LostDatabaseError: if that is early.
        """
        try:
            yield
        except LostDatabaseError as error:
            if self.is_early:
                raise
            click.echo(f"{error.primary}: {error.detail} The server starts again.", err=True)
            _replace_process()

    @contextmanager
    def closing(self, lost: HeadraceError | None) -> Iterator[None]:
        """Start again if closing a server in a block takes too long after a loss."""
        late = threading.Timer(_CLOSING_SECONDS, _replace_process)
        late.daemon = True
        if lost is not None and not self.is_early:
            late.start()
        try:
            yield
        finally:
            late.cancel()


def _replace_process() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
