"""Evaluates the queries of statements by Spark, on one published state.

The sizes of stored contents, without reading more than a little.

Runs queries by Spark once, on one published state.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.reading.pulls import Prepared
from headrace.lifecycle.states.plain_queries import planned_plainly
from headrace.lifecycle.states.system_relations import is_system
from headrace.planning.catalog import Stream, title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from headrace.errors import Span
    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.runtime.published import Published
    from headrace.execution.serving import Contents
    from headrace.lifecycle.states.reader import Reader
    from headrace.lifecycle.states.system_relations import SystemRows
    from headrace.planning.catalog import Catalog, Relation, Table, View
    from headrace.planning.catalyst.analysed import Analysed, Shape
    from headrace.storage.log import Events
    from headrace.types import RelationId


_MOST_UNREAD_BYTES: Final = 64 << 20
"""The maximum bytes of unread files that are read to count a relation's rows."""


def row_count(state: Published, relation: Relation, directory: Path) -> int | None:
    """Return the row count of a table or view; None if counting would read too many bytes.

    ``directory`` is the data directory. Damaged files are not counted either.
    """
    if state.unread_bytes(relation, directory) > _MOST_UNREAD_BYTES:
        return None
    try:
        return state.spine(relation, directory).weight
    except HeadraceError as error:
        if error.code is not Code.CORRUPT:
            raise
        return None


@dataclass(frozen=True, slots=True)
class Beside:
    """Tables visible to one query only, and a catalog with these tables added."""

    tables: tuple[Table, ...]
    catalog: Catalog
    added: Catalog


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """The shape of a query, and the catalog in which its names were resolved.

    ``plan`` is how its evaluator runs the query once, if that is known already.
    """

    catalog: Catalog
    shape: Shape
    plan: object = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query reads: relations of one state.

    ``names`` are the relations in its text, ``ids`` those whose contents it reads. ``sees`` decides
    by name which relations the information schema shows. ``beside`` are tables visible to this
    query only, which the state's catalog has as well. ``plan`` is that of :class:`PlannedQuery`.
    """

    state: Published
    names: tuple[RelationId, ...]
    ids: frozenset[RelationId]
    sees: Callable[[str], bool] = lambda _name: True
    beside: Beside | None = None
    plan: object = None

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations of the catalog that the query reads."""
        by_id = self.state.catalog.by_id
        return tuple(by_id[id_] for id_ in sorted(self.ids) if id_ in by_id)

    def indexed(self, reader: Reader) -> list[View]:
        """Return the indexes of the only relation that the query reads, if there is only one."""
        return reader.indexes(self.state, *self.relations) if len(self.relations) == 1 else []


class Evaluator(Protocol):
    """Plans and evaluates queries. Thread-safe."""

    def planned(self, query: Span) -> PlannedQuery:
        """Plan a query with the present meaning of names.

        Raises:
            HeadraceError: at the place in the query, if it cannot be run.
        """
        ...

    def planned_beside(self, query: Span, beside: Beside) -> PlannedQuery:
        """Plan a query that also names tables visible to it alone."""
        ...

    def try_planning(self, query: Span) -> None:
        """Plan a query in a process that may fail, before the process that makes epochs plans it.

        Errors of the query itself are not raised here.

        Raises:
            HeadraceError: ``unsupported`` if planning it needs too much memory; ``cancelled``.
        """
        ...

    def rows(self, text: str, asked: Asked) -> pa.Table | None:
        """Return a query's rows with Spark's types; None if the catalog has changed meanwhile.

        Raises:
            HeadraceError: if it fails on the data.
        """
        ...

    def computed(self, rows: pa.Table, expressions: list[str], source: str) -> pa.Table:
        """Return the values of expressions over some rows; see :meth:`Queries.computed`."""
        ...


