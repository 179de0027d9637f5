"""Compiles "changed by events since a time" to a condition on a view's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.catalog import Stream, View
from headrace.log import EmbeddedLog
from headrace.runtime.retirement import known_of, newest_time
from headrace.runtime.shares import whole_log
from headrace.sql import quote, quoted
from headrace.types import Offset
from headrace.zset import Restriction, Test

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.engine.engine import Engine
    from headrace.engine.touched import Touched
    from headrace.runtime.epoch import EpochLoop

_TIMES: Final = frozenset({"timestamp", "timestamp_ntz", "date"})
MOST_KEYS: Final = 2_000
"""The most keys of events that a condition lists."""


def changed_since(engine: Engine, loop: EpochLoop, view: View, since: int) -> str | None:
    """Return a condition that every row of the view changed by events since a time meets.

    ``since`` is in microseconds UTC. None if no such condition can be derived; see
    :func:`why_unknown`.
    """
    found = engine.touched(view, since)
    if found is None:
        return None
    conditions = [each.bound or _of_keys(loop, each, since) for each in found]
    return " OR ".join(f"({c})" for c in conditions) if all(conditions) else None


def why_unknown(view: View, catalog: Catalog) -> str:
    """Return why no condition can be derived, and what to declare so that one can be."""
    below = [catalog.by_id[id_] for id_ in view.depends_on]
    for relation in below:
        if isinstance(relation, Stream) and relation.event_time is None:
            columns = relation.schema.columns
            column = next((c.name for c in columns if c.sql in _TIMES), "column")
            return (
                f"stream {relation.name} has no event time; it is declared by"
                f" WATERMARK FOR {column} AS {column} when the stream is created"
            )
    for relation in below:
        if isinstance(relation, View):
            return f"rows of view {relation.name} have no event time"
    return "the rows that events since then have changed are unknown"


def _of_keys(loop: EpochLoop, touched: Touched, since: int) -> str:
    """Return a condition on the view's keys that events since a time have; "" if unknown."""
    stream = loop.catalog.by_id[touched.stream]
    if not isinstance(stream, Stream) or not touched.keys:
        return ""
    places = [stream.schema.names.index(name) for name in touched.keys.values()]
    fields = [stream.schema.stored.field(place) for place in places]
    if not all(is_literal(field.type) for field in fields):
        return ""
    retired = known_of(loop.ledger, loop.directory / "log", stream)
    if retired is not None and newest_time(stream, retired) >= since:
        return ""
    time = stream.schema.stored.field(stream.schema.names.index(touched.event_time))
    later = Test(time.name, low=pa.scalar(since, pa.int64()).cast(time.type))
    state = loop.published.current
    share = whole_log(loop.ledger, state, stream.id, state.shown().get(stream.id, Offset(0)))
    read = EmbeddedLog().read(
        loop.directory / "log",
        share,
        pa.schema(fields),
        offsets=False,
        restriction=Restriction((later,)),
    )
    names = list(touched.keys.values())
    pairs = zip(names, fields, strict=True)
    known = pa.table({name: pa.array([], field.type) for name, field in pairs})
    for batch in read:
        read_now = [batch.column(field.name) for field in fields]
        both = [known, pa.table(read_now, names=names)]
        known = pa.concat_tables(both).group_by(names).aggregate([])
        if known.num_rows > MOST_KEYS:
            return ""
    return " AND ".join(
        is_among(name, known[column].combine_chunks()) for name, column in touched.keys.items()
    )


def is_among(name: str, values: pa.Array) -> str:
    """Return a condition that a column equals one of some values, which may include NULL."""
    column, given = quote(name), values.unique()
    found = []
    if given.null_count:
        found.append(f"{column} IS NULL")
    present = given.drop_null().to_pylist()
    if present:
        found.append(f"{column} IN ({', '.join(map(_literal, present))})")
    return f"({' OR '.join(found) or 'false'})"


def is_literal(type_: pa.DataType) -> bool:
    """Whether :func:`is_among` supports values of a type."""
    return bool(pa.types.is_integer(type_) or pa.types.is_string(type_))


def _literal(value: int | str) -> str:
    return quoted(value) if isinstance(value, str) else str(value)
