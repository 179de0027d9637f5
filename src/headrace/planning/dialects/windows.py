"""Time windows of four dialects, as Spark's ``window`` and ``session_window``.

Functions in GROUP BY: ``TUMBLE(time, size)``, ``HOP(time, slide, size)``, ``SESSION(time, gap)``
and ``CUMULATE(time, step, size)``, with functions such as ``TUMBLE_START`` for their bounds.
ksqlDB's clause ``WINDOW TUMBLING (SIZE 1 HOUR)`` follows FROM, with ``WINDOWSTART`` and
``WINDOWEND``.

Spark has no cumulating windows. A row belongs to all windows that begin where its tumbling window
of the full size begins, and end after the row at a multiple of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.planning.dialects.intervals import microseconds, spelled
from headrace.planning.dialects.tree import (
    KSQL_WINDOWS,
    Block,
    Found,
    Group,
    Node,
    TextPart,
    bare_name,
    blocks_of,
    folded,
    is_group,
    nodes_of,
    split_at,
)
from headrace.planning.dialects.writer import Edits, Ending, Scope, WindowColumn, Writer
from headrace.planning.sql.cursor import RESERVED_PREFIX
from headrace.planning.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.errors import HeadraceError


KINDS = {"TUMBLE": 2, "HOP": 3, "SESSION": 2, "CUMULATE": 3}
"""The window functions, with the number of their arguments besides a relation."""

WINDOW = f"{RESERVED_PREFIX}window"
"""The column of a window that is not computed by Spark's window functions."""

_LENGTH_HINT = "Write it as INTERVAL '5' MINUTE: a constant of weeks to microseconds."
_ENDS = {"START": "{0}.start", "END": "{0}.end", "ROWTIME": "({0}.end - INTERVAL '0.001' SECOND)"}
_SPARKS = ("WINDOW", "SESSION_WINDOW")
_MAX_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """A window: its kind, size, and the distance between the starts of two; microseconds."""

    kind: str
    size: int
    step: int = 0
    offset: int = 0

    @property
    def column(self) -> str:
        """The name of the window's column if rows are grouped by it."""
        match self.kind:
            case "SESSION":
                return "session_window"
            case "CUMULATE":
                return WINDOW
            case _:
                return "window"

    @property
    def template(self) -> str:
        """The call that returns the window of time ``{0}``; for CUMULATE, an array of windows."""
        match self.kind:
            case "SESSION":
                return f"session_window({{0}}, {spelled(self.size)})"
            case "CUMULATE":
                return self._cumulated()
            case _ if self.offset:
                slide, start = spelled(self.step or self.size), spelled(self.offset)
                return f"window({{0}}, {spelled(self.size)}, {slide}, {start})"
            case "HOP":
                return f"window({{0}}, {spelled(self.size)}, {spelled(self.step)})"
            case _:
                return f"window({{0}}, {spelled(self.size)})"

    def _cumulated(self) -> str:
        micros = "unix_micros(CAST({0} AS TIMESTAMP))"
        since = f"{micros} - {self.offset}L" if self.offset else micros
        past = f"pmod({since}, {self.size}L)"
        ends = f"sequence({past} div {self.step}L + 1L, {self.size // self.step}L)"
        start = f"timestampadd(MICROSECOND, -{past}, {{0}})"
        end = f"timestampadd(MICROSECOND, __step * {self.step}L - {past}, {{0}})"
        return f"transform({ends}, __step -> named_struct('start', {start}, 'end', {end}))"


def length_of(writer: Writer, nodes: Sequence[Node], what: str, place: Node) -> int:
    """Return a constant duration in microseconds."""
    length = microseconds(nodes)
    if length is None:
        first, last = (nodes[0], nodes[-1]) if nodes else (place, place)
        raise writer.invalid(f"{what} is not a constant length of time", _LENGTH_HINT, first, last)
    if length <= 0:
        raise writer.invalid(f"{what} must be greater than zero", _LENGTH_HINT, nodes[0], nodes[-1])
    return length


