"""Comparing what is stored with what plain Spark batch makes of canonical history."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from headrace.catalog import Stream, Table, View
from headrace.circuit import Aggregate, Recompute
from headrace.engine.comparisons import EVERY_ROW, TOLERANCE
from headrace.engine.queries import as_stored

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

Stored: TypeAlias = Table | View
"""What has stored rows."""


@dataclass(frozen=True, slots=True)
class Comparing:
    """Compares what a published state has stored with what logs make of it.

    Of a view, that is its query over the logs of its inputs; of a table, its log. The logs are read
    up to where the state's epoch has read them; of views that lag behind, up to where these stand.
    This shares no code with the operators.
    """

    reader: Reader
    engine: Engine
    queries: Queries

    def counted(
        self,
        relations: Sequence[Stored],
        state: Published,
        samples: Mapping[RelationId, Sample] = MappingProxyType({}),
    ) -> list[Count]:
        """Compare tables and views exactly, or samples of them, in one job.

        Raises:
            HeadraceError: if the query of one fails on the data.
        """
        found: dict[RelationId, Count] = {}
        for at, some in self._together(relations, state):
            counts = self.queries.counted(some, self._shares(some, at), at.clock, samples)
            found |= zip((each.id for each in some), counts, strict=True)
        return [found[each.id] for each in relations]

    def differing(
        self, relation: Stored, state: Published, most: int, sample: Sample = EVERY_ROW
    ) -> pa.Table:
        """Return up to ``most`` rows that differ; ``__weight`` is the surplus of stored copies.

        Where floats may be sums, only rows that differ by more than the tolerance.
        """
        ((at, _),) = self._together([relation], state)
        return self.queries.differences(
            relation,
            self._shares([relation], at),
            most,
            at.clock,
            sample,
            beyond_tolerance=isinstance(relation, View) and self._adds_floats(relation),
        )

    def _together(
        self, relations: Sequence[Stored], state: Published
    ) -> Iterator[tuple[Published, list[Stored]]]:
        """Yield what is compared in one state: views that lag behind each in its own."""
        maintained = [each for each in relations if each.id not in state.lagging]
        if maintained:
            yield state, maintained
        for each in relations:
            if isinstance(each, View) and each.id in state.lagging:
                yield self.reader.publisher.at_frontier(each), [each]

    def _shares(self, relations: Sequence[Stored], state: Published) -> dict[RelationId, Share]:
        """Return what is stored of relations, and the logs of all that they are made of.

        Of views that lag behind, and that these read, it is the stored contents that they read.
        """
        reader, catalog, ids = self.reader, state.catalog, [each.id for each in relations]
        below = {id_ for each in relations if isinstance(each, View) for id_ in each.inputs}
        near = catalog.shown_by(below, state.lagging)
        late = near.intersection(state.lagging)
        logs = {id_ for id_ in near if isinstance(catalog.by_id[id_], Stream | Table)}
        logs |= {each.id for each in relations if isinstance(each, Table)}
        stored = {as_stored(id_): share for id_, share in reader.shares(ids, state).items()}
        return stored | reader.shares(late, state) | reader.logs(logs, state)

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
