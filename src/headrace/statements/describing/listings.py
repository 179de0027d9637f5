"""SHOW: what exists, and in what state it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog import PlainView, Relation, Sink, Stream, Table, View, key_of
from headrace.connectors import CONNECTOR, stopped_with
from headrace.errors import Code, HeadraceError, nearest
from headrace.parts.admission import DUPLICATE, LATE
from headrace.parts.functions import users
from headrace.parts.jobs import JOB_COLUMNS, jobs
from headrace.parts.naming import HIDDEN
from headrace.sql import Listing, Name, Show
from headrace.statements.results import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.connectors import Captures, Connections, Secrets
    from headrace.ledger import Ledger
    from headrace.parts.admission import Admission
    from headrace.parts.functions import Functions
    from headrace.parts.reader import Reader
    from headrace.parts.schemas import Schemas
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.feeds import Feed, Feeds
    from headrace.types import RelationId

_MOST_EPOCHS = 100
_MOST_REJECTS = 1000
_COUNTED = ("rejected", "duplicates", "late", "watermark")


@dataclass(frozen=True, slots=True)
class Listings:
    """Lists what a database has: it takes every part that something is kept in."""

    reader: Reader
    ledger: Ledger
    schemas: Schemas
    secrets: Secrets
    connections: Connections
    captures: Captures
    functions: Functions
    deliveries: Deliveries
    feeds: Feeds
    admission: Admission

    def show(self, statement: Show) -> Result:
        """Return the listing of a SHOW statement."""
        listed = self._listed(statement)
        if statement.like is None and statement.schema is None:
            return listed
        table = listed.to_arrow()
        like = _like("%" if statement.like is None else statement.like)
        within = ""
        if statement.schema is not None:
            within = f"{statement.schema.dotted}."
            self._require_schema(statement.schema)
        named = [
            name.startswith(within) and like.fullmatch(name, len(within)) is not None
            for name in table[0].to_pylist()
        ]
        return Result(table.filter(pa.array(named, pa.bool_())), listed.epoch)

    def _require_schema(self, schema: Name) -> None:
        known = self.schemas.names(self.reader.catalog)
        if schema.dotted not in known:
            near = nearest(schema.dotted, known)
            raise HeadraceError(
                Code.INVALID,
                f'schema "{schema}" does not exist',
                hint=f'Did you mean "{near}"?' if near else "SHOW SCHEMAS lists what exists.",
                span=schema.span,
            )

    def _listed(self, statement: Show) -> Result:
        match statement.listing:
            case Listing.STREAMS:
                return self._relations(lambda r: isinstance(r, Stream))
            case Listing.SOURCES:
                return self._sources()
            case Listing.SCHEMAS:
                return self._listing(
                    ("name",),
                    [(name,) for name in self.schemas.names(self.reader.catalog)],
                )
            case Listing.SINKS | Listing.JOBS:
                return self._listing(JOB_COLUMNS, jobs(self.deliveries, self.reader.published))
            case Listing.TABLES:
                return self._relations(lambda r: not isinstance(r, Sink))
            case Listing.VIEWS:
                return self._relations(lambda r: isinstance(r, View | PlainView))
            case Listing.MATERIALIZED_VIEWS:
                return self._relations(lambda r: isinstance(r, View))
            case Listing.REJECTS:
                return self._rejects(statement)
            case Listing.DIRTY:
                return self._dirty()
            case Listing.EPOCHS:
                return self._epochs()
            case Listing.FRESHNESS:
                return self._freshness()
            case Listing.FUNCTIONS:
                return self._functions()
            case Listing.SECRETS:
                secrets = self.secrets
                rows = [(s.name, s.source, s.where, secrets.problem(s)) for s in secrets]
                return self._listing(("name", "source", "where", "problem"), rows)
            case Listing.CONNECTIONS:
                shown = [(c.name, c.kind, _options(c.stored)) for c in self.connections]
                return self._listing(("name", "kind", "options"), shown)

    def _relations(self, wanted: Callable[[Relation], bool]) -> Result:
        state = self.reader.published
        rows = [
            (
                relation.name,
                relation.kind,
                ", ".join(key_of(relation)),
                _state(relation, state.stopped),
            )
            for relation in state.catalog
            if wanted(relation) and not relation.name.startswith(HIDDEN)
        ]
        return self._listing(("name", "kind", "key", "state"), rows)

    def _sources(self) -> Result:
        """Return the streams and tables, and how far those with a source have read it."""
        rows: list[tuple[Any, ...]] = []
        for relation in self.reader.catalog:
            if not isinstance(relation, Stream | Table) or relation.name.startswith(HIDDEN):
                continue
            state, behind, error = self._fed(relation)
            connector = dict(relation.declaration.source).get(CONNECTOR)
            counts = (self.ledger.reject_count(relation.id), *self._left_out(relation))
            key = ", ".join(key_of(relation))
            whose = (relation.name, relation.kind, key, state, connector, behind)
            rows.append((*whose, *counts, self._watermark(relation), error))
        for capture in self.captures:
            state, behind, error = _progress(self.feeds.by_source.get(capture.name))
            empty = [None] * len(_COUNTED)
            rows.append((capture.name, "source", "", state, "postgres", behind, *empty, error))
        names = ("name", "kind", "key", "state", "connector", "behind", *_COUNTED, "error")
        return self._listing(names, rows)

    def _left_out(self, relation: Relation) -> tuple[int | None, int | None]:
        """Return the number of duplicates and of late rows; None where none are looked for."""
        if self.admission.gate(relation) is None or not isinstance(relation, Stream):
            return None, None
        found, unique = self.ledger.left_out(relation.id), relation.declaration.unique
        timed = relation.declaration.watermark or relation.declaration.lateness is not None
        return (
            found.get(DUPLICATE, 0) if unique else None,
            found.get(LATE, 0) if timed else None,
        )

    def _watermark(self, relation: Relation) -> str | None:
        mark = self.admission.watermark(relation)
        return None if mark is None else _time(mark / 1_000_000)

    def _fed(self, relation: Stream | Table) -> tuple[str, int | None, str | None]:
        """Return the state of a relation's source, how far behind it is, and its error."""
        shared = relation.declaration.shared_source
        if shared is None:
            return _progress(self.feeds.by_relation.get(relation.id))
        feed = self.feeds.by_source.get(shared)
        position = (feed.ingest.position or {}).get(relation.id) if feed is not None else None
        stopped = stopped_with(position)
        if stopped is not None:
            return "stopped", None, str(stopped)
        state, _, error = _progress(feed)
        return ("copying" if state == "running" and position is None else state), None, error

    def _rejects(self, statement: Show) -> Result:
        catalog, ledger = self.reader.catalog, self.ledger
        if statement.relation is not None:
            named = statement.relation
            relations: list[Relation] = [catalog.resolve(named.dotted, named.span)]
        else:
            relations = list(catalog)
        rows = [
            (
                relation.name,
                record.reject.file,
                record.reject.line,
                record.reject.column,
                record.reject.reason,
                record.reject.raw,
                _time(record.at),
            )
            for relation in relations
            for record in ledger.rejects(relation.id, _MOST_REJECTS)
        ]
        names = ("relation", "file", "line", "column", "reason", "raw", "at")
        return self._listing(names, rows[: statement.limit])

    def _dirty(self) -> Result:
        catalog = self.reader.catalog
        rows = [
            (catalog.by_id[entry.view].name, entry.cause, _time(entry.since), entry.detail)
            for entry in self.ledger.dirty()
            if entry.view in catalog.by_id
        ]
        return self._listing(("view", "cause", "since", "detail"), rows)

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
            (e.epoch, _time(e.committed_at), *(e.counters.get(name) for name in names))
            for e in self.ledger.epochs(_MOST_EPOCHS)
        ]
        return self._listing(("epoch", "committed_at", *names), rows)

    def _freshness(self) -> Result:
        state, ends = self.reader.published, self.ledger.log_ends()
        committed = _time(state.committed_at)
        rows = []
        for view in state.catalog.views_in_order():
            if view.name.startswith(HIDDEN):
                continue
            behind = state.behind(ends, view.id)
            shown = "stopped" if view.id in state.stopped else "running"
            rows.append((view.name, state.epoch, committed, behind, shown))
        return self._listing(("view", "epoch", "committed_at", "changes_behind", "state"), rows)

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
                ", ".join(
                    sorted(v.name for v in users(catalog, name) if not v.name.startswith(HIDDEN))
                ),
            )
            for name, record in sorted(functions.records.items())
        ]
        names = ("name", "signature", "kind", "deterministic", "digest", "state", "views")
        return self._listing(names, rows)

    def _listing(self, names: tuple[str, ...], rows: list[Any]) -> Result:
        return Result.of(names, rows, self.ledger.last_epoch())


def _progress(feed: Feed | None) -> tuple[str, int | None, str | None]:
    if feed is None:
        return "running", None, None
    return str(feed.state), feed.behind, None if feed.error is None else str(feed.error)


def _options(stored: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in stored)


def _state(relation: Relation, stopped: frozenset[RelationId]) -> str:
    if relation.id in stopped:
        return "stopped"
    return "not kept" if isinstance(relation, PlainView) else "running"


def _like(pattern: str) -> re.Pattern[str]:
    r"""Return a regular expression for an SQL pattern with ``%``, ``_`` and ``\\``."""
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    parts = [wild.get(piece) or re.escape(piece[-1]) for piece in pieces]
    return re.compile("".join(parts), re.DOTALL | re.IGNORECASE)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")
