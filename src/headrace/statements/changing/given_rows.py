"""Converts rows passed from Python (Arrow, data frames, dicts, tuples) to a relation's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.formats.fitted import Fitted, require_fitting
from headrace.formats.fitting import fitted
from headrace.formats.fitting_objects import fitted_objects

if TYPE_CHECKING:
    from headrace.types import Column

Rows: TypeAlias = Any
"""An Arrow table or batch, a data frame, or a sequence of dicts or tuples."""

Given: TypeAlias = dict[str, Any]
"""An Arrow array or a list of Python objects, by column name."""


def given_rows(
    rows: Rows,
    arriving: Sequence[Column],
    chosen: Callable[[tuple[str, ...]], Sequence[Column]],
    defaults: Sequence[str] = (),
) -> pa.Table:
    """Return rows as a table of their columns, converted exactly.

    ``arriving`` are the columns for tuples, in order; ``chosen`` returns columns by name;
    ``defaults`` are the columns with a default other than NULL.
    """
    given = _columns(rows, arriving, defaults)
    _require_once(given)
    columns = chosen(tuple(given)) if given else ()
    found = [
        fitted(values, column.type, first=True)
        if isinstance(values, pa.Array | pa.ChunkedArray)
        else fitted_objects(values, column.type)
        for column, values in zip(columns, given.values(), strict=True)
    ]
    require_fitting(columns, found, None)
    return _table(columns, found)


def _table(columns: Sequence[Column], found: Sequence[Fitted]) -> pa.Table:
    names = [column.name for column in columns]
    return pa.Table.from_arrays([each.values for each in found], names=names)


def _columns(rows: Rows, arriving: Sequence[Column], defaults: Sequence[str]) -> Given:
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return _arrow(rows)
    if hasattr(rows, "to_records") and hasattr(rows, "columns"):
        return _pandas(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        return _arrow(pa.table(rows))
    if hasattr(rows, "toArrow"):
        return _arrow(rows.toArrow())
    return _objects(list(rows), arriving, defaults)


def _arrow(rows: pa.Table | pa.RecordBatch) -> Given:
    return _named(list(rows.schema.names), list(rows.columns))


def _pandas(rows: Any) -> Given:
    """Return the columns of a pandas frame; objects are converted one by one."""
    values = [
        [None if _is_missing(value) else value for value in series]
        if series.dtype == object
        else pa.array(series, from_pandas=True)
        for series in (rows.iloc[:, at] for at in range(len(rows.columns)))
    ]
    return _named([str(name) for name in rows.columns], values)


def _is_missing(value: Any) -> bool:
    """Return whether an object is pandas' object for a missing value."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 (which is what tells NaN)
    return type(value).__name__ in {"NAType", "NaTType"}


def _named(names: list[str], values: list[Any]) -> Given:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _given_twice(twice)
    return dict(zip(names, values, strict=True))


def _objects(rows: list[Any], arriving: Sequence[Column], defaults: Sequence[str]) -> Given:
    names = {column.name.lower(): column.name for column in arriving}
    given: dict[str, list[Any]] = {}
    for number, row in enumerate(rows):
        for name, value in _row(row, number, arriving):
            known = names.get(name.lower(), name)
            values = given.setdefault(known, [])
            if len(values) > number:
                raise _given_twice(name)
            if len(values) < number:
                _require_no_default(known, len(values), defaults)
                values += [None] * (number - len(values))
            values.append(value)
    for name, values in given.items():
        if len(values) < len(rows):
            _require_no_default(name, len(values), defaults)
    return {name: values + [None] * (len(rows) - len(values)) for name, values in given.items()}


def _row(row: Any, number: int, arriving: Sequence[Column]) -> list[tuple[str, Any]]:
    if isinstance(row, Mapping):
        return [(str(name), value) for name, value in row.items()]
    if isinstance(row, str | bytes) or not isinstance(row, Sequence):
        raise HeadraceError(
            Code.INVALID,
            f"row {number + 1} is of type {type(row).__name__}",
            hint="Give each row as a dict by column, or as a tuple of all columns in order.",
        )
    if len(row) != len(arriving):
        names = ", ".join(column.name for column in arriving)
        raise HeadraceError(
            Code.INVALID,
            f"row {number + 1} has {len(row)} values for {len(arriving)} columns",
            detail=f"Columns: {names}.",
        )
    return [(column.name, value) for column, value in zip(arriving, row, strict=True)]


def _require_no_default(name: str, row: int, defaults: Sequence[str]) -> None:
    """Raise if some rows lack a column that has a default, and others have it."""
    if name in defaults:
        raise HeadraceError(
            Code.INVALID,
            f'column "{name}", which has a DEFAULT, is left out in row {row + 1} only',
            hint="Give it in all rows, or in none.",
        )


def _require_once(given: Given) -> None:
    seen: set[str] = set()
    for name in given:
        if name.lower() in seen:
            raise _given_twice(name)
        seen.add(name.lower())


def _given_twice(name: str) -> HeadraceError:
    return HeadraceError(Code.INVALID, f'column "{name}" is given twice')
