"""The event time of a stream's rows: a column that the stream declares, or the log's time.

``ROWTIME`` is the event time in milliseconds; compared with text it is a timestamp. A stream
without a declared event time has the time that its log stores for each row: that of the record of
its topic, one given by an INSERT, or the time of appending. A SELECT that uses it reads the stream
under another name, as for the position of rows (see :mod:`headrace.planning.dialects.streams`).

``EMIT FINAL``: windows are shown once the event time of their source has passed their end.

RisingWave's ``EMIT ON WINDOW CLOSE`` is the same.

It becomes a condition on the greatest event time of the source::

    HAVING window.end + grace <= (SELECT max(time) FROM source)

A row that arrives later still corrects the result of its window. The end of the window is combined
with a count of the group's rows, which is never 0, so that Spark does not push the condition below
the aggregate: there, it would hold back rows until their window ends, instead of groups.

Window functions in FROM: ``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))``.

Flink's form, and ``TUMBLE(t, ts, INTERVAL '1 minute')`` of Materialize and RisingWave. They become
a subquery with the relation's rows, each with the ``window_start`` and ``window_end`` of its
windows. Flink's form also has ``window_time``, the last millisecond of the window.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.planning.catalog import ROWTIME, Stream, Table, View, with_rowtime
from headrace.planning.dialects.intervals import delay_of, spelled
from headrace.planning.dialects.tree import (
    KSQL_WINDOWS,
    NAMES,
    Found,
    Group,
    Node,
    TextPart,
    alias_at,
    bare_name,
    blocks_of,
    in_set,
    is_group,
    is_query,
    nodes_of,
    opens_within,
    relations_of,
    split_at,
)
from headrace.planning.dialects.windows import KINDS, WINDOW, Window, length_of, window_of
from headrace.planning.dialects.writer import Edits, Ending, Scope, Writer
from headrace.planning.sql.cursor import RESERVED_PREFIX
from headrace.planning.sql.lexer import Token, quote

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from headrace.errors import HeadraceError
    from headrace.planning.dialects.tree import Block, Named
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


_SPARKS = {"WINDOW": "window.end", "SESSION_WINDOW": "session_window.end"}
_SETS = frozenset({"ROLLUP", "CUBE", "GROUPING"})
_SEVERAL = frozenset({"JOIN", "LATERAL"})
_GROUPING = "Group by a window over time: TUMBLE(time, INTERVAL '1' HOUR), window(time, '1 hour')."


def final_windows(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Add the condition that the windows of the groups have ended."""
    if "EMIT" not in block.clauses:
        return None
    end = block.clauses["EMIT"][0]
    at = end - (4 if block.nodes[end - 1].word == "CLOSE" else 2)
    place = block.nodes[at], block.nodes[end - 1]
    if in_set(block):
        raise writer.refused(
            "EMIT FINAL after a set operation is not supported",
            "Put each SELECT with its EMIT FINAL between brackets.",
            *place,
            "It would be of the last SELECT alone.",
        )
    sets = next((node for node in block.clause("GROUP") if node.word in _SETS), None)
    if sets is not None:
        raise writer.refused(
            f"EMIT FINAL with {sets.word} is not supported",
            "Make a view for each way to group.",
            *place,
            "A group of all windows has no end.",
        )
    ending = scope.ending or _sparks_own(block)
    grouped = {node.word for node in block.clause("GROUP")}
    if ending is None or not grouped:
        raise writer.refused("EMIT FINAL without windows is not supported", _GROUPING, *place)
    if ending.source and "WINDOW_END" not in grouped:
        hint = "Group by window_start and window_end."
        raise writer.refused("EMIT FINAL needs the end of the window", hint, *place)
    from_ = tuple(block.clause("FROM"))
    if any(node.text == "," or node.word in _SEVERAL for node in from_):
        raise writer.refused(
            "EMIT FINAL over several relations is not supported",
            "Make the join a view, and group that by windows.",
            *place,
            "The event time is known for one source of rows only.",
        )
    time, filled = ("{0}", [ending.time]) if isinstance(ending.time, tuple) else (ending.time, [])
    grace = _grace(writer, block, ending)
    held = f" + INTERVAL {spelled(grace)}" if grace else ""
    ended = f"IF(count(*) > 0, {ending.end}, NULL)"
    source = f"{{{len(filled)}}}" if ending.source or scope.source is None else scope.source
    template = f"{ended}{held} <= (SELECT max({time}) FROM {source})"
    condition = writer.filled(template, [*filled, ending.source or from_], place, scope)
    nothing = Found(end, [writer.put(" ", *place)])
    if "HAVING" not in block.clauses:
        opening, closing = writer.put(" HAVING ", *place), writer.put(" ", *place)
        inserted = {block.clauses["GROUP"][1]: [opening, *condition, closing]}
    else:
        first, last = block.clauses["HAVING"]
        also = writer.put(") AND ", *place)
        inserted = {
            first: [writer.put("(", *place)],
            last: [also, *condition, writer.put(" ", *place)],
        }
    return Edits(scope, {at: nothing}, inserted)


