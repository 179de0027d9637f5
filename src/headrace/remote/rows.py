"""Converts a program's rows to the Arrow data that is sent to a server."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.types import Column

MEDIA_TYPE = "application/vnd.apache.arrow.stream"


class _UnknownColumnsError(Exception):
    """Rows have columns that the relation does not have."""


def as_arrow(rows: Any, described: Callable[[], Any]) -> pa.Table:
    """Return rows as Arrow, converted to the types of the relation's columns if they are objects.

    ``described`` returns the response of ``GET /v1/streams/{name}``. If rows have an unknown
    column, only their column names are sent, and the server returns the error.

    Raises:
        HeadraceError: ``invalid`` for a row or value that does not fit, as an embedded database.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    from headrace.statements.changing.given_rows import given_rows  # noqa: PLC0415  (is large)
    from headrace.types import Schema  # noqa: PLC0415

    found = described()
    arriving = Schema.of_json(found["columns"]).columns
    known = (*arriving, *Schema.of_json(found["optional"]).columns)
    by_name = {column.name.lower(): column for column in known}

    def chosen(names: tuple[str, ...]) -> list[Column]:
        if not all(name.lower() in by_name for name in names):
            raise _UnknownColumnsError(*names)
        return [by_name[name.lower()] for name in names]

    try:
        return given_rows(rows, arriving, chosen, found["defaults"])
    except _UnknownColumnsError as unknown:
        names = list(unknown.args)
        return pa.Table.from_arrays([pa.nulls(0, pa.string()) for _ in names], names=names)


def written(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def read(parts: list[bytes]) -> pa.Table:
    """Read the table of an Arrow IPC stream, given in parts."""
    return pa.ipc.open_stream(b"".join(parts)).read_all()
