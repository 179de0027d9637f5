"""Window functions in FROM: ``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))``.

Flink's form, and ``TUMBLE(t, ts, INTERVAL '1 minute')`` of Materialize and RisingWave. They become
a subquery with the relation's rows, each with the ``window_start`` and ``window_end`` of its
windows. Flink's form also has ``window_time``, the last millisecond of the window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.dialects.blocks import NAMES, alias_at
from headrace.dialects.intervals import spelled
from headrace.dialects.tree import Found, Group, Node, TextPart, is_group, split_at
from headrace.dialects.windows import KINDS, WINDOW, Window, length_of, window_of
from headrace.dialects.writer import Edits, Ending, Scope, Writer
from headrace.sql.lexer import Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.blocks import Block
    from headrace.errors import HeadraceError

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
