"""The event time of a stream's rows: of a column that the stream declares, or of its log.

``ROWTIME`` is the event time in milliseconds, and compared with a text it is a timestamp. A stream
that declares none has the time that its log keeps of each row: that of a record of its topic, one
that an INSERT gives, or that of appending the row. A SELECT that uses it reads the stream under
another name, as for the position of rows (see :mod:`headrace.dialects.streams`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.catalog import ROWTIME, Stream
from headrace.dialects.blocks import KSQL_WINDOWS, opens_within
from headrace.dialects.tree import Group, Node, bare_name, is_group, is_query
from headrace.sql.keywords import quote

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from headrace.dialects.blocks import Block, Named
    from headrace.dialects.writer import Scope, Writer

EVENT_TIMES = frozenset({"timestamp", "timestamp_ntz", "date", "bigint"})
"""The types of columns that have an event time without a format; a BIGINT has milliseconds."""

NAME = "ROWTIME"
BY_TIME = frozenset({"LATEST_BY_EVENT_TIME", "EARLIEST_BY_EVENT_TIME"})


def event_time(writer: Writer, found: Named) -> tuple[str, str] | None:
    """Return a stream's event time, and the same in milliseconds; None if it has none."""
    stream = writer.relation(found.name)
    if not isinstance(stream, Stream):
        return None
    declared = stream.event_time
    if declared is None:
        time = f"{found.qualifier}.{ROWTIME}"
        return (time, f"unix_millis({time})") if stream.declaration.rowtime else None
    type_ = next(column.sql for column in stream.schema.columns if column.name == declared)
    time = f"{found.qualifier}.{quote(declared)}"
    form = stream.declaration.option("timestamp_format")
    match type_:
        case "string" if form is not None:
            time = f"try_to_timestamp({time}, '{_escaped(form)}')"
            return time, f"unix_millis({time})"
        case "bigint":
            return f"timestamp_millis({time})", time
        case _ if type_ in EVENT_TIMES:
            return time, f"unix_millis({time})"
        case _:
            return None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def of_log(writer: Writer, streams: Sequence[Named], block: Block) -> list[Named]:
    """Return the streams of a SELECT whose event time is used, and only in their log."""
    found = []
    for named in streams:
        stream = writer.relations[named.name]
        if not isinstance(stream, Stream) or not stream.declaration.rowtime:
            continue
        if NAME.lower() not in {column.lower() for column in stream.schema.names}:
            found.append(named)
    return found if found and _is_used(block) else []


def with_times(
    writer: Writer, streams: Sequence[Named], scope: Scope, columns: Container[str]
) -> Scope:
    """Return the scope with the event times of the streams of a SELECT.

    ``columns`` are the names of their columns in lower case: none of them is hidden by ROWTIME.
    """
    if NAME.lower() in columns:
        return scope
    names, instants = dict(scope.names), dict(scope.instants)
    times = {each.qualifier: event_time(writer, each) for each in streams}
    for qualifier, found in times.items():
        if found is not None:
            name = f"{bare_name(qualifier).upper()}.{NAME}"
            instants[name], names[name] = found
    alone = times.get(streams[0].qualifier) if len(streams) == 1 else None
    if alone is None:
        return replace(scope, names=names, instants=instants)
    instants[NAME], names[NAME] = alone
    return replace(scope, time=alone[0], names=names, instants=instants)


def _is_used(block: Block) -> bool:
    first, _ = block.clauses.get("WINDOW", (0, 0))
    windowed = bool(first) and block.nodes[first].word in KSQL_WINDOWS
    return windowed or _names_it(block.nodes[block.start : block.end])


def _names_it(nodes: Sequence[Node]) -> bool:
    """Return whether the event time is named here, without subqueries."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            if not is_query(node.inside) and _names_it(node.inside):
                return True
            continue
        before = nodes[at - 1] if at else None
        if node.word == NAME and (before is None or before.word != "AS"):
            return True
        if node.word in BY_TIME and at + 1 < len(nodes) and is_group(nodes[at + 1]):
            return True
        if opens_within(nodes, at):
            return True
    return False
