"""Completes changes that depend on the table's rows: unknown cells are filled in from these.

A source of a table's changes may not know all of a row. It says so in its :class:`Part`, and this
module completes the part from the rows that the table has, and from earlier rows of the part
itself:

- an *unchanged* cell has the value of the row before: the last row with the same key. An
  update that moves a row to another key is a deletion followed by an insertion of the same
  origin; the row before is then the deleted one;
- without a key, a deletion removes one row that equals it in all cells but the unchanged
  ones, which take the values of the removed row. If no row does, it is a reject, together with
  the insertion of the same update;
- where the table is *emptied*, every row that it has until then is deleted.

The result consists of whole rows, and is landed like any other part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.ledger import Reject
from headrace.zset import WEIGHT, row_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.catalog import Table
    from headrace.parts.reader import Reader
    from headrace.runtime.ports import Part
    from headrace.zset.equality import Bools, Ints

_ABSENT = "the table has no earlier row to take the unchanged value from"
_UNEQUAL = "no row equals the one before the change"


class Present(Protocol):
    """The rows of a table before the current part."""

    def parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows in parts, with the given columns, each row as often as its weight."""
        ...

    def alike(self, rows: pa.Table) -> pa.Table:
        """Return the rows that equal one of ``rows`` in all columns of ``rows``."""
        ...

    def with_keys(self, keys: pa.Table) -> pa.Table:
        """Return the rows that have one of the primary keys."""
        ...


def depends_on_rows(part: Part, key: tuple[str, ...]) -> bool:
    """Return whether a part has to be completed from the table's rows."""
    if part.emptied or part.unchanged:
        return True
    return not key and part.rows.num_rows > 0 and pc.min(part.rows[WEIGHT]).as_py() < 0


def with_rows_before(part: Part, key: tuple[str, ...], present: Present) -> Part:
    """Return the part completed to whole rows, as the module describes.

    Only the last place where the table is emptied matters: rows before it are never visible,
    because one epoch reads the whole part.
    """
    first = part.emptied[-1] if part.emptied else 0
    rows = part.rows.slice(first).combine_chunks()
    cells = {
        name: np.asarray(mask.to_numpy(zero_copy_only=False))[first:]
        for name, mask in part.unchanged.items()
    }
    changes = _Changes(part, np.arange(first, part.rows.num_rows), rows, cells)
    there = _Nothing(rows.schema) if part.emptied else present
    kept, rejects = (
        _by_key(changes, key, there)
        if key and cells
        else (_Kept(rows, changes.places), [])
        if key
        else _by_value(changes, there)
    )
    gone = _deleted(rows.schema, key, present) if part.emptied else rows.slice(0, 0)
    return replace(
        part,
        rows=pa.concat_tables([gone, kept.rows]),
        rejects=(*part.rejects, *rejects),
        unchanged={},
        emptied=(),
        times=None,
        origin=_shifted(part, gone.num_rows, kept.places),
        origins=None,
    )


def rows_of(reader: Reader, table: Table) -> Present:
    """Return the rows of a table after all its writes have been read by epochs."""
    return reader.contents(reader.settled([table.id]), table)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of a part at the row indexes ``places``; ``cells`` masks the unchanged ones."""

    part: Part
    places: Ints
    rows: pa.Table
    cells: Mapping[str, Bools]

    @property
    def weights(self) -> Ints:
        return np.asarray(self.rows[WEIGHT].to_numpy())

    def origin(self, at: int) -> tuple[str, int]:
        return ("", 0) if self.part.origin is None else self.part.origin(int(self.places[at]))

    def moved(self, at: Ints) -> Ints:
        """Return the indexes among ``at`` that are the insertion half of an update."""
        weights = self.weights
        second = at[(at > 0) & (weights[at] > 0)]
        second = second[weights[second - 1] < 0]
        if self.part.origin is None:
            return second[:0]
        same = [self.origin(row) == self.origin(row - 1) for row in second.tolist()]
        return np.asarray(second[np.array(same, bool)])

    def rejected(self, at: int, column: str | None, reason: str) -> Reject:
        file, line = self.origin(at)
        payload = self.part.payload
        raw = "" if payload is None else payload(int(self.places[at]))
        return Reject(file, line, column, reason, raw)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Whole rows, and the index in the part of each."""

    rows: pa.Table
    places: Ints


