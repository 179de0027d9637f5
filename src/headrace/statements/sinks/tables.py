"""CREATE STREAM and CREATE TABLE, also captured ones and those with a sink in their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql import CreateTable
from headrace.statements.defining.options import writes_outside

if TYPE_CHECKING:
    from headrace.parts.reader import Reader
    from headrace.sql import CreateStream
    from headrace.statements.defining.captures import CaptureChanges
    from headrace.statements.defining.relations import RelationDefinitions
    from headrace.statements.sinks.creations import SinkCreations


@dataclass(frozen=True, slots=True)
class RelationCreations:
    """Creates streams and tables, with their captures and sinks."""

    reader: Reader
    relations: RelationDefinitions
    capture_changes: CaptureChanges
    creations: SinkCreations

    def create(self, statement: CreateStream | CreateTable) -> str:
        """Create a stream or table, and the sink named in its options, if any; both or neither."""
        if not isinstance(statement, CreateTable):
            return self.relations.create(statement)
        if statement.captured is not None:
            return self.capture_changes.create_table(statement)
        name = statement.name
        former = self.reader.catalog.find(name.dotted)
        message = self.relations.create(statement)
        if not writes_outside(statement.options):
            return message
        table = self.reader.catalog.resolve(name.dotted, name.span)
        if former is not None and former.id == table.id:
            return message
        return f"{message}, which {self.creations.deliver(statement, table.id)}"