@dataclass(frozen=True, slots=True)
class OwnEvaluator:
    """Evaluates queries by the Spark session that makes epochs."""

    reader: Reader
    engine: Engine
    queries: Queries
    information: SystemRows

    def planned(self, query: Span) -> PlannedQuery:
        """Plan a query: a plain one without Spark, and others, if their shape is not known, by it.

        The lock of planning is held while Spark plans.
        """
        plans, catalog = self.queries.plans, self.reader.catalog
        plain = planned_plainly(query.source, catalog)
        if plain is not None:
            return PlannedQuery(catalog, *plain)
        known = plans.shape(query.source, catalog)
        if known is not None:
            return PlannedQuery(catalog, known)
        with self.engine.planning:
            catalog, changes = self.reader.catalog, plans.changes
            shape, prepared = self.queries.planned(query)
        plans.keep_shape(query.source, catalog, shape, changes)
        return PlannedQuery(catalog, shape, prepared)

    def planned_beside(self, query: Span, beside: Beside) -> PlannedQuery:
        """Plan a query that also names tables visible to it alone."""
        with self.engine.beside(beside.tables), self._declared(beside):
            return PlannedQuery(beside.catalog, *self.queries.planned(query))

    @contextmanager
    def _declared(self, beside: Beside | None) -> Iterator[None]:
        tables = () if beside is None else beside.tables
        for table in tables:
            self.queries.declare(table)
        try:
            yield
        finally:
            for table in tables:
                self.queries.forget(table)

    def try_planning(self, query: Span) -> None:
        """Do nothing: this is the process that makes epochs."""

    def rows(self, text: str, asked: Asked) -> pa.Table | None:
        """Return a query's rows; no lock is held while the query runs."""
        if asked.beside is not None and self.reader.catalog is not asked.beside.catalog:
            return None
        state, by_id = asked.state, asked.state.catalog.by_id
        prepared = self.queries.plans.find(text)
        if isinstance(asked.plan, Prepared) and asked.plan.text == text:
            prepared = asked.plan
        while True:
            prepared = prepared or self._prepared(text, asked)
            if prepared is None:
                return None
            rows = self.queries.answer(
                prepared,
                asked.relations,
                lambda id_: self.reader.rows(state, by_id[id_]),
                lambda: self.reader.shares(asked.ids, state),
                self._indexes(asked),
            )
            if rows is not None:
                return rows
            prepared = None

    def _prepared(self, text: str, asked: Asked) -> Prepared | None:
        """Return a query that is planned once more; None if names have another meaning by now."""
        with self.engine.planning, self._declared(asked.beside):
            known = asked.state.catalog if asked.beside is None else asked.beside.catalog
            if self.reader.catalog is not known:
                return None
            for relation, given in self.information.named(asked.state, asked.names, asked.sees):
                self.queries.provide(relation, given)
            return self.queries.prepared(text)

    def computed(self, rows: pa.Table, expressions: list[str], source: str) -> pa.Table:
        """Return the values of expressions over some rows."""
        return self.queries.computed(rows, expressions, source)

    def _indexes(self, asked: Asked) -> list[Contents]:
        """Return the contents of the indexes, if the query reads a single relation."""
        return [self.reader.contents(asked.state, view) for view in asked.indexed(self.reader)]

    def _opened(self, prepared: Prepared, events: Events) -> str:
        """Return how many of the segments of a stream are opened."""
        extent, opened = events.extent, 0
        total = self.reader.ledger.log.count(extent.relation, extent.first, extent.end)
        limited = False
        for restriction, limit, columns in prepared.reads(extent.relation):
            limited |= limit is not None
            if limit is not None and not restriction.tests:
                opened += min(limit, total)
            elif columns or restriction.tests:
                opened += events.opened(restriction)
        return f"{'at most ' if limited else ''}{opened} of {total} segments"

    def way(self, analysed: Analysed, text: str) -> str:
        """Return how a query would be answered now. The caller holds the lock of planning."""
        state = self.reader.published
        asked = Asked(state, analysed.names, frozenset(analysed.reads))
        prepared = self.queries.prepared(text)
        way = self.queries.way(prepared, asked.relations)
        streams = [each for each in asked.relations if isinstance(each, Stream)]
        for stream in streams if prepared.needs_no_job else ():
            way += (
                f"; {self._opened(prepared, self.reader.events(state, stream))} of {title(stream)}"
            )
        for view in self.reader.indexes(state, *asked.relations[:1]):
            if prepared.pull is not None and prepared.pull.finds_by(state.layout(view)):
                return f"{way}, by {title(view)}"
        return way


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
