"""Rows from Python, of unknown columns, as an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError


def table_of(rows: Any) -> pa.Table:
    """Return an Arrow table or batch, a data frame, or a list of dicts as a table.

    A frame's index is left out. Columns keep the types that Arrow gives them.

    Raises:
        HeadraceError: INVALID for anything else, for values that Arrow has no type for, and if a
            name is given twice.
    """
    try:
        table = _table(rows)
    except (pa.ArrowException, TypeError) as error:
        raise HeadraceError(
            Code.INVALID,
            f"rows of type {type(rows).__name__} are not a table",
            f"{error}.",
            "Give an Arrow table, a data frame, or a list of dicts by column.",
        ) from error
    seen: set[str] = set()
    for name in table.column_names:
        if name.lower() in seen:
            raise HeadraceError(Code.INVALID, f'column "{name}" is given twice')
        seen.add(name.lower())
    return table


def _table(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "to_records") and hasattr(rows, "columns"):
        return pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    objects = list(rows)
    for row in objects:
        if not isinstance(row, Mapping):
            raise TypeError(f"A row is of type {type(row).__name__}")
    names = dict.fromkeys(name for row in objects for name in row)
    return pa.table({str(name): [row.get(name) for row in objects] for name in names})
