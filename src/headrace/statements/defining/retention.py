"""``retention`` of a stream: how long its log keeps events, and what becomes impossible then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headrace.catalog import Stream, Table
from headrace.errors import Code, HeadraceError, masked, meant
from headrace.parts.naming import HIDDEN, shown_name
from headrace.runtime.retirement import newest_time
from headrace.statements.defining.durations import seconds_of

if TYPE_CHECKING:
    from headrace.catalog import Relation
    from headrace.ledger import Head, Retired
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.runtime.retirement import Retirement
    from headrace.sql import AlterStream, Name, Option

RETENTION: Final = "retention"
_SECOND: Final = 1_000_000


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
