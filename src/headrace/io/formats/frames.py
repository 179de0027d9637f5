"""Rows from Python, of unknown columns, as an Arrow table; Arrow tables as data frames.

Arrow IPC streams that arrive from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError, unknown
from headrace.execution.serving.values import beyond_python, python_values
from headrace.types import is_variant


def table_of_stream(data: bytes) -> pa.Table:
    """Return the table of an Arrow IPC stream, once it is known to be well-formed.

    Raises:
        HeadraceError: INVALID if it is not.
    """
    try:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise HeadraceError(
            Code.INVALID, "the body is not an Arrow IPC stream", f"{error}."
        ) from error
    return table


FrameTypes: TypeAlias = Literal["numpy", "nullable", "arrow"]
"""The types of a frame's columns: NumPy's where they keep each value, pandas' own, which have NULL,
or Arrow's."""


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


def data_frame(table: pa.Table, types: FrameTypes = "numpy") -> Any:
    """Return a table as a data frame of pandas, in which each value is what it was.

    With ``numpy``, NumPy's types are left where they would change values. A column of integers with
    a NULL, which would become floats, has pandas' nullable type. Lists with such integers, and
    dates beyond Python's, are objects (:func:`python_values`).

    Raises:
        HeadraceError: ``invalid`` for other types.
    """
    import pandas as pd  # noqa: PLC0415  (takes a while to import)

    if types not in (known := get_args(FrameTypes)):
        raise unknown("kind of types", types, known, f"There are: {', '.join(known)}.")
    if types == "arrow":
        return table.to_pandas(types_mapper=pd.ArrowDtype)
    integers = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
    }
    others = {
        pa.bool_(): pd.BooleanDtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): pd.StringDtype(),
    }

    def series(column: pa.ChunkedArray) -> Any:
        if is_variant(column.type) or _needs_objects(column):
            return pd.Series(python_values(column), dtype=object)
        if types == "nullable":
            return column.to_pandas(types_mapper=(integers | others).get)
        return column.to_pandas(types_mapper=integers.get if column.null_count else None)

    frame = pd.DataFrame(
        {at: series(column) for at, column in enumerate(table.columns)},
        index=range(table.num_rows),
    )
    frame.columns = pd.Index(table.column_names)
    return frame


def _needs_objects(column: pa.ChunkedArray | pa.Array, *, in_list: bool = False) -> bool:
    """Whether NumPy would change a value in a column: of lists, or of dates."""
    kind = column.type
    if pa.types.is_date(kind):
        return bool(pc.any(beyond_python(column)).as_py())
    if pa.types.is_integer(kind):
        return in_list and column.null_count > 0
    if isinstance(column, pa.ChunkedArray):
        return any(_needs_objects(chunk) for chunk in column.chunks)
    if pa.types.is_struct(kind):
        return any(_needs_objects(each, in_list=in_list) for each in column.flatten())
    if pa.types.is_map(kind):
        return _needs_objects(column.keys) or _needs_objects(column.items)
    if pa.types.is_list(kind):
        return _needs_objects(column.flatten(), in_list=True)
    return False
