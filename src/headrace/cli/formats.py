"""Changes as text: as JSON for programs, and as a table for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.cli.tables import AlignedColumns, Cells, Look
from headrace.cli.values import cell_text, is_number
from headrace.serving.values import json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.serving import Change


def json_change(change: Change) -> str:
    """Return a change as a JSON object."""
    return (
        f'{{"epoch":{change.epoch},"op":{json_text(change.operation)},'
        f'"row":{json_text(change.row)}}}\n'
    )


@dataclass(slots=True)
class ChangeTable:
    """Changes as an aligned table that grows: columns are widened when necessary."""

    look: Look = field(default_factory=Look)
    _columns: AlignedColumns | None = field(init=False, default=None)

    def lines(self, changes: Sequence[Change]) -> list[str]:
        """Return the lines of further changes; the first call also returns the header."""
        cells = [change_cells(c) for c in changes for _ in range(copies(c))]
        columns, first = self._columns, self._columns is None
        if columns is None:
            columns = self._columns = _change_columns(changes, self.look)
        columns.fit(cells)
        shown = columns.header() if first else []
        for row in cells:
            shown += columns.lines(row, _STYLES[row[1] or ""])
        return shown


_STYLES = {"+I": "green", "+U": "cyan", "-U": "dim", "-D": "red"}


def change_cells(change: Change) -> Cells:
    """Return the cells of a change: epoch, operation and the row's values."""
    values = (None if v is None else cell_text(v) for v in change.row.values())
    return [str(change.epoch), change.operation, *values]


def numeric(changes: Sequence[Change]) -> list[bool]:
    """Return, for each column of the changes' rows, whether it is numeric."""
    return [any(is_number(c.row[name]) for c in changes) for name in changes[0].row]


def _change_columns(changes: Sequence[Change], look: Look) -> AlignedColumns:
    names = ["epoch", "op", *map(cell_text, changes[0].row)]
    return AlignedColumns(names, [True, False, *numeric(changes)], look)


def copies(change: Change) -> int:
    """Return how often to write a change: once for each copy of its row."""
    return max(1, abs(change.weight))
