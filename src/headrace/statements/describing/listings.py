"""SHOW: what exists, and in what state it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog import FUNCTION_VIEW, PlainView, Relation, Sink, Stream, Table, View, key_of
from headrace.errors import Code, HeadraceError, unknown
from headrace.history.dirty_slices import dirty_slices, origin_words, slice_words
from headrace.parts.freshness import view_freshness
from headrace.parts.functions import users
from headrace.parts.jobs import JOB_COLUMNS, jobs
from headrace.parts.naming import HIDDEN, shown_name
from headrace.parts.quarantined import quarantined_count
from headrace.parts.stopped import view_state
from headrace.sql import Listing, Name, Role, Show
from headrace.sql.macros import function_of
from headrace.statements.defining.retention import RETENTION
from headrace.statements.describing.changes import CARRIED
from headrace.statements.results import Result, shown_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.connectors import Connections, Secrets
    from headrace.history.pending_versions import PendingVersions
    from headrace.ledger import Ledger
    from headrace.parts.access import Principal
    from headrace.parts.functions import Functions
    from headrace.parts.reader import Reader
    from headrace.parts.schemas import Schemas
    from headrace.parts.sources import SourceStates
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.published import Published
    from headrace.runtime.retirement import Retirement

_MOST_EPOCHS = 100
_MOST_REJECTS = 1000
_COUNTED = ("rejected", "duplicates", "late", "watermark")
_FRESHNESS = (
    "view", "epoch", "committed_at", "changes_behind", "state",
    "seconds_behind", "watermark", "dirty_since", "inputs",
    "refresh", "next_refresh", "quarantined",
)  # fmt: skip

_STREAMS = (
    "name", "kind", "key", "state", "retired", "changes", "segments", "bytes", "since", "retention",
    "kept_for",
)  # fmt: skip

_DIRTY = (
    "view", "cause", "slice", "since", "age_seconds", "origin", "repair", "cost", "rebuild_cost",
    "state", "detail",
)  # fmt: skip

_WHOLE = (
    "epoch", "epochs_behind", "rows_behind", "changes_behind", "behind", "rejected", "refused",
    "duplicates", "late", "line",
    "changes", "jobs", "operators", "rows_in", "rows_out", "rows_read", "bytes_written",
    "fallbacks", "cost", "rebuild_cost", "rows", "changed", "rebuild_rows", "quarantined",
    "retired", "segments", "bytes", "rows_done", "rows_total",
)  # fmt: skip
_TYPES = {
    **dict.fromkeys(_WHOLE, pa.int64()),
    **dict.fromkeys(("seconds", "seconds_behind", "age_seconds"), pa.float64()),
    "deterministic": pa.bool_(),
}
"""The types of columns that are no text, in every listing that has them."""

_KINDS = {
    Listing.TABLES: (Stream, Table, View, PlainView),
    Listing.VIEWS: (View, PlainView),
    Listing.MATERIALIZED_VIEWS: (View,),
}


@dataclass(frozen=True, slots=True)
class Listings:
    """Lists what a database has: it takes every part that something is kept in."""

    reader: Reader
    ledger: Ledger
    schemas: Schemas
    secrets: Secrets
    connections: Connections
    functions: Functions
    deliveries: Deliveries
    sources: SourceStates
    versions: PendingVersions
    retirement: Retirement
    principal: Principal

    def show(self, statement: Show) -> Result:
        """Return the listing of a SHOW statement."""
        listed = self._listed(statement)
        if statement.schema is not None:
            self._require_schema(statement.schema)
        return filtered(listed, statement.like, statement.schema)

    def _require_schema(self, schema: Name) -> None:
        known = self._seen_schemas()
        if schema.dotted not in known:
            raise unknown("schema", schema, known, "SHOW SCHEMAS lists what exists.", schema.span)

    def _seen_schemas(self) -> tuple[str, ...]:
        known = self.schemas.names(self.reader.catalog)
        return tuple(name for name in known if self.principal.sees(f"{name}."))

    def _listed(self, statement: Show) -> Result:
        match statement.listing:
            case Listing.STREAMS:
                return self._streams()
            case Listing.SOURCES:
                return self._sources()
            case Listing.SCHEMAS:
                return self._listing(("name",), [(name,) for name in self._seen_schemas()])
            case Listing.SINKS | Listing.JOBS:
                state = self.reader.published
                return self._listing(JOB_COLUMNS, jobs(self.deliveries, state, self.principal.sees))
            case Listing.TABLES | Listing.VIEWS | Listing.MATERIALIZED_VIEWS:
                kinds = _KINDS[statement.listing]
                return self._relations(lambda r: isinstance(r, kinds))
            case Listing.REJECTS:
                return self._rejects(statement)
            case Listing.DIRTY:
                return self._dirty(statement)
            case Listing.CHANGES:
                return self._changes(statement)
            case Listing.EPOCHS:
                return self._epochs()
            case Listing.FRESHNESS:
                return self._freshness()
            case Listing.FUNCTIONS:
                return self._functions()
            case Listing.INDEXES:
                return self._indexes(statement)
            case Listing.SECRETS:
                secrets = self.secrets
                rows = [(s.name, s.source, s.where, secrets.problem(s)) for s in secrets]
                return self._listing(("name", "source", "where", "problem"), rows)
            case Listing.CONNECTIONS:
                shown = [(c.name, c.kind, _options(c.stored)) for c in self.connections]
                return self._listing(("name", "kind", "options"), shown)
            case _:
                raise HeadraceError(Code.INTERNAL, f"SHOW {statement.listing} is not listed here")

    def _relations(self, wanted: Callable[[Relation], bool]) -> Result:
        state = self.reader.published
        rows = [
            (
                relation.name,
                relation.kind,
                ", ".join(key_of(relation)),
                self._state(relation, state),
            )
            for relation in state.catalog
            if wanted(relation) and self._shows(relation)
        ]
        return self._listing(("name", "kind", "key", "state"), rows)

    def _state(self, relation: Relation, state: Published) -> str:
        """Return what a relation does now, and how many rows a view has in quarantine."""
        does = view_state(relation, state.stopped)
        kept: int | None = None
        if isinstance(relation, View):
            kept = quarantined_count(self.ledger, self.reader.directory, state, relation)
        return f"{does}, {kept:,} {'row' if kept == 1 else 'rows'} in quarantine" if kept else does

    def _streams(self) -> Result:
        """Return the streams, and how much of their events is kept."""
        state, sizes = self.reader.published, self.ledger.log.sizes()
        rows = []
        for stream in filter(self._shows, state.catalog):
            if not isinstance(stream, Stream):
                continue
            size, retention = sizes.get(stream.id), stream.declaration.retention
            rows.append(
                (
                    stream.name,
                    stream.kind,
                    "",
                    view_state(stream, state.stopped),
                    state.starts.get(stream.id, 0),
                    0 if size is None else size.changes,
                    0 if size is None else size.segments,
                    0 if size is None else size.bytes,
                    None if size is None else shown_time(size.since),
                    None if retention is None else stream.declaration.option(RETENTION),
                    ", ".join(filter(self.principal.sees, self._kept_for(stream))),
                )
            )
        return self._listing(_STREAMS, rows)

    def _kept_for(self, stream: Stream) -> list[str]:
        """Return the views for which a stream's events are kept longer than its retention."""
        views = self.retirement.kept_for(stream)
        return [shown_name(view, self.reader.catalog) for view in views]

    def _indexes(self, statement: Show) -> Result:
        catalog, asked = self.reader.catalog, statement.relation
        only = None if asked is None else catalog.resolve(asked.dotted, asked.span).id
        rows = [
            (index.name, relation.name, ", ".join(index.columns))
            for relation in catalog
            if self._shows(relation) and only in {None, relation.id}
            for view in catalog.indexes(relation.id)
            if (index := view.index) is not None
        ]
        return self._listing(("name", "relation", "columns"), sorted(rows))

    def _sources(self) -> Result:
        """Return how far what comes from other systems is read, and what streams have taken."""
        rows = [
            (
                source.name,
                source.kind,
                ", ".join(source.key),
                "embedded" if source.inserted else source.fed.state,
                source.connector,
                source.fed.behind,
                source.rejected,
                source.duplicates,
                source.late,
                _moment(source.watermark),
                source.fed.error,
            )
            for source in self.sources.of(filter(self._shows, self.reader.catalog))
            if source.kind != "source" or self.principal.may(Role.READER)
            if not (source.inserted and source.kind == Table.kind)
        ]
        names = ("name", "kind", "key", "state", "connector", "behind", *_COUNTED, "error")
        return self._listing(names, rows)

    def _rejects(self, statement: Show) -> Result:
        catalog, ledger = self.reader.catalog, self.ledger
        if statement.relation is not None:
            named = statement.relation
            relations: list[Relation] = [catalog.resolve(named.dotted, named.span)]
        else:
            seen = (each for each in catalog if self.principal.sees(each.name))
            relations = [each for each in seen if not isinstance(each, Sink)]
        rows = [
            (
                relation.name,
                record.reject.file,
                record.reject.line,
                record.reject.column,
                record.reject.reason,
                record.reject.raw,
                shown_time(record.at),
            )
            for relation in relations
            for record in ledger.rejects.newest(relation.id, _MOST_REJECTS)
        ]
        names = ("relation", "file", "line", "column", "reason", "raw", "at")
        return self._listing(names, rows[: statement.limit])

    def _dirty(self, statement: Show) -> Result:
        """Return the dirty entries of one view, or of all that the client sees, oldest first."""
        state = self.reader.published
        only = None
        if statement.relation is not None:
            only = state.catalog.resolve(statement.relation.dotted, statement.relation.span).id
        rows = [
            (
                found.relation.name,
                found.entry.cause,
                slice_words(found.entry.slice),
                shown_time(found.entry.since),
                round(found.seconds, 3),
                found.origin,
                found.entry.repair.value,
                found.entry.cost,
                found.entry.whole,
                found.entry.state.value,
                found.detail,
            )
            for found in dirty_slices(self.ledger, self.versions, state, self.principal.sees)
            if only in {None, found.relation.id}
        ]
        return self._listing(_DIRTY, rows)

    def _changes(self, statement: Show) -> Result:
        """Return what carried the latest changes to one view, or to all that the client sees."""
        catalog, sees = self.reader.catalog, self.principal.sees
        only = None
        if statement.relation is not None:
            only = catalog.resolve(statement.relation.dotted, statement.relation.span).id
        rows = [
            (
                shown_time(record.at),
                relation.name,
                found.path.value,
                found.rule if catalog.sees_all(sees, relation.id) else None,
                found.cost,
                found.changed,
                found.whole,
                origin_words(record.origin) if catalog.sees_all(sees, relation.id) else None,
            )
            for record in self.ledger.dirty.changes()
            for found in (record.carried,)
            if (relation := catalog.by_id.get(found.view)) is not None
            and sees(relation.name)
            and only in {None, relation.id}
        ]
        return self._listing(("at", *CARRIED, "origin"), rows)

    def _epochs(self) -> Result:
        names = (
            "changes",
            "jobs",
            "operators",
            "rows_in",
            "rows_out",
            "rows_read",
            "bytes_written",
            "fallbacks",
            "seconds",
        )
        rows = [
            (e.epoch, shown_time(e.committed_at), *(e.counters.get(name) for name in names))
            for e in self.ledger.epochs.newest(_MOST_EPOCHS)
        ]
        return self._listing(("epoch", "committed_at", *names), rows)

    def _freshness(self) -> Result:
        """Return how current each view is; ``inputs`` has how far each log below it was read."""
        state = self.reader.published
        rows = [
            (
                found.view.name,
                found.epoch,
                shown_time(found.shown_at),
                found.pending,
                found.state,
                round(found.seconds, 3),
                _moment(found.watermark),
                None if found.dirty_since is None else shown_time(found.dirty_since),
                ", ".join(
                    f"{i.relation} {i.position:,} of {i.end:,}"
                    for i in found.inputs
                    if self.principal.sees(i.relation)
                ),
                str(found.view.refresh),
                None if found.next_refresh is None else shown_time(found.next_refresh),
                found.quarantined,
            )
            for found in view_freshness(self.reader, self.sources.admission, state)
            if self.principal.sees(found.view.name)
        ]
        return self._listing(_FRESHNESS, rows)

    def _functions(self) -> Result:
        functions, catalog = self.functions, self.reader.catalog
        rows = [
            (
                record.name,
                record.signature,
                record.kind.value,
                record.deterministic,
                record.digest,
                "registered" if name in functions.registered else "missing",
                ", ".join(sorted(v.name for v in users(catalog, name) if self._shows(v))),
            )
            for name, record in sorted(functions.records.items())
        ]
        rows += [
            (
                relation.name.removeprefix(FUNCTION_VIEW),
                function_of(relation.created_sql).signature,
                "sql",
                True,
                "",
                "registered",
                ", ".join(
                    sorted(v.name for v in catalog.dependants(relation.id) if self._shows(v))
                ),
            )
            for relation in catalog
            if isinstance(relation, PlainView) and relation.name.startswith(FUNCTION_VIEW)
        ]
        names = ("name", "signature", "kind", "deterministic", "digest", "state", "views")
        return self._listing(names, rows)

    def _shows(self, relation: Relation) -> bool:
        return not relation.name.startswith(HIDDEN) and self.principal.sees(relation.name)

    def _listing(self, names: tuple[str, ...], rows: list[Any]) -> Result:
        return Result.of(names, rows, self.ledger.head.epoch, _TYPES)


def filtered(listed: Result, like: str | None, schema: Name | None = None) -> Result:
    """Return a listing of the names that match a pattern, in one schema if it is given."""
    if like is None and schema is None:
        return listed
    table, pattern = listed.to_arrow(), _like("%" if like is None else like)
    within = "" if schema is None else f"{schema.dotted}."
    named = [
        name.startswith(within) and pattern.fullmatch(name, len(within)) is not None
        for name in table[0].to_pylist()
    ]
    return Result(table.filter(pa.array(named, pa.bool_())), listed.epoch)


def _options(stored: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in stored)


def _like(pattern: str) -> re.Pattern[str]:
    r"""Return a regular expression for an SQL pattern with ``%``, ``_`` and ``\\``."""
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    parts = [wild.get(piece) or re.escape(piece[-1]) for piece in pieces]
    return re.compile("".join(parts), re.DOTALL | re.IGNORECASE)


def _moment(micros: int | None) -> str | None:
    return None if micros is None else shown_time(micros / 1_000_000)
