"""Rows compared as bags, with a difference that can be read.

Rows as text, which people read and write: a header, and a line for each row.

Cells are separated by ``|`` and trimmed. ``NULL`` is NULL, and a text in single quotes is what
stands between them, where ``''`` is a quote: ``'NULL'``, ``' a '``, ``'a|b'``, ``''``. Other cells
are read by the column's type as a field of CSV is, and JSON for lists, maps and structs. A line of
dashes is a rule::

     customer | spent
    ----------+-------
     ann      | 10.00
     bob      | NULL

Rows and changes that a test expects, as Arrow tables of the columns that are compared.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from headrace.errors import Code, HeadraceError, unknown
from headrace.execution.serving.values import python_values
from headrace.io.formats.literals import fitted_objects
from headrace.io.formats.values import RejectedValueError, from_json, from_text, parse_json
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.io.formats.values import Converter


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


_SHOWN: Final = 20
"""The most rows of a difference that are shown."""
_PAIRED: Final = 200
"""The most rows among which similar ones are looked for."""
_NAN: Final = "NaN"
_MISSING, _UNEXPECTED, _CHANGED = "-", "+", "~"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The rows by which two bags differ.

    ``changed`` are pairs of an expected and an actual row that are of one key, or alike. ``equal``
    is how many rows agree.
    """

    columns: tuple[str, ...]
    missing: tuple[Row, ...]
    unexpected: tuple[Row, ...]
    changed: tuple[tuple[Row, Row], ...]
    equal: int

    def __bool__(self) -> bool:
        """Whether the bags differ."""
        return bool(self.missing or self.unexpected or self.changed)

    def __str__(self) -> str:
        """Return the difference as a summary and a table, each line with a mark."""
        lines: list[tuple[str, list[str]]] = [
            *((_MISSING, list(map(shown, row))) for row in self.missing),
            *((_UNEXPECTED, list(map(shown, row))) for row in self.unexpected),
            *(
                (_CHANGED, [_change(a, b) for a, b in zip(expected, actual, strict=True)])
                for expected, actual in self.changed
            ),
        ]
        cut = len(lines) - _SHOWN
        table = aligned([list(self.columns), *(cells for _, cells in lines[:_SHOWN])])
        marks = [" ", *(mark for mark, _ in lines[:_SHOWN])]
        text = [f"  {mark} {line}" for mark, line in zip(marks, table, strict=True)]
        more = [f"    ... and {cut} more"] if cut > 0 else []
        return "\n".join([self._summary(), *text, *more])

    def _summary(self) -> str:
        found = [
            (len(self.missing), "missing (-)"),
            (len(self.unexpected), "not expected (+)"),
            (len(self.changed), "changed (~ expected → actual)"),
        ]
        parts = [f"{_rows(count)} {what}" for count, what in found if count]
        return f"{', '.join(parts)}; {_rows(self.equal)} equal"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _change(expected: Any, actual: Any) -> str:
    if identity(expected) == identity(actual):
        return shown(actual)
    return f"{shown(expected)} → {shown(actual)}"


def identity(value: Any) -> Any:
    """Return something hashable that is equal for values that SQL's ``IS NOT DISTINCT`` is."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((key, identity(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(identity, value))
    return value


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of an Arrow table as tuples of Python values; entries of maps are sorted."""
    import pyarrow as pa  # noqa: PLC0415  (its types alone)

    columns = [
        [None if v is None else sorted(v, key=repr) for v in python_values(column)]
        if pa.types.is_map(column.type)
        else python_values(column)
        for column in table.columns
    ]
    return list(zip(*columns, strict=True)) if columns else []


def difference(
    columns: Sequence[str],
    expected: Sequence[Row],
    actual: Sequence[Row],
    *,
    key: Iterable[str] = (),
    fixed: int = 0,
    tolerance: float = 0.0,
) -> RowDifference:
    """Compare rows as bags.

    ``key`` are columns by which rows that differ are paired, if both sides have one row of a key;
    otherwise, rows are that agree in the first ``fixed`` columns and in more than half of the
    others. Floats within ``tolerance``, relative or absolute, are equal.
    """
    wanted, found = Counter(map(identity, expected)), Counter(map(identity, actual))
    shown_rows = {identity(row): row for row in (*expected, *actual)}
    missing = sorted((wanted - found).elements(), key=_order)
    unexpected = sorted((found - wanted).elements(), key=_order)
    equal = (wanted & found).total()
    if tolerance:
        equal += _near(missing, unexpected, tolerance)
    places = [list(columns).index(name) for name in key if name in columns]
    pairs = _of_one_key(missing, unexpected, places) if places else []
    if max(len(missing), len(unexpected)) <= _PAIRED:
        pairs += _alike(missing, unexpected, fixed)
    return RowDifference(
        tuple(columns),
        tuple(shown_rows[row] for row in missing),
        tuple(shown_rows[row] for row in unexpected),
        tuple((shown_rows[a], shown_rows[b]) for a, b in pairs),
        equal,
    )


def _order(row: Row) -> tuple[Any, ...]:
    return tuple(
        (2, "", str(value)) if not isinstance(value, int | float) else (1, value, "")
        for value in row
    )


def _near(missing: list[Row], unexpected: list[Row], tolerance: float) -> int:
    """Remove the rows that agree within a tolerance from both lists; return how many."""
    count = 0
    for row in list(missing):
        for other in unexpected:
            if _close(row, other, tolerance):
                missing.remove(row)
                unexpected.remove(other)
                count += 1
                break
    return count


def _close(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return all(_close(a, b, tolerance) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def _of_one_key(
    missing: list[Row], unexpected: list[Row], places: Sequence[int]
) -> list[tuple[Row, Row]]:
    """Take the pairs of rows with one key out of both lists."""

    def by_key(rows: list[Row]) -> dict[Row, list[Row]]:
        found: dict[Row, list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(row[place] for place in places), []).append(row)
        return found

    left, right = by_key(missing), by_key(unexpected)
    pairs = [
        (rows[0], right[key][0])
        for key, rows in left.items()
        if len(rows) == 1 and len(right.get(key, ())) == 1
    ]
    for expected, actual in pairs:
        missing.remove(expected)
        unexpected.remove(actual)
    return pairs


def _alike(missing: list[Row], unexpected: list[Row], fixed: int) -> list[tuple[Row, Row]]:
    """Take the pairs of rows that are mostly equal out of both lists; see :func:`difference`."""
    pairs = []
    for row in list(missing):
        alike = [
            (sum(a == b for a, b in zip(row[fixed:], other[fixed:], strict=True)), other)
            for other in unexpected
            if row[:fixed] == other[:fixed]
        ]
        most, other = max(alike, key=lambda each: each[0], default=(0, None))
        if other is not None and 2 * most > len(row) - fixed:
            missing.remove(row)
            unexpected.remove(other)
            pairs.append((row, other))
    return pairs


SIGN: Final = "+/-"
"""The header of the column of a text with the signs of changes."""

Rows: TypeAlias = Any
"""Rows as text (see :mod:`headrace.testing.comparing`), as dicts by column, as tuples of all
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
