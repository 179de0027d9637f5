"""ksqlDB's joins of two streams within a time: ``a JOIN b WITHIN 1 HOUR ON a.x = b.x``.

The event times of joined rows satisfy ``a.time - before <= b.time <= a.time + after``, where
``WITHIN x`` gives both and ``WITHIN (x, y)`` gives ``before`` and ``after``. The translation adds a
condition to ON. The event time of a result is the latest of the joined rows' times. ``GRACE
PERIOD`` has no effect: late rows are joined too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.blocks import Named, condition_end, opens_within, relations_of
from headrace.dialects.event_time import event_time, is_stream
from headrace.dialects.intervals import microseconds, spelled
from headrace.dialects.tree import Found, Group, TextPart, split_at
from headrace.dialects.writer import Edits, Scope, Writer

if TYPE_CHECKING:
    from headrace.dialects.blocks import Block
    from headrace.errors import HeadraceError

_PLAIN = (
    "Write the condition: ON ... AND b.time BETWEEN a.time - INTERVAL 1 HOUR"
    " AND a.time + INTERVAL 1 HOUR."
)
_FORM = "Write WITHIN 1 HOUR, or WITHIN (1 HOUR, 2 HOURS): before and after."


def within(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Add the comparison of the event times to the condition of a join."""
    first, last = block.clauses.get("FROM", (0, 0))
    replaced: dict[int, Found] = {}
    inserted: dict[int, list[TextPart]] = {}
    for at in range(first + 1, last):
        if not opens_within(block.nodes, at):
            continue
        before, after, on = _described(writer, block, at)
        left, right = _times(writer, block, at)
        condition = (
            f"ON {right} >= {left} - INTERVAL {spelled(before)}"
            f" AND {right} <= {left} + INTERVAL {spelled(after)} AND ("
        )
        place = block.nodes[at], block.nodes[on]
        replaced[at] = Found(on + 1, [writer.put(condition, *place)])
        inserted[condition_end(block.nodes, on + 1, last)] = [writer.put(")", *place)]
    return Edits(scope, replaced, inserted) if replaced else None


def _described(writer: Writer, block: Block, at: int) -> tuple[int, int, int]:
    """Return how long before and after rows join, and the index of ON."""
    group = block.nodes[at + 1]
    if isinstance(group, Group):
        pieces, end = split_at(group.inside), at + 2
    else:
        pieces, end = [tuple(block.nodes[at + 1 : at + 3])], at + 3
    lengths = [microseconds(piece) for piece in pieces]
    known = [length for length in lengths if length is not None]
    if not 0 < len(known) == len(lengths) <= 2:  # noqa: PLR2004 - before and after
        raise writer.invalid(
            "WITHIN has no constant length of time", _FORM, block.nodes[at], block.nodes[end - 1]
        )
    words = [node.word for node in block.nodes[end : end + 2]]
    if words == ["GRACE", "PERIOD"]:
        if microseconds(block.nodes[end + 2 : end + 4]) is None:
            raise writer.invalid(
                "GRACE PERIOD has no constant length of time",
                "Write GRACE PERIOD 1 HOUR.",
                block.nodes[end],
                block.nodes[end + 1],
            )
        end += 4
    if end >= block.end or block.nodes[end].word != "ON":
        raise writer.invalid(
            "WITHIN stands before ON", _FORM, block.nodes[at], block.nodes[end - 1]
        )
    return known[0], known[-1], end


def _times(writer: Writer, block: Block, at: int) -> tuple[str, str]:
    """Return the event times of the left side and of the joined stream."""
    first, _ = block.clauses["FROM"]
    named = [each for each in relations_of(block) if each.start < at]
    introduced = {
        i
        for i in range(first, at)
        if i == first or block.nodes[i - 1].text == "," or block.nodes[i - 1].word == "JOIN"
    }
    if introduced != {each.start for each in named} or len(named) < 2:  # noqa: PLR2004 - two sides
        raise _no_stream(writer, block, at)
    *before, right = named
    streams = [each for each in before if is_stream(writer, each)]
    if not streams:
        raise _no_stream(writer, block, at)
    times = [_time(writer, block, each, at) for each in streams]
    left = times[0] if len(times) == 1 else f"greatest({', '.join(times)})"
    return left, _time(writer, block, right, at)


def _time(writer: Writer, block: Block, named: Named, at: int) -> str:
    if not is_stream(writer, named):
        raise _no_stream(writer, block, at)
    times = event_time(writer, named)
    if times is None:
        raise writer.refused(
            f"WITHIN over stream {named.name}, which has no event time, is not supported",
            f"Declare WATERMARK FOR a TIMESTAMP on it. {_PLAIN}",
            block.nodes[at],
        )
    return times[0]


def _no_stream(writer: Writer, block: Block, at: int) -> HeadraceError:
    return writer.refused(
        "WITHIN over anything but a stream is not supported",
        _PLAIN,
        block.nodes[at],
        detail="It compares the event times that two streams declare.",
    )
