"""Column declarations: DEFAULT, and computed columns with their type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError, Span
from headrace.formats.fitted import not_fitting
from headrace.formats.fitting import is_of_kind
from headrace.formats.literals import NoLiteral, constant
from headrace.formats.values import RejectedValueError, refuse, type_name
from headrace.parts.renamed_queries import RenamedColumn, with_other_variables
from headrace.parts.renamed_queries import renamed as in_query
from headrace.serving import CHANGE_COLUMNS
from headrace.sql.keywords import quote
from headrace.sql.rewritten import Rewriting
from headrace.types import Column, Schema, to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.catalog import Table
    from headrace.catalyst.bound import BoundExpression
    from headrace.engine.engine import Engine
    from headrace.sql import ColumnDefinition

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
