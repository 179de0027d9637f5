"""How large runs store their columns: each batch in the narrowest types that hold its values.

A reader knows a stored column by its type alone:

- integers, dates, times and decimals are stored as integers of fewer bytes, if all values fit;
- texts are stored with a dictionary, if few of them differ;
- a sum that is 1 in every row, as most weights are, has no values: its type is ``null``;
- hashes, columns of an order, floats and nested values are stored as they are.

Rows that are taken from a stored batch are restored to the types of their layout. So a lookup reads
only the pages that it needs, and a scan copies the columns that it reads. Those of the last queries
stay in memory, up to ``KEPT_BYTES`` in a process.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import HASH
from headrace.algebra.zset.order import bit_width, is_text, valid, words
from headrace.algebra.zset.sums import decimal_words
from headrace.types.earlier import filled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.algebra.zset import Layout
    from headrace.algebra.zset.order import Ints


_INTEGERS: Final = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_WORD: Final = 64
_SAMPLE: Final = 4096
"""How many texts are looked at to decide whether there are few different ones."""
_FEW_OF_SAMPLE: Final = 1024
_MOST_TEXTS: Final = 1 << 15
"""The most different texts of a batch that is stored with a dictionary."""

Batch: TypeAlias = "pa.RecordBatch | StoredBatch"
"""A batch of a run: as it is, or as it is stored."""

_ones: list[pa.Array] = []
"""The longest array of ones made so far, if any: shorter ones are slices of it."""


KEPT_BYTES: Final = 1 << 26
"""The most bytes of whole columns that a process keeps restored."""


@dataclass(slots=True)
class _KeptColumns:
    """Which whole columns are kept restored, each by its batch, least recently used first."""

    sizes: OrderedDict[tuple[ref[StoredBatch], str], int] = field(default_factory=OrderedDict)
    bytes: int = 0
    lock: Lock = field(default_factory=Lock)

    def of(self, batch: StoredBatch, name: str) -> pa.Array:
        """Return a column of a batch, and keep it."""
        key = ref(batch), name
        with self.lock:
            found = batch.kept.get(name)
            if found is not None:
                self.sizes.move_to_end(key)
                return found
        found = batch.column(name)
        with self.lock:
            if name not in batch.kept and found.nbytes <= KEPT_BYTES:
                batch.kept[name] = found
                self.sizes[key] = found.nbytes
                self.bytes += found.nbytes
            while self.bytes > KEPT_BYTES:
                (of, column), size = self.sizes.popitem(last=False)
                self.bytes -= size
                if (left := of()) is not None:
                    left.kept.pop(column, None)
        return found


_kept_columns = _KeptColumns()


def stored(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Return a batch of a run of a layout with its columns in the types in which they are stored.

    Hashes and the columns of the layout's order stay as they are: searches read them in place.
    """
    columns, fields, in_place = [], [], {HASH, *(by.name for by in layout.order)}
    for of, column in zip(batch.schema, batch.columns, strict=True):
        kept = column if of.name in in_place else _narrowed(column)
        columns.append(kept)
        fields.append(of if kept is column else pa.field(of.name, kept.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def opened(batches: Sequence[pa.RecordBatch], layout: Layout) -> list[Batch] | None:
    """Return the batches of a run file as batches of a layout; None if they are not of it.

    A batch that was written before the columns were altered gets its present ones: without those
    that were dropped, and with NULL in those that were added. If columns were dropped, rows of a
    run may have become equal.
    """
    found: list[Batch] = []
    for given in batches:
        batch = _altered(given, layout) if layout.stored else given
        if batch is None:
            return None
        if batch.schema.equals(layout.schema):
            found.append(batch)
        elif _is_stored_as(batch.schema, layout):
            found.append(StoredBatch(batch, layout.schema))
        else:
            return None
    return found


def lacks_columns(batches: Sequence[pa.RecordBatch], layout: Layout) -> bool:
    """Whether a layout lacks columns that batches of a run file have, since they were dropped."""
    kept = {*layout.stored_names}
    return any(not kept.issuperset(batch.schema.names) for batch in batches)


def in_files(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Return a batch with the names that the columns of its layout have in run files."""
    return batch.rename_columns(layout.stored_names) if layout.stored else batch


def _altered(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch | None:
    """Return a batch of a run file with the columns of a layout; None if others are missing."""
    arrays, known = [], {*batch.schema.names}
    for name, of in zip(layout.stored_names, layout.schema, strict=True):
        if name in known:
            column = batch.column(name)
            arrays.append(column.cast(of.type) if _widens(column.type, of.type) else column)
        elif name in layout.stored:
            arrays.append(filled(of, batch.num_rows))
        else:
            return None
    fields = [
        of if of.type == column.type else pa.field(of.name, column.type)
        for of, column in zip(layout.schema, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _widens(former: pa.DataType, present: pa.DataType) -> bool:
    """Whether values of a type that is stored as it is were written before it was widened."""
    if pa.types.is_decimal128(former) and pa.types.is_decimal128(present):
        return bool(former.scale == present.scale and former.precision < present.precision)
    return bool(pa.types.is_float32(former) and pa.types.is_float64(present))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StoredBatch:
    """A batch of a run as it is stored; what is read of it is restored to the types of ``schema``.

    It has those methods of a record batch that a run needs.
    """

    batch: pa.RecordBatch
    schema: pa.Schema
    _readers: list[Callable[[Ints], pa.Array]] = field(default_factory=list, init=False)
    """What reads some rows of each column, made when rows are first taken."""

    kept: dict[str, pa.Array] = field(default_factory=dict, init=False, repr=False)
    """Whole columns that queries have read, restored."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return a column; a copy unless it is stored in its own type."""
        return _restored(self.batch.column(name), self.schema.field(name).type)

    def excerpt(self, names: Sequence[str], schema: pa.Schema) -> StoredBatch:
        """Return some columns under the names and types of a schema, without a copy."""
        columns = [self.batch.column(name) for name in names]
        fields = [
            pa.field(name, column.type) for name, column in zip(schema.names, columns, strict=True)
        ]
        return StoredBatch(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), schema)

    def select(self, names: Sequence[str]) -> pa.RecordBatch:
        """Return some columns of all rows, and keep them for others."""
        schema = pa.schema([self.schema.field(name) for name in names])
        columns = [_kept_columns.of(self, name) for name in names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def slice(self, start: int, rows: int) -> pa.RecordBatch:
        """Return some rows in a row, copied."""
        columns = zip(self.batch.slice(start, rows).columns, self.schema.types, strict=True)
        found = [_restored(column, type_) for column, type_ in columns]
        return pa.RecordBatch.from_arrays(found, schema=self.schema)

    def part(self, start: int, rows: int) -> StoredBatch:
        """Return some rows in a row, as they are stored, without a copy."""
        return StoredBatch(self.batch.slice(start, rows), self.schema)

    def take(self, rows: Ints) -> pa.RecordBatch:
        """Return the rows at some positions."""
        if not self._readers:
            columns = zip(self.batch.columns, self.schema.types, strict=True)
            self._readers.extend([_reader(column, type_) for column, type_ in columns])
        found = [read(rows) for read in self._readers]
        return pa.RecordBatch.from_arrays(found, schema=self.schema)

    def slice_bytes(self, start: int, rows: int) -> int:
        """Return about how many bytes :meth:`slice` has, not fewer."""
        found, columns = 0, self.batch.slice(start, rows).columns
        for column, type_ in zip(columns, self.schema.types, strict=True):
            if column.type == type_:
                found += column.nbytes
            elif pa.types.is_dictionary(column.type):
                longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
                found += rows * (longest + 4)
            else:
                found += rows * bit_width(type_) // 8
        return found


def _reader(column: pa.Array, type_: pa.DataType) -> Callable[[Ints], pa.Array]:
    """Return what takes rows of a stored column, and restores them."""
    kept = column.type
    if pa.types.is_null(kept) and kept != type_:
        return lambda rows: _ones_of(len(rows))
    if pa.types.is_dictionary(kept):
        codes, texts = column.indices, column.dictionary
        return lambda rows: texts.take(codes.take(pa.array(rows)))
    if kept == type_ or column.null_count:
        return lambda rows: _restored(column.take(pa.array(rows)), type_)
    values = words(column, kept.bit_width)
    if pa.types.is_decimal(type_):
        return lambda rows: _decimals(values[rows].astype(np.int64), type_, None, 0)
    whole = np.dtype(f"int{bit_width(type_)}")

    def read(rows: Ints) -> pa.Array:
        taken = pa.py_buffer(values[rows].astype(whole))
        return pa.Array.from_buffers(type_, len(rows), [None, taken])

    return read


def _restored(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a stored column in the type of its layout; without a copy if it is stored in that."""
    kept = column.type
    if kept == type_:
        return column
    if pa.types.is_null(kept):
        return _ones_of(len(column))
    if pa.types.is_dictionary(kept):
        return column.dictionary.take(column.indices)
    none = column.null_count
    present = column.is_valid().buffers()[1] if none else None
    values = words(column, kept.bit_width)
    if pa.types.is_decimal(type_):
        return _decimals(values.astype(np.int64), type_, present, none)
    whole = pa.py_buffer(values.astype(f"int{bit_width(type_)}"))
    return pa.Array.from_buffers(type_, len(column), [present, whole], none)


def _is_stored_as(schema: pa.Schema, layout: Layout) -> bool:
    wanted = layout.schema
    return schema.names == wanted.names and all(
        kept.type == whole.type or _can_be(kept.type, whole.type)
        for kept, whole in zip(schema, wanted, strict=True)
    )


def _can_be(kept: pa.DataType, type_: pa.DataType) -> bool:
    if pa.types.is_null(kept):
        return bool(type_ == pa.int64())
    if pa.types.is_dictionary(kept):
        return bool(kept.value_type == type_)
    integer = pa.types.is_signed_integer(kept)
    return bool(integer and _is_narrowed(type_) and kept.bit_width < type_.bit_width)


def _is_narrowed(type_: pa.DataType) -> bool:
    whole = pa.types.is_signed_integer(type_) or pa.types.is_temporal(type_)
    return bool(pa.types.is_decimal128(type_) or (whole and bit_width(type_) in _INTEGERS))


def _narrowed(column: pa.Array) -> pa.Array:
    if is_text(column.type):
        return _with_dictionary(column)
    if not _is_narrowed(column.type):
        return column
    values = _whole_values(column)
    if values is None:
        return column
    none = column.null_count
    missing = valid(column) if none else None
    if missing is not None:
        values = np.where(missing, values, 0)
    low, high = int(values.min()), int(values.max())
    if low == high == 1 and not none and column.type == pa.int64():
        return pa.nulls(len(column))
    width = next(w for w in _INTEGERS if -(1 << (w - 1)) <= low and high < 1 << (w - 1))
    if width >= bit_width(column.type):
        return column
    narrow = values.astype(f"int{width}")
    return pa.array(narrow, mask=None if missing is None else ~missing)


def _whole_values(column: pa.Array) -> Ints | None:
    """Return the values as integers; None if there are none, or a decimal has more than 64 bits."""
    if not len(column):
        return None
    if not pa.types.is_decimal(column.type):
        return words(column, bit_width(column.type)).astype(np.int64, copy=False)
    bits = decimal_words(column)
    low, high = bits[:, 0], bits[:, 1]
    small = high == low >> np.int64(_WORD - 1)
    if column.null_count:
        small |= ~valid(column)
    return np.ascontiguousarray(low) if small.all() else None


def _with_dictionary(column: pa.Array) -> pa.Array:
    """Return texts with a dictionary if there are few different ones, else as they are."""
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        return column
    if pc.count_distinct(column.slice(0, _SAMPLE)).as_py() > min(_FEW_OF_SAMPLE, len(column) // 4):
        return column
    found = column.dictionary_encode()
    if len(found.dictionary) > _MOST_TEXTS:
        return column
    width = 8 if len(found.dictionary) <= 1 << 7 else 16
    return pa.DictionaryArray.from_arrays(found.indices.cast(_INTEGERS[width]), found.dictionary)


def _decimals(low: Ints, type_: pa.DataType, present: pa.Buffer | None, none: int) -> pa.Array:
    """Return decimals of at most 64 bits; ``present`` are the bits of those that are not NULL."""
    bits = np.empty((len(low), 2), np.int64)
    bits[:, 0] = low
    np.right_shift(low, _WORD - 1, out=bits[:, 1])
    return pa.Array.from_buffers(type_, len(low), [present, pa.py_buffer(bits)], none)


def _ones_of(rows: int) -> pa.Array:
    known = _ones[0] if _ones else None
    if known is None or len(known) < rows:
        ones = np.ones(max(_SAMPLE, 2 * rows), np.int64)
        # ``pa.array`` imports pandas, which takes longer than looking up rows.
        known = pa.Array.from_buffers(pa.int64(), len(ones), [None, pa.py_buffer(ones)])
        _ones[:] = [known]
    return known.slice(0, rows)
