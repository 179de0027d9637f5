"""Properties of a stream's rows besides its columns: position in the log, and event time.

``LATEST_BY_OFFSET(x)`` and ``EARLIEST_BY_OFFSET(x)`` of ksqlDB use the order in which the rows of a
group arrived; ``ROWOFFSET`` is the position of a row. A SELECT that uses them reads the one stream
of its FROM under another name, with the position as an additional column that ``*`` does not show.
Rows of tables and views have no position: they are replaced and retracted.

Lists without an order, ``COLLECT_LIST(x)``, ``COLLECT_SET(x)``, ``ARRAY_AGG(x)``, ``LISTAGG(x)``,
are gathered in the order of arrival if the SELECT reads one stream, as in ksqlDB and Flink.
Otherwise they have the order of rows that tie: see :mod:`headrace.planning.catalyst.ties`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.planning.catalog import ROWTIME, Stream
from headrace.planning.dialects.event_time import (
    BY_TIME,
    is_stream,
    kept_by,
    log_of,
    with_kept_times,
    with_times,
)
from headrace.planning.dialects.tree import (
    Found,
    Group,
    Node,
    bare_name,
    is_group,
    is_query,
    relations_of,
)
from headrace.planning.dialects.writer import Edits
from headrace.planning.sql.cursor import RESERVED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from headrace.errors import HeadraceError
    from headrace.planning.dialects.tree import Block, Named
    from headrace.planning.dialects.writer import Form, Scope, Site, Writer


OFFSET = f"{RESERVED_PREFIX}offset"
"""The column with a row's position in its stream's log, counted from 0."""

_NOT_COMPARED = re.compile(r"\bmap<|\bvariant\b")
"""Matches the types whose values have no order."""

BY_OFFSET = frozenset({"LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"})
_WITH_NULLS = frozenset({"COLLECT_LIST", "COLLECT_SET"})
"""The lists that include NULLs in ksqlDB."""

_LISTS = frozenset({"COLLECT_LIST", "COLLECT_SET", "ARRAY_AGG", "LISTAGG", "STRING_AGG"})
_ORDER_FORGOTTEN = frozenset(
    {"SORT_ARRAY", "SIZE", "CARDINALITY", "ARRAY_SIZE", "ARRAY_MAX", "ARRAY_MIN", "ARRAY_CONTAINS"}
)
"""The functions whose result does not depend on the order of a list."""

_BEFORE_STAR = frozenset({"SELECT", "DISTINCT", "ALL"})
_ARRIVAL = "Use LATEST_BY_EVENT_TIME(x, time), by a time in the data."


def stream_columns(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Read the position and time of each row from the log of a stream, where a SELECT uses them."""
    named = [] if _pivots(block) else list(relations_of(block))  # PIVOT groups by hidden columns
    timed = [each for each in named if each.shown and is_stream(writer, each)]
    streams = [each for each in timed if isinstance(writer.relation(each.name), Stream)]
    columns = {c.lower() for each in timed for c in writer.relations[each.name].schema.names}
    logs = with_kept_times(writer, timed, block)
    ordered = _ordered(writer, block, streams, columns)
    if ordered is not None:
        logs = [*(each for each in logs if each != ordered), ordered]
        place = f"{ordered.qualifier}.{OFFSET}"
        maps = frozenset(
            column.name.lower()
            for column in writer.relations[ordered.name].schema.columns
            if _NOT_COMPARED.search(column.type.simpleString())
        )
        names = {**scope.names, "ROWOFFSET": place}
        scope = replace(scope, offset=place, names=names, maps=maps)
    if all(each in logs or _has_time_column(writer, each) for each in timed):
        scope = with_times(writer, timed, scope, columns)
    replaced = {}
    for found in logs:
        stream = writer.relations[found.name]
        timed_by = kept_by(writer, found)
        read = timed_by or log_of(stream.id)
        alias = "" if found.alias else f" AS {found.qualifier}"
        first, last = block.nodes[found.start], block.nodes[found.end - 1]
        replaced[found.start] = Found(found.end, [writer.put(f"{read}{alias}", first, last)])
        if isinstance(stream, Stream):
            scope = scope.hiding(found.qualifier, OFFSET)
        if timed_by is not None:
            scope = scope.hiding(found.qualifier, ROWTIME)
        if len(logs) == 1:
            scope = replace(scope, source=f"{read} AS {found.qualifier}")
    return Edits(scope, replaced)


