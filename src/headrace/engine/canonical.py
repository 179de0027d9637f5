"""Canonical history in Spark SQL: what the logs of streams and tables make, and its names."""

from __future__ import annotations

from pyspark.sql.types import DoubleType, FloatType, MapType

from headrace.catalog import Relation, Stream, Table, View
from headrace.dialects import OFFSET
from headrace.sql import quote
from headrace.types import DataType, RelationId, holds
from headrace.zset import WEIGHT


def _identity(column: str, type_: DataType) -> str:
    """Return the expression to group by so that different values are different groups.

    Grouping itself treats -0.0 as 0.0 and sorts the entries of maps, so it would return values that
    nobody wrote.
    """
    if holds(type_, (MapType,)):
        return f"to_json(struct({column}))"
    if holds(type_, (FloatType, DoubleType)):
        return f"{column}, to_json(struct({column}))"
    return column


def as_stored(id_: RelationId) -> RelationId:
    """Return the id under which shares have the stored rows of a relation beside its log."""
    return RelationId(~id_)


def stored_name(relation: Relation) -> str:
    """Return the name of a relation's stored rows."""
    return f"__stored_{relation.id}"


def computed_name(relation: Table | View) -> str:
    """Return the name of what a relation is by canonical history."""
    lags = isinstance(relation, View) and relation.refresh.lags
    return f"__query_{relation.id}" if lags else relation.name


def raw_name(relation: Relation) -> str:
    """Return the name of the changes in a relation's log."""
    return f"__raw_{relation.id}"


def canonical_sql(relation: Stream | Table) -> str:
    """Return the contents of a stream or table as a query over its log, in Spark SQL."""
    names = relation.schema.names
    renamed = ", ".join(f"c{i} AS {quote(name)}" for i, name in enumerate(names))
    raw = quote(raw_name(relation))
    if isinstance(relation, Stream):
        return f"SELECT {renamed} FROM {raw}"
    if not relation.primary_key:
        columns = ", ".join(f"c{i}" for i in range(len(names)))
        identity = ", ".join(
            _identity(f"c{i}", c.type) for i, c in enumerate(relation.schema.columns)
        )
        kept = (
            f"SELECT first(struct({columns})) AS kept, sum({WEIGHT}) AS n FROM {raw} "
            f"GROUP BY {identity}"
        )
        copies = f"SELECT kept.*, explode(sequence(1L, n)) FROM ({kept}) WHERE n > 0"
        return f"SELECT {renamed} FROM ({copies})"
    key = ", ".join(f"c{names.index(name)}" for name in relation.primary_key)
    last = (
        f"SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {OFFSET} DESC) AS nth FROM {raw}"
    )
    return f"SELECT {renamed} FROM ({last}) WHERE nth = 1 AND {WEIGHT} > 0"
