"""SHOW of relations: streams, tables, views and indexes.

The rows of SHOW: column types shared by all listings, and filters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from headrace.interfaces.statements.defining.stream_options import RETENTION
from headrace.interfaces.statements.results import Listed, shown_time
from headrace.lifecycle.states.quarantined import quarantined_count
from headrace.planning.catalog import PlainView, Stream, Table, View, key_of
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.sql import Listing
from headrace.types import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.states.access import Principal
    from headrace.planning.catalog import Catalog, Relation
    from headrace.planning.sql import Name, Show
    from headrace.storage.ledger import Ledger


_WHOLE = (
    "epoch", "epochs_behind", "rows_behind", "changes_behind", "behind", "rejected", "refused",
    "duplicates", "late", "line", "id",
    "changes", "jobs", "operators", "rows_in", "rows_out", "rows_read", "bytes_written",
    "files", "fallbacks", "cost", "rebuild_cost", "rows", "changed", "rebuild_rows", "quarantined",
    "retired", "segments", "bytes", "rows_done", "rows_total", "distance",
)  # fmt: skip
_TYPES = {
    **dict.fromkeys(_WHOLE, pa.int64()),
    **dict.fromkeys(("seconds", "seconds_behind", "age_seconds"), pa.float64()),
    "deterministic": pa.bool_(),
}
"""The types of the columns other than text, by name, in all listings."""


def listed(names: tuple[str, ...], rows: list[Any]) -> Listed:
    """Return rows as a listing."""
    return Listed(names, rows, _TYPES)


def filtered(listing: Listed, like: str | None, schema: Name | None = None) -> Listed:
    """Return the rows whose first column matches a pattern, in one schema if it is given."""
    if like is None and schema is None:
        return listing
    pattern = _like("%" if like is None else like)
    within = "" if schema is None else f"{schema.dotted}."
    rows = [
        row
        for row in listing.rows
        if row[0].startswith(within) and pattern.fullmatch(row[0], len(within)) is not None
    ]
    return Listed(listing.names, rows, listing.types)


def is_shown(relation: Relation, principal: Principal) -> bool:
    """Whether a listing includes a relation: it is not hidden, and the client may see it."""
    return not relation.name.startswith(HIDDEN) and principal.sees(relation.name)


def moment(micros: int | None) -> str | None:
    """Return a time in microseconds as text for a listing."""
    return None if micros is None else shown_time(micros / 1_000_000)


def _like(pattern: str) -> re.Pattern[str]:
    r"""Return a regular expression for an SQL pattern with ``%``, ``_`` and ``\\``."""
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    parts = [wild.get(piece) or re.escape(piece[-1]) for piece in pieces]
    return re.compile("".join(parts), re.DOTALL | re.IGNORECASE)


_STREAMS = (
    "name", "kind", "key", "state", "retired", "changes", "segments", "bytes", "since", "retention",
    "kept_for",
)  # fmt: skip

_MATERIALIZED = (
    "name", "kind", "key", "state", "history", "readable_from", "readable_from_time",
)  # fmt: skip

_KINDS: dict[Listing, tuple[type[Relation], ...]] = {
    Listing.TABLES: (Stream, Table, View, PlainView),
    Listing.VIEWS: (View, PlainView),
}


DESCRIBED: Final = ("column", "type", "note")
"""The columns of DESCRIBE."""
LISTED: Final = frozenset({*_KINDS, Listing.STREAMS, Listing.MATERIALIZED_VIEWS, Listing.INDEXES})
"""What is listed here."""


class ListedState(Protocol):
    """The state that is listed, and the data directory."""

    @property
    def directory(self) -> Path:
        """The data directory."""

    @property
    def published(self) -> Published:
        """The last state."""

    @property
    def catalog(self) -> Catalog:
        """The current relations."""


class Keeps(Protocol):
    """Keeps events of streams for views beyond their retention."""

    def kept_for(self, stream: Stream) -> list[View]:
        """Return the views for which events are kept that are older than the retention."""


@dataclass(frozen=True, slots=True)
class RelationListings:
    """Lists relations, and the retention of streams."""

    reader: ListedState
    ledger: Ledger
    retirement: Keeps
    principal: Principal

    def show(self, statement: Show) -> Listed:
        """Return the streams, the indexes, or the relations of some kinds."""
        match statement.listing:
            case Listing.STREAMS:
                return self._streams()
            case Listing.INDEXES:
                return self._indexes(statement)
            case Listing.MATERIALIZED_VIEWS:
                return self._materialized()
            case _:
                return self._relations(_KINDS[statement.listing])

    def _relations(self, kinds: tuple[type[Relation], ...]) -> Listed:
        state = self.reader.published
        rows = [
            (
                relation.name,
                relation.kind,
                ", ".join(key_of(relation)),
                self._state(relation, state),
            )
            for relation in state.catalog
            if isinstance(relation, kinds) and is_shown(relation, self.principal)
        ]
        return listed(("name", "kind", "key", "state"), rows)

    def _materialized(self) -> Listed:
        """List materialized views, and how long their former states can be read.

        Who follows a view's changes can resume after any epoch from ``readable_from`` on.
        """
        state, oldest = self.reader.published, self.ledger.spines.oldest()
        rows = []
        for view in state.catalog:
            if not isinstance(view, View) or not is_shown(view, self.principal):
                continue
            since, begin = oldest.get(rows_of(view.id), (None, None))
            rows.append(
                (
                    view.name,
                    view.kind,
                    ", ".join(key_of(view)),
                    self._state(view, state),
                    None if view.history is None else str(view.history),
                    since,
                    None if begin is None else shown_time(begin),
                )
            )
        return listed(_MATERIALIZED, rows)

    def _state(self, relation: Relation, state: Published) -> str:
        """Return the state of a relation, and the number of rows that a view has in quarantine."""
        does = state.word_for(relation)
        kept: int | None = None
        if isinstance(relation, View):
            kept = quarantined_count(self.ledger, self.reader.directory, state, relation)
        return f"{does}, {kept:,} {'row' if kept == 1 else 'rows'} in quarantine" if kept else does

    def _streams(self) -> Listed:
        """List streams, and which of their events are kept."""
        state, sizes = self.reader.published, self.ledger.log.sizes()
        rows = []
        for stream in state.catalog:
            if not isinstance(stream, Stream) or not is_shown(stream, self.principal):
                continue
            size, retention = sizes.get(stream.id), stream.declaration.retention
            rows.append(
                (
                    stream.name,
                    stream.kind,
                    "",
                    state.word_for(stream),
                    state.starts.get(stream.id, 0),
                    0 if size is None else size.changes,
                    0 if size is None else size.segments,
                    0 if size is None else size.bytes,
                    None if size is None else shown_time(size.since),
                    None if retention is None else stream.declaration.option(RETENTION),
                    ", ".join(filter(self.principal.sees, self._kept_for(stream))),
                )
            )
        return listed(_STREAMS, rows)

    def _kept_for(self, stream: Stream) -> list[str]:
        """Return the views that require a stream's events beyond its retention."""
        views = self.retirement.kept_for(stream)
        return [shown_name(view, self.reader.catalog) for view in views]

    def _indexes(self, statement: Show) -> Listed:
        catalog, asked = self.reader.catalog, statement.relation
        only = None if asked is None else catalog.resolve(asked.dotted, asked.span).id
        rows = [
            (index.name, relation.name, ", ".join(index.columns))
            for relation in catalog
            if is_shown(relation, self.principal) and only in {None, relation.id}
            for view in catalog.indexes(relation.id)
            if (index := view.index) is not None
        ]
        return listed(("name", "relation", "columns"), sorted(rows))


def described(relation: Relation) -> list[tuple[str, str, str]]:
    """Return the name of each column of a relation, its type, and a note."""
    key = key_of(relation)
    effective = relation.effective_from if isinstance(relation, Table) else None
    notes: dict[str, str] = {}
    if isinstance(relation, Stream | Table):
        declaration = relation.declaration
        notes |= {name: f"computed: {text}" for name, text in declaration.computed}
        notes |= {name: f"metadata: {key}" for name, key in declaration.metadata}
        notes |= dict.fromkeys(declaration.message_key, "message key")
        notes |= {name: f"default: {text}" for name, text in declaration.defaults}
    rows: list[tuple[str, str, str]] = []
    for column in relation.schema.columns:
        note = "" if column.nullable else "not null"
        note = notes.get(column.name, note)
        note = "key" if column.name in key else note
        note = "effective from" if column.name == effective else note
        rows.append((column.name, column.sql, note))
    return rows
