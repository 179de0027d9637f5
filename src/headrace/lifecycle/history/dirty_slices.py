"""The dirty ledger as one client may see it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.execution.runtime.dirty import EVENT
from headrace.lifecycle.history.slices import THROUGH
from headrace.lifecycle.states.stopped import stopped_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.history.amending import PendingVersions
    from headrace.planning.catalog import Relation
    from headrace.storage.ledger import Dirty, Ledger, Slice


@dataclass(frozen=True, slots=True)
class DirtySlice:
    """A dirty entry, its view, and its age in seconds.

    ``origin`` and ``detail`` may quote values of the inputs: they are None for a client that may
    not read all of the inputs.
    """

    relation: Relation
    entry: Dirty
    seconds: float
    origin: str | None
    detail: str | None


def dirty_slices(
    ledger: Ledger, pending: PendingVersions, state: Published, sees: Callable[[str], bool]
) -> Iterator[DirtySlice]:
    """Yield the dirty entries of the views that a client sees, oldest first.

    Includes entries of views that are stopped because a view below them is, and of views that
    pending versions are about to change.
    """
    catalog, now = state.catalog, time.time()
    stored = ledger.head.dirty
    listed = (*stored, *stopped_below(stored, catalog), *pending.entries(state))
    for entry in sorted(listed, key=lambda each: each.since):
        relation = catalog.by_id.get(entry.view)
        if relation is None or not sees(relation.name):
            continue
        whole = catalog.sees_all(sees, relation.id)
        yield DirtySlice(
            relation,
            entry,
            max(0.0, now - entry.since),
            origin_words(entry.origin) if whole else None,
            entry.detail or None if whole else None,
        )


def slice_words(slice_: Slice) -> str:
    """Return a slice in the syntax of statements; empty for all rows."""
    parts = [f"WHERE {slice_.where}"] if slice_.where else []
    if slice_.since is not None:
        at = datetime.fromtimestamp(slice_.since / 1_000_000, UTC).replace(tzinfo=None)
        parts.append(f"SINCE TIMESTAMP '{at}'")
    return " ".join(parts)


def origin_words(origin: Mapping[str, Any]) -> str | None:
    """Return what caused an entry; None if nothing is recorded."""
    given = {key: value for key, value in origin.items() if key != EVENT}
    words = [str(given.pop("statement"))] if "statement" in given else []
    by, through = given.pop("by", None), given.pop(THROUGH, None)
    given.pop("reason", None)  # part of the statement text
    words += [f"{key} {value}" for key, value in given.items()]
    words += [f"by {by}"] if by is not None else []
    words += [f"through view {through}"] if through is not None else []
    return ", ".join(words) or None
