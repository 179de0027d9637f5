"""Rows that give a renamed column under a former name: what writes them may not know the new one.

They are decoded with a column for each former name; a value under the present name prevails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headrace.planning.sql import DropColumns, RenameColumn
from headrace.planning.sql.parser import parse
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    import pyarrow as pa

    from headrace.planning.catalog import Stream, Table
    from headrace.types import Epoch


def with_former(relation: Stream | Table, schema: Schema) -> Schema:
    """Return the columns of rows to decode, and after them the former names of nullable ones."""
    columns = {column.name: column for column in schema.columns}
    more = [
        Column(former, columns[present].type)
        for former, present in _former(relation)
        if present in columns and columns[present].nullable
    ]
    return Schema((*schema.columns, *more)) if more else schema


def as_present(relation: Stream | Table, rows: pa.Table) -> pa.Table:
    """Return decoded rows with their values under the present names only."""
    for former, present in _former(relation):
        if former in rows.column_names and present in rows.column_names:
            values = pc.coalesce(rows[present], rows[former])
            place = rows.column_names.index(present)
            rows = rows.set_column(place, rows.schema.field(present), values)
            rows = rows.drop_columns([former])
    return rows


def without_former(relation: Stream | Table, names: Container[str]) -> tuple[tuple[str, str], ...]:
    """Return the former names of a relation's columns but some."""
    return tuple(pair for pair in relation.declaration.former if pair[1] not in names)


def present_name(relation: Stream | Table, name: str) -> str | None:
    """Return the name that a column has now which had another one; None if there is none."""
    found = {former.lower(): present for former, present in _former(relation)}
    return found.get(name.lower())


def added_again(relation: Table, epoch: Epoch) -> Column | None:
    """Return a column that was added after an epoch under a name that another one had before.

    What this one had at the epoch cannot be read any more by the name.
    """
    late = [c for c in relation.schema.columns if c.since is not None and c.since > epoch]
    names = _earlier_names(relation) if late else frozenset()
    return next((column for column in late if column.name.lower() in names), None)


def _earlier_names(relation: Table) -> frozenset[str]:
    """Return the names, in lower case, that columns had which have others or are gone."""
    declaration, found = relation.declaration, set[str]()
    for statement in parse(declaration.created_sql):
        match statement:
            case DropColumns():
                found |= {each.text.lower() for each in statement.dropped}
            case RenameColumn():
                found.add(statement.column.text.lower())
            case _:
                pass
    former = (name for name, _ in declaration.former)
    return frozenset(found | {name.lower() for name in (*declaration.dropped, *former)})


def _former(relation: Stream | Table) -> Iterator[tuple[str, str]]:
    """Yield the former names that no other column has now, each with the present one."""
    taken = {name.lower() for name in relation.schema.names}
    for former, present in relation.declaration.former:
        if former.lower() not in taken:
            yield former, present
