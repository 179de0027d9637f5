"""DEFAULT: the value of a column that an INSERT omits, or for which it writes DEFAULT.

The expression is stored as text, and evaluated for each row when the row is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span
from headrace.formats.fitted import not_fitting
from headrace.formats.fitting import fitted, is_of_kind
from headrace.formats.literals import NoLiteral, literal, literal_converter
from headrace.formats.values import Refused, refuse
from headrace.sql.keywords import quote
from headrace.sql.lexer import tokens
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.catalog import Stream, Table
    from headrace.engine.engine import Engine
    from headrace.engine.queries import Queries
    from headrace.sql.lexer import Token
    from headrace.types import Column


def require_default(engine: Engine, column: Column, span: Span) -> None:
    """Refuse a default that is not a value of its column.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at its place.
    """
    try:
        constant(column, span.source)
    except NoLiteral:
        pass
    except Refused as reason:
        raise not_fitting(f'the default of column "{column.name}"', reason, span) from reason
    else:
        return
    text = f"SELECT ({span.source}) AS value"
    try:
        with engine.planning:
            analysed = engine.planner.analyse(Span.whole(text), once=True)
    except HeadraceError as error:
        raise HeadraceError(error.code, error.primary, error.detail, error.hint, span) from error
    if analysed.names:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a default that reads relations is not supported",
            hint="Give the value in each INSERT.",
            span=span,
        )
    if not is_of_kind(to_arrow(analysed.schema.columns[0].type), column.type):
        other = refuse(span.source, column.type)
        raise not_fitting(f'the default of column "{column.name}"', other, span)


def constant(column: Column, text: str) -> Any:
    """Return the value of a default that is a literal, for ``pa.array``.

    Raises:
        NoLiteral: for any other expression.
        Refused: if the column cannot hold it.
    """
    value = literal(list(tokens(text)))
    return None if value is None else literal_converter(column)(value)


def is_default(found: Sequence[Token]) -> bool:
    """Return whether an expression is the word DEFAULT."""
    return len(found) == 1 and found[0].word == "DEFAULT"


def completed(queries: Queries, relation: Stream | Table, rows: pa.Table) -> pa.Table:
    """Return rows with all columns, in order; omitted columns have their default, or NULL.

    Raises:
        HeadraceError: ``invalid`` if a default fails, or its column cannot hold it.
    """
    defaults = dict(relation.declaration.defaults)
    missing: list[tuple[Column, str]] = []
    arrays: dict[str, Any] = {}
    for column, field in zip(relation.schema.columns, relation.schema.arrow, strict=True):
        if column.name in rows.schema.names:
            arrays[column.name] = rows[column.name].cast(field.type)
            continue
        arrays[column.name] = pa.nulls(rows.num_rows, field.type)
        if column.name in defaults and rows.num_rows:
            try:
                value = constant(column, defaults[column.name])
            except NoLiteral:
                missing.append((column, defaults[column.name]))
            else:
                one = pa.array([value], field.type)[0]
                arrays[column.name] = pa.repeat(one, rows.num_rows)
    if missing:
        expressions = [f"({text}) AS {quote(column.name)}" for column, text in missing]
        each = pa.table({"__row": pa.repeat(0, rows.num_rows)})
        found = queries.computed(each, expressions)
        for column, _ in missing:
            made = fitted(found[column.name], column.type, first=True)
            for reason in made.refused.values():
                raise not_fitting(f'the default of column "{column.name}"', reason, None)
            arrays[column.name] = made.values
    return pa.Table.from_arrays(list(arrays.values()), schema=relation.schema.arrow)
