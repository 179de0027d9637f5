"""Rows by key: the lookups that simple queries are, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.formats.literals import plain_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headrace.catalog import Relation, Table, View
    from headrace.serving import Contents
    from headrace.statements.reading.simple import Simple


def rows_by_key(
    relation: Relation, arranged: Iterable[Contents], simple: Simple
) -> pa.Table | None:
    """Return the rows that a query finds by the key of one of these contents; None if by none.

    ``arranged`` are the rows of the relation, by its unique key and by the columns of indexes.
    """
    for contents in arranged:
        key = _key(relation, contents, simple)
        if key is not None:
            return contents.by_key(key)
    return None


def chosen(relation: Table | View, simple: Simple) -> list[str]:
    """Return the columns that a query selects; all columns for ``*``."""
    names = {name.lower(): name for name in relation.schema.names}
    return [names[column] for column in simple.columns] or list(relation.schema.names)


def _key(relation: Relation, contents: Contents, simple: Simple) -> list[Any] | None:
    """Return the key's values if the conditions are only equalities of keys and literals."""
    types = {c.name.lower(): c.type for c in relation.schema.columns}
    wanted = [name.lower() for name in contents.layout.key]
    if set(wanted) != set(simple.equal) or not contents.can_look_up():
        return None
    values = []
    for name in wanted:
        token = simple.equal[name]
        if token is None:
            return None
        plain, value = plain_value(token, types[name], negative=name in simple.negative)
        if not plain or value is None:
            return None
        values.append(value)
    return values
