"""Writes results: rows, messages and changes, in the chosen format."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from headrace.execution.serving.values import csv_line, json_rows, rows
from headrace.tools.cli.environment import Format
from headrace.tools.cli.live import ChangeTable, change_cells, copies, json_change, numeric
from headrace.tools.cli.paint import Paint
from headrace.tools.cli.tables import (
    Look,
    aligned,
    cells_of,
    columns_of,
    markdown_header,
    markdown_line,
    vertical,
)
from headrace.tools.cli.terminal import page, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from headrace.execution.serving import Change
    from headrace.interfaces.session import Freshness


_CHUNK = 1000
_CLOSING_LINES = 2


@dataclass(slots=True)
class Display:
    r"""How results are shown; set by commands of the shell."""

    form: Format = Format.TABLE
    expanded: bool = False
    timing: bool = True
    live: bool = False
    pager: tuple[str, ...] = ()
    """The program for long results; empty for no pager."""
    paged: bool = True
    null: str = "NULL"

    @property
    def chosen(self) -> Format:
        """The format of the next result: expanded tables are vertical."""
        return Format.VERTICAL if self.expanded and self.form is Format.TABLE else self.form


@dataclass(slots=True)
class Printer:
    """Writes results to ``out``; in the formats for programs, everything else goes to ``err``."""

    display: Display
    out: TextIO
    err: TextIO
    colours: bool = True
    _lines: list[str] | None = field(default=None, init=False)
    _file: TextIO | None = field(default=None, init=False)
    _changes: ChangeTable = field(default_factory=ChangeTable, init=False)
    _first: bool = field(default=True, init=False)
    _counted: int = field(default=0, init=False)

    @property
    def on_terminal(self) -> bool:
        """Whether results go to a terminal now."""
        return self._file is None and self.out.isatty()

    @property
    def look(self) -> Look:
        """The look of tables on the current output."""
        if not self.on_terminal:
            return Look(self.display.null)
        return Look(self.display.null, Paint(self.colours), size()[0])

    # -- where to --------------------------------------------------------------------------

    def redirect(self, file: TextIO | None) -> None:
        """Write results to a file from now on, or to ``out`` for None; close the previous file."""
        if self._file is not None:
            self._file.close()
        self._file = file

    @contextmanager
    def collected(self) -> Iterator[list[str]]:
        """Collect lines while a block runs, instead of writing them."""
        lines = self._lines = []
        try:
            yield lines
        finally:
            self._lines = None

    # -- what ------------------------------------------------------------------------------

    def rows(
        self,
        table: pa.Table,
        *,
        epoch: int | None = None,
        seconds: float | None = None,
        freshness: Freshness | None = None,
    ) -> None:
        """Write a table; on a terminal, also the number of rows, epoch, freshness and time."""
        cut = False
        match self.display.chosen:
            case Format.JSON:
                self._write(json_rows(table.column_names, rows(table)))
            case Format.CSV:
                self._write([csv_line(table.column_names)])
                self._write(csv_line(row) for row in rows(table))
            case Format.MARKDOWN:
                right = columns_of(table, self.look).right
                self._write_lines(markdown_header(table.column_names, right))
                null = self.display.null
                self._write_lines(markdown_line(row, null) for row in cells_of(table))
            case Format.VERTICAL:
                lines = vertical(table.column_names, cells_of(table), self.look)
                self._show(lines, self._closing(table, epoch, seconds, freshness))
            case Format.TABLE:
                lines, cut = aligned(table, self.look)
                note = r"; cut to the terminal: \x on shows all of it" if cut else ""
                closing = self._closing(table, epoch, seconds, freshness, note)
                if cut and self._is_long(lines):
                    # The pager scrolls sideways, so nothing is cut.
                    lines, _ = aligned(table, Look(self.display.null, self.look.paint))
                self._show(lines, closing)
        self._flush()

    def message(self, text: str, seconds: float | None = None) -> None:
        """Write a statement's message: among results for people, else to ``err``."""
        if not self.display.chosen.for_people:
            self.note(text)
            return
        timed = self.on_terminal and self.display.timing and seconds is not None
        self._write_lines([f"{text} ({seconds:.3f} s)" if timed else text])
        self._flush()

    def line(self, text: str) -> None:
        """Write a line among the results, in any format."""
        self._write_lines([text])
        self._flush()

    def note(self, text: str) -> None:
        """Write a text that is not part of a result, to ``err``."""
        self.err.write(f"{text}\n")
        self.err.flush()

    def waiting(self) -> None:
        """Start the output of another subscription; on a terminal, show how to end it."""
        self._changes = ChangeTable(self.look)
        self._first, self._counted = True, 0
        if self.on_terminal and self.display.chosen.for_people:
            hint = r"changes as they arrive; Ctrl-C ends them, \live on shows the rows instead"
            self._write_lines([self.look.paint(hint, "dim")])
            self._flush()

    def changes(self, changes: Sequence[Change]) -> None:
        """Write further changes of the subscription."""
        if not changes:
            return
        copied = [change for change in changes for _ in range(copies(change))]
        names = ["epoch", "op", *changes[0].row]
        match self.display.chosen:
            case Format.JSON:
                self._write(map(json_change, copied))
            case Format.CSV:
                if self._first:
                    self._write([csv_line(names)])
                self._write(csv_line([c.epoch, c.operation, *c.row.values()]) for c in copied)
            case Format.MARKDOWN:
                if self._first:
                    self._write_lines(markdown_header(names, [True, False, *numeric(changes)]))
                null = self.display.null
                self._write_lines(markdown_line(change_cells(c), null) for c in copied)
            case Format.VERTICAL:
                cells = map(change_cells, copied)
                self._write_lines(vertical(names, cells, self.look, self._counted + 1))
                self._counted += len(copied)
            case Format.TABLE:
                self._write_lines(self._changes.lines(changes))
        self._first = False
        self._flush()

    # -- pieces ----------------------------------------------------------------------------

    def _closing(
        self,
        table: pa.Table,
        epoch: int | None,
        seconds: float | None,
        freshness: Freshness | None,
        note: str = "",
    ) -> list[str]:
        """Return the dim line under a result: rows, epoch, freshness, time."""
        if not self.on_terminal:
            return []
        facts = [] if epoch is None else [f"epoch {epoch}"]
        if freshness is not None and freshness.committed_at:
            behind = freshness.pending
            facts.append(f"{behind:,} changes behind" if behind else "up to date")
            facts += [f"dirty: {', '.join(freshness.dirty)}"] if freshness.dirty else []
            if freshness.frontier is not None:
                facts.append(f"refreshed in epoch {freshness.frontier}")
        if self.display.timing and seconds is not None:
            facts.append(f"{seconds:.3f} s")
        count = table.num_rows
        counted = "1 row" if count == 1 else f"{count:,} rows"
        text = counted + (f" ({', '.join(facts)})" if facts else "") + note
        return [self.look.paint(text, "dim")]

    def _is_long(self, lines: Sequence[str]) -> bool:
        display = self.display
        paged = bool(display.paged and display.pager and self._lines is None and self.on_terminal)
        return paged and len(lines) + _CLOSING_LINES > size()[1]

    def _show(self, lines: Sequence[str], closing: Sequence[str]) -> None:
        """Write the lines of a result, through the pager if they are too many."""
        whole = [*lines, *closing]
        if not self._is_long(lines) or not page("\n".join(whole) + "\n", self.display.pager):
            self._write_lines(whole)

    def _write_lines(self, lines: Iterable[str]) -> None:
        if self._lines is not None:
            self._lines.extend(lines)
            return
        self._write(f"{line}\n" for line in lines)

    def _write(self, texts: Iterable[str]) -> None:
        if self._lines is not None:
            self._lines.extend(text.rstrip("\r\n") for text in texts)
            return
        stream = self._file or self.out
        remaining = iter(texts)
        while chunk := list(islice(remaining, _CHUNK)):
            stream.write("".join(chunk))

    def _flush(self) -> None:
        (self._file or self.out).flush()
