"""Which rows a stream accepts: ``DEDUPLICATE ON`` and ``ALLOWED LATENESS``, for the catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.dialects import EVENT_TIMES, duration_of
from headrace.errors import Code, HeadraceError, unknown
from headrace.types import require_key

if TYPE_CHECKING:
    from headrace.catalog import Stream
    from headrace.sql import Fragment, Taken
    from headrace.types import Column


def with_taken(stream: Stream, taken: Taken) -> Stream:
    """Return the stream with the clauses of its statement.

    Raises:
        HeadraceError: ``invalid``, at its place, for an unknown column, an invalid duration, and a
            stream whose event time does not have a time type.
    """
    if taken.span is None:
        return stream
    columns = {column.name.lower(): column for column in stream.schema.columns}
    declaration = replace(
        stream.declaration,
        unique=tuple(_id_column(columns, name, taken).name for name in taken.unique),
        within=_duration(taken.within),
        lateness=_duration(taken.lateness),
        rejects_late=taken.rejects,
    )
    time = columns.get((stream.event_time or "").lower())
    if taken.lateness is not None and time is not None and time.sql not in EVENT_TIMES:
        raise HeadraceError(
            Code.INVALID,
            f'column "{time.name}" of type {time.sql.upper()} has no event time',
            hint="Use a TIMESTAMP, a DATE, or a BIGINT of milliseconds for ALLOWED LATENESS.",
            span=taken.lateness.span,
        )
    return replace(stream, declaration=declaration)


def _id_column(columns: dict[str, Column], name: str, taken: Taken) -> Column:
    column = columns.get(name.lower())
    if column is None:
        names = [each.name for each in columns.values()]
        raise unknown("column", name, names, f"There are: {', '.join(names)}.", taken.span)
    try:
        require_key(column.type)
    except HeadraceError as error:
        raise error.at(taken.span) if taken.span is not None else error from error
    return column


def _duration(given: Fragment | None) -> int | None:
    if given is None:
        return None
    found = duration_of(given.text)
    if found is None or found < 0:
        raise HeadraceError(
            Code.INVALID,
            f"'{given.text}' is not a constant duration",
            hint="Write INTERVAL '7' DAY.",
            span=given.span,
        )
    return found
