"""Generated columns: computed columns, and METADATA columns with the origin of a row.

Both are evaluated when the row is written, and stored with it, so they never change afterwards. A
computed value has to fit its column exactly, like a written one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog import ROWTIME
from headrace.errors import Code, HeadraceError
from headrace.formats.fitted import require_fitting
from headrace.formats.fitting import fitted
from headrace.sql.keywords import quote
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalog import Stream, Table
    from headrace.engine.reading.queries import Queries
    from headrace.types import Offset

_OFFSET = "offset"
"""The METADATA key of a row's offset, which is assigned by the append."""


def has_offsets(relation: Stream | Table) -> bool:
    """Whether a column of a relation holds the offset of its row."""
    return any(key == _OFFSET for _, key in relation.declaration.metadata)


def with_offsets(relation: Stream | Table, rows: pa.Table, first: Offset) -> pa.Table:
    """Return changes with their offsets, counted from ``first``; see :func:`has_offsets`."""
    names = [name for name, key in relation.declaration.metadata if key == _OFFSET]
    if not names:
        return rows
    offsets = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return _with_values(relation, rows, dict.fromkeys(names, offsets))


def with_rowtime(relation: Stream | Table, rows: pa.Table, now: int) -> pa.Table:
    """Return rows with their time, if the stream's log stores it: the given one, or now.

    ``now`` is in microseconds since 1970, UTC.
    """
    if not relation.declaration.rowtime or ROWTIME in rows.schema.names:
        return rows
    time = pa.scalar(now, pa.timestamp("us", "UTC"))
    return rows.append_column(ROWTIME, pa.repeat(time, rows.num_rows))


def with_generated_columns(
    queries: Queries, relation: Stream | Table, rows: pa.Table, now: int
) -> pa.Table:
    """Return changes with the values of the generated columns, except offsets.

    Deleted rows, with a negative weight, keep their values. ``now`` is in microseconds since 1970,
    UTC.
    """
    origins = dict(_metadata_values(relation, rows.num_rows, now))
    return with_computed_columns(queries, relation, _with_values(relation, rows, origins))


def with_computed_columns(queries: Queries, relation: Stream | Table, rows: pa.Table) -> pa.Table:
    """Return changes with the values of the computed columns, computed for the inserted rows."""
    declaration = relation.declaration
    if not declaration.computed:
        return rows
    arriving = rows.select([n for n in relation.schema.names if n not in declaration.generated])
    comes = pc.greater(rows[WEIGHT], 0) if WEIGHT in rows.schema.names else None
    if comes is None or pc.all(comes).as_py():
        comes = None
    else:
        arriving = arriving.filter(comes)
        if not arriving.num_rows:
            return rows
    expressions = [f"({text}) AS {quote(name)}" for name, text in declaration.computed]
    found = queries.computed(arriving, expressions)
    columns = {column.name: column for column in relation.schema.columns}
    computed = [columns[name] for name, _ in declaration.computed]
    made = [fitted(found[column.name], column.type, first=True) for column in computed]
    require_fitting(computed, made, None)
    values = {
        c.name: each.values if comes is None else _spread(each.values, comes)
        for c, each in zip(computed, made, strict=True)
    }
    return _with_values(relation, rows, values)


def _spread(values: pa.Array | pa.ChunkedArray, to: pa.ChunkedArray) -> pa.Array:
    """Return values at the rows where ``to`` is true, and NULL elsewhere."""
    places = pc.cumulative_sum(pc.cast(to, pa.int64()))
    return values.take(pc.if_else(to, pc.subtract(places, 1), None))


def _with_values(
    relation: Stream | Table, rows: pa.Table, values: Mapping[str, pa.Array]
) -> pa.Table:
    """Return changes with values of some columns for the rows that are inserted."""
    required = {column.name for column in relation.schema.columns if not column.nullable}
    comes = pc.greater(rows[WEIGHT], 0) if WEIGHT in rows.schema.names else None
    for name, value in values.items():
        place, field = rows.schema.get_field_index(name), rows.schema.field(name)
        new = value.cast(field.type)
        if comes is not None:
            new = pc.if_else(comes, new, rows[name])
        rows = rows.set_column(place, field, new)
        if name in required and new.null_count:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" of {relation.kind} "{relation.name}" is NULL for some row',
                hint="It is NOT NULL and generated.",
            )
    return rows


def _metadata_values(relation: Stream | Table, count: int, now: int) -> list[tuple[str, pa.Array]]:
    types = {field.name: field.type for field in relation.schema.arrow}
    topic = relation.declaration.option("topic", "kafka_topic") or relation.name
    values = {
        "topic": lambda: pa.repeat(topic, count),
        "partition": lambda: pa.repeat(0, count),
        "timestamp": lambda: pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), count),
    }
    return [
        (name, values[key]() if key in values else pa.nulls(count, types[name]))
        for name, key in relation.declaration.metadata
        if key != _OFFSET
    ]
