"""``ttl`` of a view: rows whose time column is older than that are removed as time passes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span
from headrace.sql import quote
from headrace.statements.defining.durations import seconds_of
from headrace.types import TimestampType

if TYPE_CHECKING:
    from headrace.sql import Option, Query
    from headrace.types import Schema

TTL_OPTIONS = ("ttl", "ttl_column")


def with_ttl(
    query: Query, schema: Schema, names: tuple[str, ...], options: tuple[Option, ...]
) -> Query:
    """Return a view's query with the condition of its option ``ttl``, if given.

    ``schema`` is the query's; ``names`` are the view's columns.

    Raises:
        HeadraceError: ``invalid``, at the option, if it is not a duration, or has no time column.
    """
    given = {option.key.lower(): option for option in options if option.key.lower() in TTL_OPTIONS}
    if not given:
        return query
    if "ttl" not in given:
        raise _wrong(given["ttl_column"], "there is no ttl", "Give the option ttl as well.")
    seconds, column = seconds_of(given["ttl"]), _column(schema, names, given)
    listed = ", ".join(map(quote, names))
    text = (
        f"SELECT * FROM (\n{query.text}\n) AS _kept ({listed}) "
        f"WHERE {quote(column)} >= now() - INTERVAL {seconds} SECONDS"
    )
    return replace(query, text=text, span=Span.whole(text))


def _column(schema: Schema, names: tuple[str, ...], given: dict[str, Option]) -> str:
    """Return the column with a row's time: the named one, or the only one."""
    times = [
        name
        for name, column in zip(names, schema.columns, strict=True)
        if isinstance(column.type, TimestampType)
    ]
    named = given.get("ttl_column")
    if named is not None:
        found = [name for name in times if name.lower() == named.value.lower()]
        if not found:
            hint = f"There are: {', '.join(times)}." if times else "It has no TIMESTAMP column."
            raise _wrong(named, f'column "{named.value}" is not a TIMESTAMP of the view', hint)
        return found[0]
    if len(times) != 1:
        hint = f"Give ttl_column: one of {', '.join(times)}." if times else "Select a TIMESTAMP."
        raise _wrong(given["ttl"], f"the view has {len(times)} TIMESTAMP columns", hint)
    return times[0]


def _wrong(option: Option, what: str, hint: str) -> HeadraceError:
    primary = f'option "{option.key}": {what}'
    return HeadraceError(Code.INVALID, primary, hint=hint, span=option.span)
