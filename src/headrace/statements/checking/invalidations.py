"""INVALIDATE: marks a slice of a view that a user reports as wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.errors import Code, HeadraceError, masked
from headrace.ledger import Dirty, RepairPath, Slice
from headrace.parts.naming import HIDDEN

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.history.changes import ChangeClassifier
    from headrace.history.marking import Marking
    from headrace.history.slices import Slices
    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader
    from headrace.runtime.epoch import EpochLoop
    from headrace.sql import Invalidate

INVALIDATED = "invalidated"
"""The cause of a dirty entry written by INVALIDATE."""


@dataclass(frozen=True, slots=True)
class Invalidations:
    """Marks slices of views dirty at a user's request."""

    reader: Reader
    loop: EpochLoop
    slices: Slices
    marking: Marking
    changes: ChangeClassifier
    principal: Principal

    def invalidate(self, statement: Invalidate) -> str:
        """Mark a slice of a view, and the affected slices of views above; return a message."""
        view = invalidated(self.reader.catalog, statement)
        slice_ = self.slices.read(view, statement.slice)
        if not statement.reason.strip():
            raise HeadraceError(
                Code.INVALID, "the reason is empty", hint="Say what is wrong.", span=statement.span
            )
        plan = self.changes.replays.plan(view, slice_)
        self.changes.replays.require_possible(view, slice_)  # or it would stay dirty
        origin = {
            "statement": masked(statement.span.source),
            "reason": statement.reason,
            **({} if self.principal.name is None else {"by": self.principal.name}),
        }
        with self.loop.between():
            catalog = self.reader.catalog
            if invalidated(catalog, statement) is not view:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'view "{view.name}" was replaced meanwhile',
                    hint="Run the statement again.",
                )
            entry = Dirty(
                view.id,
                INVALIDATED,
                time.time(),
                slice=slice_,
                repair=RepairPath.REPLAY,
                cost=plan.cost,
                whole=plan.whole,
            )
            marked = self.marking.mark(catalog, [entry], origin)
        self.changes.record(self.changes.of_slice(view, slice_), origin)
        above = [
            f"{catalog.by_id[e.view].name}{'' if e.slice == slice_ else ' (all rows)'}"
            for e in marked[1:]
        ]
        also = f"; so {'is' if len(above) == 1 else 'are'} {', '.join(above)}" if above else ""
        what = "all rows" if slice_ == Slice() else "a slice"
        return (
            f"{what} of view {view.name} {'are' if slice_ == Slice() else 'is'} dirty{also}: "
            f"to be recomputed from about {plan.cost:,} of {plan.whole:,} rows"
        )


def invalidated(catalog: Catalog, statement: Invalidate) -> View:
    """Return the view whose rows a statement invalidates."""
    found = catalog.resolve(statement.name.dotted, statement.name.span)
    if isinstance(found, View) and not found.name.startswith(HIDDEN):
        return found
    raise HeadraceError(
        Code.INVALID,
        f'"{found.name}" is a {found.kind}, not a materialized view',
        hint="Only the rows of materialized views are recomputed.",
        span=statement.name.span,
    )
