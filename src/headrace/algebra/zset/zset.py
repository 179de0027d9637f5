"""Z-sets on Arrow tables: bags of rows with weights, which may be negative.

A Z-set is *consolidated* if it is sorted by ``__hash`` (ascending, signed), no two of its rows
are the same row, and every row has a sum other than zero. The order of rows with equal hashes is
unspecified, unless the layout names one: then they are sorted by it, and after that by the values
of all columns, so that equal bags are sorted alike.

The columns of a Z-set's table, by role: hash, identity, sums.
"""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.algebra.zset.order import (
    Bools,
    Ints,
    OrderBy,
    bit_width,
    exact_keys,
    in_order,
    order_keys,
    orderable,
    refined,
    row_codes,
    same_pairs,
    words,
)
from headrace.algebra.zset.sums import is_zero, negated, sums_at
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.algebra.zset.order import SortedBy


HASH = "__hash"
"""The column of int64 hashes of the key; different keys may have equal hashes."""

DUE = "__due"
"""The column with the time of a move, in the unit of the clock, of what waits for the clock."""

WEIGHT = "__weight"
"""The column of int64 weights: how often a row was inserted minus how often it was retracted."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a Z-set, in physical order: ``__hash``, the identity, the sums.

    ``key`` names the columns that the hash is computed from, in the order of the key.
    ``columns`` are the identity: rows that agree in all of them are the same row. May be empty.
    ``summed`` are added when rows are merged: ``__weight`` and any further int64 or decimal128
    accumulators. They are never NULL.
    ``order`` names identity columns: in a consolidated Z-set, the rows of one hash are sorted by
    them. If it is empty, the order of these rows is unspecified.
    ``stored`` are the names of the identity columns in run files, which never change; if it is
    empty, they are their present names. Runs that were written before the columns were altered may
    lack some of them, have others, and have narrower types.
    """

    key: tuple[str, ...]
    columns: pa.Schema
    summed: pa.Schema
    order: tuple[OrderBy, ...] = ()
    stored: tuple[str, ...] = field(default=(), metadata={"digest": False})
    schema: pa.Schema = field(init=False, repr=False, compare=False)
    """The physical schema of a table of this layout."""
    names: list[str] = field(init=False, repr=False, compare=False)
    """The names of all columns, in physical order."""
    types: list[pa.DataType] = field(init=False, repr=False, compare=False)
    """Their types."""
    _no_rows: list[pa.Table] = field(
        default_factory=list, init=False, repr=False, compare=False, hash=False
    )
    _stored_schema: list[tuple[pa.Schema, bytes]] = field(
        default_factory=list, init=False, repr=False, compare=False, hash=False
    )

    def __post_init__(self) -> None:
        names = [HASH, *self.columns.names, *self.summed.names]
        if len(set(names)) != len(names):
            raise _malformed("two columns have the same name", names)
        if not set(self.key) <= set(self.columns.names):
            raise _malformed("a key column is not an identity column", list(self.key))
        if self.stored:
            files = [HASH, *self.stored, *self.summed.names]
            if len(self.stored) != len(self.columns) or len(set(files)) != len(files):
                raise _malformed("stored names are not those of its columns", list(self.stored))
        for by in self.order:
            if by.name not in self.columns.names:
                raise _malformed("an order column is not an identity column", [by.name])
            if not orderable(self.columns.field(by.name).type):
                raise _malformed("the type of an order column is not orderable", [by.name])
        if WEIGHT not in self.summed.names or self.summed.field(WEIGHT).type != pa.int64():
            raise _malformed("the summed columns include no int64 weight", self.summed.names)
        for total in self.summed:
            if not (pa.types.is_int64(total.type) or pa.types.is_decimal128(total.type)):
                raise _malformed("a summed column is neither int64 nor decimal128", [str(total)])
        columns = [
            pa.field(HASH, pa.int64(), nullable=False),
            *self.columns,
            *(total.with_nullable(nullable=False) for total in self.summed),
        ]
        # Computed once: every operation on a table of this layout needs them.
        object.__setattr__(self, "schema", pa.schema(columns))
        object.__setattr__(self, "names", self.schema.names)
        object.__setattr__(self, "types", self.schema.types)

    @property
    def no_rows(self) -> pa.Table:
        """The table of this layout without rows, made once."""
        if not self._no_rows:
            self._no_rows.append(self.schema.empty_table())
        return self._no_rows[0]

    @property
    def stored_names(self) -> list[str]:
        """The names of all columns in run files, in physical order."""
        return [HASH, *self.stored, *self.summed.names] if self.stored else self.names

    @property
    def stored_schema(self) -> tuple[pa.Schema, bytes]:
        """The schema of small runs in files, and the bytes that such a run begins with."""
        if not self._stored_schema:
            named = zip(self.stored_names, self.schema, strict=True)
            schema = pa.schema([each.with_name(name) for name, each in named])
            self._stored_schema.append((schema, schema.serialize().to_pybytes()))
        return self._stored_schema[0]

    @property
    def in_files(self) -> Layout:
        """The layout with the names in run files as those of its columns."""
        if not self.stored:
            return self
        to = dict(zip(self.columns.names, self.stored, strict=True))
        columns = [each.with_name(to[each.name]) for each in self.columns]
        order = tuple(replace(by, name=to[by.name]) for by in self.order)
        key = tuple(to[name] for name in self.key)
        return Layout(key, pa.schema(columns), self.summed, order)

    def shown(self, stored: str) -> str:
        """Return the present name of a column by its name in run files.

        Raises:
            HeadraceError: ``conflict`` if no column is stored under the name: it was dropped.
        """
        if stored in self.stored_names:
            return str(self.names[self.stored_names.index(stored)])
        raise HeadraceError(
            Code.CONFLICT,
            f'column "{stored}" was altered meanwhile',
            hint="Run the statement again.",
        )

    def with_summed(self, *fields: pa.Field) -> Layout:
        """Return the layout with further summed columns."""
        summed = pa.schema([*self.summed, *fields])
        return Layout(self.key, self.columns, summed, self.order, self.stored)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        value = {
            "key": list(self.key),
            "columns": _encoded(self.columns),
            "summed": _encoded(self.summed),
        }
        order = {"order": [asdict(by) for by in self.order]} if self.order else {}
        return value | order | ({"stored": list(self.stored)} if self.stored else {})

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Layout:
        """Return the layout that :meth:`to_json` wrote."""
        order = tuple(OrderBy(**by) for by in value.get("order", ()))
        return cls(
            tuple(value["key"]),
            _decoded(value["columns"]),
            _decoded(value["summed"]),
            order,
            tuple(value.get("stored", ())),
        )


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode("ascii")


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _malformed(why: str, names: list[str]) -> HeadraceError:
    return HeadraceError(
        Code.INTERNAL, f"malformed layout: {why}", detail=f"The columns are {', '.join(names)}."
    )