def _has_time_column(writer: Writer, named: Named) -> bool:
    stream = writer.relation(named.name)
    return isinstance(stream, Stream) and stream.event_time is not None


def _ordered(
    writer: Writer, block: Block, streams: Sequence[Named], columns: Container[str]
) -> Named | None:
    """Return the stream whose order of arrival a SELECT uses; None if it uses no such order."""
    uses = _uses(block.nodes[block.start : block.end])
    used = sorted(
        (u for u in uses if u.word.lower() not in columns), key=lambda u: u.word in _LISTS
    )
    if not used or (used[0].word == "ROWOFFSET" and not streams):
        return None
    if len(streams) == 1:
        return streams[0]
    if used[0].word in _LISTS:
        return None
    raise _no_stream(writer, used[0], len(streams))


def _pivots(block: Block) -> bool:
    nodes = pairwise(block.clause("FROM"))
    return any(node.word == "PIVOT" and is_group(after) for node, after in nodes)


def _uses(nodes: Sequence[Node], function: str = "") -> Iterator[Node]:
    """Yield the nodes that use a row's position, without those in subqueries."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            if not is_query(node.inside):
                yield from _uses(node.inside, nodes[at - 1].word if at else "")
        elif _is_use(nodes, at, function):
            yield node


def _is_use(nodes: Sequence[Node], at: int, function: str) -> bool:
    word, before = nodes[at].word, nodes[at - 1] if at else None
    if word in _LISTS:
        return _is_in_no_order(nodes, at, function)
    if word in BY_OFFSET:
        return at + 1 < len(nodes) and is_group(nodes[at + 1])
    return word == "ROWOFFSET" and (before is None or before.text.upper() not in {".", "AS"})


def _is_in_no_order(nodes: Sequence[Node], at: int, function: str) -> bool:
    """Return whether a list without ORDER BY is collected here, and its order is visible."""
    group = nodes[at + 1] if at + 1 < len(nodes) else None
    if function in _ORDER_FORGOTTEN or not isinstance(group, Group) or not group.inside:
        return False
    words = {node.word for node in group.inside}
    if group.inside[0].word == "DISTINCT" or "ORDER" in words:
        return False
    after = [node.word for node in nodes[at + 2 : at + 5]]
    return "OVER" not in after[:1] + after[2:3] and after[:1] != ["WITHIN"]


def in_order_of_arrival(site: Site) -> Found | None:
    """``COLLECT_LIST(x)`` and similar over one stream; None if the call has ORDER BY."""
    order, most = site.scope.offset, 2 if site.name in {"LISTAGG", "STRING_AGG"} else 1
    if order is None or not _is_in_no_order(site.nodes, site.at, site.scope.function):
        return None
    if not 0 < len(site.arguments) <= most:
        return None
    where = "FILTER (WHERE ({0}) IS NOT NULL{filter})"
    condition = "{filter}" if site.writer.ksqldb and site.name in _WITH_NULLS else f" {where}"
    rows = f"collect_list(struct({order} AS o, {{0}} AS v)){condition}"
    gathered = f"transform(sort_array({rows}, true), __e -> __e.v)"
    if site.name == "COLLECT_SET":
        return site.written(f"array_distinct({gathered})")
    if most == 1:
        return site.written(gathered)
    between = "{1}" if len(site.arguments) == most else "''"
    joined = f"array_join({gathered}, {between})"
    return site.written(f"CASE WHEN count(*) {where} > 0 THEN {joined} END")


def _no_stream(writer: Writer, used: Node, count: int) -> HeadraceError:
    return writer.refused(
        f"{used.word} {'over several streams' if count else 'without a stream'} is not supported",
        _ARRIVAL,
        used,
        detail="Only the rows of one stream have an order of arrival: rows of tables and "
        "views are replaced and retracted.",
    )


def star(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Exclude hidden columns from ``*``, also in ``struct(*)`` and ``count(DISTINCT *)``."""
    node, before = nodes[at], nodes[at - 1] if at else None
    if not scope.hidden or node.text != "*":
        return None
    if scope.function == "COUNT" and nodes[0].word != "DISTINCT":
        return None  # hidden columns are never NULL, so that the count is the same
    hidden = [column for _, column in scope.hidden]
    if len(set(hidden)) < len(hidden):
        hidden = [f"{qualifier}.{column}" for qualifier, column in scope.hidden]
    if before is not None and before.text == ".":
        own = bare_name(nodes[at - 2].text)
        hidden = [column for qualifier, column in scope.hidden if bare_name(qualifier) == own]
    elif before is not None and before.text != "," and before.word not in _BEFORE_STAR:
        return None
    if not hidden:
        return None
    text = f"* EXCEPT ({', '.join(hidden)}"
    named = _excepted(nodes, at + 1)
    end = at + 3 if named else at + 1
    also = [writer.put(", ", node, nodes[at + 1]), *writer.level(named, scope)] if named else []
    return Found(end, [writer.put(text, node, node), *also, writer.put(")", node, nodes[end - 1])])


