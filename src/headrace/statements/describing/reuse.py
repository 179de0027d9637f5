"""What a view would take over of others when it is filled, for EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.parts.naming import shown_name
from headrace.runtime.shares import snapshot
from headrace.runtime.takeover import kept_views, sizes_in

if TYPE_CHECKING:
    from headrace.catalog import View
    from headrace.circuit import Circuit
    from headrace.engine.engine import Engine
    from headrace.parts.reader import Reader
    from headrace.runtime.epoch import EpochLoop


@dataclass(frozen=True, slots=True)
class ReusedState:
    """Finds state that the fill of a view would read in place of its inputs."""

    reader: Reader
    engine: Engine
    loop: EpochLoop

    def of(self, circuit: Circuit, build: View | None = None) -> str | None:
        """Return a sentence on it; None if the inputs would be read.

        The ``build`` is the one that would be filled, if it is known.
        """
        state, reads = self.reader.published, circuit.reads
        inputs = [state.catalog.by_id[id_] for id_ in sorted(reads)]
        shares = snapshot(self.reader.ledger, state, inputs, state.positions)
        if sum(share.rows for share in shares.values()) < self.loop.settings.reuse_rows:
            return None
        kept, sizes = kept_views(state, reads, build), sizes_in(state, shares)
        found = self.engine.restoring(circuit, kept, sizes)
        if found is None:
            return None
        taken, catalog = found.takeover, state.catalog
        rows, of = f"{taken.rows(state):,}", f"{sum(shares[id_].rows for id_ in taken.unread):,}"
        views = ", ".join(shown_name(catalog.by_id[id_], catalog) for id_ in taken.views)
        return f"Filled from {rows} rows of state of {views} in place of {of} rows of inputs."
