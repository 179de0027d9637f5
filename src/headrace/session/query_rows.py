"""Evaluating the query of an INSERT once, over what is readable now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql import quote
from headrace.sql.values import rows_apart

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.errors import Span
    from headrace.session.instance import Instance
    from headrace.types import Column


def evaluate_query(instance: Instance, query: Span, columns: tuple[Column, ...]) -> pa.Table:
    """Have Spark evaluate a query and cast its columns, an overflow being an error.

    It may read the clock and chance: what is written is what they were then.
    """
    read = rows_apart(query)
    engine = instance.engine
    with engine.planning, read.mapping_errors():
        analysed = engine.planner.analyse(read.span, once=True)
    given = analysed.schema.columns
    if len(given) != len(columns):
        raise HeadraceError(
            Code.INVALID,
            f"{len(columns)} columns are to be filled, but the query has {len(given)}",
            detail=f"Columns: {', '.join(column.name for column in columns)}.",
            span=query,
        )
    casts = ", ".join(
        f"CAST(`c{i}` AS {column.type.simpleString()}) AS {quote(column.name)}"
        for i, column in enumerate(columns)
    )
    aliases = ", ".join(f"`c{i}`" for i in range(len(columns)))
    text = f"SELECT {casts} FROM ({read.text}\n) AS `__given`({aliases})"
    epoch = instance.settle()
    instance.gather(analysed.names)
    try:
        return instance.queries.select(text, instance.shares(analysed.reads, epoch))
    except HeadraceError as error:
        raise error.at(query) from error
