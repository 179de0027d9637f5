"""Marking slices of views dirty, and with them what the views above show of these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.catalog import View
from headrace.ledger import Dirty, Repair, Slice
from headrace.parts.naming import HIDDEN
from headrace.runtime.dirty import EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.catalog import Catalog
    from headrace.history.slices import Slices
    from headrace.ledger import Ledger
    from headrace.runtime.epoch import EpochLoop
    from headrace.types import RelationId

THROUGH = "through"
"""The key of an origin with the name of the view through which an entry's view is dirty."""


@dataclass(frozen=True, slots=True)
class Marking:
    """Writes entries into the dirty ledger.

    The rows of a view above a dirty slice are what its query makes of that slice: they become right
    by the deltas of its repair. Their entries say so, and are removed with it.
    """

    ledger: Ledger
    loop: EpochLoop
    slices: Slices

    def entries(
        self, catalog: Catalog, found: Iterable[Dirty], origin: Mapping[str, Any]
    ) -> tuple[Dirty, ...]:
        """Return the entries of one event: those that are found, and those of the views above."""
        event = {**origin, EVENT: uuid4().hex}
        roots = {entry.view: replace(entry, origin=event) for entry in found}
        dirty: dict[RelationId, Dirty] = dict(roots)
        for view in catalog.views_in_order():
            below = [dirty[id_] for id_ in view.depends_on if id_ in dirty]
            if view.id in dirty or not below or view.name.startswith(HIDDEN):
                continue
            carried = [self._carried(catalog, entry, view) for entry in below]
            through = {THROUGH: catalog.by_id[below[0].view].name}
            dirty[view.id] = replace(
                below[0],
                view=view.id,
                slice=carried[0] if len(set(carried)) == 1 and len(below) == 1 else Slice(),
                origin={**event, **through},
                repair=Repair.DELTAS,
                cost=None,
                whole=None,
            )
        return tuple(dirty.values())

    def mark(
        self, catalog: Catalog, found: Iterable[Dirty], origin: Mapping[str, Any]
    ) -> tuple[Dirty, ...]:
        """Record the entries of one event, all or none, and return them; those found come first.

        The lock of epochs is held.
        """
        marked = self.ledger.mark_dirty(*self.entries(catalog, found, origin))
        self.loop.published.publish()
        return marked

    def _carried(self, catalog: Catalog, entry: Dirty, above: View) -> Slice:
        below = catalog.by_id[entry.view]
        if not isinstance(below, View):
            return Slice()
        return self.slices.carried(entry.slice, below, above)
