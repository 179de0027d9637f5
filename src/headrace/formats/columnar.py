"""Files with typed columns: matched by name regardless of case, values converted exactly.

A value that its column cannot hold is rejected by the rule of :mod:`headrace.formats.fitting`. A
column whose type fits no value of the target column is an error of the whole file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import Decoded
from headrace.formats.fitting import fitted, is_of_kind
from headrace.formats.rows import together
from headrace.formats.values import type_name
from headrace.ledger import Reject

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.types import Schema


def matched(path: Path, found: pa.Schema, schema: Schema) -> list[str | None]:
    """Return the name in the file of each column; None where it is missing.

    Raises:
        HeadraceError: INVALID if the file has none of the columns, or one of an incompatible type.
    """
    by_name = {name.casefold(): name for name in found.names}
    columns = [by_name.get(column.name.casefold()) for column in schema.columns]
    for column, name in zip(schema.columns, columns, strict=True):
        if name is not None and not is_of_kind(found.field(name).type, column.type):
            raise HeadraceError(
                Code.INVALID,
                f'column "{column.name}" is {type_name(column.type)}, '
                f'but {found.field(name).type} in file "{path}"',
                hint="Declare the column with a type of that kind, or rewrite the file.",
            )
    if not any(columns) and schema.columns:
        raise HeadraceError(
            Code.INVALID,
            f'file "{path}" has none of the columns',
            f"Its columns are: {', '.join(found.names)}.",
        )
    return columns


def decoded(
    path: str, table: pa.Table, schema: Schema, names: list[str | None], first_row: int
) -> Decoded:
    """Convert rows of a file to a schema; return them and the rejects.

    ``names`` are the columns in the table, as :func:`matched` returns them; ``first_row`` is the
    number of the first row, from 1.
    """
    target = schema.arrow
    bad: dict[int, list[tuple[str, str]]] = {}
    cast: list[Any] = []
    for column, name, field in zip(schema.columns, names, target, strict=True):
        if name is None:
            values = pa.nulls(table.num_rows, field.type)
        else:
            values, refused = fitted(table.column(name), column.type)
            for row, why in refused.items():
                bad.setdefault(row, []).append((column.name, str(why)))
        if not column.nullable and values.null_count:
            for row in pc.indices_nonzero(pc.is_null(values)).to_pylist():
                if name is None or row not in refused:
                    bad.setdefault(row, []).append((column.name, "NULL in a NOT NULL column"))
        cast.append(values)
    rejects = [
        Reject(path, first_row + row, *together(bad[row]), str(table.slice(row, 1).to_pylist()[0]))
        for row in sorted(bad)
    ]
    rows = pa.table(cast, schema=target)
    if bad:
        keep = pa.array([row not in bad for row in range(table.num_rows)])
        rows = rows.filter(keep)
    return Decoded([rows] if rows.num_rows else [], rejects)
