"""The changes of one captured table as rows: what they say of it, in order, with weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.connectors.postgres.pgoutput import KEPT, Cell, Row
from headrace.connectors.postgres.types import read
from headrace.formats.rows import together
from headrace.ledger import Reject
from headrace.runtime.ports import Part
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.connectors.postgres.tables import CapturedTable

_GATHERED: Final = 8_192
"""How many changes are kept as Python's values before they become columns."""


@dataclass(slots=True)
class Changes:
    """Gathers the changes of a table, which may be of several transactions.

    A row with a value that does not fit its column is a reject; the row that it replaces is
    deleted, so the table has the rows of PostgreSQL of which all values fit, and no stale one.
    """

    table: CapturedTable
    cells: tuple[int, ...] = ()
    """Which cell of a change each column is."""
    emptied: list[int] = field(default_factory=list)
    notes: list[Reject] = field(default_factory=list)
    """Rejects that are of no row."""
    count: int = 0
    """How many changes were added since the last part."""
    _rows: list[Row] = field(default_factory=list)
    _weights: list[int] = field(default_factory=list)
    _places: list[tuple[int, int]] = field(default_factory=list)
    _gathered: list[_Columns] = field(default_factory=list)

    def bind(self, cells: tuple[int, ...]) -> None:
        """Have the cells of the following changes be other columns."""
        if cells != self.cells:
            self._gather()
            self.cells = cells

    def insert(self, new: Row, place: tuple[int, int]) -> None:
        """Add a new row; ``place`` is its transaction's commit, and its number in it."""
        self._add(new, 1, place)

    def update(self, old: Row | None, new: Row, place: tuple[int, int]) -> None:
        """Add a changed row; see :class:`pgoutput.Update`."""
        if not self.table.key and old is not None:
            new = tuple(o if n is KEPT else n for o, n in zip(old, new, strict=True))
        if old is not None and (not self.table.key or self._key(old) != self._key(new)):
            self._add(old, -1, place)
        self._add(new, 1, place)

    def delete(self, old: Row, place: tuple[int, int]) -> None:
        """Add a deleted row."""
        self._add(old, -1, place)

    def truncate(self) -> None:
        """Have all rows deleted that were there until now."""
        self.emptied.append(self.count)

    def depends_on_rows(self) -> bool:
        """Whether some changes can only be understood with the rows that the table has."""
        self._gather()
        kept = any(mask.any() for each in self._gathered for mask in each.kept.values())
        return bool(self.emptied) or kept

    def copied(self, texts: list[pa.Array], place: tuple[int, int]) -> None:
        """Add rows of a copy of the table, as text; ``place`` is the copy's, and its first row."""
        count, (end, first) = len(texts[0]), place
        places = [(end, first + row) for row in range(count)]
        masks = [np.zeros(count, bool) for _ in texts]
        found = self._columns(texts, masks, np.ones(count, np.int64), places)
        found.wanted[found.weights < 0] = False  # there is no row before
        self._gathered.append(found)
        self.count += count

    def part(self, position: Mapping[str, Any]) -> Part:
        """Return what was gathered as a part, and begin anew."""
        self._gather()
        names, arrow = self.table.schema.names, self.table.schema.arrow
        found = self._gathered
        rows = pa.concat_tables([arrow.empty_table(), *(each.rows for each in found)])
        weights = np.concatenate([np.zeros(0, np.int64), *(each.weights for each in found)])
        kept = {
            name: np.concatenate([np.zeros(0, bool), *(each.kept[name] for each in found)])
            for name in names
        }
        wanted = np.concatenate([np.zeros(0, bool), *(each.wanted for each in found)])
        places = [place for each in found for place in each.places]
        if not wanted.all():
            places = [place for place, keep in zip(places, wanted.tolist(), strict=True) if keep]
            rows, weights = rows.filter(pa.array(wanted)), weights[wanted]
            kept = {name: mask[wanted] for name, mask in kept.items()}
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
            unchanged={name: pa.array(mask) for name, mask in kept.items() if mask.any()},
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
            mask = np.fromiter((each is KEPT for each in cells), bool, len(cells))
            given = [None if each is KEPT else each for each in cells] if mask.any() else cells
            masks.append(mask)
            texts.append(pa.array(given, pa.binary()).cast(pa.string()))
        weights = np.array(self._weights, np.int64)
        self._gathered.append(self._columns(texts, masks, weights, self._places))
        self._rows, self._weights, self._places = [], [], []

    def _columns(
        self, texts: list[pa.Array], masks: list[Any], weights: Any, places: list[tuple[int, int]]
    ) -> _Columns:
        """Return changes with typed values; what names no row is not wanted."""
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
        for row in wrong:  # what is left of it is the deletion of the row before
            weights[row] = -1
            for mask in masks:
                mask[row] = False
        rows = pa.table(arrays, schema=self.table.schema.arrow)
        kept = dict(zip(self.table.schema.names, masks, strict=True))
        return _Columns(rows, weights, kept, wanted, places, rejects)

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
    """Changes as columns; those that are not ``wanted`` name no row and are left out."""

    rows: pa.Table
    weights: Any
    kept: dict[str, Any]
    wanted: Any
    places: list[tuple[int, int]]
    rejects: list[Reject]


def lsn_text(lsn: int) -> str:
    """Return a position in the server's log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Return a position in the server's log as a number of bytes."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
