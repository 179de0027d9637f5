"""Definitions of streams and tables with other columns, and what of them uses a column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import Stream, Table
from headrace.circuit.resembling import AlteredColumns
from headrace.errors import Span, masked
from headrace.parts.former_names import without_former
from headrace.sql import AddColumns, DropColumns, RenameColumn
from headrace.sql.edits import Edit, as_name, edited
from headrace.sql.parser import parse
from headrace.statements.defining.columns import ColumnExpressions
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.catalog import Declaration, Sink
    from headrace.engine.engine import Engine
    from headrace.errors import HeadraceError
    from headrace.parts.reshaping import Follow
    from headrace.types import Column, DataType

_NAMING: Final = frozenset({"timestamp", "effective_from"})
"""The options whose value is the name of a column."""
UNIQUE: Final = "its DEDUPLICATE clause"
ARRANGED: Final = "its rows, which are arranged by all columns since it has no PRIMARY KEY"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of the columns of a relation, found to be possible as far as it itself is concerned.

    ``done`` says that it was made. ``follow`` return the definitions of what depends on the
    relation; ``readers`` are those of a column whose type changes, ``writers`` the sinks into a
    column that is dropped. ``used`` is why a column cannot be dropped since others use it.
    ``refused`` says of one that cannot go on why the change is refused.
    """

    relation: Stream | Table
    altered: Stream | Table
    done: str
    place: Span
    follow: Sequence[Follow] = ()
    readers: tuple[str, ...] = ()
    writers: tuple[Sink, ...] = ()
    used: HeadraceError | None = None
    refused: str = "could not go on as it is"
    widened: bool = False

    @property
    def moved(self) -> AlteredColumns:
        """Where the columns are now: the new one of each that is renamed is at its place."""
        dropped = len(self.altered.schema.columns) < len(self.relation.schema.columns)
        if not dropped:
            return AlteredColumns(widened=self.widened)
        left = {name: at for at, name in enumerate(self.altered.schema.names)}
        places = {i: left.get(name, -1) for i, name in enumerate(self.relation.schema.names)}
        return AlteredColumns({self.relation.id: places})


def with_columns(
    relation: Stream | Table, new: Sequence[Column], defaults: Iterable[tuple[str, str]], span: Span
) -> Stream | Table:
    """Return a relation with more columns; earlier rows have NULL in them."""
    declaration = replace(
        relation.declaration,
        created_sql=with_alteration(relation, span),
        defaults=(*relation.declaration.defaults, *defaults),
    )
    columns = (*relation.schema.columns, *new)
    return _altered(relation, Schema(columns), declaration)


