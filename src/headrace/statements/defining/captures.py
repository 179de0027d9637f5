"""CREATE SOURCE over PostgreSQL, CREATE TABLE ... FROM SOURCE, and DROP SOURCE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import SHARED_SOURCE, Declaration, Table
from headrace.connectors import (
    CONNECTOR,
    REFERENCE,
    Given,
    Reference,
    inferred_columns,
    require_declared,
)
from headrace.errors import Code, HeadraceError, masked
from headrace.sql import CreateTable, ObjectKind, quote, quote_dotted
from headrace.statements.defining.placing import listed, place_of
from headrace.types import Schema, require_key

if TYPE_CHECKING:
    from headrace.connectors import Captures, PostgresCapture
    from headrace.parts.capturing import Capturing
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.sql import CreateSource, Drop, Name
    from headrace.statements.defining.relations import RelationDefinitions


@dataclass(frozen=True, slots=True)
class CaptureChanges:
    """Creates and drops sources of several tables, and the tables that follow these."""

    reader: Reader
    definer: Definer
    relations: RelationDefinitions
    captures: Captures
    capturing: Capturing

    def create(self, statement: CreateSource) -> str:
        """Create a source, and the tables in the statement."""
        name = statement.name.dotted
        if name in self.captures and statement.if_not_exists:
            return f'"{name}" exists already'
        self._require_free(statement.name)
        try:
            given = Given.of(statement.options)
            capture = self.captures.prepared(name, statement.connection.dotted, given)
            tables = self._asked(statement, capture)
            self.captures.add(capture)
        except HeadraceError as error:
            raise (error if error.span is not None else error.at(statement.span)) from error
        for table in tables:
            self.definer.create(table)
        self.capturing.begin(capture)
        of = f"; tables {listed(tables)} follow it" if tables else ""
        return f'created source {name} over replication slot "{capture.slot}"{of}'

    def create_table(self, statement: CreateTable) -> str:
        """Create a table that follows a table of a source."""
        replaced = place_of(self.reader.catalog, statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        if statement.captured is None:
            raise HeadraceError(Code.INTERNAL, "a table without a source cannot be captured")
        source = statement.captured.source
        capture = self.captures.find(source.dotted, source.span)
        try:
            reference = Reference.of(".".join(statement.captured.reference.parts))
            table = self._table(statement.name.dotted, capture, reference, statement)
            self._require_first(capture, table, statement)
        except HeadraceError as error:
            raise (error if error.span is not None else error.at(statement.span)) from error
        self.definer.create(table, replaced)
        self.capturing.begin(capture)
        return f"created table {table.name}, which follows {reference} of source {capture.name}"

    def owns(self, statement: Drop) -> bool:
        """Whether a statement drops a source of several tables."""
        return statement.kind is ObjectKind.SOURCE and statement.name.dotted in self.captures

    def drop(self, statement: Drop) -> str:
        """Drop a source and its slot; with CASCADE, also its tables and their readers."""
        capture = self.captures.find(statement.name.dotted, statement.name.span)
        catalog, tables = self.reader.catalog, self.capturing.tables(capture.name)
        if tables and not statement.cascade:
            raise HeadraceError(
                Code.CONFLICT,
                f'source "{capture.name}" is used by {listed(tables)}',
                hint=f"Use DROP SOURCE {capture.name} CASCADE to drop these too.",
                span=statement.name.span,
            )
        ids = dict.fromkeys(table.id for table in tables)
        ids |= dict.fromkeys(above.id for id_ in tuple(ids) for above in catalog.dependants(id_))
        self.capturing.feeds.share(capture.name, None)
        if ids:
            try:
                self.definer.drop(list(ids))
            except BaseException:
                self.capturing.begin(capture)
                raise
        try:
            self.captures.drop_slot(capture)
        except HeadraceError as error:
            left = (
                f"; its slot could not be dropped: {error.detail} In PostgreSQL, as soon as it can"
                f" be reached: SELECT pg_drop_replication_slot('{capture.slot}')"
            )
        else:
            left = f' and replication slot "{capture.slot}"'
        self.captures.remove(capture.name)
        also = f", with {listed(catalog.by_id[id_] for id_ in ids)}" if ids else ""
        return f"dropped source {capture.name}{also}{left}"

    # -- pieces ----------------------------------------------------------------------------

    def _require_free(self, name: Name) -> None:
        other = self.reader.catalog.find(name.dotted)
        if name.dotted in self.captures or other is not None:
            kind = "source" if other is None else other.kind
            raise HeadraceError(
                Code.CONFLICT,
                f'{kind} "{name.dotted}" exists already',
                hint="Choose another name, or DROP it first.",
                span=name.span,
            )

    def _require_first(
        self, capture: PostgresCapture, table: Table, statement: CreateTable
    ) -> None:
        """Raise if another table follows the same source table, unless it is replaced."""
        source = table.declaration.source
        for other in self.capturing.tables(capture.name):
            if other.declaration.source == source and other.name != table.name:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'table "{other.name}" follows that table of source "{capture.name}" already',
                    hint="Create a view of it, or another source.",
                    span=statement.name.span,
                )

    def _asked(self, statement: CreateSource, capture: PostgresCapture) -> list[Table]:
        """Return the tables to create with a source."""
        asked = [
            (Reference.of(".".join(each.reference.parts)), each.name)
            for each in statement.tables or ()
        ]
        names = {reference: None if name is None else name.dotted for reference, name in asked}
        if len(names) < len(asked):
            raise HeadraceError(
                Code.INVALID,
                "a table of PostgreSQL is given twice",
                hint="Give it once; create views of it for other names.",
            )
        if statement.all_tables:
            names = dict.fromkeys(self.captures.published(capture))
        found = {}
        for reference, name in names.items():
            table = self._table(name or reference.table.lower(), capture, reference, statement)
            if self.reader.catalog.find(table.name) is not None or table.name in found:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'"{table.name}" exists already',
                    hint=f"Use FOR TABLES ({reference} AS another_name).",
                )
            found[table.name] = table
        return list(found.values())

    def _table(
        self,
        name: str,
        capture: PostgresCapture,
        reference: Reference,
        statement: CreateSource | CreateTable,
    ) -> Table:
        found = self.captures.described(capture, reference)
        if isinstance(statement, CreateTable) and statement.columns:
            schema = self.relations.declared(statement.columns, statement.primary_key)
            key = require_declared(found, schema, statement.primary_key)
            schema = Schema(
                tuple(replace(c, nullable=c.nullable and c.name not in key) for c in schema.columns)
            )
        else:
            schema, key = inferred_columns(found)
        for column in schema.columns:
            if column.name in key:
                require_key(column.type)
        stored = (
            (CONNECTOR, "postgres"),
            (SHARED_SOURCE, capture.name),
            (REFERENCE, str(reference)),
        )
        created = masked(statement.span.source)
        if not isinstance(statement, CreateTable):  # as if by a statement of its own
            place = f"{quote(reference.schema)}.{quote(reference.table)}"
            of = f"FROM SOURCE {quote_dotted(capture.name)} (REFERENCE {place})"
            created = f"CREATE TABLE {quote_dotted(name)} {of}"
        declaration = Declaration(created, source=stored)
        return Table(self.definer.new_relation(), name, schema, key, None, declaration)
