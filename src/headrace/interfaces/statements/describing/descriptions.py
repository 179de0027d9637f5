"""DESCRIBE and SHOW CREATE: the columns of a relation, and the statement that created it.

SHOW LINEAGE: what columns are made from, and what is made from them.

SHOW ERRORS FOR name: rows on which a view's query failed, or that a sink's target refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError, meant
from headrace.execution.runtime.published import STOPPED
from headrace.execution.serving.values import json_text
from headrace.interfaces.statements.defining.view_options import key_text
from headrace.interfaces.statements.describing.explanations import sizes
from headrace.interfaces.statements.describing.relations import DESCRIBED, described, listed
from headrace.interfaces.statements.results import Listed, Result, shown_time
from headrace.lifecycle.facts.openlineage_events import as_json
from headrace.lifecycle.states.quarantined import quarantined_rows
from headrace.planning.catalog import (
    FUNCTION_VIEW,
    PlainView,
    Relation,
    Sink,
    Stream,
    Table,
    View,
    title,
)
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.circuit.explain import state
from headrace.planning.sql import NamedApart, quote, quote_dotted, quoted
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.errors import Span
    from headrace.io.connectors import (
        Captures,
        Connections,
        NamedConnection,
        PostgresCapture,
        Secret,
    )
    from headrace.lifecycle.facts.lineage import Lineages
    from headrace.lifecycle.facts.openlineage import OpenLineage
    from headrace.lifecycle.facts.openlineage_events import Datasets
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.declarations import Declarations
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.catalog.lineage import Dependence
    from headrace.planning.sql import Describe, Name, Show, ShowCreate, ShowLineage
    from headrace.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Descriptions:
    """Describes relations and sinks."""

    reader: Reader
    ledger: Ledger
    declarations: Declarations
    connections: Connections
    captures: Captures

    def show_create(self, statement: ShowCreate) -> Result:
        """Show a statement that creates a relation, a sink or the like, with secrets masked."""
        name, span = statement.name.dotted, statement.name.span
        made = self._apart(statement)
        if made is None:
            if statement.of is NamedApart.FUNCTION:
                name = f"{FUNCTION_VIEW}{name}"
            relation = self.reader.catalog.resolve(name, span)
            name = relation.name.removeprefix(FUNCTION_VIEW)
            made = (
                relation.declaration.created_sql
                if isinstance(relation, Stream | Table)
                else relation.created_sql
            )
        row = (name, made or None)
        return Result.of(("name", "statement"), [row], self.ledger.head.epoch)

    def _apart(self, statement: ShowCreate) -> str | None:
        """Return the statement that creates what is named apart from relations; None for those.

        Raises:
            HeadraceError: ``invalid``, at the name, if it does not exist.
        """
        name, span = statement.name.dotted, statement.name.span
        match statement.of:
            case NamedApart.FUNCTION if self.reader.catalog.find(f"{FUNCTION_VIEW}{name}") is None:
                raise HeadraceError(
                    Code.INVALID,
                    f'function "{statement.name}" by CREATE FUNCTION does not exist',
                    hint="SHOW FUNCTIONS lists what exists; code in Python is not kept.",
                    span=span,
                )
            case NamedApart.SECRET:
                return _created_secret(self.connections.secrets.find(name, span))
            case NamedApart.CONNECTION:
                return _created_connection(self.connections.find(name, span=span))
            case NamedApart.SOURCE if self.reader.catalog.find(name) is None:
                return _created_source(self.captures.find(name, span))
        return None

    def describe(self, statement: Describe) -> Result:
        """List a relation's columns; with EXTENDED, also its properties and state."""
        relation = self.reader.catalog.resolve(statement.name.dotted, statement.name.span)
        rows = described(relation)
        if statement.extended:
            rows += [(f"# {name}", value, "") for name, value in self._details(relation)]
        return Result.of(DESCRIBED, rows, self.ledger.head.epoch)

    def _details(self, relation: Relation) -> list[tuple[str, str]]:
        ledger = self.ledger
        found = [("kind", relation.kind)]
        if isinstance(relation, View | PlainView):
            found += [("query", relation.query), ("created by", relation.created_sql)]
            if isinstance(relation, View):
                found.append(("key", key_text(relation)))
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
            found.append(("changes in the log", f"{ledger.head.log_end(relation.id):,}"))
            found.append(("rejected rows", f"{ledger.rejects.count(relation.id):,}"))
        if isinstance(relation, Table) and relation.effective_from is not None:
            by = ", ".join(relation.versioned_key)
            found.append(("versions", f"of each ({by}), from {relation.effective_from} on"))
        if isinstance(relation, View | Table):
            runs = ledger.spines.runs(rows_of(relation.id))
            found.append(("changes stored", f"{sum(run.file.rows for run in runs):,}"))
            found.append(("bytes stored", f"{sum(run.file.bytes for run in runs):,}"))
            found.append(("runs", str(len(runs))))
            found.append(("readable since epoch", str(ledger.spines.since(rows_of(relation.id)))))
        circuit = self.declarations.circuit(relation) if isinstance(relation, View) else None
        if circuit is not None:
            found.append(("state", state(circuit, sizes(self.ledger, circuit))))
        return found


