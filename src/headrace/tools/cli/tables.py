"""Rows as lines of text for people: aligned tables, one value per line, or Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from headrace.execution.serving.values import rows
from headrace.tools.cli.paint import Paint
from headrace.tools.cli.values import cell_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


Cells = list[str | None]
"""The texts of a row; None is NULL."""

_RIGHT = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_LEAST_WIDTH = 8
"""Columns are narrowed to this width before any is left out."""
_CUT = "…"
_BETWEEN = 3


@dataclass(frozen=True, slots=True)
class Look:
    """The look of tables: the text for NULL, text styles, and the greatest width."""

    null: str = "NULL"
    paint: Paint = field(default_factory=Paint)
    width: int | None = None


@dataclass(slots=True)
class AlignedColumns:
    """The columns of an aligned table: their widths, which only grow, and their alignment."""

    names: list[str]
    right: list[bool]
    look: Look = field(default_factory=Look)
    cut: bool = field(default=False, init=False)
    """Whether a column was narrowed or left out to fit the width."""
    _widths: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Make each column as wide as its name, which is one line."""
        self.names = [_flat(name) for name in self.names]
        self._widths = [cell_len(name) for name in self.names]

    def fit(self, cells: Iterable[Sequence[str | None]]) -> None:
        """Widen the columns so that the cells fit, within the greatest width."""
        for row in cells:
            for i, cell in enumerate(row):
                self._widths[i] = max(self._widths[i], _width(cell, self.look))
        if self.look.width is not None:
            self._narrow(self.look.width)

    def header(self) -> list[str]:
        """Return the line of names and the line under it."""
        names = [self.look.paint(self._cell(name, i), "bold") for i, name in self._shown()]
        rule = "+".join("-" * (self._widths[i] + 2) for i, _ in self._shown())
        return [self._joined(names), rule]

    def lines(self, row: Sequence[str | None], style: str = "") -> list[str]:
        """Return the lines of a row: several if a cell has line breaks."""
        cells = [(None,) if cell is None else cell.split("\n") for cell in row]
        paint = self.look.paint
        found = []
        for at in range(max((len(cell) for cell in cells), default=1)):
            line = []
            for i, _ in self._shown():
                cell = cells[i][at] if at < len(cells[i]) else ""
                text = self._cell(self.look.null if cell is None else cell, i)
                line.append(paint(text, "dim" if cell is None else style))
            found.append(self._joined(line))
        return found

    def _shown(self) -> list[tuple[int, str]]:
        return list(enumerate(self.names[: len(self._widths)]))

    def _joined(self, cells: list[str]) -> str:
        left_out = [_CUT] if len(self._widths) < len(self.names) else []
        return (" " + " | ".join([*cells, *left_out])).rstrip()

    def _cell(self, text: str, i: int) -> str:
        width, long = self._widths[i], cell_len(text)
        if long > width:
            return set_cell_size(text, width - 1) + _CUT
        return " " * (width - long) + text if self.right[i] else text + " " * (width - long)

    def _narrow(self, most: int) -> None:
        """Narrow the widest columns first; if that is not enough, omit the last ones."""
        widths = self._widths
        over = sum(widths) + _BETWEEN * len(widths) - 1 - most
        while over > 0:
            widest = max(range(len(widths)), key=widths.__getitem__)
            if widths[widest] <= _LEAST_WIDTH:
                break
            others = sorted(width for i, width in enumerate(widths) if i != widest)
            floor = max(_LEAST_WIDTH, others[-1] - 1 if others else 0)
            less = min(over, widths[widest] - floor)
            widths[widest] -= less
            over -= less
            self.cut = True
        while len(widths) > 1 and sum(widths) + _BETWEEN * len(widths) + 1 > most and over > 0:
            del widths[-1]
            self.cut = True


def _flat(name: str) -> str:
    return name.replace("\n", " ")


def _width(cell: str | None, look: Look) -> int:
    text = look.null if cell is None else cell
    return max(map(cell_len, text.split("\n"))) if "\n" in text else cell_len(text)


def cells_of(table: pa.Table) -> Iterator[Cells]:
    """Yield the cells of each row."""
    for row in rows(table):
        yield [None if value is None else cell_text(value) for value in row]


def columns_of(table: pa.Table, look: Look) -> AlignedColumns:
    """Return the columns of a table, with numbers aligned to the right."""
    names = [cell_text(name) for name in table.column_names]
    right = [any(check(kind) for check in _RIGHT) for kind in table.schema.types]
    return AlignedColumns(names, right, look)


def aligned(table: pa.Table, look: Look) -> tuple[list[str], bool]:
    """Return the lines of an aligned table, and whether it was cut to the width."""
    columns = columns_of(table, look)
    cells = list(cells_of(table))
    columns.fit(cells)
    return [*columns.header(), *(line for row in cells for line in columns.lines(row))], columns.cut


def vertical(names: Sequence[str], cells: Iterable[Cells], look: Look, first: int = 1) -> list[str]:
    """Return a line per value, under a title line per row; rows are numbered from ``first``."""
    shown = [_flat(cell_text(name)) for name in names]
    wide = max(map(cell_len, shown), default=0)
    lines = []
    for number, row in enumerate(cells, first):
        title = f"-[ row {number} ]"
        lines.append(look.paint(title + "-" * max(0, wide + 12 - len(title)), "dim"))
        for name, cell in zip(shown, row, strict=True):
            head = look.paint(name + " " * (wide - cell_len(name)), "bold")
            if cell is None:
                lines.append(f"{head} | {look.paint(look.null, 'dim')}")
                continue
            start, *rest = cell.split("\n")
            lines.append(f"{head} | {start}".rstrip())
            lines += [f"{' ' * wide} | {line}".rstrip() for line in rest]
    return lines


def markdown_header(names: Sequence[str], right: Sequence[bool]) -> list[str]:
    """Return the header lines of a Markdown table."""
    marks = ["--:" if at_right else "---" for at_right in right]
    return [markdown_line([cell_text(name) for name in names], ""), f"| {' | '.join(marks)} |"]


def markdown_line(cells: Sequence[str | None], null: str) -> str:
    """Return a row of a Markdown table; bars are escaped, line breaks become ``<br>``."""
    texts = (null if cell is None else cell for cell in cells)
    plain = (text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)
    return "| " + " | ".join(text.replace("\n", "<br>") for text in plain) + " |"
