"""Comparing views with their queries, which plain Spark batch runs over canonical history."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.catalog import Stream, Table, View
from headrace.circuit import Aggregate, Recompute
from headrace.engine.comparisons import EVERY_ROW, TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    state's epoch has read them; of views that lag behind, up to where these stand.
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
        found: dict[RelationId, Count] = {}
        for at, some in self._together(views, state):
            counts = self.queries.counted(some, self._shares(some, at), at.clock, samples)
            found |= zip((view.id for view in some), counts, strict=True)
        return [found[view.id] for view in views]

    def differing(
        self, view: View, state: Published, most: int, sample: Sample = EVERY_ROW
    ) -> pa.Table:
        """Return up to ``most`` rows that differ; ``__weight`` is the surplus of stored copies.

        Where floats may be sums, only rows that differ by more than the tolerance.
        """
        ((at, _),) = self._together([view], state)
        return self.queries.differences(
            view,
            self._shares([view], at),
            most,
            at.clock,
            sample,
            beyond_tolerance=self._adds_floats(view),
        )

    def _together(
        self, views: Sequence[View], state: Published
    ) -> Iterator[tuple[Published, list[View]]]:
        """Yield views that are compared in one state: those that lag behind each in its own."""
        maintained = [view for view in views if view.id not in state.lagging]
        if maintained:
            yield state, maintained
        for view in views:
            if view.id in state.lagging:
                yield self.reader.publisher.at_frontier(view), [view]

    def _shares(self, views: Sequence[View], state: Published) -> dict[RelationId, Share]:
        """Return the stored contents of views, and the logs of all relations that they read.

        Of views that lag behind, and that these read, it is the stored contents that they read.
        """
        reader, catalog, ids = self.reader, state.catalog, {view.id for view in views}
        near = catalog.shown_by({i for v in views for i in v.inputs}, state.lagging)
        late = near.intersection(state.lagging)
        logs = (i for i in near if isinstance(catalog.by_id[i], Stream | Table))
        return reader.shares(ids | late, state) | reader.logs(logs, state)

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