def _created_secret(secret: Secret) -> str:
    return (
        f"CREATE SECRET {quote_dotted(secret.name)} FROM {secret.source.upper()}"
        f" {quoted(secret.where)}"
    )


def _created_connection(connection: NamedConnection) -> str:
    given = (
        f"{quote(each.key)} {'SECRET ' if each.secret else ''}"
        f"{quote_dotted(each.value) if each.secret else quoted(each.value)}"
        for each in connection.given
    )
    return (
        f"CREATE CONNECTION {quote_dotted(connection.name)} TO {connection.kind.upper()}"
        f" ({', '.join(given)})"
    )


def _created_source(capture: PostgresCapture) -> str:
    return (
        f"CREATE SOURCE {quote_dotted(capture.name)} FROM POSTGRES CONNECTION"
        f" {quote_dotted(capture.connection)} (PUBLICATION {quoted(capture.publication)},"
        f" SLOT {quoted(capture.slot)})"
    )


LINEAGE_COLUMNS = (
    "relation", "column", "input", "input_column", "type", "influence", "distance", "external",
)  # fmt: skip
ALL_COLUMNS = "*"
"""Stands for all columns of a relation: an input that decides which rows it has."""


@dataclass(frozen=True, slots=True)
class LineageListings:
    """Lists dependences between columns, as far as the client may see them."""

    reader: Reader
    lineages: Lineages
    datasets: Datasets
    openlineage: OpenLineage
    principal: Principal

    def show(self, statement: ShowLineage) -> Listed:
        """List the inputs of a relation's columns, or of one column; or what depends on these.

        ``external`` is the dataset outside of the database that feeds the input or, downstream,
        that a sink writes to.
        """
        if statement.name is None:
            return self._events(self.reader.catalog)
        relation, column = named(self.reader.catalog, statement.name)
        if statement.as_events:
            if column is not None:
                raise HeadraceError(
                    Code.INVALID,
                    f'"{statement.name}" is a column',
                    hint=f"Events are on relations: write {relation.name}.",
                    span=statement.name.span,
                )
            return self._events([relation])
        return self.of(relation, column, downstream=statement.downstream)

    def of(self, relation: Relation, column: str | None, *, downstream: bool) -> Listed:
        """List the lineage of a relation, or of one of its columns; see :meth:`show`."""
        catalog = self.reader.catalog
        found = self._found(catalog, relation, column, downstream=downstream)
        return listed(
            LINEAGE_COLUMNS, [self._row(catalog, each, downstream=downstream) for each in found]
        )

    def _events(self, relations: Iterable[Relation]) -> Listed:
        events = self.openlineage.events.on(relations, self.reader.published)
        return Listed(("event",), [(as_json(event),) for event in events])

    def _found(
        self, catalog: Catalog, relation: Relation, column: str | None, *, downstream: bool
    ) -> Iterator[Dependence]:
        follow = self.lineages.downstream if downstream else self.lineages.upstream
        for each in follow(catalog, relation.id):
            other = catalog.by_id[each.relation if downstream else each.input.relation]
            if other.name.startswith(HIDDEN) or not self._sees(catalog, each):
                continue
            own = each.input.column if downstream else each.column
            if column in {None, own} or own is None:  # all columns depend on what decides rows
                yield each

    def _sees(self, catalog: Catalog, each: Dependence) -> bool:
        """Whether the client may see how a relation is defined: it may read all its inputs."""
        return catalog.sees_all(self.principal.sees, each.relation)

    def _row(
        self, catalog: Catalog, each: Dependence, *, downstream: bool
    ) -> tuple[str, str, str, str, str, str, int, str | None]:
        relation, over = catalog.by_id[each.relation], catalog.by_id[each.input.relation]
        outside = self.datasets.of(relation if downstream else over)
        return (
            relation.name,
            ALL_COLUMNS if each.column is None else each.column,
            over.name,
            each.input.dotted,
            each.influence.type,
            str(each.influence),
            each.distance,
            None if outside is None else outside.uri,
        )