_WORD = 64
_MIXABLE = 3
"""From this many rows on, a block can have equal rows that are not adjacent."""
_FEW = 8
"""Up to this many rows of a block are compared with each other; more are sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class ZSet:
    """Rows with weights: ``table`` has exactly the physical schema of ``layout``.

    Consolidated only where a docstring says so. Compare two Z-sets with :meth:`equals`.
    """

    layout: Layout
    table: pa.Table

    @classmethod
    def empty(cls, layout: Layout) -> ZSet:
        """Return the Z-set without rows."""
        return cls(layout, layout.no_rows)

    @classmethod
    def of(cls, layout: Layout, table: pa.Table | pa.RecordBatch) -> ZSet:
        """Return a Z-set of a table's columns, selected, ordered and cast to fit the layout."""
        schema = layout.schema
        if table.schema.equals(schema) and isinstance(table, pa.Table):
            return cls(layout, table)
        ordered = table.schema.names == layout.names
        columns = table.columns if ordered else [table.column(name) for name in layout.names]
        return cls(layout, pa.Table.from_arrays(cast_to(columns, layout.types), schema=schema))

    @classmethod
    def sum_of(cls, layout: Layout, parts: list[ZSet]) -> ZSet:
        """Return the sum of Z-sets of one layout; not consolidated."""
        parts = [part for part in parts if part.rows]
        if not parts:
            return cls.empty(layout)
        if len(parts) == 1 and parts[0].layout == layout:
            return parts[0]
        return cls(layout, pa.concat_tables([part.table for part in parts]))

    @property
    def rows(self) -> int:
        """The number of physical rows."""
        return int(self.table.num_rows)

    @property
    def hashes(self) -> Ints:
        """The hashes, row by row."""
        return numbers(self.table, HASH)

    @property
    def weights(self) -> Ints:
        """The weights, row by row."""
        return numbers(self.table, WEIGHT)

    @property
    def keys(self) -> list[pa.Array]:
        """The key columns, each in one piece."""
        return [column(self.table, name) for name in self.layout.key]

    @property
    def identity(self) -> list[pa.Array]:
        """The identity columns, each in one piece."""
        return [column(self.table, name) for name in self.layout.columns.names]

    @property
    def any_sum(self) -> Bools:
        """Whether each row has a sum other than zero."""
        sums = [column(self.table, name) for name in self.layout.summed.names]
        return _nonzero(sums, self.rows)

    def plus(self, other: ZSet) -> ZSet:
        """Return the sum of two Z-sets of one layout; not consolidated."""
        return ZSet.sum_of(self.layout, [self, other])

    def negated(self) -> ZSet:
        """Return the Z-set with all sums negated; rows and order stay."""
        table = self.table
        if not self.rows:
            return self
        for name in self.layout.summed.names:
            index = table.schema.get_field_index(name)
            negative = negated(table.column(index))
            table = table.set_column(index, table.schema.field(index), negative)
        return ZSet(self.layout, table)

    def with_weights(self, weights: Ints) -> ZSet:
        """Return the rows with other weights."""
        index = self.table.schema.get_field_index(WEIGHT)
        field = self.layout.schema.field(index)
        return ZSet(self.layout, self.table.set_column(index, field, pa.array(weights, pa.int64())))

    def with_hashes(self, hashes: Ints) -> ZSet:
        """Return the rows with other hashes, for example to group them by another key."""
        index = self.table.schema.get_field_index(HASH)
        field = self.table.schema.field(index)
        hashes = pa.array(hashes, pa.int64())
        return ZSet(self.layout, self.table.set_column(index, field, hashes))

    def filter(self, kept: Bools) -> ZSet:
        """Return the rows where the mask is true, in order."""
        rows = kept.nonzero()[0]
        return self if len(rows) == len(kept) else self.take(rows)

    def by_sign(self) -> tuple[ZSet, ZSet]:
        """Return the inserted rows and the retracted rows: weights above zero, and below it."""
        weights = self.weights
        return self.filter(weights > 0), self.filter(weights < 0)

    def take(self, rows: Ints) -> ZSet:
        """Return the rows at the given positions, in the order of the positions."""
        if not len(rows):
            return ZSet.empty(self.layout)
        if len(rows) == self.rows and _ascends(rows):
            return self
        return ZSet(self.layout, take(self.table, rows))

    def between(self, low: int, high: int) -> ZSet:
        """Return the rows with hashes in ``[low, high]``, without a copy; hashes must be sorted."""
        start, stop = np.searchsorted(self.hashes, low), np.searchsorted(self.hashes, high, "right")
        return ZSet(self.layout, self.table.slice(start, max(0, stop - start)))

    def equals(self, other: ZSet) -> bool:
        """Whether both are the same bag of rows, however their rows are stored."""
        return self.plus(other.negated()).consolidated().rows == 0

    def consolidated(self) -> ZSet:
        """Return the same bag consolidated. Raises ``invalid`` if a sum overflows.

        O(n log n) for n rows, O(n) if the rows are sorted. Rows with equal hashes are compared by
        all identity columns. The result has one chunk, so the text of a column must be below 2 GiB.
        """
        hashes = self.hashes
        if _ascends(hashes):
            return self.filter(self.any_sum)
        return self.summed(hashes)[1]

    def grouped(self) -> ZSet:
        """Return the same bag consolidated, but with the rows whose sums are all zero."""
        hashes = self.hashes
        return self if _ascends(hashes) else self.summed(hashes, zeros=True)[1]

    def summed(self, codes: Ints, *, alike: bool = False, zeros: bool = False) -> tuple[Ints, ZSet]:
        """Return the sum of the rows by code, and the code of each row, ascending.

        Rows of one code are compared by all identity columns, unless they are ``alike``: known to
        be the same row. Rows of one code are in the order of the layout. Without ``zeros``, rows
        whose sums are all zero are left out. Raises ``invalid`` if a sum overflows.
        """
        # Of several pieces, each of what follows would make one.
        whole = ZSet(self.layout, in_one_piece(self.table))
        order, first = whole.in_blocks(codes, alike=alike)
        heads, rows = whole.added(order, first, zeros=zeros)
        return codes[heads], rows

    def in_blocks(
        self, codes: Ints, *, alike: bool = False, among: Ints | None = None
    ) -> tuple[Ints, Bools]:
        """Return an order of the rows by code, and mark in it the first of each row's copies.

        With ``among``, only of the rows at these positions. See :meth:`summed` for ``alike`` and
        for the order of the rows of one code.
        """
        order = in_order(codes) if among is None else among[in_order(codes[among])]
        first = fresh(codes[order])
        if alike or first.all():
            return order, first
        whole = ZSet(self.layout, in_one_piece(self.table))
        if self.layout.order:
            order, first = refined(order, first, whole._ordering)
        return _grouped(order, first, whole.identity, total=bool(self.layout.order))

    def added(self, order: Ints, first: Bools, *, zeros: bool = False) -> tuple[Ints, ZSet]:
        """Return the sum of each row's copies in an order in which ``first`` marks its first one.

        Also return the position of the first copy of each row. Without ``zeros``, rows whose sums
        are all zero are left out.
        """
        if first.all():
            # Nearly always so: no row has to be added to another.
            kept = None if zeros else self.any_sum
            order = order if kept is None or kept.all() else order[kept[order]]
            return order, self.take(order)
        batch = in_one_batch(self.table)
        starts = first.nonzero()[0]
        width = 1 + len(self.layout.columns)
        sums = sums_at(batch.columns[width:], order, starts)
        heads = order[starts]
        if not zeros:
            kept = _nonzero(sums, len(starts))
            if not kept.all():
                heads = heads[kept]
                sums = [_taken(total, kept.nonzero()[0]) for total in sums]
        others = batch.select(list(range(width))).take(pa.array(heads))
        table = pa.Table.from_arrays([*others.columns, *sums], schema=self.table.schema)
        return heads, ZSet(self.layout, table)

    def keyed(self) -> tuple[Ints, Ints]:
        """Return the position of the first row of each key, and for each row the number of its key.

        Hashes must ascend. Keys are numbered by their first rows.
        """
        first = fresh(self.hashes)
        second = (~first).nonzero()[0]
        keys = self.keys
        if not len(second) or same_pairs(keys, second - 1, keys, second).all():
            return first.nonzero()[0], first.cumsum() - 1
        codes = row_codes(keys, self.rows)
        _, heads, of_row = np.unique(codes, return_index=True, return_inverse=True)
        in_order = np.argsort(heads)
        number = np.empty(len(heads), np.int64)
        number[in_order] = np.arange(len(heads))
        return heads[in_order], number[of_row]

    def places_of(self, rows: ZSet) -> Ints:
        """Return the position here of the key of each of some rows, which is among these keys.

        These rows ascend by hash, and no two have the same key.
        """
        hashes = self.hashes
        if _ascends(hashes):
            return hashes.searchsorted(rows.hashes)
        both = [pa.concat_arrays(pair) for pair in zip(self.keys, rows.keys, strict=True)]
        codes = row_codes(both, self.rows + rows.rows)
        own, others = codes[: self.rows], codes[self.rows :]
        order = own.argsort()
        return order[own[order].searchsorted(others)]

    def starts_of_ties(self) -> Bools:
        """Return for each row whether its order columns differ from those of the row before."""
        keys = self._order_keys()
        differs = np.ones(self.rows, np.bool_)
        differs[1:] = False
        for key in keys:
            differs[1:] |= key[1:] != key[:-1]
        return differs

    def compared(self, other: ZSet) -> Ints:
        """Compare row by row in the total order of the layout: -1, 0 or 1 for each position."""
        both = ZSet(self.layout, in_one_piece(pa.concat_tables([self.table, other.table])))
        result = _compared(both._order_keys(), self.rows)
        tied = np.flatnonzero(result == 0)
        if len(tied):
            two = pa.array(np.concatenate([tied, tied + self.rows]))
            keys = [key for values in both.identity for key in exact_keys(values.take(two))]
            result[tied] = _compared(keys, len(tied))
        return result

    @property
    def _ordering(self) -> list[SortedBy]:
        """The order columns of the layout, each with the function that makes its sort keys."""
        order = self.layout.order
        return [(column(self.table, by.name), partial(order_keys, by=by)) for by in order]

    def _order_keys(self) -> list[Ints]:
        """Return the sort keys of all rows for the order of the layout."""
        return [key for values, keys in self._ordering for key in keys(values)]


