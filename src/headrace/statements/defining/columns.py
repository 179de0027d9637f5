"""Column declarations: DEFAULT, and computed columns with their type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span
from headrace.formats.fitted import not_fitting
from headrace.formats.fitting import is_of_kind
from headrace.formats.literals import NoLiteral, constant
from headrace.formats.values import RejectedValueError, refuse, type_name
from headrace.sql.keywords import quote
from headrace.sql.rewritten import Rewriting
from headrace.types import Column, Schema, to_arrow

if TYPE_CHECKING:
    from headrace.catalog import Table
    from headrace.engine.engine import Engine
    from headrace.sql import ColumnDefinition


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
    span = expression.span
    nulls = ", ".join(
        f"CAST(NULL AS {column.type.simpleString()}) AS {quote(column.name)}"
        for column in arriving.columns
    )
    rewriting = Rewriting(span)
    rewriting.replace(
        span, ["SELECT (", (span.start, span.end), f") AS value FROM (SELECT {nulls})"]
    )
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
