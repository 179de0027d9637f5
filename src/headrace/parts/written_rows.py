"""Completes written rows: all columns of their relation, NOT NULL checked, and a weight.

A column that an INSERT omits, or for which it writes DEFAULT, gets its default: an expression that
is stored as text and evaluated for each row when the row is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog import ROWTIME
from headrace.errors import Code, HeadraceError
from headrace.formats.fitted import not_fitting
from headrace.formats.fitting import fitted
from headrace.formats.literals import NoLiteral, constant
from headrace.sql.keywords import quote
from headrace.types import Column, LongType, TimestampType
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from headrace.catalog import Stream, Table
    from headrace.engine.reading.queries import Queries
    from headrace.errors import Span

_GIVEN: Final = "ROWTIME"
"""The column of an INSERT in which rows give their time."""
_CLOCK: Final = re.compile(r"(?i)\s*(?:now\s*\(\s*\)|current_timestamp(?:\s*\(\s*\))?)\s*")


def completed(queries: Queries, relation: Stream | Table, rows: pa.Table, now: int) -> pa.Table:
    """Return rows with all columns, in order; omitted columns have their default, or NULL.

    ``now`` is the time of writing, in microseconds since 1970, UTC: the default ``now()``.

    Raises:
        HeadraceError: ``invalid`` if a default fails, or its column cannot hold it.
    """
    if rows.schema.equals(relation.schema.arrow, check_metadata=True):
        return _with_time(relation, rows, rows, now)
    defaults = dict(relation.declaration.defaults)
    missing: list[tuple[Column, str]] = []
    arrays: dict[str, Any] = {}
    given = rows.schema.names
    for column, field in zip(relation.schema.columns, relation.schema.arrow, strict=True):
        if column.name in given:
            arrays[column.name] = rows[column.name].cast(field.type)
            continue
        arrays[column.name] = pa.nulls(rows.num_rows, field.type)
        if column.name in defaults and rows.num_rows:
            try:
                reads_clock = _reads_clock(column, defaults[column.name])
                value = now if reads_clock else constant(column, defaults[column.name])
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
    whole = pa.Table.from_arrays(list(arrays.values()), schema=relation.schema.arrow)
    return _with_time(relation, whole, rows, now)


def _reads_clock(column: Column, default: str) -> bool:
    """Whether a default is the time of writing, as a whole."""
    return isinstance(column.type, TimestampType) and _CLOCK.fullmatch(default) is not None


def given_time(relation: Stream | Table) -> Column | None:
    """Return the column in which rows may give their own time, in milliseconds; None if none."""
    hidden = _GIVEN.lower() in relation.schema.by_lower_name
    if hidden or not relation.declaration.rowtime:
        return None
    return Column(_GIVEN, LongType())


def _with_time(relation: Stream | Table, whole: pa.Table, rows: pa.Table, now: int) -> pa.Table:
    """Return the rows with their given time as a column, if they have any."""
    if not relation.declaration.rowtime:
        return whole
    if ROWTIME in rows.schema.names:
        return whole.append_column(ROWTIME, rows[ROWTIME])
    if given_time(relation) is None or _GIVEN not in rows.schema.names:
        return whole
    millis = pc.fill_null(rows[_GIVEN], now // 1000)
    try:
        micros = pc.multiply_checked(millis, 1000)
    except pa.ArrowInvalid as error:
        raise HeadraceError(
            Code.INVALID,
            f"{_GIVEN} is out of range in some row",
            hint="Give it in milliseconds since 1970.",
        ) from error
    return whole.append_column(ROWTIME, micros.cast(pa.timestamp("us", "UTC")))


def require_present(relation: Stream | Table, rows: pa.Table, span: Span | None) -> None:
    """Refuse NULL in a NOT NULL column, unless the column is generated."""
    generated = relation.declaration.generated
    for column in relation.schema.columns:
        if column.nullable or column.name in generated:
            continue
        found = rows[column.name]
        if found.null_count == 0:
            continue
        row = found.is_null().to_pylist().index(True) + 1
        raise HeadraceError(
            Code.INVALID,
            f'column "{column.name}" of {relation.kind} "{relation.name}" is NULL in row {row}',
            hint="Give it a value: it is NOT NULL or part of the primary key.",
            span=span,
        )


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Return rows as changes of one weight."""
    return rows.append_column(WEIGHT, pa.array(np.full(rows.num_rows, weight, np.int64)))
