"""Contents of tables and views, read from their spines: snapshots, lookups by key, and deltas.

Streams all rows of a relation in batches, mostly views of memory-mapped files.

Keys that rows are asked for, as columns: each key once, by ascending hash.

Looks up single rows by key in a published state: bounded work, no planner, lock or wait.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from headrace.algebra.spine import PART_BYTES, Spine, SpineParts, flat, pairs_among
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet, row_codes, same_pairs
from headrace.algebra.zset.order import valid
from headrace.algebra.zset.row_hash import can_hash, hashes_of, spark_hash
from headrace.algebra.zset.zset import column
from headrace.execution.serving.values import python_values
from headrace.planning.catalog import Table, View, key_of
from headrace.types import is_collated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.algebra.spine import Batch
    from headrace.algebra.zset import Restriction
    from headrace.algebra.zset.order import Ints
    from headrace.execution.runtime.published import Published
    from headrace.planning.catalog import Relation
    from headrace.storage.ledger import Ledger
    from headrace.types import ArrangementId, Epoch, Schema


_SCAN_ROWS = 1 << 18
_FEW_ROWS = 64


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of one arrangement at one epoch."""

    spine: Spine

    @classmethod
    def of(cls, directory: Path, state: Published, relation: Relation) -> Contents:
        """Return the contents of a table or view in a published state of a data directory."""
        return cls(state.spine(relation, directory))

    @property
    def layout(self) -> Layout:
        """The layout of the rows."""
        return self.spine.layout

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows."""
        return self.layout.columns

    @property
    def rows_upper_bound(self) -> int:
        """The number of physical rows: not less than the number of rows."""
        return self.spine.rows_upper_bound

    def count(self) -> int:
        """Return the number of rows."""
        return self.spine.weight if not self.spine.present else self.whole().num_rows

    def newest(
        self, columns: Sequence[str], restriction: Restriction, rows: int
    ) -> Iterator[pa.Table]:
        """Yield some columns of the rows that meet a restriction, in parts, in no defined order.

        The first is made of about ``rows`` rows.
        """
        for part in self.spine.scan(max(_FEW_ROWS, rows), restriction):
            yield repeated(part).select(list(columns))

    def whole(self) -> pa.Table:
        """Return all rows, each as often as its weight, in no defined order."""
        return pa.concat_tables([self.layout.columns.empty_table(), *self.parts()])

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield all rows, or some columns of them, in parts; see :meth:`whole`."""
        names = self.layout.columns.names if columns is None else list(columns)
        for part in self.spine.scan(_SCAN_ROWS):
            yield repeated(part).select(names)

    def can_look_up(self) -> bool:
        """Whether :meth:`by_key` can be used for this arrangement."""
        return can_look_up(self.layout)

    def by_key(self, key: Sequence[object]) -> pa.Table:
        """Return the rows with this key, without a scan; see :meth:`can_look_up`."""
        types = self._key_types()
        hash_ = spark_hash(key, types)
        places = self.spine.places(hash_)
        if len(places) <= _FEW_ROWS:
            return self._sum(places, list(key))
        hashes = np.array([hash_], np.int64)
        values = [pa.array([v], type=t) for v, t in zip(key, types, strict=True)]
        _, rows = self.spine.lookup(hashes, values)
        return repeated(rows)

    def _sum(self, places: list[tuple[Batch, int]], key: list[object]) -> pa.Table:
        """Return the sum of the rows with a key, in Python: fast for a few rows."""
        schema = self.layout.columns
        if len(places) == 1:
            batch, row = places[0]
            found = batch.slice(row, 1)
            asked = [found.column(name)[0].as_py() for name in self.layout.key]
            if asked != key:
                return schema.empty_table()
            if found.column(WEIGHT)[0].as_py() == 1:
                return pa.Table.from_batches([found.select(schema.names)], schema)
        at = {name: place for place, name in enumerate(schema.names)}
        keys = [at[name] for name in self.layout.key]
        summed: dict[tuple[object, ...], tuple[int, pa.RecordBatch]] = {}
        for batch, row in places:
            found = batch.slice(row, 1)
            values = tuple(_identity(found.column(name)[0]) for name in schema.names)
            if [values[place] for place in keys] == key:
                weight = found.column(WEIGHT)[0].as_py()
                summed[values] = (summed.get(values, (0, found))[0] + weight, found)
        rows = [found for weight, found in summed.values() for _ in range(weight)]
        return pa.Table.from_batches([row.select(schema.names) for row in rows], schema)

    def where(self, restriction: Restriction, most: int, columns: Sequence[str]) -> pa.Table | None:
        """Return some columns of the rows that pass, each as often as its weight.

        None if there are more than ``most``.
        """
        parts, count = [], 0
        for run in self.spine.runs:
            for start, stop in pairwise(run.offsets.tolist()):
                kept = run.met(start, stop, restriction)
                count += kept.rows
                if count > most:
                    return None
                parts.append(kept)
        rows = ZSet.sum_of(self.layout, parts)
        found = repeated(rows.consolidated())
        return found.select(list(columns)) if found.num_rows <= most else None

    def with_keys(self, keys: pa.Table) -> pa.Table:
        """Return the rows that have one of the keys; ``keys`` has the columns of the layout's key.

        Without a scan if :meth:`can_look_up`.
        """
        if not keys.num_rows:
            return self.layout.columns.empty_table()
        if self.can_look_up():
            types = self._key_types()
            wanted = key_values(keys, self.layout.key)
            asked = keys.select(list(self.layout.key))
            hashes = np.array([spark_hash(key, types) for key in wanted], np.int64)
            arrays = [column.combine_chunks() for column in asked.columns]
            _, rows = self.spine.lookup(hashes, arrays)
            return repeated(rows)
        return self.alike(keys.select(list(self.layout.key)))

    def alike(self, rows: pa.Table) -> pa.Table:
        """Return the rows that equal one of ``rows`` in all columns of ``rows``, by a scan."""
        schema = pa.schema([self.layout.columns.field(name) for name in rows.column_names])
        asked = rows.cast(schema)
        found = [self.layout.columns.empty_table()]
        for part in self.parts():
            both = pa.concat_tables([asked, part.select(schema.names)]).combine_chunks()
            arrays = [pa.concat_arrays(column.chunks) for column in both.columns]
            codes = row_codes(arrays, both.num_rows)
            same = np.isin(codes[asked.num_rows :], codes[: asked.num_rows])
            found.append(part.filter(pa.array(same)))
        return pa.concat_tables(found)

    def _key_types(self) -> list[pa.DataType]:
        return [self.layout.columns.field(name).type for name in self.layout.key]


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots and deltas of one arrangement, by epoch, as far back as they are retained."""

    ledger: Ledger
    directory: Path
    id: ArrangementId
    layout: Layout
    part_bytes: int = PART_BYTES

    def at(self, epoch: Epoch) -> Contents:
        """Return the contents at an epoch."""
        files = [run.file for run in self.ledger.spines.runs(self.id, epoch)]
        return Contents(Spine.open(self.directory / "runs", self.layout, files))

    def whole(self, epoch: Epoch) -> pa.Table:
        """Return the snapshot at an epoch, each row as often as its weight."""
        return self.at(epoch).whole()

    def changes(self, after: Epoch, upto: Epoch) -> Iterator[tuple[Epoch, ZSet]]:
        """Yield the consolidated delta of each epoch in ``(after, upto]``, except empty ones."""
        for epoch, delta in self.deltas(after, upto):
            parts = list(delta.scan(_SCAN_ROWS))
            yield epoch, ZSet.sum_of(self.layout, parts).consolidated()

    def deltas(self, after: Epoch, upto: Epoch) -> list[tuple[Epoch, Spine]]:
        """Return the delta of each epoch in ``(after, upto]`` that has one, by epoch.

        Raises:
            HeadraceError: INVALID if ``after`` is older than the oldest readable epoch.
        """
        runs = self.ledger.spines.delta_runs(self.id, after, upto)
        folder = self.directory / "runs"
        return [
            (epoch, Spine.open(folder, self.layout, [run.file for run in added]))
            for epoch, added in groupby(runs, lambda run: run.added)
        ]

    def snapshot(self, epoch: Epoch, most: int) -> SpineParts:
        """Return the rows at an epoch with their weights, in parts; see :class:`Changelog`."""
        return SpineParts(self.at(epoch).spine, most, self.part_bytes)

    def rows_at(self, epoch: Epoch) -> int:
        """Return the number of physical rows that a snapshot reads."""
        return sum(run.file.rows for run in self.ledger.spines.runs(self.id, epoch))

    def changed(self, after: Epoch, upto: Epoch) -> list[Epoch]:
        """Return the epochs in ``(after, upto]`` that have changes, ascending."""
        return sorted({run.added for run in self.ledger.spines.delta_runs(self.id, after, upto)})

    def delta(self, after: Epoch, upto: Epoch, most: int) -> SpineParts:
        """Return the sum of the changes in ``(after, upto]`` in parts; see :class:`Changelog`."""
        files = [run.file for run in self.ledger.spines.delta_runs(self.id, after, upto)]
        spine = Spine.open(self.directory / "runs", self.layout, files)
        return SpineParts(spine, most, self.part_bytes)

    def rows_changed(self, after: Epoch, upto: Epoch) -> int:
        """Return the number of rows in the deltas of the epochs in ``(after, upto]``."""
        return self.ledger.spines.delta_rows(self.id, after, upto)


def can_look_up(layout: Layout) -> bool:
    """Whether rows of an arrangement are found by its key without a scan."""
    key = layout.key
    return bool(key) and all(can_hash(layout.columns.field(name).type) for name in key)


def key_values(rows: pa.Table, key: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the keys of rows as Python values that are equal iff the keys are."""
    columns = [
        [repr(value) for value in python_values(rows[name])]
        if pa.types.is_nested(rows[name].type)
        else python_values(rows[name])
        for name in key
    ]
    return list(zip(*columns, strict=True))


