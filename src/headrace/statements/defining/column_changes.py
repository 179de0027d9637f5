"""ALTER STREAM ... DROP COLUMN, RENAME COLUMN and ALTER COLUMN TYPE: the stream's history stays.

Its log keeps the columns as they were written, under names that never change; see
:class:`headrace.types.Column`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType

from headrace.catalog import Sink, Stream, View
from headrace.circuit.resembling import AlteredColumns
from headrace.connectors import CONNECTOR
from headrace.errors import Code, HeadraceError, Span, masked
from headrace.parts.former_names import without_former
from headrace.parts.naming import shown_name
from headrace.parts.renamed_definitions import RenamedDefinitions
from headrace.parts.renamed_queries import RenamedColumn
from headrace.sql import quote
from headrace.sql.edits import names_column, with_column
from headrace.statements.describing.lineage import column_of
from headrace.types import Schema
from headrace.types.widening import widens, wider_than

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.catalog import Catalog, Defined, Relation
    from headrace.engine.engine import Engine
    from headrace.parts.feeding import Feeding
    from headrace.parts.lineage import Lineages
    from headrace.parts.reader import Reader
    from headrace.parts.reshaping import Reshaping
    from headrace.runtime.feeds import Feeds
    from headrace.sql import DropColumns, Name, RenameColumn, RetypeColumn
    from headrace.sql.alter_columns import ColumnName
    from headrace.types import Column


_UNIQUE: Final = "its DEDUPLICATE clause"
_INTEGERS: Final = (ByteType(), ShortType(), IntegerType(), LongType())
_OF_MESSAGES: Final = frozenset({"kafka", "kinesis", "filesystem"})
"""The connectors whose values have fields by name, in a format that ignores unknown ones."""


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """Changes the columns of existing streams."""

    reader: Reader
    reshaping: Reshaping
    lineages: Lineages
    feeds: Feeds
    feeding: Feeding
    engine: Engine

    def drop(self, statement: DropColumns) -> str:
        """Drop columns of a stream that nothing uses; earlier events keep them in the log only.

        Raises:
            HeadraceError: ``invalid`` if a column does not exist; ``conflict`` if something uses
                it, with the names of what does; ``unsupported`` for other relations.
        """
        stream = _stream(self.reader.catalog, statement.name, "dropping")
        names: list[str] = []
        for each in statement.dropped:
            known = {name.lower() for name in stream.schema.names}
            if statement.if_exists and each.text.lower() not in known:
                continue
            name = column_of(stream, each.text, each.span)
            self._require_unused(stream, name, each.span)
            names.append(name)
        if stream.declaration.source and _format(stream) == "csv":
            raise HeadraceError(
                Code.CONFLICT,
                f'the columns of stream "{stream.name}" are the fields of its source, in order',
                hint="Read it through a view without the column.",
                span=statement.span,
            )
        if not names:
            return f"stream {stream.name} has no such column"
        left = tuple(c for c in stream.schema.columns if c.name not in names)
        if not left:
            raise HeadraceError(
                Code.CONFLICT,
                f'stream "{stream.name}" would have no columns',
                hint=f"DROP STREAM {stream.name} drops it.",
                span=statement.span,
            )
        altered = replace(
            stream, schema=Schema(left), declaration=_without(stream, names, statement.span)
        )
        self._alter(stream, altered, AlteredColumns(_moved(stream, altered)), statement.name.span)
        return f"dropped {_quoted(names)} of stream {stream.name}"

    def rename(self, statement: RenameColumn) -> str:
        """Rename a column of a stream, also in the queries that read it; their columns stay.

        Raises:
            HeadraceError: ``invalid`` if the column does not exist; ``conflict`` if the new name
                is taken, or something that uses it cannot follow; ``unsupported`` for other
                relations, and for columns whose name a source uses.
        """
        stream = _stream(self.reader.catalog, statement.name, "renaming")
        name = column_of(stream, statement.column.text, statement.column.span)
        to = statement.to.text
        _require_free(stream, name, statement.to)
        self._require_renameable(stream, name, statement.column.span)
        altered = _renamed(stream, name, to, statement.span)
        self._require_computable(stream, altered, statement.column.span)
        follow = RenamedDefinitions(RenamedColumn(name, to), self.engine.planner.analyse)
        self._alter(stream, altered, AlteredColumns(), statement.name.span, follow.over)
        return f'renamed column "{name}" of stream {stream.name} to "{to}"'

    def retype(self, statement: RetypeColumn) -> str:
        """Give a column of a stream a wider type; earlier events are read as of that type.

        Raises:
            HeadraceError: ``invalid`` if the column or type does not exist; ``unsupported`` for a
                type that does not hold all values, and for other relations; ``conflict`` if
                something computes with the present type.
        """
        stream = _stream(self.reader.catalog, statement.name, "altering")
        name = column_of(stream, statement.column.text, statement.column.span)
        (column,) = (c for c in stream.schema.columns if c.name == name)
        span = statement.type.span
        with self.engine.planning:
            type_ = self.engine.planner.parse_type(span, statement.type.text)
        if type_ == column.type:
            return f'column "{name}" of stream {stream.name} is {column.sql.upper()}'
        if not widens(column.type, type_):
            raise _not_wider(column, type_.simpleString(), span)
        users = [*_own_users(stream, name)]
        ids = name in stream.declaration.unique
        if ids and column.type in _INTEGERS and type_ in _INTEGERS:
            users.remove(_UNIQUE)  # whose ids are the same text
        if users:
            raise HeadraceError(
                Code.CONFLICT,
                f'column "{name}" of stream "{stream.name}" is used by {", ".join(users)}',
                "What they have computed has the present type.",
                "ADD COLUMN of the wider type, and write both.",
                statement.column.span,
            )
        columns = (replace(c, type=type_) if c.name == name else c for c in stream.schema.columns)
        declared = replace(stream.declaration, created_sql=with_alteration(stream, statement.span))
        altered = replace(stream, schema=Schema(tuple(columns)), declaration=declared)
        try:
            self._alter(stream, altered, AlteredColumns(), statement.name.span)
        except HeadraceError as error:
            if error.code is not Code.CONFLICT:
                raise
            readers = list(self._readers(stream, name))
            detail = f"Column {name} is read by {', '.join(readers)}." if readers else error.detail
            raise HeadraceError(
                Code.CONFLICT,
                error.primary,
                detail,
                "DROP what computes with the present type first, and create it again afterwards:"
                " what it has stored has that type. Or ADD COLUMN of the wider type.",
                error.span,
            ) from error
        return f'column "{name}" of stream {stream.name} is {type_.simpleString().upper()} now'

    def _require_renameable(self, stream: Stream, name: str, span: Span) -> None:
        """Refuse a column that is named by what cannot be rewritten."""
        declaration = stream.declaration
        (column,) = (c for c in stream.schema.columns if c.name == name)
        why = None
        if name in declaration.message_key:
            why = "it is in the key of its messages"
        elif declaration.source and not _accepts_former(stream):
            why = "its source knows no other name of it"
        elif declaration.source and not column.nullable:
            why = "it is NOT NULL, and messages may have either name"
        writers = self._writers(stream, name)
        if writers:
            why = f"{', '.join(writers)} writes into it"
        if why is not None:
            raise HeadraceError(
                Code.CONFLICT,
                f'column "{name}" of stream "{stream.name}" cannot be renamed: {why}',
                hint="ADD COLUMN with the new name; or read it through a view that renames it.",
                span=span,
            )

    def _require_computable(self, stream: Stream, altered: Stream, span: Span) -> None:
        """Refuse if a computed column would have another type, or could not be computed."""
        for before, after in zip(_computed(stream), _computed(altered), strict=True):
            with self.engine.planning:
                types = [self.engine.planner.analyse(Span.whole(t)).schema for t in (before, after)]
            if types[0] != types[1]:
                raise HeadraceError(
                    Code.CONFLICT, "a computed column would have another type", span=span
                )

    def _alter(
        self,
        stream: Stream,
        altered: Stream,
        columns: AlteredColumns,
        span: Span,
        follow: Callable[[Defined], Defined] = lambda defined: defined,
    ) -> None:
        """Alter a stream; its source continues with it."""
        self.feeds.forget(stream.id)
        try:
            self.reshaping.alter([stream], [altered], columns, follow)
        except HeadraceError as error:
            self.feeding.begin(stream)
            raise error.at(span) from error
        self.feeding.begin(altered)

    def _require_unused(self, stream: Stream, name: str, span: Span) -> None:
        """Refuse a column that something uses."""
        users = [*_own_users(stream, name), *self._readers(stream, name)]
        if users:
            raise HeadraceError(
                Code.CONFLICT,
                f'column "{name}" of stream "{stream.name}" is used by {", ".join(users)}',
                hint="DROP these first, or CREATE OR REPLACE them without the column."
                f" SHOW LINEAGE OF {stream.name}.{name} DOWNSTREAM lists all that depends on it.",
                span=span,
            )

    def _readers(self, stream: Stream, name: str) -> Iterator[str]:
        """Yield what reads a column directly, and what writes into it."""
        catalog = self.reader.catalog
        found: dict[str, None] = {}
        for each in self.lineages.downstream(catalog, stream.id):
            if each.distance == 1 and each.input.column == name:
                found[_shown(catalog.by_id[each.relation], catalog)] = None
        found |= dict.fromkeys(self._writers(stream, name))
        yield from found

    def _writers(self, stream: Stream, name: str) -> list[str]:
        """Return the sinks that write into a column."""
        catalog = self.reader.catalog
        sinks = (each for each in catalog if isinstance(each, Sink) and each.target == stream.id)
        return [_shown(each, catalog) for each in sinks if name in each.columns]


def _stream(catalog: Catalog, name: Name, doing: str) -> Stream:
    relation = catalog.resolve(name.dotted, name.span)
    if isinstance(relation, Stream):
        return relation
    hint = f"Read {name} through a view with the columns that you need."
    if isinstance(relation, View):
        hint = f"ALTER MATERIALIZED VIEW {name} AS, with a query that has these columns."
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'{doing} a column of {relation.kind} "{relation.name}" is not supported',
        "The columns of a stream can be altered; the rows of a table are stored by its columns.",
        hint,
        name.span,
    )


def _not_wider(column: Column, given: str, span: Span) -> HeadraceError:
    allowed = wider_than(column.type)
    return HeadraceError(
        Code.UNSUPPORTED,
        f'column "{column.name}" of type {column.sql.upper()} cannot become {given.upper()}',
        "Only a type that holds all values of the present one as they are is possible.",
        f"Its type can become {allowed}. Otherwise compute it in a view."
        if allowed
        else "Compute the other type in a view; or ADD COLUMN, and write both.",
        span,
    )


def _own_users(stream: Stream, name: str) -> Iterator[str]:
    """Yield the parts of a stream's own definition that use a column."""
    declaration = stream.declaration
    if name == stream.event_time:
        yield "its watermark" if declaration.watermark is not None else "its option timestamp"
    elif declaration.watermark is not None and names_column(declaration.watermark[1], name):
        yield "its watermark"
    if name in declaration.unique:
        yield _UNIQUE
    if name in declaration.message_key:
        yield "its message key"
    for column, expression in declaration.computed:
        if column != name and names_column(expression, name):
            yield f'its computed column "{column}"'


