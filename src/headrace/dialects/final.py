"""``EMIT FINAL``: windows are shown once the event time of their source has passed their end.

RisingWave's ``EMIT ON WINDOW CLOSE`` is the same.

It becomes a condition on the greatest event time of the source::

    HAVING window.end + grace <= (SELECT max(time) FROM source)

A row that arrives later still corrects the result of its window. The end of the window is combined
with a count of the group's rows, which is never 0, so that Spark does not push the condition below
the aggregate: there, it would hold back rows until their window ends, instead of groups.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from headrace.catalog import Stream, Table
from headrace.dialects.blocks import in_set, relations_of
from headrace.dialects.intervals import delay_of, spelled
from headrace.dialects.tree import Found, Group, Node, bare_name, is_group, split_at
from headrace.dialects.writer import Edits, Ending, Scope, Writer

if TYPE_CHECKING:
    from headrace.dialects.blocks import Block

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
