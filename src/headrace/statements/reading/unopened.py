"""Rows by key of a directory that no process has open, read without opening it.

A command that only looks up rows needs neither the parts of a database nor Spark: importing these
takes longer than everything else that it does. Only what is certain is answered here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Catalog, Sink, Table, View, key_of, relation_of_json
from headrace.errors import HeadraceError
from headrace.ledger import DirectoryLock, Ledger, Mode
from headrace.runtime.published import published_at, stored_layouts
from headrace.runtime.timetable import clocked
from headrace.serving import Contents
from headrace.sql import Query
from headrace.sql.parser import parse
from headrace.statements.reading.keyed import chosen, rows_by_key
from headrace.statements.reading.simple import simple_select
from headrace.statements.results import Freshness, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from headrace.catalog import Relation
    from headrace.ledger import Head
    from headrace.runtime.published import Published
    from headrace.statements.reading.simple import Simple


def lookups(directory: Path, texts: Sequence[str]) -> list[Result] | None:
    """Return the results of statements that look up rows by key; None if there is any other one.

    No process can open the directory meanwhile. None also if it has to be opened first: it is new,
    of another format, damaged or in use; or an answer is not certain (:meth:`_Stored.is_certain`).
    """
    place = directory / "ledger.db"
    if not place.exists():
        return None
    results: list[Result] = []
    try:
        asked = [simple for text in texts if (simple := _asked(text)) is not None]
        if len(asked) < len(texts):
            return None
        with DirectoryLock(directory), Ledger.open(place, Mode.READ) as ledger:
            stored = _Stored.of(directory.resolve(), ledger, [each.relation for each in asked])
            for simple in asked:
                found = stored.rows(simple)
                if found is None:
                    return None
                results.append(found)
    except HeadraceError:  # it comes again when the directory is opened
        return None
    return results


def _asked(text: str) -> Simple | None:
    statements = parse(text)
    query = statements[0] if len(statements) == 1 else None
    if not isinstance(query, Query) or query.as_of is not None or query.emit_changes:
        return None
    simple = simple_select(query.text)
    return simple if simple is not None and simple.equal else None


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored state of a directory that nobody has open."""

    directory: Path
    head: Head
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
        return cls(directory, head, published_at(head, catalog, layouts))

    def rows(self, simple: Simple) -> Result | None:
        """Return the result of a lookup; None for another query, and if it is not certain."""
        catalog = self.state.catalog
        relation = catalog.find(simple.relation)
        if not isinstance(relation, Table | View) or not simple.fits(relation):
            return None
        unique = [relation] if key_of(relation) else []
        arranged = [*unique, *catalog.indexes(relation.id)]
        if not all(map(self.is_certain, (relation, *arranged))):
            return None
        contents = (Contents.of(self.directory, self.state, each) for each in arranged)
        found = rows_by_key(relation, contents, simple)
        if found is None:
            return None
        fresh = Freshness.of(self.state, self.head.ends, [relation.id])
        return Result(found.select(chosen(relation, simple)), self.state.epoch, freshness=fresh)

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
