"""Live tables: the current rows of a followed query, redrawn at each epoch.

Changes as text: as JSON for programs, and as a table for people.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from headrace.execution.serving.values import json_text
from headrace.tools.cli.tables import AlignedColumns, Cells, Look
from headrace.tools.cli.values import cell_text, is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.execution.serving import Change


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


@dataclass(slots=True)
class LiveTable:
    """The rows of a query, as a bag; an update keeps the position of its row.

    The cost of a change does not depend on the number of rows; only the first rows are drawn.
    """

    names: Sequence[str]
    epoch: int | None = None
    changed: int = 0
    """The number of changes in the last call of :meth:`apply`."""
    _rows: dict[int, Cells] = field(default_factory=dict)
    _places: dict[str, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    _right: list[bool] = field(default_factory=list)
    _fresh: set[int] = field(default_factory=set)
    _next: int = 0

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes in order; an updated row takes the position of the replaced one."""
        self.changed, self._fresh = len(changes), set()
        beginning = self.epoch is None
        self._right = self._right or [False] * len(self.names)
        vacated: deque[int] = deque()
        for change in changes:
            self.epoch = change.epoch
            key = repr(list(change.row.values()))
            for _ in range(copies(change)):
                if change.weight < 0:
                    self._remove(key, vacated if change.operation == "-U" else None)
                else:
                    updated = change.operation == "+U" and bool(vacated)
                    self._add(key, change, vacated.popleft() if updated else None)
            self._right = [
                known or is_number(value)
                for known, value in zip(self._right, change.row.values(), strict=True)
            ]
        for place in vacated:
            self._rows.pop(place, None)
        if beginning:
            self._fresh = set()

    def lines(self, look: Look, most: int) -> list[str]:
        """Return at most ``most`` lines with the rows; those that just changed are emphasised."""
        columns = AlignedColumns(
            [cell_text(name) for name in self.names], self._right_sides(), look
        )
        shown = list(islice(self._rows.items(), max(0, most - 3)))
        columns.fit([cells for _, cells in shown])
        lines = columns.header()
        for place, cells in shown:
            # One line per row, so that rows do not move when they are redrawn.
            flat: Cells = [None if c is None else c.replace("\n", " ") for c in cells]
            lines += columns.lines(flat, "green" if place in self._fresh else "")
        return [*lines, look.paint(self._closing(len(shown)), "dim")][:most]

    def _closing(self, shown: int) -> str:
        if self.epoch is None:
            return "waiting for the first epoch; Ctrl-C ends it"
        count = len(self._rows)
        counted = "1 row" if count == 1 else f"{count:,} rows"
        more = f", the first {shown:,} shown" if shown < count else ""
        changes = "1 change" if self.changed == 1 else f"{self.changed:,} changes"
        return f"{counted}{more} (epoch {self.epoch}, {changes}); Ctrl-C ends it"

    def _right_sides(self) -> list[bool]:
        return self._right or [False] * len(self.names)

    def _remove(self, key: str, vacated: deque[int] | None) -> None:
        places = self._places.get(key)
        if not places:
            return
        place = places.pop()
        if not places:
            del self._places[key]
        if vacated is None:
            self._rows.pop(place, None)
        else:
            vacated.append(place)

    def _add(self, key: str, change: Change, place: int | None) -> None:
        if place is None:
            place, self._next = self._next, self._next + 1
        self._rows[place] = [None if v is None else cell_text(v) for v in change.row.values()]
        self._places[key].append(place)
        self._fresh.add(place)
