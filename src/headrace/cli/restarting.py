"""A server starts again when Spark has ended: what it had planned ended with it.

Nothing is lost by that: clients go on by their tokens, and repeat what was not answered.
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
"""A server whose Spark ends earlier ends itself: it would happen again and again."""
_CLOSING_SECONDS: Final = 10.0
"""How long closing may take; afterwards, the server starts again as after a crash."""


class SparkLostError(HeadraceError):
    """Spark has ended by itself."""


class Restarts:
    """Starts a server again, as another process of the same command, when Spark has ended."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def is_early(self) -> bool:
        """Whether the server has begun so lately that it ends instead."""
        return time.monotonic() - self._begun < _LEAST_SECONDS

    @contextmanager
    def on_loss(self) -> Iterator[None]:
        """Start again when a block ends for a lost Spark.

        Raises:
            SparkLostError: if that is early.
        """
        try:
            yield
        except SparkLostError as error:
            if self.is_early:
                raise
            click.echo(f"{error.primary}: {error.detail} The server starts again.", err=True)
            _replace_process()

    @contextmanager
    def closing(self, lost: HeadraceError | None) -> Iterator[None]:
        """Start again if closing a server in a block takes too long after a loss of Spark."""
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
