"""The event time of a stream, declared by ``timestamp`` and ``timestamp_format``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects import EVENT_TIMES
from headrace.errors import Code, HeadraceError, meant

if TYPE_CHECKING:
    from headrace.catalog import Stream
    from headrace.errors import Span
    from headrace.sql import Option

_COLUMN, _FORMAT = "timestamp", "timestamp_format"


def require_event_time(stream: Stream, options: tuple[Option, ...]) -> None:
    """Raise if the options do not give a valid event time.

    Raises:
        HeadraceError: ``invalid``, at the option.
    """
    given = {option.key.lower(): option for option in options}
    column, form = given.get(_COLUMN), given.get(_FORMAT)
    if column is None:
        if form is not None:
            raise _wrong(
                f'option "{_FORMAT}" needs option "{_COLUMN}"', "Name the column.", form.span
            )
        return
    types = {c.name.lower(): c.sql for c in stream.schema.columns}
    type_ = types.get(column.value.lower())
    if type_ is None:
        names = stream.schema.names
        hint = meant(column.value, names, "Name a column with the time of a row.")
        raise _wrong(f'column "{column.value}" does not exist', hint, column.span)
    if form is not None and type_ != "string":
        what = f'option "{_FORMAT}" is for texts, and column "{column.value}" is {type_.upper()}'
        raise _wrong(what, "Leave it out.", form.span)
    if form is None and type_ not in EVENT_TIMES:
        raise _wrong(
            f'column "{column.value}" of type {type_.upper()} has no event time',
            f"Add {_FORMAT} = 'yyyy-MM-dd HH:mm:ss'."
            if type_ == "string"
            else "Use a TIMESTAMP, a DATE, or a BIGINT of milliseconds.",
            column.span,
        )


def _wrong(primary: str, hint: str, span: Span | None) -> HeadraceError:
    return HeadraceError(Code.INVALID, primary, hint=hint, span=span)