def _identity(value: pa.Scalar) -> object:
    """Return a value that is equal for equal parts of a row: NaN equals NaN."""
    type_ = value.type
    if not value.is_valid or pa.types.is_integer(type_) or pa.types.is_string(type_):
        return value.as_py()
    if pa.types.is_temporal(type_) and not pa.types.is_duration(type_):
        return value.value
    found = value.as_py()
    if isinstance(found, float):
        return struct.pack("<d", found)
    return repr(found) if pa.types.is_nested(type_) else found


def repeated(rows: ZSet) -> pa.Table:
    """Return the rows without their weights, each row as often as its weight."""
    table = rows.table.drop_columns([HASH, WEIGHT])
    weights = rows.weights
    if (weights == 1).all():
        return table
    return table.take(pa.array(np.repeat(np.arange(rows.rows), weights.clip(0))))


def row_batches(contents: Contents, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all rows, each as often as its weight, in no defined order."""
    found = flat(contents.spine)
    if found is None:
        for part in contents.parts(columns):
            yield from part.to_batches()
        return
    yield from repeated(found.beside).select(columns).to_batches()
    for batch, counted in found.batches():
        chosen = batch.select(list(columns))
        yield chosen if counted is None else chosen.filter(pa.array(counted))


@dataclass(frozen=True, slots=True)
class AskedKeys:
    """The different keys of some rows, by ascending hash.

    ``values`` has one column for each of ``names``. ``of`` has, for each of the rows that ask, the
    position of its key, and -1 if a part of the key is NULL: NULL equals nothing.
    """

    names: tuple[str, ...]
    hashes: Ints
    values: tuple[pa.Array, ...]
    of: Ints

    @classmethod
    def among(cls, names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> Self:
        """Return the keys of ``rows`` rows; ``columns`` are those of the key, by ``names``."""
        known = np.ones(rows, np.bool_)
        for values in columns:
            known &= valid(values)
        places = known.nonzero()[0]
        taken = [values.take(pa.array(places)) for values in columns]
        codes = row_codes(taken, len(places))
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        once = [values.take(pa.array(first)) for values in taken]
        hashes = hashes_of(once, len(first))
        order = hashes.argsort(kind="stable")
        at = np.empty(len(order), np.int64)
        at[order] = np.arange(len(order))
        of = np.full(rows, -1, np.int64)
        of[places] = at[group]
        ordered = tuple(values.take(pa.array(order)) for values in once)
        return cls(tuple(names), hashes[order], ordered, of)

    def __len__(self) -> int:
        """Return the number of different keys."""
        return len(self.hashes)

    def equal(self, probes: Ints, rows: pa.Table) -> tuple[Ints, Ints]:
        """Return which of some keys and rows, pairwise, are equal: the keys, and the rows' places.

        ``probes`` has one position of a key for each of the rows, whose hash is the same.
        """
        columns = [column(rows, name) for name in self.names]
        agree = same_pairs(columns, None, self.values, probes)
        return probes[agree], agree.nonzero()[0]

    def found_in(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Return all pairs of a key and a row that has it, as positions; rows in any order."""
        hashes = hashes_of([column(rows, name) for name in self.names], rows.num_rows)
        probes, places = pairs_among(hashes, self.hashes)
        probes, kept = self.equal(probes, rows.take(pa.array(places)))
        return probes, places[kept]


_WHOLE: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_MOST_UNREAD: Final = 4 << 20
"""The most bytes of run files that a lookup reads to verify them."""


def row_by_key(
    directory: Path, state: Published, relation: Relation, texts: Sequence[str]
) -> pa.Table | None:
    """Return the row with a key of a table or view in a state, with all its columns.

    ``texts`` are the values of the key, in the order of its columns. None if the lookup cannot be
    answered in microseconds: the relation has no unique key, or its types are not integers,
    booleans and strings; a text is not a plain value of its type; the view has stopped; or this
    process has never verified so much of its runs that doing so would take longer.
    """
    key = key_of(relation)
    if not isinstance(relation, Table | View) or not key or len(key) != len(texts):
        return None
    if relation.id in state.stopped or state.unread_bytes(relation, directory) > _MOST_UNREAD:
        return None
    values = {}
    for name, text in zip(key, texts, strict=True):
        values[name] = _value(relation.schema, name, text)
        if values[name] is None:
            return None
    contents = Contents.of(directory, state, relation)
    wanted = contents.layout.key
    if set(wanted) != set(key) or not contents.can_look_up():
        return None
    return contents.by_key([values[name] for name in wanted])


def _value(schema: Schema, name: str, text: str) -> object | None:
    """Return the value of a column for a text; None if only Spark can decide."""
    type_ = schema.arrow.field(name).type
    if pa.types.is_string(type_):
        return None if is_collated(schema.spark[name].dataType) else text
    if pa.types.is_integer(type_) and _WHOLE.fullmatch(text):
        value, most = int(text), 1 << (type_.bit_width - 1)
        return value if -most <= value < most else None
    return _BOOLEANS.get(text) if pa.types.is_boolean(type_) else None