def _without(stream: Stream, names: list[str], span: Span) -> Any:
    """Return the declaration of a stream without columns that nothing else of it uses."""
    declaration = stream.declaration

    def kept(pairs: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        return tuple(pair for pair in pairs if pair[0] not in names)

    gone = tuple(c.stored_name for c in stream.schema.columns if c.name in names)
    return replace(
        declaration,
        created_sql=with_alteration(stream, span),
        computed=kept(declaration.computed),
        metadata=kept(declaration.metadata),
        defaults=kept(declaration.defaults),
        precisions=kept(declaration.precisions),
        dropped=(*declaration.dropped, *gone),
        former=without_former(stream, names),
    )


def _format(stream: Stream) -> str:
    declared = stream.declaration.option("format", "value.format", "value_format")
    return (declared or "json").lower()


def _accepts_former(stream: Stream) -> bool:
    """Whether the values of a stream's source may name a column as it was called before."""
    connector = dict(stream.declaration.source)[CONNECTOR]
    return _format(stream) == "json" and connector in _OF_MESSAGES


def _require_free(stream: Stream, name: str, to: ColumnName) -> None:
    """Refuse a new name of a column that another column has, or that is reserved."""
    taken = {other.lower() for other in stream.schema.names if other != name}
    if to.text.lower() in taken:
        raise HeadraceError(
            Code.CONFLICT,
            f'column "{to.text}" of stream "{stream.name}" exists already',
            hint="Choose another name.",
            span=to.span,
        )


def _renamed(stream: Stream, name: str, to: str, span: Span) -> Stream:
    """Return a stream with another name of a column; its log has the former one."""

    def column(given: str) -> str:
        return to if given == name else given

    def pairs(given: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        return tuple((column(key), value) for key, value in given)

    def expressions(given: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((column(key), with_column(text, name, to)) for key, text in given)

    declaration = stream.declaration
    watermark = declaration.watermark
    former = (
        (name, to),
        *((o, column(c)) for o, c in declaration.former if o.lower() != to.lower()),
    )
    declared = replace(
        declaration,
        created_sql=with_alteration(stream, span),
        options=tuple(
            (key, to if key == "timestamp" and value.lower() == name.lower() else value)
            for key, value in declaration.options
        ),
        watermark=None if watermark is None else expressions((watermark,))[0],
        computed=expressions(declaration.computed),
        metadata=pairs(declaration.metadata),
        defaults=pairs(declaration.defaults),
        precisions=pairs(declaration.precisions),
        unique=tuple(map(column, declaration.unique)),
        former=former,
    )
    columns = (
        replace(c, name=to, stored=None if c.stored_name == to else c.stored_name)
        if c.name == name
        else c
        for c in stream.schema.columns
    )
    return replace(stream, schema=Schema(tuple(columns)), declaration=declared)


def _computed(stream: Stream) -> list[str]:
    """Return queries of the computed columns of a stream, over NULL in its other columns."""
    computed = dict(stream.declaration.computed)
    nulls = ", ".join(
        f"CAST(NULL AS {c.type.simpleString()}) AS {quote(c.name)}"
        for c in stream.schema.columns
        if c.name not in computed
    )
    return [f"SELECT ({text}) AS value FROM (SELECT {nulls})" for text in computed.values()]


def with_alteration(stream: Stream, span: Span) -> str:
    """Return the statements that create a stream, with one more."""
    return f"{stream.declaration.created_sql};\n{masked(span.source)}"


def stored_as(stream: Stream, column: Column) -> Column:
    """Return a new column of a stream with a name that its log has not had yet."""
    used = {name.lower() for name in (*stream.schema.stored_names, *stream.declaration.dropped)}
    if column.name.lower() not in used:
        return column
    number = 2
    while f"{column.name}_{number}".lower() in used | {n.lower() for n in stream.schema.names}:
        number += 1
    return replace(column, stored=f"{column.name}_{number}")


def _moved(former: Stream, present: Stream) -> dict[Any, dict[int, int]]:
    """Return the positions that the columns of a stream have moved to."""
    names = former.schema.names
    return {
        former.id: {names.index(name): at for at, name in enumerate(present.schema.names)},
    }


def _shown(relation: Relation, catalog: Catalog) -> str:
    shown = shown_name(relation, catalog)
    return shown if shown != relation.name else f'{relation.kind} "{relation.name}"'


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
