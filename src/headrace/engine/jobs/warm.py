"""A JVM that is ready for Spark while a process waits to take a database over."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headrace.engine.jobs.session import warm_up
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.engine.jobs.lease import SparkSettings

_log: Final = logging.getLogger(__name__)


_AFTER_SECONDS: Final = 10.0
"""A process that has just taken over, perhaps on the same machine, has the processors first."""


@contextmanager
def warm_while_waiting(
    waits: Callable[[HeadraceError], bool], settings: SparkSettings
) -> Iterator[Callable[[HeadraceError], bool]]:
    """Yield ``waits`` for a block, in which Spark is warmed up, in the background.

    That begins some seconds after ``waits`` was True for the first time.
    """
    begun, over = threading.Event(), threading.Event()

    def wait(error: HeadraceError) -> bool:
        if not waits(error):
            return False
        if not begun.is_set():
            begun.set()
            threading.Thread(
                target=_warm, args=(settings, over), name="headrace-spark-warm", daemon=True
            ).start()
        return True

    try:
        yield wait
    finally:
        over.set()


def _warm(settings: SparkSettings, over: threading.Event) -> None:
    if over.wait(_AFTER_SECONDS):
        return
    try:
        warm_up(settings)
    except HeadraceError as error:
        _log.warning("%s: taking over will fail likewise: %s", error.primary, error.detail)
