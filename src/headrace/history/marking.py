"""Marks slices of views dirty, together with the dependent slices of the views above."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.history.slices import carried
from headrace.ledger import Dirty, RepairPath, Slice
from headrace.parts.naming import HIDDEN
from headrace.runtime.dirty import EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.catalog import Catalog
    from headrace.engine.engine import Engine
    from headrace.ledger import Ledger
    from headrace.runtime.epoch import EpochLoop
    from headrace.types import RelationId

THROUGH = "through"
"""The key in an origin for the name of the dirty view below that the entry derives from."""


@dataclass(frozen=True, slots=True)
class Marking:
    """Writes entries into the dirty ledger.

    A view above a dirty slice is corrected by the deltas of the slice's repair. Its entry says so,
    and is removed in the same commit.
    """

    ledger: Ledger
    loop: EpochLoop
    engine: Engine

    def entries(
        self, catalog: Catalog, found: Iterable[Dirty], origin: Mapping[str, Any]
    ) -> tuple[Dirty, ...]:
        """Return the entries of one event: the given ones, and derived ones for the views above."""
        event = {**origin, EVENT: uuid4().hex}
        roots = {entry.view: replace(entry, origin=event) for entry in found}
        return tuple(with_above(self.engine, catalog, roots).values())

    def mark(
        self, catalog: Catalog, found: Iterable[Dirty], origin: Mapping[str, Any]
    ) -> tuple[Dirty, ...]:
        """Record the entries of one event in one transaction; return them, the given ones first.

        The caller holds the lock of epochs.
        """
        marked = self.ledger.dirty.mark(*self.entries(catalog, found, origin))
        self.loop.published.publish()
        return marked


def with_above(
    engine: Engine, catalog: Catalog, roots: Mapping[RelationId, Dirty]
) -> dict[RelationId, Dirty]:
    """Return the entries of one event by relation: the given ones and those of the views above."""
    dirty = dict(roots)
    for view in catalog.views_in_order():
        below = [dirty[id_] for id_ in view.depends_on if id_ in dirty]
        if view.id in dirty or not below or view.name.startswith(HIDDEN):
            continue
        slices = {carried(engine, e.slice, catalog.by_id[e.view], view) for e in below}
        through = {THROUGH: catalog.by_id[below[0].view].name}
        dirty[view.id] = replace(
            below[0],
            view=view.id,
            slice=slices.pop() if len(below) == 1 else Slice(),
            origin={**below[0].origin, **through},
            repair=RepairPath.DELTAS,
            cost=None,
            whole=None,
        )
    return dirty
