"""CREATE CONNECTION and DROP CONNECTION."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import Relation, Sink, Stream, Table
from headrace.connectors import Given
from headrace.errors import Code, HeadraceError
from headrace.sql import CONNECTION, CreateConnection, DropConnection

if TYPE_CHECKING:
    from headrace.connectors import Captures, Connections
    from headrace.parts.reader import Reader
    from headrace.sql import Rename


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
