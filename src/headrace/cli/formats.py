"""Rows and changes in the three formats, as lines of text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from headrace.cli.values import cell_text, csv_text, is_number, json_text
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.serving import Change


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def json_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield one object a row.

    Raises:
        HeadraceError: ``invalid`` where two columns share a name, as one would hide the other.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise HeadraceError(
            Code.INVALID,
            f'column "{twice[0]}" appears twice, which a JSON object cannot show',
            hint="Give the columns different names with AS, or choose --format csv.",
        )
    keys = [json_text(name) for name in names]
    for row in rows:
        fields = ",".join(f"{key}:{json_text(v)}" for key, v in zip(keys, row, strict=True))
        yield "{" + fields + "}\n"


def json_change(change: Change) -> str:
    """Return a change as one object."""
    return (
        f'{{"epoch":{change.epoch},"op":{json_text(change.operation)},'
        f'"row":{json_text(change.row)}}}\n'
    )


def csv_line(values: Iterable[Any]) -> str:
    """Return one record as RFC 4180 has it; NULL is an empty field, empty text is ``""``."""
    return ",".join(map(_csv_field, values)) + "\r\n"


def _csv_field(value: Any) -> str:
    text = csv_text(value)
    if text is None:
        return ""
    if not text or any(c in text for c in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


@dataclass(slots=True)
class Columns:
    """Columns of an aligned table: their widths, which only grow, and their sides."""

    names: list[str]
    right: list[bool]
    widths: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Make each column as wide as its name."""
        self.widths = [cell_len(name) for name in self.names]

    def fit(self, cells: Iterable[Sequence[str]]) -> None:
        """Widen the columns so that the cells fit."""
        for row in cells:
            for i, cell in enumerate(row):
                self.widths[i] = max(self.widths[i], _width(cell))

    def header(self) -> list[str]:
        """Return the line of names and the line under it."""
        rule = "+".join("-" * (width + 2) for width in self.widths)
        return [*self.lines(self.names), rule]

    def lines(self, row: Sequence[str]) -> list[str]:
        """Return the lines of a row: several where a cell has line breaks."""
        if not any("\n" in cell for cell in row):
            return [self._line(row)]
        cells = [cell.split("\n") for cell in row]
        height = max(map(len, cells))
        return [
            self._line([cell[i] if i < len(cell) else "" for cell in cells]) for i in range(height)
        ]

    def _line(self, row: Sequence[str]) -> str:
        padded = (
            " " * (width - cell_len(cell)) + cell
            if right
            else cell + " " * (width - cell_len(cell))
            for cell, width, right in zip(row, self.widths, self.right, strict=True)
        )
        return (" " + " | ".join(padded)).rstrip()


def _width(cell: str) -> int:
    return max(map(cell_len, cell.split("\n"))) if "\n" in cell else cell_len(cell)


@dataclass(slots=True)
class ChangeTable:
    """Changes as an aligned table whose end is not known: columns widen as they must."""

    _columns: Columns | None = field(init=False, default=None)

    def lines(self, changes: Sequence[Change]) -> list[tuple[str, str]]:
        """Return the lines of more changes, each with its operation (empty for the header)."""
        cells = [
            [str(c.epoch), c.operation, *map(cell_text, c.row.values())]
            for c in changes
            for _ in range(copies(c))
        ]
        shown: list[tuple[str, str]] = []
        columns, first = self._columns, self._columns is None
        if columns is None:
            columns = self._columns = _change_columns(changes)
        columns.fit(cells)
        if first:
            shown.extend(("", line) for line in columns.header())
        for row in cells:
            shown.extend((row[1], line) for line in columns.lines(row))
        return shown


def _change_columns(changes: Sequence[Change]) -> Columns:
    names = list(changes[0].row)
    right = [any(is_number(c.row[name]) for c in changes) for name in names]
    return Columns(["epoch", "op", *map(cell_text, names)], [True, False, *right])


def copies(change: Change) -> int:
    """Return how often a change is written: once for each copy of its row."""
    return max(1, abs(change.weight))
