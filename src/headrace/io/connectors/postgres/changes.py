"""The changes of one captured table as typed rows with weights, in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.zset import WEIGHT
from headrace.execution.runtime.ports import Part
from headrace.io.connectors.postgres.access import read
from headrace.io.connectors.postgres.pgoutput import UNSENT, Cell, Row
from headrace.io.formats.blocks import together
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.io.connectors.postgres.tables import CapturedTable


_GATHERED: Final = 8_192
"""The number of changes gathered as Python values before they are converted into columns."""


@dataclass(slots=True)
class TableChanges:
    """Gathers the changes of a table, also of several transactions.

    A row with a value that does not fit its column is a reject; the row that it replaces is
    deleted. So the table has exactly those rows of PostgreSQL whose values all fit.
    """

    table: CapturedTable
    cells: tuple[int, ...] = ()
    """The index of each column's cell in a change."""
    emptied: list[int] = field(default_factory=list)
    notes: list[Reject] = field(default_factory=list)
    """Rejects that do not belong to a row."""
    count: int = 0
    """The number of changes added since the last part."""
    _rows: list[Row] = field(default_factory=list)
    _weights: list[int] = field(default_factory=list)
    _places: list[tuple[int, int]] = field(default_factory=list)
    _gathered: list[_Columns] = field(default_factory=list)

    def bind(self, cells: tuple[int, ...]) -> None:
        """Set which cells the following changes have for the columns; see ``cells``."""
        if cells != self.cells:
            self._gather()
            self.cells = cells

    def insert(self, new: Row, place: tuple[int, int]) -> None:
        """Add a new row; ``place`` is the commit of its transaction, and its number in that."""
        self._add(new, 1, place)

    def update(self, old: Row | None, new: Row, place: tuple[int, int]) -> None:
        """Add a changed row; see :class:`pgoutput.UpdateMessage`."""
        if not self.table.key and old is not None:
            new = tuple(o if n is UNSENT else n for o, n in zip(old, new, strict=True))
        if old is not None and (not self.table.key or self._key(old) != self._key(new)):
            self._add(old, -1, place)
        self._add(new, 1, place)

    def delete(self, old: Row, place: tuple[int, int]) -> None:
        """Add a deleted row."""
        self._add(old, -1, place)

    def truncate(self) -> None:
        """Add the deletion of all rows that the table has after the previous changes."""
        self.emptied.append(self.count)

    def depends_on_rows(self) -> bool:
        """Whether the effect of some changes depends on the table's rows."""
        self._gather()
        unsent = any(mask.any() for each in self._gathered for mask in each.unsent.values())
        return bool(self.emptied) or unsent

    def copied(self, texts: list[pa.Array], place: tuple[int, int]) -> None:
        """Add rows of a copy of the table, columns of text.

        ``place`` is the log position of the copy, and the number of its first row here.
        """
        count, (end, first) = len(texts[0]), place
        places = [(end, first + row) for row in range(count)]
        masks = [np.zeros(count, bool) for _ in texts]
        found = self._columns(texts, masks, np.ones(count, np.int64), places)
        found.wanted[found.weights < 0] = False  # a copy replaces no rows
        self._gathered.append(found)
        self.count += count

    def part(self, position: Mapping[str, Any]) -> Part:
        """Return the gathered changes as a part, and reset."""
        self._gather()
        names, arrow = self.table.schema.names, self.table.schema.arrow
        found = self._gathered
        rows = pa.concat_tables([arrow.empty_table(), *(each.rows for each in found)])
        weights = np.concatenate([np.zeros(0, np.int64), *(each.weights for each in found)])
        unsent = {
            name: np.concatenate([np.zeros(0, bool), *(each.unsent[name] for each in found)])
            for name in names
        }
        wanted = np.concatenate([np.zeros(0, bool), *(each.wanted for each in found)])
        places = [place for each in found for place in each.places]
        if not wanted.all():
            places = [place for place, keep in zip(places, wanted.tolist(), strict=True) if keep]
            rows, weights = rows.filter(pa.array(wanted)), weights[wanted]
            unsent = {name: mask[wanted] for name, mask in unsent.items()}
        emptied = tuple(int(np.count_nonzero(wanted[:at])) for at in self.emptied)
        rejects = (*self.notes, *(reject for each in found for reject in each.rejects))

        def origin(row: int) -> tuple[str, int]:
            return self._place(places[row])

        def payload(row: int) -> str:
            return str(rows.slice(row, 1).to_pylist()[0])

        self._gathered, self.emptied, self.notes, self.count = [], [], [], 0
        return Part(
            rows.append_column(WEIGHT, pa.array(weights)),
            rejects,
            position,
            origin=origin,
            unchanged={name: pa.array(mask) for name, mask in unsent.items() if mask.any()},
            emptied=emptied,
            payload=payload,
        )

    def _add(self, row: Row, weight: int, place: tuple[int, int]) -> None:
        self._rows.append(row)
        self._weights.append(weight)
        self._places.append(place)
        self.count += 1
        if len(self._rows) >= _GATHERED:
            self._gather()

    def _key(self, row: Row) -> list[Cell]:
        names = self.table.schema.names
        return [row[self.cells[names.index(name)]] for name in self.table.key]

    def _gather(self) -> None:
        if not self._rows:
            return
        masks, texts = [], []
        for cell in self.cells:
            cells = [row[cell] for row in self._rows]
            mask = np.fromiter((each is UNSENT for each in cells), bool, len(cells))
            given = [None if each is UNSENT else each for each in cells] if mask.any() else cells
            masks.append(mask)
            texts.append(pa.array(given, pa.binary()).cast(pa.string()))
        weights = np.array(self._weights, np.int64)
        self._gathered.append(self._columns(texts, masks, weights, self._places))
        self._rows, self._weights, self._places = [], [], []

    def _columns(
        self, texts: list[pa.Array], masks: list[Any], weights: Any, places: list[tuple[int, int]]
    ) -> _Columns:
        """Parse the texts of changes; ``masks`` are true for unsent values, which are unchanged."""
        arrays = []
        wrong: dict[int, list[tuple[str, str]]] = {}
        wanted = np.ones(len(weights), bool)
        for column, text, mask in zip(self.table.schema.columns, texts, masks, strict=True):
            values = read(text, column)
            refused = {row: str(why) for row, why in values.refused.items()}
            if not column.nullable:
                empty = np.asarray(text.is_null()) & ~mask & (weights > 0)
                null = "NULL in a NOT NULL column"
                refused |= dict.fromkeys(np.flatnonzero(empty).tolist(), null)
            for row, reason in refused.items():
                wrong.setdefault(row, []).append((column.name, reason))
            if column.name in self.table.key or not self.table.key:
                wanted[list(refused)] = False
            arrays.append(values.values)
        rejects = [
            self._reject(places[row], reasons, [text[row].as_py() for text in texts])
            for row, reasons in sorted(wrong.items())
            if weights[row] > 0
        ]
        for row in wrong:  # the change becomes the deletion of the previous row
            weights[row] = -1
            for mask in masks:
                mask[row] = False
        rows = pa.table(arrays, schema=self.table.schema.arrow)
        unsent = dict(zip(self.table.schema.names, masks, strict=True))
        return _Columns(rows, weights, unsent, wanted, places, rejects)

    def _reject(
        self, place: tuple[int, int], reasons: list[tuple[str, str]], texts: list[str | None]
    ) -> Reject:
        named = zip(self.table.schema.names, texts, strict=True)
        raw = ", ".join(f"{name}={text}" for name, text in named)
        return Reject(*self._place(place), *together(reasons), raw)

    def _place(self, place: tuple[int, int]) -> tuple[str, int]:
        end, number = place
        return f"{self.table.reference}@{lsn_text(end)}", number


@dataclass(frozen=True, slots=True)
class _Columns:
    """Changes as columns; ``unsent`` are masks of unchanged values, by column.

    Changes that are not ``wanted`` identify no row, and are left out.
    """

    rows: pa.Table
    weights: Any
    unsent: dict[str, Any]
    wanted: Any
    places: list[tuple[int, int]]
    rejects: list[Reject]


def lsn_text(lsn: int) -> str:
    """Return a position in the server's log as PostgreSQL's text, such as ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Parse PostgreSQL's text of a position in the server's log into a number of bytes."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
