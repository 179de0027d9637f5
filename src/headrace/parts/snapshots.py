"""Queries that Spark evaluates once, on one published state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Table, View
from headrace.parts.information_schema import is_system, system_relations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from headrace.catalyst.analysed import Analysed
    from headrace.engine.engine import Engine
    from headrace.engine.queries import Queries
    from headrace.errors import Span
    from headrace.parts.information_schema import InformationSchema
    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Runs queries, each on one state. No lock is held while one runs."""

    reader: Reader
    engine: Engine
    queries: Queries
    information: InformationSchema

    def rows(
        self,
        span: Span,
        state: Callable[[Analysed], Published],
        text: Callable[[Analysed], str],
        also: tuple[RelationId, ...] = (),
    ) -> tuple[pa.Table, Published]:
        """Return a query's rows with Spark's types, and the state from which they were read.

        ``state`` waits for, and returns, the state that the query reads; ``text`` returns the text
        to run, which may add to the analysed one; ``also`` are relations that it may read beside
        those it names. If the catalog changes before Spark has resolved its names, the query is
        analysed again.
        """
        while True:
            with self.engine.planning:
                catalog = self.reader.catalog
                analysed = self.engine.planner.analyse(span, once=True)
            found = state(analysed)
            if found.catalog is not catalog:
                continue
            ids = {*analysed.reads, *also}
            for id_ in ids:
                if not is_system(id_):
                    self.reader.require_running(catalog.by_id[id_], found)
            with self.engine.planning:
                if self.reader.catalog is not catalog:
                    continue
                self._gather(analysed.names, found)
                prepared = self.queries.prepared(text(analysed))
            rows = None
            if ids == {*analysed.names} and len(ids) == 1:
                relation = catalog.by_id.get(*ids)
                if isinstance(relation, Table | View):
                    contents = self.reader.contents(found, relation)
                    rows = self.queries.pulled(prepared, relation, contents)
            if rows is None:
                rows = self.queries.rows(prepared, self.reader.shares(ids, found))
            return rows, found

    def _gather(self, names: Iterable[RelationId], state: Published) -> None:
        """Fill the named relations of the information schema, if there are any."""
        asked = set(names)
        for relation in system_relations():
            if relation.id in asked:
                self.queries.provide(relation, self.information.rows(state, relation))
