"""Plain queries and listings of a directory that no process has open, without opening it.

A command that only reads stored rows needs neither the parts of a database nor Spark: importing
these takes longer than everything else that it does. Only what is certain is answered here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.reading.scans import Scans
from headrace.execution.runtime.connected import clocked
from headrace.execution.runtime.published import published_at, stored_layouts
from headrace.execution.runtime.step import events_in
from headrace.execution.serving import Contents
from headrace.interfaces.statements.describing.relations import (
    DESCRIBED,
    LISTED,
    RelationListings,
    described,
    filtered,
)
from headrace.interfaces.statements.reading.keyed import chosen, rows_by_key, simple_select
from headrace.interfaces.statements.results import Freshness, Result
from headrace.lifecycle.states.access import OWNER
from headrace.lifecycle.states.plain_queries import planned_plainly
from headrace.planning.catalog import Catalog, Sink, Stream, Table, View, key_of, relation_of_json
from headrace.planning.sql import Describe, Query, Show
from headrace.planning.sql.parser import parse
from headrace.planning.sql.plain import plain_query
from headrace.storage.ledger import DirectoryLock, Ledger, Mode
from headrace.storage.log import Events, Extent, InLedger
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.execution.runtime.published import Published
    from headrace.interfaces.statements.reading.keyed import Simple
    from headrace.planning.catalog import Relation
    from headrace.storage.ledger import Head


def answers(directory: Path, texts: Sequence[str]) -> list[Result] | None:
    """Return the results of plain queries and listings; None if there is any other statement.

    No process can open the directory meanwhile. None also if it has to be opened first: it is new,
    of another format, damaged or in use; or an answer is not certain (:meth:`_Stored.is_certain`).
    """
    place = directory / "ledger.db"
    if not place.exists():
        return None
    results: list[Result] = []
    try:
        asked = []
        for each in (each for text in texts for each in _asked(text)):
            if each is None:
                return None
            asked.append(each)
        names = {name for each in asked if isinstance(each, str) for name in _names(each)}
        with DirectoryLock(directory), Ledger.open(place, Mode.READ) as ledger:
            stored = _Stored.of(directory.resolve(), ledger, names)
            for each in asked:
                found = stored.rows(each) if isinstance(each, str) else stored.described(each)
                if found is None:
                    return None
                results.append(found)
    except HeadraceError:  # it comes again when the directory is opened
        return None
    return results


def _asked(text: str) -> Iterator[str | Show | Describe | None]:
    """Yield the texts of a script's plain queries, its listings, and None for what else it has."""
    for statement in parse(text):
        match statement:
            case Query(as_of=None, emit_changes=False) as query:
                is_plain = simple_select(query.text) or plain_query(query.text)
                yield query.text if is_plain else None
            case Describe(extended=False) | Show(schema=None):
                yield statement
            case _:
                yield None