def _excepted(nodes: Sequence[Node], at: int) -> tuple[Node, ...]:
    """Return the columns of ``EXCEPT (a, b)``, ``EXCLUDE (a, b)`` or ``EXCLUDE a``, if any."""
    if at + 1 >= len(nodes) or nodes[at].word not in {"EXCEPT", "EXCLUDE"}:
        return ()
    named = nodes[at + 1]
    if isinstance(named, Group):
        return () if is_query(named.inside) else named.inside
    return (named,) if nodes[at].word == "EXCLUDE" else ()


def _by_order(site: Site) -> Found | None:
    """``LATEST_BY_OFFSET(x [, n] [, ignore_nulls])``, ``LATEST_BY_EVENT_TIME(x [, time])``."""
    arguments = list(site.arguments)
    nulls = ""
    if len(arguments) > 1 and site.name in BY_OFFSET and site.bare(len(arguments) - 1) in _TRUTH:
        nulls = site.bare(len(arguments) - 1)
        arguments.pop()
    order = site.scope.offset if site.name in BY_OFFSET else site.scope.time
    given = "{1}" if site.name in BY_TIME and len(arguments) == 2 else order  # noqa: PLR2004
    count = arguments[1] if site.name in BY_OFFSET and len(arguments) == 2 else None  # noqa: PLR2004
    if not arguments or len(arguments) > 2 or not all(arguments):  # noqa: PLR2004
        raise site.refused(f"{site.name} takes one or two arguments", f"Write {site.name}(x).")
    if count is not None and not (len(count) == 1 and count[0].text.isdecimal()):
        raise site.refused(
            f"{site.name} takes a number of rows here", "Write LATEST_BY_OFFSET(x, 3)."
        )
    if given is None:
        raise site.refused(
            f"{site.name} of rows without an event time is not supported",
            "Give the time too: LATEST_BY_EVENT_TIME(x, time).",
        )
    conditions = [] if nulls == "FALSE" else ["({0}) IS NOT NULL"]
    conditions += ["({1}) IS NOT NULL"] if given == "{1}" else []
    where = f" FILTER (WHERE {' AND '.join(conditions)}{{filter}})" if conditions else "{filter}"
    row = f"struct({given} AS o, {{0}} AS v)"
    latest = site.name.startswith("LATEST")
    if count is None and bare_name(arguments[0][-1].text) in site.scope.maps:
        return site.written(f"{'max' if latest else 'min'}_by({{0}}, {given}){where}", arguments)
    if count is None:
        return site.written(f"({'max' if latest else 'min'}({row}){where}).v", arguments)
    rows = f"sort_array(collect_list({row}){where}, {'false' if latest else 'true'})"
    some = f"slice({rows}, 1, {{1}})"
    ordered = f"reverse({some})" if latest else some
    return site.written(f"transform({ordered}, __e -> __e.v)", arguments)


_TRUTH = frozenset({"TRUE", "FALSE"})
BY_ORDER: dict[str, Form] = {
    **dict.fromkeys([*BY_OFFSET, *BY_TIME], _by_order),
    **dict.fromkeys(["COLLECT_LIST", "COLLECT_SET"], in_order_of_arrival),
}
"""The functions of this module, by name."""
