"""A JVM that is ready for Spark while a process waits to take a database over."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from headrace.engine.jobs.session import warm_up
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine.jobs.lease import SparkSettings

_log: Final = logging.getLogger(__name__)


def warm_while_waiting(
    waits: Callable[[HeadraceError], bool], settings: SparkSettings
) -> Callable[[HeadraceError], bool]:
    """Return ``waits``, which begins to warm Spark up when it is True for the first time."""
    begun = threading.Event()

    def wait(error: HeadraceError) -> bool:
        if not waits(error):
            return False
        if not begun.is_set():
            begun.set()
            threading.Thread(
                target=_warm, args=(settings,), name="headrace-spark-warm", daemon=True
            ).start()
        return True

    return wait


def _warm(settings: SparkSettings) -> None:
    try:
        warm_up(settings)
    except HeadraceError as error:
        _log.warning("%s: taking over will fail likewise: %s", error.primary, error.detail)