def without_columns(relation: Stream | Table, names: Sequence[str], span: Span) -> Stream | Table:
    """Return a relation without columns that nothing else of it uses."""
    declaration = relation.declaration

    def kept(pairs: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        return tuple(pair for pair in pairs if pair[0] not in names)

    gone = tuple(c.stored_name for c in relation.schema.columns if c.name in names)
    declared = replace(
        declaration,
        created_sql=with_alteration(relation, span),
        computed=kept(declaration.computed),
        metadata=kept(declaration.metadata),
        defaults=kept(declaration.defaults),
        precisions=kept(declaration.precisions),
        dropped=(*declaration.dropped, *gone),
        former=without_former(relation, names),
    )
    left = tuple(c for c in relation.schema.columns if c.name not in names)
    return _altered(relation, Schema(left), declared)


def retyped(relation: Stream | Table, name: str, type_: DataType, span: Span) -> Stream | Table:
    """Return a relation with a wider type of a column."""
    columns = (replace(c, type=type_) if c.name == name else c for c in relation.schema.columns)
    declared = replace(relation.declaration, created_sql=with_alteration(relation, span))
    return _altered(relation, Schema(tuple(columns)), declared)


def renamed(
    relation: Stream | Table, name: str, to: str, span: Span, engine: Engine
) -> Stream | Table:
    """Return a relation with another name of a column; its files have the former one.

    Raises:
        HeadraceError: ``conflict`` if an expression of its definition cannot have the new name.
    """
    computing, marking = expressions(relation, engine)

    def column(given: str) -> str:
        return to if given == name else given

    def pairs(given: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        return tuple((column(key), value) for key, value in given)

    def over(by: ColumnExpressions, key: str, text: str) -> tuple[str, str]:
        return column(key), by.renamed(text, name, to)

    declaration = relation.declaration
    watermark = declaration.watermark
    former = (
        (name, to),
        *((o, column(c)) for o, c in declaration.former if o.lower() != to.lower()),
    )
    declared = replace(
        declaration,
        created_sql=with_alteration(relation, span),
        options=tuple(
            (key, to if key in _NAMING and value.lower() == name.lower() else value)
            for key, value in declaration.options
        ),
        watermark=None if watermark is None else over(marking, *watermark),
        computed=tuple(over(computing, *each) for each in declaration.computed),
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
        for c in relation.schema.columns
    )
    found = _altered(relation, Schema(tuple(columns)), declared)
    if isinstance(found, Table):
        effective = found.effective_from
        found = replace(
            found,
            primary_key=tuple(map(column, found.primary_key)),
            effective_from=None if effective is None else column(effective),
            arranged=tuple(map(column, found.arranged)),
        )
    return found


def _altered(relation: Stream | Table, schema: Schema, declaration: Declaration) -> Stream | Table:
    if isinstance(relation, Stream):
        return replace(relation, schema=schema, declaration=declaration)
    arranged = relation.arranged or relation.primary_key or relation.schema.names
    return replace(relation, schema=schema, declaration=declaration, arranged=arranged)


def expressions(
    relation: Stream | Table, engine: Engine
) -> tuple[ColumnExpressions, ColumnExpressions]:
    """Return what the computed columns of a relation are over, and what its watermark is over."""
    columns, generated = relation.schema.columns, relation.declaration.generated
    given = tuple(column for column in columns if column.name not in generated)
    return ColumnExpressions(engine, given), ColumnExpressions(engine, columns)


def own_users(relation: Stream | Table, name: str, engine: Engine) -> Iterator[str]:
    """Yield the parts of a relation's own definition that use a column."""
    computing, marking = expressions(relation, engine)
    declaration, mark = relation.declaration, relation.declaration.watermark
    if isinstance(relation, Table):
        if name in relation.primary_key:
            yield "its PRIMARY KEY"
        elif not relation.primary_key and name in (relation.arranged or relation.schema.names):
            yield ARRANGED
    if mark is not None and (mark[0].lower() == name.lower() or name in marking.reads(mark[1])):
        yield "its watermark"
    elif mark is None and (declaration.option("timestamp") or "").lower() == name.lower():
        yield "its option timestamp"
    if name in declaration.unique:
        yield UNIQUE
    if name in declaration.message_key:
        yield "its message key"
    for column, expression in declaration.computed:
        if column != name and name in computing.reads(expression):
            yield f'its computed column "{column}"'


def with_alteration(relation: Stream | Table, span: Span) -> str:
    """Return the statements that create a relation, with one more.

    If it takes back the last one, both are left out; a column that is renamed twice in a row is
    renamed once.
    """
    text, new = relation.declaration.created_sql, masked(span.source)
    if not text:
        return new
    (*_, last), (made,) = parse(text), parse(new)
    before = text[: last.span.start].rstrip().removesuffix(";")
    match last, made:
        case AddColumns(columns=(added,)), DropColumns(dropped=(dropped,)) if (
            added.name.lower() == dropped.text.lower()
        ):
            return before
        case RenameColumn(), RenameColumn() if last.to.text.lower() == made.column.text.lower():
            if last.column.text == made.to.text:
                return before
            place = made.column.span
            again = Edit(place.start, place.end, as_name(last.column.text))
            return f"{before};\n{edited(new, [again])}"
        case _:
            return f"{text};\n{new}"


def stored_as(relation: Stream | Table, column: Column) -> Column:
    """Return a new column of a relation with a name that its files have not had yet."""
    used = {name.lower() for name in (*relation.schema.stored_names, *relation.declaration.dropped)}
    if column.name.lower() not in used:
        return column
    number = 2
    while f"{column.name}_{number}".lower() in used | {n.lower() for n in relation.schema.names}:
        number += 1
    return replace(column, stored=f"{column.name}_{number}")
