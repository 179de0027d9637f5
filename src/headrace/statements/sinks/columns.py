"""Casts the columns of a continuous query to the types of its target table.

The query runs as rows arrive, so types that might not fit are refused when the query is created:
only casts that are exact, or that fail for values that do not fit, are added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError, Span
from headrace.formats.values import type_name
from headrace.sql import Query, quote

if TYPE_CHECKING:
    from headrace.types import DataType, Schema

_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_TIMES = (t.TimestampType, t.TimestampNTZType)


def with_types_of(query: Query, given: Schema, wanted: Schema) -> Query:
    """Return the query with casts to the wanted types, where they differ.

    Raises:
        HeadraceError: ``invalid`` if a cast could change a value without an error.
    """
    casts: list[str] = []
    for i, (column, to) in enumerate(zip(given.columns, wanted.columns, strict=True)):
        if column.type == to.type:
            casts.append(f"`c{i}` AS {quote(to.name)}")
            continue
        if not is_exact_cast(column.type, to.type):
            raise HeadraceError(
                Code.INVALID,
                f'column "{to.name}" is {type_name(to.type)}, but the query has'
                f" {type_name(column.type)} for it",
                detail="Values are converted exactly, or not at all.",
                hint=f"Write CAST(... AS {type_name(to.type)}) in the query, if what it does is"
                " meant.",
                span=query.span,
            )
        casts.append(f"CAST(`c{i}` AS {to.type.simpleString()}) AS {quote(to.name)}")
    aliases = ", ".join(f"`c{i}`" for i in range(len(given.columns)))
    text = f"SELECT {', '.join(casts)} FROM ({query.text}\n) AS `__given`({aliases})"
    return Query(text, Span.whole(text))


def is_exact_cast(found: DataType, wanted: DataType) -> bool:
    """Return whether Spark's cast keeps every value, or fails if it cannot."""
    if found == wanted or isinstance(found, t.NullType):
        return True
    match wanted:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return isinstance(found, _INTEGERS)
        case t.DecimalType():
            if isinstance(found, t.DecimalType):
                return bool(found.scale <= wanted.scale)
            return isinstance(found, _INTEGERS)
        case t.DoubleType():
            return isinstance(found, t.NumericType)
        case t.TimestampType() | t.TimestampNTZType():
            return isinstance(found, (*_TIMES, t.DateType))
        case t.TimeType():
            return isinstance(found, t.TimeType) and found.precision <= wanted.precision
        case t.ArrayType() if isinstance(found, t.ArrayType):
            return is_exact_cast(found.elementType, wanted.elementType)
        case t.StringType():
            return isinstance(found, t.StringType)
    return False
