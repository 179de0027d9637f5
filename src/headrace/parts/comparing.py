"""Comparing views with their queries, which plain Spark batch runs over canonical history."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.circuit import Aggregate, Recompute
from headrace.engine.comparisons import EVERY_ROW, TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from headrace.engine.comparisons import Count, Sample
    from headrace.engine.engine import Engine
    from headrace.engine.queries import Queries
    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.runtime.step import Share
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Comparing:
    """Compares what a published state has stored of views with what their inputs' logs make them.

    It shares no code with the operators that maintain views. The logs are read up to where the
    state's epoch has read them.
    """

    reader: Reader
    engine: Engine
    queries: Queries

    def counted(
        self,
        views: Sequence[View],
        state: Published,
        samples: Mapping[RelationId, Sample] = MappingProxyType({}),
    ) -> list[Count]:
        """Compare views exactly, or samples of them, in one job.

        Raises:
            HeadraceError: if the query of one fails on the data.
        """
        return self.queries.counted(views, self._shares(views, state), state.clock, samples)

    def differing(
        self, view: View, state: Published, most: int, sample: Sample = EVERY_ROW
    ) -> pa.Table:
        """Return up to ``most`` rows that differ; ``__weight`` is the surplus of stored copies.

        Where floats may be sums, only rows that differ by more than the tolerance.
        """
        return self.queries.differences(
            view,
            self._shares([view], state),
            most,
            state.clock,
            sample,
            beyond_tolerance=self._adds_floats(view),
        )

    def _shares(self, views: Iterable[View], state: Published) -> dict[RelationId, Share]:
        """Return the stored contents of views, and the logs of all relations that they read."""
        reader, ids = self.reader, [view.id for view in views]
        return reader.shares(ids, state) | reader.logs(state.catalog.bases(ids), state)

    def _adds_floats(self, view: View) -> bool:
        """Return whether a view has floats that may be sums, of its own or of its inputs."""
        if not any(type(column.type) in TOLERANCE for column in view.schema.columns):
            return False
        return self._adds_up(view)

    def _adds_up(self, view: View) -> bool:
        nodes = self.engine.circuit(view).stateful()
        if any(isinstance(node, Aggregate | Recompute) for node in nodes):
            return True
        below = (self.reader.catalog.by_id[id_] for id_ in view.depends_on)
        return any(self._adds_up(each) for each in below if isinstance(each, View))
