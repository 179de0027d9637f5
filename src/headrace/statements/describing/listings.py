"""SHOW, DESCRIBE, EXPLAIN and VERIFY: their results as tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog import PlainView, Relation, Sink, Stream, Table, View, key_of
from headrace.circuit import rows_of
from headrace.circuit.explain import state
from headrace.errors import Code, HeadraceError, nearest
from headrace.parts.functions import Functions, users
from headrace.parts.jobs import JOB_COLUMNS, jobs
from headrace.parts.naming import HIDDEN
from headrace.sql import (
    Describe,
    Explain,
    Listing,
    Name,
    Show,
    ShowCreate,
)
from headrace.statements.checking.verifications import Verifying
from headrace.statements.describing.explaining import Explaining
from headrace.statements.results import Progress, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.parts.instance import Instance
    from headrace.statements.defining.views import Definitions
    from headrace.types import RelationId

_MOST_EPOCHS = 100


@dataclass(frozen=True, slots=True)
class Listings:
    """Runs the statements of one instance that list or describe objects."""

    instance: Instance
    definitions: Definitions

    def run(self, statement: Show | ShowCreate | Describe | Explain) -> Result:
        """Run one of these statements."""
        match statement:
            case Show():
                return self.show(statement)
            case ShowCreate():
                return self.show_create(statement)
            case Describe():
                return self.describe(statement)
            case Explain():
                return self.explain(statement)

    def show_create(self, statement: ShowCreate) -> Result:
        """Show the statement that created a relation or sink, with secrets masked."""
        relation = self.instance.catalog.resolve(statement.name.dotted, statement.name.span)
        made = (
            relation.declaration.created_sql
            if isinstance(relation, Stream | Table)
            else relation.created_sql
        )
        return self.answer(("name", "statement"), [(relation.name, made or None)])

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
        known = self.instance.schemas.names(self.instance.catalog)
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
                return self._relations(lambda r: isinstance(r, Stream | Table))
            case Listing.SCHEMAS:
                return self.answer(
                    ("name",),
                    [(name,) for name in self.instance.schemas.names(self.instance.catalog)],
                )
            case Listing.SINKS | Listing.JOBS:
                return self.answer(
                    JOB_COLUMNS, jobs(self.instance.deliveries, self.instance.published)
                )
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
                secrets = self.instance.secrets
                rows = [(s.name, s.source, s.where, secrets.problem(s)) for s in secrets]
                return self.answer(("name", "source", "where", "problem"), rows)

    def describe(self, statement: Describe) -> Result:
        """List a relation's columns; with EXTENDED, also its properties and state."""
        relation = self.instance.catalog.resolve(statement.name.dotted, statement.name.span)
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
        if statement.extended:
            rows += [(f"# {name}", value, "") for name, value in self._details(relation)]
        return self.answer(("column", "type", "note"), rows)

    def explain(self, statement: Explain) -> Result:
        """Return the output of EXPLAIN as a table."""
        lines = Explaining(self.instance).lines(statement.target, statement.shown)
        return self.answer(("plan",), [(line,) for line in lines])

    def verify(self, name: Name | None, progress: Callable[[Progress], None]) -> Result:
        """Compare views with their queries, recomputed by Spark batch over the whole history."""
        rows = Verifying(self.instance, progress).rows(name)
        return self.answer(("view", "rows", "differences", "verdict"), rows)

    # -- pieces ----------------------------------------------------------------------------

    def _relations(self, wanted: Callable[[Relation], bool]) -> Result:
        state = self.instance.published
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
        return self.answer(("name", "kind", "key", "state"), rows)

    def _rejects(self, statement: Show) -> Result:
        catalog, ledger = self.instance.catalog, self.instance.ledger
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
            )
            for relation in relations
            for record in ledger.rejects(relation.id)
        ]
        return self.answer(("relation", "file", "line", "column", "reason", "raw"), rows)

    def _dirty(self) -> Result:
        catalog = self.instance.catalog
        rows = [
            (catalog.by_id[entry.view].name, entry.cause, _time(entry.since), entry.detail)
            for entry in self.instance.ledger.dirty()
            if entry.view in catalog.by_id
        ]
        return self.answer(("view", "cause", "since", "detail"), rows)

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
            for e in self.instance.ledger.epochs(_MOST_EPOCHS)
        ]
        return self.answer(("epoch", "committed_at", *names), rows)

    def _freshness(self) -> Result:
        state, ends = self.instance.published, self.instance.ledger.log_ends()
        committed = _time(state.committed_at)
        rows = []
        for view in state.catalog.views_in_order():
            if view.name.startswith(HIDDEN):
                continue
            behind = state.behind(ends, view.id)
            shown = "stopped" if view.id in state.stopped else "running"
            rows.append((view.name, state.epoch, committed, behind, shown))
        return self.answer(("view", "epoch", "committed_at", "changes_behind", "state"), rows)

    def _functions(self) -> Result:
        functions, catalog = Functions(self.instance), self.instance.catalog
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
        return self.answer(names, rows)

    def _details(self, relation: Relation) -> list[tuple[str, str]]:
        ledger = self.instance.ledger
        found = [("kind", relation.kind)]
        if isinstance(relation, View | PlainView):
            found += [("query", relation.query), ("created by", relation.created_sql)]
        elif isinstance(relation, Stream | Table):
            declaration = relation.declaration
            found.append(("created by", declaration.created_sql))
            found += [(f"option {key}", value) for key, value in declaration.options]
            if declaration.watermark is not None:
                found.append(
                    ("watermark", f"{declaration.watermark[0]} AS {declaration.watermark[1]}")
                )
            if declaration.message_key:
                found.append(("message key", ", ".join(declaration.message_key)))
            found.append(("changes in the log", f"{ledger.log_end(relation.id):,}"))
            found.append(("rejected rows", f"{ledger.reject_count(relation.id):,}"))
        if isinstance(relation, Table) and relation.effective_from is not None:
            by = ", ".join(relation.versioned_key)
            found.append(("versions", f"of each ({by}), from {relation.effective_from} on"))
        if isinstance(relation, View | Table):
            runs = ledger.spine(rows_of(relation.id))
            found.append(("changes stored", f"{sum(run.rows for run in runs):,}"))
            found.append(("bytes stored", f"{sum(run.bytes for run in runs):,}"))
            found.append(("runs", str(len(runs))))
            found.append(("readable since epoch", str(ledger.since(rows_of(relation.id)))))
        if isinstance(relation, View) and relation.id not in self.instance.unplanned:
            circuit = self.instance.engine.circuit(relation)
            found.append(("state", state(circuit, Explaining(self.instance).sizes(relation))))
        return found

    def answer(self, names: tuple[str, ...], rows: list[Any]) -> Result:
        """Return rows as a result; each column has one type."""
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        arrays = [
            pa.array(list(column)) if rows else pa.array([], pa.string()) for column in columns
        ]
        table = pa.Table.from_arrays(arrays, names=list(names))
        return Result(table, self.instance.ledger.last_epoch())


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