def _sparks_own(block: Block) -> Ending | None:
    """Return the end of the window if the SELECT is grouped by Spark's own window function."""
    nodes = block.clause("GROUP")
    for name, group in itertools.pairwise(nodes):
        if name.word in _SPARKS and isinstance(group, Group) and is_group(group):
            arguments = split_at(group.inside)
            if arguments:
                return Ending(_SPARKS[name.word], arguments[0])
    return None


def _grace(writer: Writer, block: Block, ending: Ending) -> int:
    """Return the delay after a window's end: its own grace period, or the watermark's delay."""
    if ending.grace is not None:
        return ending.grace
    named = [writer.relation(each.name) for each in relations_of(block)]
    if ending.source:
        named = [writer.relation(".".join(bare_name(n.text) for n in ending.source[::2]))]
    watermarks = [r.declaration.watermark for r in named if isinstance(r, Stream | Table)]
    watermark = watermarks[0] if len(watermarks) == 1 else None
    if watermark is None:
        return 0
    column, text = watermark
    times = _named_last(ending.time)
    if column.lower() != times:
        return 0
    return delay_of(text)


def _named_last(time: tuple[Node, ...] | str) -> str:
    """Return the last part of a column's name."""
    text = time if isinstance(time, str) else time[-1].text if time else ""
    return bare_name(text.rpartition(".")[2])


_TIME = f", {WINDOW}.end - INTERVAL '0.001' SECOND AS window_time"
_COLUMNS = f"SELECT * EXCEPT ({WINDOW}), {WINDOW}.start AS window_start, {WINDOW}.end AS window_end"
_NAMES = ("DATA", "TIMECOL", "SIZE", "SLIDE", "STEP", "GAP", "OFFSET")
_LENGTHS = {
    "TUMBLE": ("SIZE",),
    "HOP": ("SLIDE", "SIZE"),
    "CUMULATE": ("STEP", "SIZE"),
    "SESSION": ("GAP",),
}


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a window function, by their names in Flink; ``keys``: PARTITION BY."""

    name: Node
    group: Group
    given: dict[str, tuple[Node, ...]]
    keys: tuple[tuple[Node, ...], ...]
    described: bool


def table_windows(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Replace the window functions of FROM by subqueries."""
    first, last = block.clauses.get("FROM", (0, 0))
    replaced = {}
    ending = None
    for at in range(first, last - 1):
        before = block.nodes[at - 1]
        if at != first and before.text != "," and before.word not in {"JOIN", "LATERAL"}:
            continue
        node, group = block.nodes[at], block.nodes[at + 1]
        if not isinstance(group, Group) or group.text != "(":
            continue
        if node.word == "TABLE" and len(group.inside) == 2:  # noqa: PLR2004 - a name and its brackets
            inner, arguments = group.inside
        else:
            inner, arguments = node, group
        if inner.word in KINDS and isinstance(arguments, Group):
            call = _read(writer, inner, arguments)
            place = (node, group)
            source = _relation(call.given["DATA"])
            parts = _written(writer, call, place, scope)
            named = isinstance(source[-1], Token) and source[-1].kind in NAMES
            if named and alias_at(block.nodes, at + 2, last) is None:
                parts.append(writer.put(f" AS {source[-1].text}", *place))
            replaced[at] = Found(at + 2, parts)
            ending = Ending("window_end", call.given["TIMECOL"], None, source)
    return Edits(replace(scope, ending=ending), replaced) if replaced else None


def _read(writer: Writer, name: Node, group: Group) -> _Call:
    arguments = split_at(group.inside)
    if len(arguments) < 2 or not all(arguments):  # noqa: PLR2004
        raise _form(writer, name, group)
    given: dict[str, tuple[Node, ...]] = {}
    order = ["DATA", "TIMECOL", *_LENGTHS[name.word], "OFFSET"]
    arguments, keys = _without_keys(arguments)
    for argument in arguments:
        if len(argument) > 1 and argument[1].text == "=>":
            key = argument[0].text.strip('`"').upper()
            value = argument[2:]
        else:
            key, value = (order[0] if order else ""), argument
        if key not in order or not value:
            raise _form(writer, name, group)
        order.remove(key)
        given[key] = value
    if set(order) - {"OFFSET"}:
        raise _form(writer, name, group)
    time = given["TIMECOL"]
    described = time[0].word == "DESCRIPTOR" and len(time) == 2 and is_group(time[1])  # noqa: PLR2004
    if described and isinstance(time[1], Group):
        given["TIMECOL"] = time[1].inside
    return _Call(name, group, given, keys, described)


