"""Parcels: columns of rows as bytes, which the stages of a wide step send each other.

Spark moves a row for each parcel, with the number of the partition that it is for. So rows are not
converted between Arrow's columns and Spark's rows on their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.spine import partition_of
from headrace.zset.zset import column, in_one_piece, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PARTITION, ROWS = "partition", "rows"
"""The columns of a parcel: the number of the partition, and the rows as an Arrow stream."""

MOST_ROWS: Final = 1 << 16
"""About the most rows that parcels are made of at once."""
MOST_BYTES: Final = 1 << 25
"""About the most bytes of rows that parcels are made of at once."""

_SCHEMA: Final = pa.schema([pa.field(PARTITION, pa.int32()), pa.field(ROWS, pa.binary())])


@dataclass(frozen=True, slots=True)
class Sending:
    """Where rows go: to the partition, of so many, that owns the hash at the position ``hash_``."""

    hash_: int
    partitions: int

    def parcels(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of some rows, each in a batch of its own."""
        for table in gathered(tables):
            rows = in_one_piece(table.rename_columns([f"x{i}" for i in range(table.num_columns)]))
            owners = partition_of(numbers(rows, f"x{self.hash_}"), self.partitions)
            for partition in range(self.partitions):
                own = np.flatnonzero(owners == partition)
                if len(own):
                    whole = len(own) == rows.num_rows
                    yield _packed(partition, rows if whole else rows.take(pa.array(own)))


def opened(parcels: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of parcels, without a copy."""
    for batch in parcels:
        for data in column(pa.Table.from_batches([batch]), ROWS):
            with pa.ipc.open_stream(data.as_buffer()) as stream:
                yield stream.read_all()


def gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of small tables in larger ones, and of very large ones in parts; no copy."""
    pending: list[pa.Table] = []
    rows = size = 0
    for table in (part for each in tables for part in _parts(each)):
        more = table.nbytes
        if pending and (rows + table.num_rows > MOST_ROWS or size + more > MOST_BYTES):
            yield pa.concat_tables(pending)
            pending, rows, size = [], 0, 0
        pending.append(table)
        rows += table.num_rows
        size += more
    if pending:
        yield pa.concat_tables(pending)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in parts of about ``MOST_BYTES``: a parcel is one value."""
    step = max(1, MOST_BYTES * table.num_rows // max(MOST_BYTES, table.nbytes))
    for first in range(0, table.num_rows, step):
        yield table.slice(first, step)


def _packed(partition: int, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    data = sink.getvalue()
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    packed = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    return pa.RecordBatch.from_arrays([pa.array([partition], pa.int32()), packed], schema=_SCHEMA)
