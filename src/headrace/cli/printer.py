"""Writing results: rows, messages and changes, each in the chosen format and to its stream."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.formats import (
    ChangeTable,
    Columns,
    Format,
    copies,
    csv_line,
    json_change,
    json_rows,
)
from headrace.cli.values import NULL, cell_text, column_values, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.serving import Change

_CHUNK = 1000
_STYLES = {"": "bold", "+I": "green", "+U": "cyan", "-U": "dim", "-D": "red"}
_RIGHT = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


class Printer:
    """Writes results to ``out`` and, in the formats for programs, all else to ``err``."""

    def __init__(self, form: Format, out: TextIO, err: TextIO, *, timing: bool = True) -> None:
        self.form = form
        self.timing = timing
        self._out = out
        self._err = err
        self._changes = ChangeTable()
        self._changes_header = True
        self._terminal = (
            Console(file=out, highlight=False, markup=False, emoji=False) if out.isatty() else None
        )

    def rows(self, table: pa.Table, *, epoch: int | None = None, seconds: float = 0.0) -> None:
        """Write a table; on a terminal, how many rows they are and what they are of."""
        match self.form:
            case Format.JSON:
                self._write(json_rows(table.column_names, rows(table)))
            case Format.CSV:
                self._write([csv_line(table.column_names)])
                self._write(csv_line(row) for row in rows(table))
            case Format.TABLE:
                self._aligned(table)
                self._closing(table.num_rows, epoch, seconds)
        self._out.flush()

    def message(self, text: str, seconds: float | None = None) -> None:
        """Write what was done: among the results in tables, beside them in other formats."""
        if self.form is not Format.TABLE:
            self.note(text)
            return
        elapsed = ""
        if self._terminal and self.timing and seconds is not None:
            elapsed = f" ({seconds:.3f} s)"
        self._write([f"{text}{elapsed}\n"])
        self._out.flush()

    def note(self, text: str) -> None:
        """Write what belongs to no result, beside the results."""
        self._err.write(f"{text}\n")
        self._err.flush()

    def waiting(self) -> None:
        """Begin the changes of another answer; on a terminal, say how to end them."""
        self._changes = ChangeTable()
        self._changes_header = True
        if self._terminal and self.form is Format.TABLE:
            self._terminal.print("changes as they come; Ctrl-C ends them", style="dim")

    def changes(self, changes: Sequence[Change]) -> None:
        """Write more changes of the answer."""
        if not changes:
            return
        match self.form:
            case Format.JSON:
                self._write(json_change(c) for c in changes for _ in range(copies(c)))
            case Format.CSV:
                if self._changes_header:
                    self._write([csv_line(["epoch", "op", *changes[0].row])])
                self._write(
                    csv_line([c.epoch, c.operation, *c.row.values()])
                    for c in changes
                    for _ in range(copies(c))
                )
            case Format.TABLE:
                for operation, line in self._changes.lines(changes):
                    self._styled(line, _STYLES.get(operation, ""))
        self._changes_header = False
        self._out.flush()

    def _aligned(self, table: pa.Table) -> None:
        names = [cell_text(name) for name in table.column_names]
        right = [any(check(kind) for check in _RIGHT) for kind in table.schema.types]
        if self._terminal:
            self._terminal.print(_rich_table(names, right, table))
            return
        cells = [list(map(cell_text, row)) for row in rows(table)]
        columns = Columns(names, right)
        columns.fit(cells)
        self._write(f"{line}\n" for line in columns.header())
        self._write(f"{line}\n" for row in cells for line in columns.lines(row))

    def _closing(self, count: int, epoch: int | None, seconds: float) -> None:
        if self._terminal is None:
            return
        facts = [f"epoch {epoch}"] if epoch is not None else []
        if self.timing:
            facts.append(f"{seconds:.3f} s")
        counted = "1 row" if count == 1 else f"{count:,} rows"
        self._styled(counted + (f" ({', '.join(facts)})" if facts else ""), "dim")

    def _styled(self, line: str, style: str) -> None:
        if self._terminal:
            self._terminal.print(Text(line, style=style), soft_wrap=True)
        else:
            self._out.write(f"{line}\n")

    def _write(self, lines: Iterable[str]) -> None:
        remaining = iter(lines)
        while chunk := list(islice(remaining, _CHUNK)):
            self._out.write("".join(chunk))


def _rich_table(names: list[str], right: list[bool], table: pa.Table) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name, at_right in zip(names, right, strict=True):
        shown.add_column(Text(name), justify="right" if at_right else "left", overflow="fold")
    columns: list[list[Any]] = [column_values(column.combine_chunks()) for column in table.columns]
    for row in zip(*columns, strict=True):
        shown.add_row(*(Text(NULL, style="dim") if v is None else Text(cell_text(v)) for v in row))
    return shown
