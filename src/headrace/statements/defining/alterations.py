"""ALTER STREAM ... ADD COLUMN: earlier rows have NULL in the new column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import Stream, View
from headrace.circuit.resembling import AlteredColumns
from headrace.errors import Code, HeadraceError, masked
from headrace.statements.defining.column_changes import stored_as
from headrace.types import Schema

if TYPE_CHECKING:
    from headrace.catalog import Declaration, Relation
    from headrace.parts.feeding import Feeding
    from headrace.parts.reader import Reader
    from headrace.parts.reshaping import Reshaping
    from headrace.runtime.feeds import Feeds
    from headrace.sql import AddColumns, ColumnDefinition
    from headrace.statements.defining.relations import RelationDefinitions
    from headrace.types import Column


@dataclass(frozen=True, slots=True)
class Alterations:
    """Changes existing streams."""

    reader: Reader
    reshaping: Reshaping
    feeds: Feeds
    feeding: Feeding
    relations: RelationDefinitions

    def add_columns(self, statement: AddColumns) -> str:
        """Add columns to a stream; its source continues with them.

        Raises:
            HeadraceError: ``unsupported`` for other relations, and for columns that need a value in
                earlier rows; ``conflict`` if a view reads all columns by ``*``.
        """
        name = statement.name
        stream = _stream(self.reader.catalog.resolve(name.dotted, name.span), statement)
        known = {column.lower() for column in stream.schema.names}
        for definition in statement.columns:
            if definition.name.lower() in known:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'column "{definition.name}" of stream "{stream.name}" exists already',
                    hint="Choose another name.",
                    span=definition.span,
                )
            _require_plain(definition)
        new: list[Column] = []
        for each in statement.columns:
            whole = Schema((*stream.schema.columns, *new))
            new.append(stored_as(replace(stream, schema=whole), self.relations.column(each)))
        altered = _with_columns(stream, new, statement)
        self.feeds.forget(stream.id)
        try:
            self.reshaping.alter(
                [stream], [altered], AlteredColumns(), refused="would have other columns"
            )
        except HeadraceError as error:
            self.feeding.begin(stream)
            raise error.at(name.span) from error
        self.feeding.begin(altered)
        added = ", ".join(f'"{column.name}"' for column in new)
        return f"added {added} to stream {stream.name}: NULL in rows that it has"


def _stream(relation: Relation, statement: AddColumns) -> Stream:
    if isinstance(relation, Stream):
        return relation
    hint = "CREATE a table with the columns, and INSERT INTO it SELECT the rows of this one."
    if isinstance(relation, View):
        hint = "CREATE OR REPLACE it with a query that has the columns."
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'adding columns to {relation.kind} "{relation.name}" is not supported',
        hint=hint,
        span=statement.name.span,
    )


def _require_plain(definition: ColumnDefinition) -> None:
    """Raise if a column needs a value in earlier rows."""
    what = (
        "NOT NULL"
        if definition.not_null
        else "computed"
        if definition.computed is not None
        else "METADATA"
        if definition.metadata is not None
        else None
    )
    if what is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'column "{definition.name}" is {what}, which earlier rows are not',
            hint="Add it without that; compute it in a view.",
            span=definition.span,
        )


def _with_columns(stream: Stream, new: list[Column], statement: AddColumns) -> Stream:
    defaults = tuple(
        (each.name, each.default.text) for each in statement.columns if each.default is not None
    )
    declaration: Declaration = replace(
        stream.declaration,
        created_sql=f"{stream.declaration.created_sql};\n{masked(statement.span.source)}",
        defaults=(*stream.declaration.defaults, *defaults),
    )
    schema = Schema((*stream.schema.columns, *new))
    return replace(stream, schema=schema, declaration=declaration)