def cast_to(columns: Sequence[Any], types: Sequence[pa.DataType]) -> list[Any]:
    """Return columns with the types to which they are aligned."""
    # Casting takes long even if there is nothing to cast.
    return [
        column if column.type == type_ else column.cast(type_)
        for column, type_ in zip(columns, types, strict=True)
    ]


def in_one_piece(table: pa.Table) -> pa.Table:
    """Return the table with one chunk per column."""
    return pa.Table.from_batches([in_one_batch(table)])


def in_one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the table as one batch; without a copy if its columns have only one chunk."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], table.schema)
    return pa.concat_batches(batches)


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array; without a copy if it has only one chunk."""
    return one_piece(table.column(name))


def one_piece(chunked: pa.ChunkedArray) -> pa.Array:
    """Return a chunked array as one array; without a copy if it has only one chunk."""
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    if chunked.num_chunks == 0:
        return pa.array([], chunked.type)
    return pa.concat_arrays(chunked.chunks)


def numbers(table: pa.Table, name: str) -> Ints:
    """Return an int64 column without NULL as NumPy array; without a copy if it has one chunk."""
    return np.asarray(column(table, name).to_numpy())


def fresh(ascending: Ints) -> Bools:
    """Return for each value whether it differs from the one before; the first one does."""
    fresh = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=fresh[1:])
    return fresh


def take(table: pa.Table, rows: Ints) -> pa.Table:
    """Return the rows at the given positions of a table, in one chunk."""
    return pa.Table.from_batches([in_one_batch(table).take(pa.array(rows, pa.int64()))])


def _taken(values: pa.Array, rows: Ints) -> pa.Array:
    """Return the values of a column of sums at the given positions."""
    if pa.types.is_int64(values.type):
        return pa.array(values.to_numpy()[rows])
    return values.take(pa.array(rows))


def _ascends(values: Ints) -> bool:
    """Whether values ascend strictly."""
    return bool((values[1:] > values[:-1]).all())


def _grouped(
    order: Ints, starts: Bools, identity: list[pa.Array], *, total: bool
) -> tuple[Ints, Bools]:
    """Refine an order so that equal rows of a block are adjacent, and mark the first of each.

    ``starts`` marks the first row of each block. Comparing adjacent rows settles every block of
    two rows and every block whose rows are all equal. The others are sorted by all columns: by
    their values if the order has to be ``total``, otherwise by codes that have no meaning.
    """
    second = (~starts).nonzero()[0]
    second = second[~same_pairs(identity, order[second - 1], identity, order[second])]
    if not len(second):
        return order, starts
    first = starts.copy()
    first[second] = True
    block = np.cumsum(starts) - 1
    sizes = np.bincount(block)
    differs = np.zeros(len(sizes), np.bool_)
    differs[block[second]] = True
    if not total:
        differs &= sizes >= _MIXABLE
    mixed = np.flatnonzero(differs[block])
    if len(mixed) and not total and sizes[differs].max() <= _FEW:
        order = order.copy()
        order[mixed], first[mixed] = _in_pairs(order[mixed], starts[mixed], identity)
    elif len(mixed):
        keys = exact_keys if total else _codes
        order = order.copy()
        rows = [(values, keys) for values in identity]
        order[mixed], first[mixed] = refined(order[mixed], starts[mixed], rows)
    return order, first


def _in_pairs(order: Ints, starts: Bools, identity: list[pa.Array]) -> tuple[Ints, Bools]:
    """Refine an order of small blocks as :func:`_grouped` does, comparing all pairs of a block."""
    heads = starts.nonzero()[0]
    ends = np.append(heads[1:], len(order))[starts.cumsum() - 1]
    places = np.arange(len(order))
    later = [places[places + step < ends] + step for step in range(1, _FEW)]
    rights = np.concatenate(later)
    lefts = rights - np.repeat(np.arange(1, _FEW), [len(each) for each in later])
    equal = same_pairs(identity, order[lefts], identity, order[rights])
    leader = places.copy()
    np.minimum.at(leader, rights[equal], lefts[equal])
    found = leader.argsort(kind="stable")
    return order[found], fresh(leader[found])


def _codes(values: pa.Array) -> list[Ints]:
    """Return a sort key that only groups equal values; its order has no meaning."""
    if values.null_count == 0 and 0 < (width := bit_width(values.type)) <= _WORD:
        return [words(values, width).astype(np.int64)]
    return [row_codes([values], len(values))]


def _compared(keys: list[Ints], rows: int) -> Ints:
    """Compare the first half of the keys with the second, position by position."""
    result = np.zeros(rows, np.int64)
    for key in keys:
        left, right = key[:rows], key[rows:]
        sign = (left > right).astype(np.int64) - (left < right)
        result = np.where(result == 0, sign, result)
    return result


def _nonzero(sums: list[pa.Array], rows: int) -> Bools:
    kept = np.zeros(rows, np.bool_)
    for total in sums:
        kept |= ~is_zero(total)
        if kept.all():
            break
    return kept
