"""Column declarations: DEFAULT, and computed columns with their type.

Definitions of streams and tables with other columns, and what of them uses a column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, Span, masked
from headrace.execution.serving import CHANGE_COLUMNS
from headrace.io.formats.fitting import is_of_kind, not_fitting
from headrace.io.formats.literals import NoLiteral, constant
from headrace.io.formats.values import RejectedValueError, refuse, type_name
from headrace.lifecycle.definitions.renamed import RenamedColumn, with_other_variables
from headrace.lifecycle.definitions.renamed import renamed as in_query
from headrace.lifecycle.states.former_names import without_former
from headrace.planning.catalog import Stream, Table
from headrace.planning.circuit.reuse import AlteredColumns
from headrace.planning.sql import AddColumns, DropColumns, RenameColumn
from headrace.planning.sql.lexer import quote
from headrace.planning.sql.parser import parse
from headrace.planning.sql.rewritten import Edit, Rewriting, as_name, edited
from headrace.types import Column, Schema, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.execution.engine.engine import Engine
    from headrace.lifecycle.definitions.reshaping import Follow
    from headrace.planning.catalog import Declaration, Sink
    from headrace.planning.catalyst.lineage import BoundExpression
    from headrace.planning.sql import ColumnDefinition
    from headrace.types import DataType


_BEFORE: Final = "SELECT ("
"""The beginning of the query of an expression."""


_OWN: Final = frozenset({*CHANGE_COLUMNS, "rowoffset"})
"""Names of columns that queries of a relation have besides its own."""


def require_free_name(name: str, span: Span) -> None:
    """Raise if queries of a relation have another column of this name besides its own."""
    if name.lower() in _OWN:
        raise HeadraceError(
            Code.INVALID,
            f'column name "{name}" is reserved',
            "Queries of a stream's positions, or of changes, have a column of this name.",
            "Choose another name.",
            span,
        )


def require_default(engine: Engine, column: Column, span: Span) -> None:
    """Raise if a default is not a value of its column.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at its place.
    """
    try:
        constant(column, span.source)
    except NoLiteral:
        pass
    except RejectedValueError as reason:
        raise not_fitting(f'the default of column "{column.name}"', reason, span) from reason
    else:
        return
    text = f"SELECT ({span.source}) AS value"
    try:
        with engine.planning:
            analysed = engine.planner.analyse(Span.whole(text), once=True)
    except HeadraceError as error:
        raise HeadraceError(error.code, error.primary, error.detail, error.hint, span) from error
    if analysed.names or analysed.through:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a default that reads relations, or calls a function by CREATE FUNCTION, is not"
            " supported",
            hint="Give the value in each INSERT.",
            span=span,
        )
    if not is_of_kind(to_arrow(analysed.schema.columns[0].type), column.type):
        other = refuse(span.source, column.type)
        raise not_fitting(f'the default of column "{column.name}"', other, span)


def computed_column(engine: Engine, definition: ColumnDefinition, arriving: Schema) -> Column:
    """Return a computed column with its declared type, or the type of its expression.

    Raises:
        HeadraceError: at the place in the expression, if it uses other columns than the arriving
            ones, is not deterministic, or has a type of another kind than the declared one.
    """
    expression = definition.computed
    if expression is None:
        raise HeadraceError(Code.INTERNAL, f"column {definition.name} is not computed")
    require_free_name(definition.name, definition.span)
    span = expression.span
    rewriting = Rewriting(span)
    rewriting.replace(span, [_BEFORE, (span.start, span.end), _after(arriving.columns)])
    rewritten = rewriting.done()
    with rewritten.mapping_errors(), engine.planning:
        analysed = engine.planner.analyse(rewritten.span)
        if analysed.names or analysed.clocked or analysed.through:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a computed column that reads relations or the clock, or calls a function by CREATE"
                " FUNCTION, is not supported",
                hint="Compute it in a view.",
                span=span,
            )
    found = analysed.schema.columns[0].type
    if definition.type.text:
        with engine.planning:
            declared = engine.planner.parse_type(definition.type.span, definition.type.text)
        if not is_of_kind(to_arrow(found), declared):
            name = type_name(declared)
            raise HeadraceError(
                Code.INVALID,
                f'column "{definition.name}" is {name}, its expression {type_name(found)}',
                hint=f"Write CAST(... AS {name}) around the expression, if that is meant.",
                span=span,
            )
        found = declared
    return Column(definition.name, found, nullable=not definition.not_null)


@dataclass(frozen=True, slots=True)
class ColumnExpressions:
    """Expressions over columns of a relation that Spark has accepted: computed ones, watermarks."""

    engine: Engine
    columns: tuple[Column, ...]

    def reads(self, expression: str) -> frozenset[str]:
        """Return the names of the columns that an expression reads."""
        found = self._bound(expression, self.columns)
        if found is None:
            return frozenset(column.name for column in self.columns)
        return frozenset(self.columns[position].name for position in found.reads)

    def renamed(self, expression: str, name: str, to: str) -> str:
        """Return an expression that computes the same when a column has another name.

        Raises:
            HeadraceError: ``conflict`` if its names cannot be replaced.
        """
        before = self._bound(expression, self.columns)
        columns = tuple(replace(c, name=to) if c.name == name else c for c in self.columns)
        after, planner = _after(columns), self.engine.planner

        column = RenamedColumn(name, to, planner.written.columns, alone=True)

        def replaced(query: str) -> str:
            return in_query(query, column, planner.analyse)

        def not_hidden(query: str) -> str:
            return replaced(with_other_variables(query, to, planner.written.variables))

        reason: HeadraceError | None = None
        for way in (replaced, not_hidden):
            try:
                with self.engine.planning:
                    query = way(f"{_BEFORE}{expression}{after}")
            except HeadraceError as error:
                reason = error
                continue
            found = query.removeprefix(_BEFORE).removesuffix(after)
            if before is not None and self._bound(found, columns) == before:
                return found
        raise HeadraceError(
            Code.CONFLICT,
            f'"{expression}" cannot be written with "{to}" in place of "{name}"',
            None if reason is None else reason.primary,
        )

    def _bound(self, expression: str, columns: Sequence[Column]) -> BoundExpression | None:
        with self.engine.planning:
            return self.engine.planner.written.bound(
                Span.whole(f"{_BEFORE}{expression}{_after(columns)}")
            )


def _after(columns: Sequence[Column]) -> str:
    """Return the end of the query of an expression over columns that are NULL."""
    nulls = ", ".join(
        f"CAST(NULL AS {column.type.simpleString()}) AS {quote(column.name)}" for column in columns
    )
    return f") AS value FROM (SELECT {nulls})"


def require_known_rows(table: Table, span: Span) -> None:
    """Raise if rows cannot be deleted by value: without a key, and with generated columns."""
    if table.primary_key or not table.declaration.generated:
        return
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'deleting rows of table "{table.name}" by their values is not supported',
        detail="It has no PRIMARY KEY, and it has generated columns.",
        hint="Declare a PRIMARY KEY, or leave computed and METADATA columns to a view.",
        span=span,
    )


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