def window_of(writer: Writer, name: Node, lengths: Sequence[Sequence[Node]], offset: int) -> Window:
    """Return the window for a function's durations; HOP and CUMULATE take the shorter one first."""
    kind = name.word
    match kind:
        case "TUMBLE":
            return Window(kind, length_of(writer, lengths[0], "the size", name), 0, offset)
        case "SESSION":
            return Window(kind, length_of(writer, lengths[0], "the gap", name))
    what = "slide" if kind == "HOP" else "step"
    step = length_of(writer, lengths[0], f"the {what}", name)
    size = length_of(writer, lengths[1], "the size", name)
    place = lengths[0][0], lengths[1][-1]
    if step > size:
        raise writer.invalid(
            f"the {what} of {kind} is longer than its size",
            f"The {what} comes before the size: {kind}(..., {what}, size).",
            *place,
        )
    if kind == "CUMULATE" and size % step:
        raise writer.invalid(
            "the size of CUMULATE is not a multiple of its step",
            "Choose a step that divides it.",
            *place,
        )
    if size // step > _MAX_STEPS:
        raise writer.invalid(
            f"a row would be in more than {_MAX_STEPS:,} windows",
            f"Choose a longer {what}.",
            *place,
        )
    return Window(kind, size, step, offset)


def group_window(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Translate a window function in GROUP BY."""
    first, last = block.clauses.get("GROUP", (0, 0))
    calls = [
        i
        for i in range(first, last - 1)
        if block.nodes[i].word in KINDS
        and is_group(block.nodes[i + 1])
        and (i == first or block.nodes[i - 1].text == ",")
    ]
    if not calls:
        return None
    at, *others = calls
    name, group = block.nodes[at], block.nodes[at + 1]
    assert isinstance(group, Group)  # noqa: S101 - is_group
    if others:
        raise writer.refused(
            "two windows in one GROUP BY are not supported",
            "Group by one window in a subquery, and by the other outside.",
            block.nodes[others[0]],
        )
    arguments = split_at(group.inside)
    if len(arguments) != KINDS[name.word] or not all(arguments):
        raise _arguments(writer, name, group)
    window = window_of(writer, name, arguments[1:], 0)
    calls_of = {
        f"{window.kind}_{which}": WindowColumn(form.format(window.column), tuple(arguments))
        for which, form in _ENDS.items()
    }
    ending = Ending(f"{window.column}.end", tuple(arguments[0]))
    own = replace(scope, calls=calls_of, ending=ending)
    place = (name, group)
    if window.kind != "CUMULATE":
        parts = writer.filled(window.template, arguments[:1], place, scope)
        return Edits(own, {at: Found(at + 2, parts)})
    from_ = block.clauses.get("FROM")
    if from_ is None:
        raise writer.invalid("CUMULATE needs a FROM clause", None, name, group)
    generator = f"LATERAL VIEW explode({window.template}) {WINDOW}s AS {WINDOW} "
    return Edits(
        own.hiding(f"{WINDOW}s", WINDOW),
        {at: Found(at + 2, [writer.put(WINDOW, *place)])},
        {from_[1]: writer.filled(generator, arguments[:1], place, scope)},
    )


def _arguments(writer: Writer, name: Node, group: Node) -> HeadraceError:
    forms = {
        "TUMBLE": "TUMBLE(time, size)",
        "HOP": "HOP(time, slide, size)",
        "SESSION": "SESSION(time, gap)",
        "CUMULATE": "CUMULATE(time, step, size)",
    }
    form = forms[name.word]
    return writer.invalid(
        f"{name.word} in GROUP BY takes {KINDS[name.word]} arguments", f"Write {form}.", name, group
    )


def window_column(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Translate functions such as ``TUMBLE_START(time, size)``."""
    name = nodes[at]
    kind, _, which = name.word.rpartition("_")
    group = nodes[at + 1] if at + 1 < len(nodes) else None
    if kind not in KINDS or not isinstance(group, Group) or which not in {*_ENDS, "PROCTIME"}:
        return None
    if which == "PROCTIME":
        raise writer.refused(
            f"{name.word} is not supported",
            f"Use {kind}_END: windows are by the time in the data, never by that of processing.",
            name,
            group,
        )
    column = scope.calls.get(name.word)
    arguments = tuple(split_at(group.inside))
    if column is None or _written(column.arguments) != _written(arguments):
        raise writer.invalid(
            f"{name.word} has no {kind} with these arguments in GROUP BY",
            f"Group by {kind}(...) with the same arguments, in the same SELECT.",
            name,
            group,
        )
    return Found(at + 2, [writer.put(column.text, name, group)])


def _written(arguments: Sequence[Sequence[Node]]) -> list[object]:
    """Return arguments in a form in which equal durations are equal."""
    return [microseconds(each) or folded(each) for each in arguments]


# -- ksqlDB --------------------------------------------------------------------------------


def ksql_window(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Group rows by the window of ksqlDB's ``WINDOW TUMBLING (...)``."""
    first, last = block.clauses.get("WINDOW", (0, 0))
    if not first or block.nodes[first].word not in KSQL_WINDOWS:
        return None
    keyword, kind, group = block.nodes[first - 1], block.nodes[first], block.nodes[first + 1]
    if last != first + 2 or not isinstance(group, Group):
        raise writer.invalid(
            "WINDOW must be between FROM and WHERE or GROUP BY",
            None,
            keyword,
            block.nodes[last - 1],
        )
    if "GROUP" not in block.clauses:
        raise writer.invalid(
            "WINDOW needs GROUP BY",
            "Add GROUP BY: rows are grouped by the window too.",
            keyword,
            group,
        )
    if scope.time is None:
        raise writer.refused(
            f"WINDOW {kind.word} over rows without an event time is not supported",
            "Read one stream, or GROUP BY TUMBLE(column, INTERVAL ...).",
            keyword,
            group,
            "ksqlDB's windows are by ROWTIME, the event time of the one stream of FROM.",
        )
    window, gap, grace = _described(writer, kind, group)
    millis = f" - {gap // 1000}L" if gap else ""
    column = window.column
    own = replace(
        scope,
        ending=Ending(f"{column}.end", scope.time, grace),
        names={
            **scope.names,
            "WINDOWSTART": f"unix_millis({column}.start)",
            "WINDOWEND": f"(unix_millis({column}.end){millis})"
            if gap
            else f"unix_millis({column}.end)",
        },
        instants={
            **scope.instants,
            "WINDOWSTART": f"{column}.start",
            "WINDOWEND": f"({column}.end - INTERVAL {spelled(gap)})" if gap else f"{column}.end",
        },
    )
    text = f"{window.template.replace('{0}', scope.time)}, "
    grouped = block.clauses["GROUP"][0]
    nothing = Found(first + 2, [writer.put(" ", keyword, group)])
    return Edits(own, {first - 1: nothing}, {grouped: [writer.put(text, keyword, group)]})


def _described(writer: Writer, kind: Node, group: Group) -> tuple[Window, int, int | None]:
    """Return the window in the parentheses, and how much later its end is than ksqlDB's.

    The third value is its grace period, if it has one.
    """
    pieces = split_at(group.inside)
    if kind.word == "SESSION":
        gap = length_of(writer, pieces[0] if pieces else (), "the gap", group)
        return Window("SESSION", gap), gap, _grace(writer, pieces[1:])
    found: dict[str, int] = {}
    rest = []
    for piece in pieces:
        words = [node.word for node in piece[:2]]
        if words[:1] == ["SIZE"]:
            found["SIZE"] = length_of(writer, piece[1:], "the size", group)
        elif words == ["ADVANCE", "BY"] and kind.word == "HOPPING":
            found["ADVANCE"] = length_of(writer, piece[2:], "the advance", group)
        else:
            rest.append(piece)
    grace = _grace(writer, rest)
    if "SIZE" not in found:
        raise writer.invalid(f"WINDOW {kind.word} has no SIZE", "Write SIZE 1 HOUR.", kind, group)
    if kind.word == "TUMBLING":
        return Window("TUMBLE", found["SIZE"]), 0, grace
    if "ADVANCE" not in found:
        raise writer.invalid(
            "WINDOW HOPPING has no ADVANCE BY",
            "Write (SIZE 1 HOUR, ADVANCE BY 5 MINUTES).",
            kind,
            group,
        )
    if found["ADVANCE"] > found["SIZE"]:
        raise writer.invalid("windows advance by more than their size", None, kind, group)
    return Window("HOP", found["SIZE"], found["ADVANCE"]), 0, grace


def _grace(writer: Writer, pieces: Sequence[Sequence[Node]]) -> int | None:
    """Take GRACE PERIOD and RETENTION; return the grace period in microseconds.

    Late rows are never dropped: it only says how long ``EMIT FINAL`` waits.
    """
    grace = None
    for piece in pieces:
        words = [node.word for node in piece]
        is_grace = words[:2] == ["GRACE", "PERIOD"]
        length = microseconds(piece[2:] if is_grace else piece[1:])
        if is_grace:
            grace = length
        if not (is_grace or words[:1] == ["RETENTION"]) or length is None:
            where = (piece[0], piece[-1]) if piece else ()
            if not where:
                continue
            raise writer.invalid(
                "the window has a clause that does not exist",
                "There are SIZE, ADVANCE BY, GRACE PERIOD and RETENTION.",
                *where,
            )
    return grace


def window_name(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Translate ``WINDOWSTART``, ``WINDOWEND``, ``ROWTIME``, ``s.ROWTIME`` and similar names."""
    del writer
    end, name = at + 1, nodes[at].word or bare_name(nodes[at].text).upper()
    if end + 1 < len(nodes) and nodes[end].text == ".":
        name, end = f"{name}.{nodes[end + 1].word}", end + 2
    text = scope.names.get(name) if name else None
    if text is None:
        return None
    before = nodes[at - 1] if at else None
    following = nodes[end] if end < len(nodes) else None
    if before is not None and (before.text == "." or before.word == "AS"):
        return None
    if following is not None and (following.text == "." or is_group(following)):
        return None
    place = nodes[at].start, nodes[end - 1].end
    is_time = scope.function in {*KINDS, *_SPARKS} or _compares_text(nodes, at, end)
    if name in scope.instants and is_time:
        return Found(end, [TextPart(scope.instants[name], *place)])
    item = before is not None and (before.word in {"SELECT", "DISTINCT"} or before.text == ",")
    last = following is None or following.text == "," or following.word == "FROM"
    named = item and last and _in_select(nodes, at)
    shown = f"{text} AS {name.rpartition('.')[2]}" if named else text
    return Found(end, [TextPart(shown, *place)])


_COMPARISONS = frozenset({"=", "<>", "!=", "<", ">", "<=", ">="})


def _compares_text(nodes: Sequence[Node], at: int, end: int) -> bool:
    """Return whether the nodes ``[at, end)`` are compared with a string, as in ``> '2024-01-31'``.

    The lexer gives ``<=`` as one symbol or as two.
    """
    after = [n for n in nodes[end : end + 3] if n.word != "NOT"]
    if after and after[0].word == "BETWEEN":
        return len(after) > 1 and _is_string(after[1])
    while after and after[0].text in _COMPARISONS:
        after.pop(0)
        if after and _is_string(after[0]):
            return True
    back = at - 1
    while back > 0 and nodes[back].text in _COMPARISONS:
        back -= 1
    return back < at - 1 and back >= 0 and _is_string(nodes[back])


def _is_string(node: Node) -> bool:
    return isinstance(node, Token) and node.kind is TokenKind.STRING


def _in_select(nodes: Sequence[Node], at: int) -> bool:
    """Return whether a node is in the SELECT list, which comes before all other clauses."""
    for node in reversed(nodes[:at]):
        if node.word == "SELECT":
            return True
        if node.word in {"FROM", "BY", "WHERE", "HAVING"}:
            return False
    return False


def with_bounds(query: str) -> str | None:
    """Return a query of ksqlDB with the bounds of its windows as last columns.

    In ksqlDB they are part of the key of a table of windows, and can be read although its query
    does not name them. None if there is nothing to add.
    """
    blocks = blocks_of(nodes_of(query))
    if len(blocks) != 1 or "FROM" not in blocks[0].clauses:
        return None
    (block,) = blocks
    first, _ = block.clauses.get("WINDOW", (0, 0))
    from_ = block.clauses["FROM"][0] - 1
    if not first or block.nodes[first].word not in KSQL_WINDOWS:
        return None
    named = {node.word for node in block.nodes[block.start : from_]}
    lacking = [name for name in ("WINDOWSTART", "WINDOWEND") if name not in named]
    if not lacking:
        return None
    at = block.nodes[from_].start
    return f"{query[:at]}, {', '.join(lacking)} {query[at:]}"
