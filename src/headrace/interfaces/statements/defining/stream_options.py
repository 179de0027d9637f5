"""The options of a stream or table: event time, retention, which rows it accepts, versions.

Also how options are read that are true or false, or lengths of time.

The event time of a stream, declared by ``timestamp`` and ``timestamp_format``.

``retention`` of a stream: how long its log keeps events, and what becomes impossible then.

Which rows a stream accepts: ``DEDUPLICATE ON`` and ``ALLOWED LATENESS``, for the catalog.

``WITH (effective_from = 'column')``: tables whose rows are versions of their key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from headrace.errors import Code, HeadraceError, masked, meant, unknown
from headrace.execution.runtime.retirement import newest_time
from headrace.planning.catalog import Stream, Table
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.dialects import EVENT_TIMES, duration_of
from headrace.types import require_key

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.execution.runtime.retirement import Retirement
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Relation
    from headrace.planning.sql import (
        AlterStream,
        CreateStream,
        CreateTable,
        Fragment,
        Name,
        Option,
        Taken,
    )
    from headrace.storage.ledger import Head, Retired
    from headrace.types import Column, Schema


AUTO_SWAP: Final = "auto_swap"
"""The option of a replaced view: with ``false``, the new build waits for SWAP VIEW."""
REUSE: Final = "reuse"
"""The option of a view: with ``false``, it is filled from its inputs alone."""


def is_on(options: tuple[Option, ...], key: str) -> bool:
    """Return the value of an option that is true by default.

    Raises:
        HeadraceError: ``invalid``, at the option, for a value that is neither true nor false.
    """
    given = next((option for option in options if option.key.lower() == key), None)
    if given is None or given.value.lower() == "true":
        return True
    if given.value.lower() == "false":
        return False
    raise HeadraceError(
        Code.INVALID,
        f"'{given.value}' is not a value of {key}",
        hint="Use true or false.",
        span=given.span,
    )


_SECOND: Final = 1_000_000


def seconds_of(option: Option) -> int:
    """Return the length of time that an option gives, in seconds.

    Raises:
        HeadraceError: ``invalid``, at the option, unless it is one of whole seconds, at least one.
    """
    found = seconds_in(option.value)
    if found is None:
        raise HeadraceError(
            Code.INVALID,
            f"option \"{option.key}\": '{option.value}' is not a duration",
            hint="Use one such as '90 days'.",
            span=option.span,
        )
    return found


def seconds_in(text: str) -> int | None:
    """Return the length of time that a text such as ``90 days`` gives, in seconds.

    None unless it is one of whole seconds, at least one.
    """
    interval = text.upper().removeprefix("INTERVAL ").replace("'", "")
    found = duration_of(f"INTERVAL '{interval}'")
    return None if found is None or found < _SECOND or found % _SECOND else found // _SECOND


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


RETENTION: Final = "retention"


def with_retention(relation: Stream | Table, options: tuple[Option, ...]) -> Stream | Table:
    """Return the relation with the retention of its options.

    Raises:
        HeadraceError: ``invalid``, at the option, if it is not a duration; ``unsupported`` for a
            table.
    """
    given = next((option for option in options if option.key.lower() == RETENTION), None)
    if given is None:
        return relation
    if isinstance(relation, Table):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'option "{given.key}" of a table is not supported',
            "Its rows are those of its last changes, however old these are.",
            "DELETE its rows, or give ttl to the materialized views over it.",
            given.span,
        )
    kept = replace(relation.declaration, retention=retention_of(options))
    return replace(relation, declaration=kept)


def retention_of(options: tuple[Option, ...]) -> int | None:
    """Return the retention in options, in microseconds; None without one."""
    given = next((o for o in options if o.key.lower() == RETENTION and o.value), None)
    return None if given is None else seconds_of(given) * _SECOND


def lost_events(stream: Stream, head: Head, retired: Retired) -> str:
    """Return how many events of a stream would be dropped, and the time of the newest."""
    start, end = head.starts[stream.id], head.ends[stream.id]
    until = datetime.fromtimestamp(newest_time(stream, retired) / _SECOND, UTC)
    count = retired.start - start
    return f"{count:,} of {end - start:,} events, the newest of {until:%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class Retentions:
    """Changes the retention of streams."""

    reader: Reader
    definer: Definer
    retirement: Retirement

    def alter(self, statement: AlterStream) -> str:
        """Change the retention of a stream; return a message with the consequences."""
        stream = self._stream(statement.name)
        for option in statement.options:
            if option.key.lower() != RETENTION:
                raise HeadraceError(
                    Code.INVALID,
                    f'option "{option.key}" of a stream cannot be altered',
                    hint=meant(option.key, (RETENTION,), "Alter its retention."),
                    span=option.span,
                )
        altered = self._altered(stream, statement)
        self.reader.settle_all()
        self.definer.redefine(altered)
        if statement.resets:
            return f"altered stream {stream.name}: its events are kept"
        before = self.reader.ledger.head
        retired = self.retirement.retire(altered)
        note = "" if retired is None else self._lost(altered, before, retired)
        held = [shown_name(view, self.reader.catalog) for view in self.retirement.kept_for(altered)]
        if held:
            note += f"; older ones are kept until {', '.join(held)} is refreshed or repaired"
        (option,) = statement.options
        return f"altered stream {stream.name}: its events are kept for {option.value}{note}"

    def _altered(self, stream: Stream, statement: AlterStream) -> Stream:
        declaration = stream.declaration
        others = tuple(pair for pair in declaration.options if pair[0] != RETENTION)
        new = tuple((RETENTION, option.value) for option in statement.options)
        declaration = replace(
            declaration,
            created_sql=f"{declaration.created_sql};\n{masked(statement.span.source)}",
            options=others if statement.resets else (*others, *new),
            retention=None,
        )
        found = with_retention(
            replace(stream, declaration=declaration), () if statement.resets else statement.options
        )
        if not isinstance(found, Stream):
            raise HeadraceError(Code.INTERNAL, "a stream became a table")
        return found

    def _lost(self, stream: Stream, before: Head, retired: Retired) -> str:
        """Return the part of the message about dropped events, and what is no longer possible."""
        state = self.reader.published
        note = f"; {lost_events(stream, before, retired)}, are no longer kept"
        views = [
            view.name
            for view in state.catalog.views_in_order()
            if stream.id in state.unkept(view) and not view.name.startswith(HIDDEN)
        ]
        if not views:
            return note
        return (
            f"{note}; rows that {', '.join(views)} made of them stay, and can no longer be verified"
            " or computed again"
        )

    def _stream(self, name: Name) -> Stream:
        relation: Relation = self.reader.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, Stream):
            return relation
        raise HeadraceError(
            Code.INVALID,
            f'"{relation.name}" is a {relation.kind}, not a stream',
            hint="Only the events of streams are kept for a time; rows of views have a ttl.",
            span=name.span,
        )


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


EFFECTIVE_FROM = "effective_from"
"""The option that names the column."""


def effective_column(statement: CreateStream | CreateTable, schema: Schema) -> str | None:
    """Return the effective column as spelled in the schema; None without the option.

    Raises:
        HeadraceError: ``invalid``, at the option or at the column's type, if there is no primary
            key, no such column, or the column is not a time or is part of the key.
    """
    option = versions_of(statement.options)
    if option is None:
        return None
    named = {name.lower(): name for name in schema.names}
    name = named.get(option.value.lower())
    if name is None:
        listed = f"There are: {', '.join(schema.names)}."
        raise _invalid(
            f'effective column "{option.value}" does not exist',
            meant(option.value, schema.names, listed),
            option.span,
        )
    if not statement.primary_key:
        raise _invalid(
            "a versioned table has no PRIMARY KEY",
            "Declare PRIMARY KEY (...): a row is a version of its key, from its date on.",
            option.span,
        )
    if name.lower() in {key.lower() for key in statement.primary_key}:
        raise _invalid(
            f'effective column "{name}" is in the PRIMARY KEY',
            "Leave it out of PRIMARY KEY: each key may have one version from any date on.",
            option.span,
        )
    column = next(d for d in statement.columns if d.name == name)
    type_ = schema.columns[schema.names.index(name)].type
    if not isinstance(type_, (DateType, TimestampType, TimestampNTZType)):
        raise _invalid(
            f'effective column "{name}" is {type_.simpleString().upper()}',
            "Use DATE, TIMESTAMP or TIMESTAMP_NTZ: it is the time from which a row is valid.",
            column.type.span,
        )
    return name


def refuse_versions(options: tuple[Option, ...]) -> None:
    """Raise if a view has the option, since its rows are computed."""
    option = versions_of(options)
    if option is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "effective_from of a query is not supported",
            hint="Declare the columns and a PRIMARY KEY, and INSERT the versions.",
            span=option.span,
        )


def versions_of(options: tuple[Option, ...]) -> Option | None:
    """Return the option, or None."""
    return next((option for option in options if option.key.lower() == EFFECTIVE_FROM), None)


def _invalid(primary: str, hint: str, span: Span) -> HeadraceError:
    return HeadraceError(Code.INVALID, primary, hint=hint, span=span)
