"""Rows and changes that a test expects, as Arrow tables of the columns that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from headrace.errors import Code, HeadraceError, unknown
from headrace.formats.fitting_objects import fitted_objects
from headrace.testing.comparing import identity
from headrace.testing.text_rows import TextRows, array_of
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.testing.comparing import Row, RowDifference

SIGN: Final = "+/-"
"""The header of the column of a text with the signs of changes."""

Rows: TypeAlias = Any
"""Rows as text (see :mod:`headrace.testing.text_rows`), as dicts by column, as tuples of all
columns, or as an Arrow table or a data frame."""

Changes: TypeAlias = Any
"""Changes as text whose first column is ``+/-``, with rules between epochs; or as pairs of a
weight and a row as a dict."""


def columns_of(table: pa.Table) -> list[Column]:
    """Return the columns of the rows of a query."""
    return [
        Column(each.name, from_arrow_type(each.type, prefer_timestamp_ntz=True))
        for each in table.schema
    ]


def columns_named(names: Sequence[str], known: Sequence[Column], what: str) -> list[Column]:
    """Return columns by name, in the case in which they are declared."""
    by_name = {column.name.lower(): column for column in known}
    found = []
    for name in names:
        if name.lower() not in by_name:
            raise unknown(f"column of {what}", name, [c.name for c in known])
        found.append(by_name[name.lower()])
    if len({column.name for column in found}) < len(found):
        raise HeadraceError(Code.INVALID, f"a column of {what} is given twice")
    return found


def _arrow_types(columns: Sequence[Column]) -> pa.Schema:
    return Schema(tuple(columns)).arrow


def table_of_text(rows: TextRows, columns: Sequence[Column]) -> pa.Table:
    """Return text as an Arrow table of columns."""
    schema = _arrow_types(columns)
    arrays = [
        array_of([row[at] for row in rows.rows], column, schema.field(at).type)
        for at, column in enumerate(columns)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def expected_rows(rows: Rows, known: Sequence[Column], what: str) -> pa.Table:
    """Return expected rows as an Arrow table of the columns that they have."""
    if isinstance(rows, str):
        rows = TextRows.of(rows.splitlines())
    if isinstance(rows, TextRows):
        return table_of_text(rows, columns_named(rows.header, known, what))
    names, values = _objects(rows, known)
    columns = columns_named(names, known, what)
    schema = _arrow_types(columns)
    arrays = []
    for column, given in zip(columns, values, strict=True):
        found = fitted_objects(given, column.type)
        for row, why in found.refused.items():
            raise HeadraceError(
                Code.INVALID,
                f'expected row {row + 1}: column "{column.name}" of {what}: {why}',
                hint=f"It is of type {column.sql}.",
            )
        arrays.append(found.values)
    return pa.Table.from_arrays(arrays, schema=schema)


def _objects(rows: Any, known: Sequence[Column]) -> tuple[list[str], list[list[Any]]]:
    """Return the names and the values of the columns of rows from Python."""
    if isinstance(rows, pa.Table):
        return rows.column_names, [each.to_pylist() for each in rows.columns]
    if hasattr(rows, "__arrow_c_stream__"):
        return _objects(pa.table(rows), known)
    given = list(rows)
    every = [column.name for column in known]
    if not given:
        return every, [[] for _ in every]
    if not isinstance(given[0], Mapping):
        if any(len(row) != len(every) for row in given):
            raise HeadraceError(
                Code.INVALID,
                f"a row does not have {len(every)} values",
                detail=f"Columns: {', '.join(every)}.",
                hint="Give dicts to compare some columns only.",
            )
        return every, [list(column) for column in zip(*given, strict=True)]
    names = list(given[0])
    for row in given:
        if set(row) != set(names):
            raise HeadraceError(
                Code.INVALID,
                "expected rows have different columns",
                detail=f"Those of the first are {', '.join(names)}.",
                hint="Give each row the same columns; None is NULL.",
            )
    return names, [[row[name] for row in given] for name in names]


def expected_changes(changes: Changes) -> tuple[list[int], list[int], Rows]:
    """Return the number of the epoch and the weight of each change, and the rows."""
    if isinstance(changes, str):
        changes = TextRows.of(changes.splitlines())
    if isinstance(changes, TextRows):
        if changes.header[0] != SIGN:
            raise HeadraceError(
                Code.INVALID,
                f"the first column of changes is {changes.header[0]}",
                hint=f"It is {SIGN}: + for an inserted row, - for a deleted one.",
            )
        epochs = [at for at, part in enumerate(changes.parts, 1) for _ in part]
        signs = [_weight(row[0].text or "") for row in changes.rows]
        rows = tuple(row[1:] for row in changes.rows)
        return epochs, signs, TextRows(changes.header[1:], (rows,))
    pairs = list(changes)
    return [1] * len(pairs), [int(weight) for weight, _ in pairs], [row for _, row in pairs]


def _weight(text: str) -> int:
    sign, number = text[:1], text[1:] or "1"
    if sign not in ("+", "-") or not number.isdigit() or int(number) == 0:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not the sign of a change",
            hint="Write + or -, or a weight such as +2.",
        )
    return int(f"{sign}{number}")


def summed(changes: Iterable[Row]) -> list[Row]:
    """Return changes, each an epoch, a weight and a row, with those of one sign and row added."""
    first: dict[Row, Row] = {}
    weights: dict[Row, int] = {}
    for epoch, weight, *row in changes:
        key = identity((epoch, weight > 0, *row))
        first.setdefault(key, tuple(row))
        weights[key] = weights.get(key, 0) + weight
    return [(key[0], weight, *first[key]) for key, weight in weights.items()]


def signed(found: RowDifference, *, separates: bool) -> RowDifference:
    """Return a difference of changes with signs for weights, and without the epoch of all."""
    first = 0 if separates else 1

    def signed(row: Row) -> Row:
        epoch, weight, *rest = row
        text = ("+" if weight > 0 else "-") + (str(abs(weight)) if abs(weight) > 1 else "")
        return (epoch, text, *rest)[first:]

    return replace(
        found,
        columns=found.columns[first:],
        missing=tuple(map(signed, found.missing)),
        unexpected=tuple(map(signed, found.unexpected)),
        changed=tuple((signed(a), signed(b)) for a, b in found.changed),
    )
