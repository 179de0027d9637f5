"""Values of columns in rows that were written before the columns were added.

Files are never written again, so such rows lack the column. The field of the column, in the schema
under which a file is read, says in its metadata what they have: the default of then.
"""

from __future__ import annotations

import base64
from typing import Final

import pyarrow as pa

EARLIER: Final = "headrace.earlier"
"""The key in the metadata of a field under which the value is that earlier rows have."""


def encoded(value: pa.Array) -> str | None:
    """Return one value as text for :attr:`headrace.types.Column.earlier`; None for NULL."""
    if value.null_count:
        return None
    batch, sink = pa.record_batch([value], ["value"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def filled(column: pa.Field, rows: int) -> pa.Array:
    """Return what rows have in a column that was added after they were written."""
    text = (column.metadata or {}).get(EARLIER.encode())
    if text is None:
        return pa.nulls(rows, column.type)
    (value,) = pa.ipc.open_stream(base64.b64decode(text)).read_all().columns
    one = value.combine_chunks()
    one = one if one.type == column.type else one.cast(column.type)
    return one.take(pa.repeat(0, rows))
