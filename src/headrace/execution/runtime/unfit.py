"""Views that cannot be run as they are stored are found when they are first planned, and stop.

The query of such a view can no longer be planned, or its stored state belongs to another circuit
than this version plans. Only that view and those above it stop: others are maintained.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headrace.execution.runtime.published import STOPPED
from headrace.storage.ledger import Dirty

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.errors import HeadraceError
    from headrace.execution.runtime.stages import Performer
    from headrace.storage.ledger import Ledger
    from headrace.types import RelationId


UNFIT: Final = "unfit"
"""The key in the origin of such a view's dirty entry; its value is the code of the error."""


def stop_unfit(
    loop: Performer,
    changed: AbstractSet[RelationId],
    without: AbstractSet[RelationId],
    *,
    few: bool = False,
) -> bool:
    """Plan the views that changes can reach, and stop those that cannot be run.

    Views in ``without`` and those above are left out; see :meth:`StepRunner.unfit` for ``few``.
    Returns whether a view stopped. The lock of epochs is held for that.
    """
    errors = loop.runner.unfit(frozenset(changed), frozenset(without), few=few)
    if errors:
        with loop.lock:
            for id_, error in errors.items():
                mark_unfit(loop.ledger, id_, error)
            loop.published.publish()
    return bool(errors)


def mark_unfit(ledger: Ledger, view: RelationId, error: HeadraceError) -> None:
    """Mark a view as stopped because it cannot be run as it is stored."""
    head = ledger.head
    stands = head.frontier(head.serving(view)).epoch
    after = head.epoch if stands is None else stands
    origin = {UNFIT: error.code.value}
    ledger.dirty.mark(Dirty(view, STOPPED, time.time(), str(error), after, origin=origin))


def resume_fitting(ledger: Ledger) -> None:
    """Let views that stopped as unfit be planned again, unless epochs were made without them.

    Called when a database is opened: this may be the version that stored them.
    """
    head = ledger.head
    for entry in head.dirty:
        if UNFIT in entry.origin and entry.after == head.epoch:
            ledger.dirty.clear(entry.view, STOPPED)