def _names(query: str) -> frozenset[str]:
    simple, plain = simple_select(query), plain_query(query)
    names = frozenset() if simple is None else frozenset([simple.relation])
    return names if plain is None else names | plain.relations


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored state of a directory that nobody has open."""

    directory: Path
    ledger: Ledger
    state: Published

    @classmethod
    def of(cls, directory: Path, ledger: Ledger, names: Iterable[str]) -> _Stored:
        """Return the state of the last epoch, to read the relations of these names."""
        records = ledger.relations.existing()
        catalog = Catalog.of(relation_of_json(dict(record.definition)) for record in records)
        head = ledger.head
        named = {relation.id for name in names if (relation := catalog.find(name)) is not None}
        indexes = {view.id for id_ in named for view in catalog.indexes(id_)}
        layouts = stored_layouts(head, named | indexes)
        return cls(directory, ledger, published_at(head, catalog, layouts))

    @property
    def head(self) -> Head:
        """What the ledger has."""
        return self.ledger.head

    @property
    def published(self) -> Published:
        """The state of the last epoch."""
        return self.state

    @property
    def catalog(self) -> Catalog:
        """The relations."""
        return self.state.catalog

    def kept_for(self, stream: Stream) -> list[View]:
        """Return the views that need events older than a stream's retention.

        Raises:
            HeadraceError: ``unavailable`` if the stream has one: it is not known here.
        """
        if stream.declaration.retention is not None:
            raise HeadraceError(Code.UNAVAILABLE, "what is kept is not known without an opening")
        return []

    def described(self, statement: Show | Describe) -> Result | None:
        """Return a listing of relations, or the columns of one; None if it is not certain."""
        if not all(map(self.is_certain, self.catalog)):
            return None
        epoch = self.head.epoch
        if isinstance(statement, Describe):
            relation = self.catalog.resolve(statement.name.dotted, statement.name.span)
            return Result.of(DESCRIBED, described(relation), epoch)
        if statement.listing not in LISTED:
            return None
        listing = RelationListings(self, self.ledger, self, OWNER).show(statement)
        found = filtered(listing, statement.like)
        return Result.of(found.names, found.rows, epoch, found.types)

    def rows(self, query: str) -> Result | None:
        """Return the result of a query; None for one that is not plain, and if it is not certain.

        Rows by key are found without planning.
        """
        simple = simple_select(query)
        found = None if simple is None or not simple.equal else self._by_key(simple)
        return self._planned(query) if found is None else found

    def _by_key(self, simple: Simple) -> Result | None:
        relation = self.state.catalog.find(simple.relation)
        if not isinstance(relation, Table | View) or not simple.fits(relation):
            return None
        unique = [relation] if key_of(relation) else []
        arranged = [*unique, *self.state.catalog.indexes(relation.id)]
        if not all(map(self.is_certain, (relation, *arranged))):
            return None
        found = rows_by_key(relation, map(self._contents, arranged), simple)
        return (
            None
            if found is None
            else self._result(found.select(chosen(relation, simple)), [relation])
        )

    def _planned(self, query: str) -> Result | None:
        planned = planned_plainly(query, self.state.catalog)
        if planned is None:
            return None
        shape, prepared = planned
        by_id = self.state.catalog.by_id
        relations = [by_id[id_] for id_ in shape.reads]
        indexes = self.state.catalog.indexes(relations[0].id) if len(relations) == 1 else ()
        if not all(map(self.is_certain, (*relations, *indexes))):
            return None
        found = prepared.without_job(
            lambda id_: self._rows(by_id[id_]),
            [self._contents(each) for each in indexes],
            Scans(),
        )
        return None if found is None else self._result(found, relations)

    def _rows(self, relation: Relation) -> Contents | Events:
        if not isinstance(relation, Stream):
            return self._contents(relation)
        first = self.state.starts.get(relation.id, Offset(0))
        extent = Extent.of(self.ledger, relation.id, first, self.head.log_end(relation.id))
        return events_in(self.directory, relation, extent, InLedger(self.ledger))

    def _contents(self, relation: Relation) -> Contents:
        return Contents.of(self.directory, self.state, relation)

    def _result(self, rows: pa.Table, relations: Sequence[Relation]) -> Result:
        read = [each.id for each in relations]
        fresh = Freshness.of(self.state, self.head.ends, read)
        return Result(rows, self.state.epoch, freshness=fresh)

    def is_certain(self, relation: Relation) -> bool:
        """Whether opening the directory would change nothing that the relation shows.

        Epochs have read all changes, nothing is dirty, and neither the clock, a Python function, a
        refresh nor a sink may change what is below it.
        """
        state, head = self.state, self.head
        below = state.catalog.below([relation.id])
        views = [view for id_ in below if isinstance(view := state.catalog.by_id[id_], View)]
        return (
            state.has_read(dict(head.ends))
            and not head.dirty
            and below.isdisjoint({*state.left_out, *clocked(head)})
            and not any(view.functions for view in views)
            and not any(isinstance(each, Sink) and each.target for each in state.catalog)
        )
