"""DESCRIBE and SHOW CREATE: the columns of a relation, and the statement that created it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import FUNCTION_VIEW, PlainView, Relation, Stream, Table, View, key_of
from headrace.circuit.explain import state
from headrace.errors import Code, HeadraceError
from headrace.statements.defining.declared_keys import key_text
from headrace.statements.describing.explanations import sizes
from headrace.statements.results import Result
from headrace.types import rows_of

if TYPE_CHECKING:
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

    def show_create(self, statement: ShowCreate) -> Result:
        """Show the statement that created a relation or sink, with secrets masked."""
        name, span = statement.name.dotted, statement.name.span
        if statement.of_function:
            name = f"{FUNCTION_VIEW}{name}"
            if self.reader.catalog.find(name) is None:
                raise HeadraceError(
                    Code.INVALID,
                    f'function "{statement.name}" by CREATE FUNCTION does not exist',
                    hint="SHOW FUNCTIONS lists what exists; code in Python is not kept.",
                    span=span,
                )
        relation = self.reader.catalog.resolve(name, span)
        made = (
            relation.declaration.created_sql
            if isinstance(relation, Stream | Table)
            else relation.created_sql
        )
        return Result.of(
            ("name", "statement"),
            [(relation.name.removeprefix(FUNCTION_VIEW), made or None)],
            self.ledger.head.epoch,
        )

    def describe(self, statement: Describe) -> Result:
        """List a relation's columns; with EXTENDED, also its properties and state."""
        relation = self.reader.catalog.resolve(statement.name.dotted, statement.name.span)
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
        return Result.of(("column", "type", "note"), rows, self.ledger.head.epoch)

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
