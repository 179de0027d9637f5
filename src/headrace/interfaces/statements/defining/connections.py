"""CREATE CONNECTION and DROP CONNECTION.

CREATE SECRET and DROP SECRET.

CREATE SOURCE over PostgreSQL, CREATE TABLE ... FROM SOURCE, and DROP SOURCE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, masked
from headrace.interfaces.statements.defining.placing import listed, place_of
from headrace.io.connectors import (
    CONNECTOR,
    REFERENCE,
    Given,
    Reference,
    Secret,
    Secrets,
    inferred_columns,
    require_declared,
    secrets_of,
)
from headrace.planning.catalog import SHARED_SOURCE, Declaration, Relation, Sink, Stream, Table
from headrace.planning.sql import (
    CONNECTION,
    CreateConnection,
    CreateSecret,
    CreateTable,
    DropConnection,
    DropSecret,
    ObjectKind,
    SecretSource,
    quote,
    quote_dotted,
)
from headrace.types import Schema, require_key

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.interfaces.statements.defining.relations import RelationDefinitions
    from headrace.io.connectors import Captures, Connections, PostgresCapture
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.inputs.feeding import Capturing
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import CreateSource, Drop, Name, Rename


@dataclass(frozen=True, slots=True)
class SecretChanges:
    """Creates and drops references to secret values, which are never stored."""

    reader: Reader
    secrets: Secrets
    connections: Connections

    def create(self, statement: CreateSecret) -> str:
        """Create a reference to a value, which must be readable now."""
        name, secrets = statement.name.dotted, self.secrets
        if name in {secret.name for secret in secrets} and not statement.or_replace:
            if statement.if_not_exists:
                return f'"{name}" exists already'
            raise HeadraceError(
                Code.CONFLICT,
                f'secret "{name}" exists already',
                hint="Use CREATE OR REPLACE SECRET, or IF NOT EXISTS.",
                span=statement.name.span,
            )
        where = statement.where
        if statement.source is SecretSource.FILE:
            where = str(Path(where).expanduser().resolve())
        try:
            secrets.add(Secret(name, statement.source, where))
        except HeadraceError as error:
            raise error.at(statement.span) from error
        return f"created secret {name}; its value is read when it is needed, and not stored"

    def drop(self, statement: DropSecret) -> str:
        """Drop an unused secret."""
        name, secrets = statement.name.dotted, self.secrets
        if statement.if_exists and name not in {secret.name for secret in secrets}:
            return f'"{name}" does not exist'
        secrets.find(name, statement.name.span)
        self._require_unused(name, statement.name.span)
        secrets.remove(name)
        return f"dropped secret {name}"

    def rename(self, statement: Rename) -> str:
        """Rename an unused secret."""
        name, to, secrets = statement.name.dotted, statement.to.dotted, self.secrets
        if statement.if_exists and name not in {secret.name for secret in secrets}:
            return f'"{name}" does not exist'
        secret = secrets.find(name, statement.name.span)
        if to in {secret.name for secret in secrets}:
            raise HeadraceError(
                Code.CONFLICT, f'secret "{to}" exists already', span=statement.to.span
            )
        self._require_unused(name, statement.name.span)
        secrets.add(replace(secret, name=to))
        secrets.remove(name)
        return f"renamed secret {name} to {to}"

    def _require_unused(self, name: str, span: Span) -> None:
        using = [
            relation.name
            for relation in self.reader.catalog
            if name in secrets_of(_connector_options(relation), sink=isinstance(relation, Sink))
        ]
        using += [f"connection {c.name}" for c in self.connections if name in c.secrets]
        if using:
            raise HeadraceError(
                Code.CONFLICT,
                f'secret "{name}" is used by {", ".join(using)}',
                hint="Drop these first, or CREATE OR REPLACE the secret.",
                span=span,
            )


def _connector_options(relation: Relation) -> tuple[tuple[str, str], ...]:
    """Return the stored options of a relation's connector; empty if it has none."""
    match relation:
        case Sink():
            return relation.options if relation.target is None else ()
        case Stream() | Table():
            return relation.declaration.source
    return ()


@dataclass(frozen=True, slots=True)
class ConnectionChanges:
    """Creates and drops connections to other systems."""

    reader: Reader
    connections: Connections
    captures: Captures

    def create(self, statement: CreateConnection) -> str:
        """Create a connection; the system must answer now."""
        name = statement.name.dotted
        if name in {connection.name for connection in self.connections}:
            if statement.if_not_exists:
                return f'"{name}" exists already'
            if not statement.or_replace:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'connection "{name}" exists already',
                    hint="Use CREATE CONNECTION IF NOT EXISTS, or DROP CONNECTION first.",
                    span=statement.name.span,
                )
            self._require_unused(statement)
        try:
            self.connections.add(
                name, statement.kind, Given.of(statement.options), statement.name.span
            )
        except HeadraceError as error:
            raise (error if error.span is not None else error.at(statement.span)) from error
        return f"created connection {name}"

    def drop(self, statement: DropConnection) -> str:
        """Drop an unused connection."""
        name = statement.name.dotted
        if statement.if_exists and name not in {each.name for each in self.connections}:
            return f'"{name}" does not exist'
        self.connections.find(name, span=statement.name.span)
        self._require_unused(statement)
        self.connections.remove(name)
        return f"dropped connection {name}"

    def rename(self, statement: Rename) -> str:
        """Rename an unused connection."""
        name, to = statement.name.dotted, statement.to.dotted
        known = {each.name for each in self.connections}
        if statement.if_exists and name not in known:
            return f'"{name}" does not exist'
        found = self.connections.find(name, span=statement.name.span)
        if to in known:
            raise HeadraceError(
                Code.CONFLICT, f'connection "{to}" exists already', span=statement.to.span
            )
        self._require_unused(statement)
        self.connections.put(replace(found, name=to))
        self.connections.remove(name)
        return f"renamed connection {name} to {to}"

    def _require_unused(self, statement: CreateConnection | DropConnection | Rename) -> None:
        name = statement.name.dotted
        using = [each.name for each in self.reader.catalog if _connection_of(each) == name]
        using += [each.name for each in self.captures if each.connection == name]
        if using:
            raise HeadraceError(
                Code.CONFLICT,
                f'connection "{name}" is used by {", ".join(using)}',
                hint="Drop these first.",
                span=statement.name.span,
            )


def _connection_of(relation: Relation) -> str | None:
    """Return the name of the connection that a stream, table or sink uses."""
    if isinstance(relation, Sink):
        return relation.connection
    if not isinstance(relation, Stream | Table):
        return None
    return relation.declaration.option(CONNECTION)


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
