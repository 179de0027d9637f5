"""Rows as text, which people read and write: a header, and a line for each row.

Cells are separated by ``|`` and trimmed. ``NULL`` is NULL, and a text in single quotes is what
stands between them, where ``''`` is a quote: ``'NULL'``, ``' a '``, ``'a|b'``, ``''``. Other cells
are read by the column's type as a field of CSV is, and JSON for lists, maps and structs. A line of
dashes is a rule::

     customer | spent
    ----------+-------
     ann      | 10.00
     bob      | NULL
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.formats.values import RejectedValueError, from_json, from_text, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.formats.values import Converter
    from headrace.types import Column

_RULE: Final = re.compile(r"[-+| \t]*--[-+| \t]*")
_CELL: Final = re.compile(r"\s*(?:'((?:[^']|'')*)'\s*|([^|]*))(?:\||\Z)")
_NULL: Final = "NULL"
NUMBERED: Final = "line {}: "


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of one cell; None is NULL. ``quoted``: whether it stood between quotes."""

    text: str | None
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class TextRows:
    """A table as text: its header, and its rows in the parts that rules separate.

    A rule right below the header separates nothing. ``lines`` has the line of each row.
    """

    header: tuple[str, ...]
    parts: tuple[tuple[tuple[Cell, ...], ...], ...]

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows of all parts."""
        return tuple(row for part in self.parts for row in part)

    @classmethod
    def of(cls, lines: Iterable[str]) -> TextRows:
        """Return the table in some lines; blank lines have no meaning.

        Raises:
            HeadraceError: ``invalid`` without a header, and for a row with more or fewer cells.
        """
        header: tuple[str, ...] | None = None
        parts: list[list[tuple[Cell, ...]]] = [[]]
        for line in lines:
            if not line.strip():
                continue
            if _RULE.fullmatch(line):
                if header is not None and (parts[-1] or len(parts) > 1):
                    parts.append([])
                continue
            cells = _cells(line)
            if header is None:
                header = tuple(cell.text or _NULL for cell in cells)
                continue
            if len(cells) != len(header):
                raise HeadraceError(
                    Code.INVALID,
                    f"a row has {len(cells)} cells for {len(header)} columns",
                    detail=f"The row is {line.strip()!r}, the columns are {', '.join(header)}.",
                    hint="A cell with | in it is written in single quotes.",
                )
            parts[-1].append(cells)
        if header is None:
            raise HeadraceError(
                Code.INVALID,
                "a table has no header",
                hint="Its first line names the columns, with | between them.",
            )
        if len(parts) > 1 and not parts[-1]:
            parts.pop()
        return cls(header, tuple(tuple(part) for part in parts))


def _cells(line: str) -> tuple[Cell, ...]:
    found: list[Cell] = []
    text = line.strip()
    if text.startswith("|") and text.endswith("|") and len(text) > 1:
        text = text[1:-1]
    at = 0
    while at <= len(text):
        match = _CELL.match(text, at)
        if match is None or (match[1] is not None and not match[0]):  # pragma: no cover
            break
        if match[1] is not None:
            found.append(Cell(match[1].replace("''", "'"), quoted=True))
        else:
            plain = match[2].strip()
            found.append(Cell(None if plain == _NULL else plain))
        at = match.end()
        if not match[0].endswith("|"):
            break
    return tuple(found)


def array_of(cells: Sequence[Cell], column: Column, type_: pa.DataType) -> pa.Array:
    """Return cells as an Arrow array of a column's type.

    Raises:
        HeadraceError: ``invalid`` for a cell that is not a value of the type; ``unsupported`` for a
            type without a form as text.
    """
    convert = _converter(column)
    values: list[Any] = []
    for cell in cells:
        try:
            values.append(None if cell.text is None else convert(cell.text))
        except (RejectedValueError, ValueError) as why:
            raise HeadraceError(
                Code.INVALID,
                f'column "{column.name}": {why}',
                hint=f"It is of type {column.sql}; NULL is written NULL.",
            ) from why
    return pa.array(values, type_)


def _converter(column: Column) -> Converter:
    if isinstance(column.type, t.ArrayType | t.MapType | t.StructType | t.VariantType):
        nested = from_json(column)
        return lambda text: nested(parse_json(text))
    return from_text(column)


def shown(value: Any) -> str:
    """Return a Python value as a cell that reads back as this value."""
    match value:
        case None:
            return _NULL
        case bool():
            return str(value).lower()
        case str():
            plain = value.strip() == value and value not in ("", _NULL) and "|" not in value
            if plain and "\n" not in value and not value.startswith("'"):
                return value
            return "'" + value.replace("'", "''").replace("\n", "\\n") + "'"
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ")
        case date():
            return value.isoformat()
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case list() | dict() | tuple():
            return json.dumps(value, default=shown, ensure_ascii=False)
        case _:
            return str(value)


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of cells as text, with the cells of each column equally wide."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
