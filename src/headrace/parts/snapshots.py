"""Runs queries by Spark once, on one published state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.parts.evaluating import Asked
from headrace.parts.system_relations import is_system

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.catalyst.analysed import Shape
    from headrace.errors import Span
    from headrace.parts.evaluating import Beside, Evaluator
    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Runs queries, each on one state, without holding a lock.

    ``sees`` decides by name which relations the information schema shows.
    """

    reader: Reader
    evaluator: Evaluator
    sees: Callable[[str], bool] = lambda _name: True

    def rows(
        self,
        span: Span,
        state: Callable[[Shape], Published],
        text: Callable[[Shape], str],
        also: tuple[RelationId, ...] = (),
    ) -> tuple[pa.Table, Published]:
        """Return a query's rows with Spark's types, and the state that they were read from.

        ``state`` waits for the state to read and returns it; ``text`` returns the text to run,
        which may extend the analysed one; ``also`` are relations that it may read besides those it
        names. If the catalog changes before Spark has resolved its names, the query is analysed
        again.
        """
        while True:
            planned = self.evaluator.planned(span)
            shape, catalog = planned.shape, planned.catalog
            found = state(shape)
            if found.catalog is not catalog:
                continue
            ids = frozenset((*shape.reads, *also))
            for id_ in ids:
                if not is_system(id_):
                    self.reader.require_running(catalog.by_id[id_], found)
            asked = Asked(found, shape.names, ids, self.sees, plan=planned.plan)
            rows = self.evaluator.rows(text(shape), asked)
            if rows is not None:
                return rows, found

    def rows_beside(
        self, span: Span, beside: Beside, state: Callable[[Shape], Published]
    ) -> tuple[pa.Table, Published] | None:
        """Return the rows of a query that also names tables visible to it alone.

        The state has the contents of these tables. None if the catalog has changed meanwhile.
        """
        planned = self.evaluator.planned_beside(span, beside)
        shape = planned.shape
        found, ids = state(shape), frozenset(shape.reads)
        asked = Asked(found, shape.names, ids, self.sees, beside, planned.plan)
        rows = self.evaluator.rows(span.source, asked)
        return None if rows is None else (rows, found)
