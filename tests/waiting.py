"""Waiting for what a source or an epoch brings about on another thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import headrace

_SECONDS = 60


def until(met: Callable[[], bool], seconds: float = _SECONDS) -> None:
    """Wait until a condition is met, for some seconds at most."""
    ends = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < ends
        time.sleep(0.02)


def landed(db: headrace.Database, name: str, count: int) -> None:
    """Wait until a relation's log has as many changes, and they are readable."""
    relation = db.parts.reader.catalog.resolve(name)
    until(lambda: db.parts.ledger.head.log_end(relation.id) >= count)
    db.flush()
