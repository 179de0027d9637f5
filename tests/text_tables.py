"""Tables as text, for examples that a reader can check by eye.

A header names the columns, without the two underscores of ours; cells are separated by ``|``;
``NULL`` is NULL and an empty cell is the empty string::

     weight | user | total
         +1 | ann  |    30
         -1 | ann  |    20
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.algebra.zset import WEIGHT, Layout, ZSet
from reference import bag, exact, table_of


def table(layout: Layout, text: str, *extra: pa.Field, bits: int = 64) -> pa.Table:
    """Read a table of a layout, with its hashes; ``extra`` columns follow those of the layout."""
    names, cells = _split(text)
    fields = {field.name: field for field in [*layout.schema, *extra]}
    columns = [_column(name, list(fields)) for name in names]
    rows = [
        {name: _value(cell, fields[name].type) for name, cell in zip(columns, line, strict=True)}
        for line in cells
    ]
    return table_of(layout, rows, *extra, bits=bits)


def zset(layout: Layout, text: str, bits: int = 64) -> ZSet:
    """Read a Z-set, consolidated."""
    return ZSet.of(layout, table(layout, text, bits=bits)).consolidated()


def assert_rows(actual: pa.Table, text: str) -> None:
    """Check that a table is, as a bag, the one in the text; only the columns named count."""
    names, cells = _split(text)
    columns = [_column(name, actual.schema.names) for name in names]
    identity = [name for name in columns if name != WEIGHT]
    expected: Counter[tuple[Any, ...]] = Counter()
    for line in cells:
        row = dict(zip(columns, line, strict=True))
        values = (exact(_value(row[name], actual.schema.field(name).type)) for name in identity)
        expected[tuple(values)] += int(row[WEIGHT])
    assert bag(actual, identity) == expected


def _split(text: str) -> tuple[list[str], list[list[str]]]:
    lines = [line for line in text.splitlines() if line.strip()]
    header, *rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return header, rows


def _column(name: str, known: list[str]) -> str:
    return name if name in known else f"__{name}"


def _value(cell: str, kind: pa.DataType) -> Any:
    if cell == "NULL":
        return None
    if pa.types.is_integer(kind):
        return int(cell)
    if pa.types.is_decimal(kind):
        return Decimal(cell)
    if pa.types.is_floating(kind):
        return float(cell)
    return cell