@dataclass(frozen=True, slots=True)
class _Nothing:
    """The rows of a table that has just been emptied."""

    schema: pa.Schema

    def parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield self.schema.empty_table().select(list(columns))

    def alike(self, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - the table is empty
        return self.schema.empty_table()

    with_keys = alike


def _by_key(
    changes: _Changes, key: tuple[str, ...], present: Present
) -> tuple[_Kept, list[Reject]]:
    """Return the changes with unchanged cells filled in; rejects where no row exists before."""
    rows = changes.rows
    keeps = np.logical_or.reduce(list(changes.cells.values())) & (changes.weights > 0)
    keeping = np.flatnonzero(keeps)
    moved = changes.moved(keeping)
    asked = np.union1d(np.setdiff1d(keeping, moved), moved - 1)
    before = _columns(present.with_keys(_distinct(rows.select(list(key)).take(asked))), rows.schema)
    both = pa.concat_tables([before, rows]).combine_chunks()
    there = before.num_rows

    # The row before each row, in the order of the table's rows and then of the changes.
    codes = row_codes([_array(both[name]) for name in key], both.num_rows)
    order = np.argsort(codes, kind="stable")
    former = np.full(both.num_rows, -1)
    same = codes[order][1:] == codes[order][:-1]
    former[order[1:][same]] = order[:-1][same]
    former[there + moved] = former[there + moved - 1]
    gone = np.concatenate([np.zeros(there, bool), changes.weights < 0])
    former[(former >= 0) & gone[former]] = -1

    # A row is complete if it is whole, or if the row before it is complete.
    every = np.arange(both.num_rows)
    keeps_any = np.concatenate([np.zeros(there, bool), keeps])
    lost = _followed(np.where(keeps_any, former, every))[there:] < 0
    for name, mask in changes.cells.items():
        keeps_this = np.concatenate([np.zeros(there, bool), mask & keeps])
        source = _followed(np.where(keeps_this, former, every))[there:]
        values = both[name].take(pa.array(source.clip(0)))
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    if not lost.any():
        return _Kept(rows, changes.places), []
    rejects = []
    for at in np.flatnonzero(lost).tolist():
        names = [name for name, mask in changes.cells.items() if mask[at]]
        rejects.append(changes.rejected(at, ", ".join(names), _ABSENT))
    return _Kept(rows.filter(pa.array(~lost)), changes.places[~lost]), rejects


def _followed(source: Ints) -> Ints:
    """Follow links between rows to the row that has the value; -1 if there is none."""
    while True:
        further = np.where(source < 0, -1, source[source])
        if np.array_equal(further, source):
            return source
        source = further


def _by_value(changes: _Changes, present: Present) -> tuple[_Kept, list[Reject]]:
    """Return the changes whose deletions match existing rows; the others as rejects."""
    rows, weights = changes.rows, changes.weights
    compared = [name for name in rows.column_names if name not in {WEIGHT, *changes.cells}]
    deleting = np.flatnonzero(weights < 0)
    before = present.alike(_distinct(rows.select(compared).take(deleting)))
    both = pa.concat_tables([_columns(before, rows.schema), rows]).combine_chunks()
    there = before.num_rows
    codes = row_codes([_array(both[name]) for name in compared], both.num_rows).tolist()
    seconds = set(changes.moved(np.arange(len(weights))).tolist())

    present_rows: dict[int, list[int]] = {}
    for row in range(there):
        present_rows.setdefault(codes[row], []).append(row)
    kept: list[int] = []
    source: list[int] = []
    rejects: list[Reject] = []
    refused = -1
    for at, weight in enumerate(weights.tolist()):
        found = present_rows.setdefault(codes[there + at], [])
        if weight > 0:
            if refused == at - 1 and at in seconds:
                continue
            found.append(there + at)
            source.append(there + at)
        elif found:
            source.append(found.pop())
        else:
            rejects.append(changes.rejected(at, "before", _UNEQUAL))
            refused = at
            continue
        kept.append(at)
    places = np.array(kept, np.int64)
    rows = rows.take(pa.array(places))
    for name in changes.cells:
        values = both[name].take(pa.array(source, pa.int64()))
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return _Kept(rows, changes.places[places]), rejects


def _deleted(schema: pa.Schema, key: tuple[str, ...], present: Present) -> pa.Table:
    """Return deletions of all rows of a table; by key, the other columns are NULL."""
    columns = [name for name in schema.names if name != WEIGHT and (not key or name in key)]
    none = schema.empty_table().select(columns)
    rows = pa.concat_tables(
        [none, *(_columns(part, none.schema) for part in present.parts(columns))]
    )
    return _columns(rows.append_column(WEIGHT, pa.repeat(-1, rows.num_rows)), schema)


def _columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema; missing ones are NULL."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _distinct(rows: pa.Table) -> pa.Table:
    codes = row_codes([_array(column) for column in rows.columns], rows.num_rows)
    return rows.take(pa.array(np.unique(codes, return_index=True)[1]))


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _shifted(part: Part, gone: int, places: Ints) -> Callable[[int], tuple[str, int]] | None:
    """Return the origins of rows that now follow ``gone`` deletions, which have no origin."""
    origin = part.origin
    if origin is None:
        return None

    def found(row: int) -> tuple[str, int]:
        return ("", 0) if row < gone else origin(int(places[row - gone]))

    return found
