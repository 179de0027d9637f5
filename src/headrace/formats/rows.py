"""Collects rows into tables, and checks tables as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.types import Schema


class Rows:
    """Collects rows into a table."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._count = 0

    def add(self, values: Sequence[Any]) -> None:
        """Add one row: a converted value per column."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self._count += 1

    def into(self, tables: list[pa.Table]) -> None:
        """Append the collected rows, if there are any, as one table."""
        if self._count:
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(self._columns, self._schema, strict=True)
            ]
            tables.append(pa.table(arrays, schema=self._schema))


def together(wrong: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Combine the rejected columns of a row, and their reasons, into one of each."""
    if len(wrong) == 1:
        return wrong[0]
    columns = ", ".join(column for column, _ in wrong)
    return columns, "; ".join(f"{column}: {reason}" for column, reason in wrong)


def misses_required(table: pa.Table, schema: Schema) -> bool:
    """Return whether a NOT NULL column has a NULL."""
    return any(
        not column.nullable and values.null_count
        for column, values in zip(schema.columns, table.columns, strict=True)
    )


def require_precision(table: pa.Table) -> None:
    """Raise Arrow's error if a decimal has too many digits, which some Arrow readers accept."""
    for values in table.columns:
        if pa.types.is_decimal(values.type) or pa.types.is_nested(values.type):
            values.validate(full=True)


def holds_infinity(table: pa.Table) -> bool:
    """Return whether a floating-point column has an infinity, written or from an overflow."""
    return any(
        pa.types.is_floating(values.type) and pc.any(pc.is_inf(values)).as_py()
        for values in table.columns
    )
