"""DESCRIBE and SHOW CREATE: the columns of a relation, and the statement that created it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import FUNCTION_VIEW, PlainView, Relation, Stream, Table, View
from headrace.circuit.explain import state
from headrace.errors import Code, HeadraceError
from headrace.sql import NamedApart, quote, quote_dotted, quoted
from headrace.statements.defining.declared_keys import key_text
from headrace.statements.describing.explanations import sizes
from headrace.statements.describing.relations import DESCRIBED, described
from headrace.statements.results import Result
from headrace.types import rows_of

if TYPE_CHECKING:
    from headrace.connectors import Captures, Connections, NamedConnection, PostgresCapture, Secret
    from headrace.ledger import Ledger
    from headrace.parts.declarations import Declarations
    from headrace.parts.reader import Reader
    from headrace.sql import Describe, ShowCreate


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
