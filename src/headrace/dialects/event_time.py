"""The event time of a stream's rows: a column that the stream declares, or the log's time.

``ROWTIME`` is the event time in milliseconds; compared with text it is a timestamp. A stream
without a declared event time has the time that its log stores for each row: that of the record of
its topic, one given by an INSERT, or the time of appending. A SELECT that uses it reads the stream
under another name, as for the position of rows (see :mod:`headrace.dialects.streams`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.catalog import ROWTIME, Stream, View, with_rowtime
from headrace.dialects.blocks import KSQL_WINDOWS, blocks_of, in_set, opens_within
from headrace.dialects.tree import Group, Node, bare_name, is_group, is_query, nodes_of
from headrace.sql.cursor import RESERVED_PREFIX
from headrace.sql.keywords import quote

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from headrace.dialects.blocks import Block, Named
    from headrace.dialects.writer import Scope, Writer
    from headrace.types import RelationId

EVENT_TIMES = frozenset({"timestamp", "timestamp_ntz", "date", "bigint"})
"""The types of columns that have an event time without a format; a BIGINT has milliseconds."""

NAME = "ROWTIME"
INSTANT = "__ROWTIME"
"""The event time as a timestamp, for generated queries."""

_NOT_ROWS = frozenset(
    {"GROUP", "HAVING", "DISTINCT", "LIMIT", "FETCH", "WITH", "WINDOW", "QUALIFY"}
)
BY_TIME = frozenset({"LATEST_BY_EVENT_TIME", "EARLIEST_BY_EVENT_TIME"})


def log_of(relation: RelationId) -> str:
    """Return the name of a stream with the log's columns: the time and position of each row."""
    return f"{RESERVED_PREFIX}log_{relation}"


def event_time(writer: Writer, found: Named) -> tuple[str, str] | None:
    """Return a stream's event time, and the same in milliseconds; None if it has none."""
    stream = writer.relation(found.name)
    if not isinstance(stream, Stream) or stream.event_time is None:
        time = f"{found.qualifier}.{ROWTIME}"
        return None if kept_by(writer, found) is None else (time, f"unix_millis({time})")
    type_ = next(c.sql for c in stream.schema.columns if c.name == stream.event_time)
    time = f"{found.qualifier}.{quote(stream.event_time)}"
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


def kept_by(writer: Writer, found: Named) -> str | None:
    """Return the name under which a relation is read together with the log's time of each row.

    None if a column has the event time, or the log stores none.
    """
    match writer.relation(found.name):
        case Stream() as stream if stream.declaration.rowtime:
            return log_of(stream.id)
        case View(into=into) if into is not None and with_rowtime(into) in writer.relations:
            return quote(with_rowtime(into))
    return None


def is_stream(writer: Writer, found: Named) -> bool:
    """Whether a relation is a stream, or a view by CREATE STREAM AS with event times."""
    relation = writer.relation(found.name)
    return isinstance(relation, Stream) or (
        isinstance(relation, View) and kept_by(writer, found) is not None
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def with_kept_times(writer: Writer, streams: Sequence[Named], block: Block) -> list[Named]:
    """Return the streams of a SELECT that uses the event time stored by the log."""
    found = []
    for named in streams:
        columns = {column.lower() for column in writer.relations[named.name].schema.names}
        if kept_by(writer, named) is not None and NAME.lower() not in columns:
            found.append(named)
    return found if found and _is_used(block) else []


def with_times(
    writer: Writer, streams: Sequence[Named], scope: Scope, columns: Container[str]
) -> Scope:
    """Return the scope with the event times of the streams of a SELECT.

    ``columns`` are the lower-case names of their columns, which take precedence over ROWTIME. The
    event time of a join is the latest of its rows.
    """
    if NAME.lower() in columns:
        return scope
    names, instants = dict(scope.names), dict(scope.instants)
    times = [(each.qualifier, event_time(writer, each)) for each in streams]
    known = []
    for qualifier, found in times:
        if found is not None:
            name = f"{bare_name(qualifier).upper()}.{NAME}"
            instants[name], names[name] = found
            known.append(found)
    if not known or len(known) < len(times):
        return replace(scope, names=names, instants=instants)
    latest = [
        each[0] if len(each) == 1 else f"greatest({', '.join(each)})"
        for each in zip(*known, strict=True)
    ]
    instants[NAME], names[NAME] = latest
    names[INSTANT] = latest[0]
    alone = latest[0] if len(known) == 1 else scope.time
    return replace(scope, time=alone, names=names, instants=instants)


def timed(query: str) -> str | None:
    """Return a query with the event time of its rows as an additional column :data:`ROWTIME`.

    None if result rows are not input rows: if the query groups them, or reads nothing.
    """
    nodes = nodes_of(query)
    blocks = blocks_of(nodes)
    if len(blocks) != 1 or in_set(blocks[0]):
        return None
    (block,) = blocks
    words = {node.word for node in nodes}
    if "FROM" not in block.clauses or words & _NOT_ROWS or block.clauses.keys() & _NOT_ROWS:
        return None
    at = nodes[block.clauses["FROM"][0] - 1].start
    return f"{query[:at]}, {INSTANT} AS {ROWTIME} {query[at:]}"


def _is_used(block: Block) -> bool:
    first, _ = block.clauses.get("WINDOW", (0, 0))
    windowed = bool(first) and block.nodes[first].word in KSQL_WINDOWS
    return windowed or _names_it(block.nodes[block.start : block.end])


def _names_it(nodes: Sequence[Node]) -> bool:
    """Return whether nodes name the event time, outside of subqueries."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            if not is_query(node.inside) and _names_it(node.inside):
                return True
            continue
        before = nodes[at - 1] if at else None
        if node.word in {NAME, INSTANT} and (before is None or before.word != "AS"):
            return True
        if node.word in BY_TIME and at + 1 < len(nodes) and is_group(nodes[at + 1]):
            return True
        if opens_within(nodes, at):
            return True
    return False