def named(catalog: Catalog, name: Name) -> tuple[Relation, str | None]:
    """Return the relation of a name, and the column if the name's last part is that of a column.

    Raises:
        HeadraceError: ``invalid``, at the name, if there is no such relation or column.
    """
    relation = catalog.find(name.dotted)
    below = catalog.find(".".join(name.parts[:-1]))
    if relation is not None or below is None:
        return catalog.resolve(name.dotted, name.span), None
    return below, column_of(below, name.parts[-1], name.span)


def column_of(relation: Relation, column: str, span: Span | None = None) -> str:
    """Return a column of a relation as its schema spells it.

    Raises:
        HeadraceError: ``invalid``, at the span, if it does not exist.
    """
    names = relation.schema.names
    found = next((name for name in names if name.lower() == column.lower()), None)
    if found is None:
        primary = f'column "{column}" does not exist in {title(relation)}'
        hint = meant(column, names, f"There are: {', '.join(names)}.")
        raise HeadraceError(Code.INVALID, primary, hint=hint, span=span)
    return found


_COLUMNS = ("relation", "row", "copies", "error", "since")
_MOST_ROWS = 1000
_TYPES = {"copies": pa.int64()}


@dataclass(frozen=True, slots=True)
class Errors:
    """Lists the errors of a view, a sink or a relation with rejects."""

    reader: Reader

    def show(self, statement: Show) -> Result:
        """List the newest failed rows: relation, row, copies, error and time.

        Errors of a view include all writes so far. The error that stopped a view has a row on which
        its query fails, if one was found; the error that stopped a sink has none.

        Raises:
            HeadraceError: ``invalid`` for relations without errors.
        """
        name = statement.relation
        if name is None:
            raise HeadraceError(Code.INTERNAL, "SHOW ERRORS names no relation", span=statement.span)
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        match relation:
            case View():
                self.reader.pump.settle()
                return self._of_view(relation)
            case Sink():
                return self._of_sink(relation)
            case _:
                raise HeadraceError(
                    Code.INVALID,
                    f"{title(relation)} keeps no errors",
                    hint=_hint(relation),
                    span=name.span,
                )

    def _of_sink(self, sink: Sink) -> Result:
        """Return the changes that a sink's target refused, as lines of JSON."""
        ledger, state = self.reader.ledger, self.reader.published
        source = shown_name(state.catalog.by_id[sink.source], state.catalog)
        rows: list[Any] = []
        record = ledger.deliveries.all()[sink.id]
        if record.why is not None:
            rows.append((None, None, None, record.why, None))
        rows += [
            (source, kept.reject.raw, None, kept.reject.reason, shown_time(kept.at))
            for kept in ledger.rejects.newest(sink.id, _MOST_ROWS)
        ]
        return Result.of(_COLUMNS, rows, state.epoch, _TYPES)

    def _of_view(self, view: View) -> Result:
        reader, state = self.reader, self.reader.published
        rows: list[Any] = [
            (
                entry.origin.get("relation"),
                entry.origin.get("row"),
                None,
                entry.detail,
                shown_time(entry.since),
            )
            for entry in reader.ledger.head.dirty
            if (entry.view, entry.cause) == (view.id, STOPPED)
        ]
        kept = quarantined_rows(reader.ledger, reader.directory, state, view)
        newest = nlargest(_MOST_ROWS, kept, key=lambda each: each.since)
        rows += [
            (
                each.relation.name,
                json_text(each.row),
                each.copies,
                each.error,
                shown_time(each.since / 1_000_000),
            )
            for each in newest
        ]
        return Result.of(_COLUMNS, rows, state.epoch, _TYPES)


def _hint(relation: Relation) -> str:
    if isinstance(relation, Stream | Table):
        return f"SHOW REJECTS FOR {relation.name} lists the rows that it did not accept."
    return "Name a materialized view or a sink."