def _without_keys(
    arguments: Sequence[tuple[Node, ...]],
) -> tuple[list[tuple[Node, ...]], tuple[tuple[Node, ...], ...]]:
    """Return the arguments without the relation's PARTITION BY, and the columns of that."""
    words = [node.word for node in arguments[0]]
    if "PARTITION" not in words:
        return list(arguments), ()
    at = words.index("PARTITION")
    rest = list(arguments[1:])
    key = arguments[0][at + 2 :]
    if len(key) == 1 and isinstance(key[0], Group):
        return [arguments[0][:at], *rest], tuple(split_at(key[0].inside))
    keys = [key]
    while len(rest) > 1 and rest[0][0].word not in {"DESCRIPTOR", "TIMECOL"}:
        keys.append(rest.pop(0))
    return [arguments[0][:at], *rest], tuple(each for each in keys if each)


def _form(writer: Writer, name: Node, group: Group) -> HeadraceError:
    lengths = ", ".join(length.lower() for length in _LENGTHS[name.word])
    return writer.invalid(
        f"{name.word} in FROM has other arguments than it takes",
        f"Write TABLE({name.word}(TABLE name, DESCRIPTOR(column), {lengths})).",
        name,
        group,
    )


def _written(writer: Writer, call: _Call, place: tuple[Node, Node], scope: Scope) -> list[TextPart]:
    lengths = [call.given[key] for key in _LENGTHS[call.name.word]]
    offset = 0
    if "OFFSET" in call.given:
        offset = length_of(writer, call.given["OFFSET"], "the offset", call.name)
    window = window_of(writer, call.name, lengths, offset)
    if call.keys and window.kind != "SESSION":
        raise writer.refused(
            f"PARTITION BY in {window.kind} is not supported",
            "Leave it out: only sessions depend on other rows.",
            call.keys[0][0],
            call.keys[-1][-1],
        )
    data = _relation(call.given["DATA"])
    time = call.given["TIMECOL"]
    shown = f"{_COLUMNS}{_TIME if call.described else ''}"
    match window.kind:
        case "SESSION":
            return _session(writer, call, window, place, scope)
        case "CUMULATE":
            template = (
                f"({shown} FROM {{0}} LATERAL VIEW explode({window.template.replace('{0}', '{1}')})"
                f" {WINDOW}s AS {WINDOW})"
            )
        case _:
            inner = window.template.replace("{0}", "{1}")
            template = f"({shown} FROM (SELECT *, {inner} AS {WINDOW} FROM {{0}}))"
    return writer.filled(template, [data, time], place, scope)


def _session(
    writer: Writer, call: _Call, window: Window, place: tuple[Node, Node], scope: Scope
) -> list[TextPart]:
    """Number the sessions of a key: a session begins if the gap to the previous row is longer."""
    keys = ", ".join(f"{{{i + 2}}}" for i in range(len(call.keys)))
    by = f"PARTITION BY {keys} " if keys else ""
    gap = f"INTERVAL {spelled(window.size)}"
    also = f", {keys}" if keys else ""
    begins = f"{{1}} > lag({{1}}) OVER ({by}ORDER BY {{1}}) + {gap}"
    number = f"sum(CAST({WINDOW}_begins AS INT)) OVER ({by}ORDER BY {{1}})"
    over = f"OVER (PARTITION BY {WINDOW}_number{also})"
    hidden = f"{WINDOW}_begins, {WINDOW}_number"
    template = (
        f"(SELECT * EXCEPT ({hidden}), min({{1}}) {over} AS window_start, "
        f"max({{1}}) {over} + {gap} AS window_end"
        + (
            f", max({{1}}) {over} + {gap} - INTERVAL '0.001' SECOND AS window_time"
            if call.described
            else ""
        )
        + f" FROM (SELECT *, {number} AS {WINDOW}_number FROM "
        f"(SELECT *, coalesce({begins}, true) AS {WINDOW}_begins FROM {{0}} "
        f"WHERE {{1}} IS NOT NULL)))"
    )
    data, time = _relation(call.given["DATA"]), call.given["TIMECOL"]
    return writer.filled(template, [data, time, *call.keys], place, scope)


def _relation(data: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the name of a relation, or a subquery, without the word TABLE."""
    return data[1:] if data[0].word == "TABLE" and len(data) > 1 else data
