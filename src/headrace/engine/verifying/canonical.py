"""Canonical history: the contents of streams and tables by their logs, in Spark SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DoubleType, FloatType, MapType, VariantType

from headrace.catalog import Relation, Stream, Table, View
from headrace.dialects import OFFSET
from headrace.sql import quote
from headrace.types import DataType, RelationId, Schema, holds
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence


APART: Final = "__apart"
"""The name of the rows in quarantine while the other rows of a relation are declared."""
_BITS: Final = 31
"""The bits of a relation's id in the id of a share."""


def _identity(column: str, type_: DataType) -> tuple[str, ...]:
    """Return the expressions to group by so that different values are different groups.

    Spark's grouping treats -0.0 as 0.0 and sorts the entries of maps, so it would return values
    that were never written. Equal values have equal texts, whatever the names of their columns.
    """
    if holds(type_, (MapType, VariantType)):
        return (f"to_json(struct({column} AS v))",)
    if holds(type_, (FloatType, DoubleType)):
        return (column, f"to_json(struct({column} AS v))")
    return (column,)


def as_stored(id_: RelationId) -> RelationId:
    """Return the id of the share with the stored rows of a relation; its log has another one."""
    return RelationId(~id_)


def stored_name(relation: Relation) -> str:
    """Return the name of a relation's stored rows."""
    return f"__stored_{relation.id}"


def computed_name(relation: Relation) -> str:
    """Return the name of a relation's contents by canonical history."""
    lags = isinstance(relation, View) and relation.refresh.lags
    return f"__query_{relation.id}" if lags else relation.name


def raw_name(relation: Relation) -> str:
    """Return the name of the changes in a relation's log."""
    return f"__raw_{relation.id}"


def quarantine_share(view: RelationId, relation: RelationId) -> RelationId:
    """Return the id of the share with the rows of a relation that a view has in quarantine."""
    return RelationId(~(view << _BITS | relation))


def without(rows: str, kept: str, columns: Schema, names: Sequence[str]) -> str:
    """Return a query of some columns of a relation's rows, without some copies, in Spark SQL.

    ``kept`` names the copies to leave out: the columns of the given schema as ``c0``, ..., and the
    number of copies as the weight. Rows that agree in these columns are interchangeable.
    """
    known = list(enumerate(columns.columns))
    parts = [part for _, c in known for part in _identity(quote(c.name), c.type)]
    mine = [part for i, c in known for part in _identity(f"c{i}", c.type)]
    numbered = [f"{part} AS __k{i}" for i, part in enumerate(mine)]
    shown = ", ".join(map(quote, names))
    grouped = f" GROUP BY {', '.join(mine)}" if mine else ""
    total = f"sum({WEIGHT})"
    counted = ", ".join([*numbered, f"{total} AS __copies"])
    copies = f"SELECT {counted} FROM {kept}{grouped} HAVING {total} > 0"
    met = " AND ".join(f"{part} <=> __k{i}" for i, part in enumerate(parts)) or "true"
    by = f"PARTITION BY {', '.join(parts)} " if parts else ""
    nth = f"row_number() OVER ({by}ORDER BY 0) AS __nth"
    found = f"SELECT *, {nth} FROM {rows} JOIN ({copies}) ON {met}"
    return (
        f"SELECT {shown} FROM {rows} LEFT ANTI JOIN ({copies}) ON {met} "
        f"UNION ALL SELECT {shown} FROM ({found}) WHERE __nth > __copies"
    )


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
            part
            for i, c in enumerate(relation.schema.columns)
            for part in _identity(f"c{i}", c.type)
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
