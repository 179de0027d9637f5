"""``time AT TIME ZONE 'Europe/Berlin'`` of PostgreSQL and Materialize.

It converts a TIMESTAMP, a point in time, to the local time of the zone, a TIMESTAMP_NTZ, and a
TIMESTAMP_NTZ to the point in time at which it is the local time, a TIMESTAMP. If the type of the
operand is not evident from the text and the declared columns, the form is refused.

When clocks are set back, an hour of local time occurs twice: PostgreSQL means the second one, where
Spark's ``to_utc_timestamp`` means the first. Three hours later, the zone has the later of the two
offsets; if the point in time by that offset has the given local time, it is the result.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from headrace.dialects.blocks import relations_of
from headrace.dialects.operands import ends_operand, operand_before
from headrace.dialects.tree import Found, Group, Node, bare_name, split_at
from headrace.dialects.writer import Edits, Scope, Writer
from headrace.errors import meant
from headrace.sql.lexer import Token, TokenKind, string_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.blocks import Block

MOMENT = "timestamp"
WALL = "timestamp_ntz"

_STRINGS = frozenset({TokenKind.STRING, TokenKind.DQUOTED})
_ZONE = re.compile(r"[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+")
_UTC = frozenset({"UTC", "GMT", "Z"})
_NOW = frozenset({"NOW", "CURRENT_TIMESTAMP", "MZ_NOW"})
_TYPES = {
    "TIMESTAMPTZ": MOMENT,
    "TIMESTAMP_LTZ": MOMENT,
    "TIMESTAMP_NTZ": WALL,
    "DATETIME": WALL,
}
"""Points in time and local times. A bare TIMESTAMP is a point in time, unlike in PostgreSQL."""

_OF_ALIASES = frozenset({"ORDER", "HAVING", "QUALIFY"})
_FIRST = "to_utc_timestamp(__t, {0})"
_LATER = (
    f"CAST(__t AS TIMESTAMP) - (from_utc_timestamp({_FIRST} + INTERVAL 3 HOURS, {{0}})"
    f" - ({_FIRST} + INTERVAL 3 HOURS))"
)
_SHOWN_AT = (
    f"), __t -> CASE WHEN from_utc_timestamp({_LATER}, {{0}}) = CAST(__t AS TIMESTAMP)"
    f" THEN {_LATER} ELSE {_FIRST} END)[0]"
)


def columns_of_time(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Add to the scope which columns of FROM are points in time, and which are local times."""
    if not _has_zone(block.nodes[block.start : block.end]):
        return None
    found: dict[str, str | None] = {}
    for named in relations_of(block):
        relation = writer.relation(named.name)
        for column in () if relation is None else relation.schema.columns:
            type_ = column.sql if column.sql in {MOMENT, WALL} else None
            name = column.name.lower()
            found[f"{bare_name(named.qualifier)}.{name}"] = type_
            found[name] = type_ if found.get(name, type_) == type_ else None
    hidden = _aliases(block) if _OF_ALIASES & block.clauses.keys() else frozenset()
    times = {name: type_ for name, type_ in found.items() if type_ and name not in hidden}
    return Edits(replace(scope, times=times))


def _has_zone(nodes: Sequence[Node]) -> bool:
    return any(
        _has_zone(node.inside) if isinstance(node, Group) else node.word == "ZONE" for node in nodes
    )


def _aliases(block: Block) -> frozenset[str]:
    """Return the names that SELECT defines, which may hide columns in the clauses after it."""
    items = split_at(block.clause("SELECT"))
    last = [item[-1] for item in items if len(item) > 1 and item[-2].text != "."]
    return frozenset(bare_name(node.text) for node in last)


def at_time_zone(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Translate ``x AT TIME ZONE 'zone'`` by the type of ``x``."""
    if not _is_zone(nodes, at) or not ends_operand(nodes, at - 1):
        return None
    first, type_ = _operand(nodes, at, scope)
    last = nodes[at + 3] if at + 3 < len(nodes) else nodes[at + 2]
    zone = _zone(writer, last)
    if type_ is None:
        raise writer.refused(
            "AT TIME ZONE of this value is not supported",
            f"Use convert_timezone('UTC', {zone}, x) for the local time at a point in time,"
            f" to_utc_timestamp(x, {zone}) for the point in time at a local time.",
            nodes[first],
            last,
            "It is the first for a TIMESTAMP, the second for a TIMESTAMP_NTZ; the type of this"
            " value is not evident.",
        )
    if type_ == MOMENT:
        wrapped = f"convert_timezone('UTC', {zone}, ", ")"
    elif zone == "'UTC'":
        wrapped = "CAST(CAST(", " AS TIMESTAMP_NTZ) AS TIMESTAMP)"
    else:
        wrapped = "transform(array(", _SHOWN_AT.format(zone)
    return Found(at + 4, [], first, wrapped)


def _is_zone(nodes: Sequence[Node], at: int) -> bool:
    return [node.word for node in nodes[at : at + 3]] == ["AT", "TIME", "ZONE"]


def _zone(writer: Writer, node: Node) -> str:
    """Return the name of a zone as a literal."""
    name = string_value(node) if isinstance(node, Token) and node.kind in _STRINGS else ""
    if name.upper() in _UTC:
        return "'UTC'"
    if not _ZONE.fullmatch(name):
        raise writer.refused(
            "AT TIME ZONE of anything but the name of a zone is not supported",
            "Write it as 'UTC' or 'Europe/Berlin'. For others, such as a column, use"
            " convert_timezone('UTC', zone, x) or to_utc_timestamp(x, zone).",
            node,
            detail="Short names and offsets have other meanings in PostgreSQL.",
        )
    known = available_timezones()
    if known and name not in known:
        raise writer.invalid(f'time zone "{name}" does not exist', meant(name, known), node)
    return f"'{name}'"


def _operand(nodes: Sequence[Node], at: int, scope: Scope) -> tuple[int, str | None]:
    """Return the first node of the value before AT TIME ZONE, and its type if it is evident."""
    if at > 4 and _is_zone(nodes, at - 4):  # noqa: PLR2004 - x AT TIME ZONE 'zone'
        first, inner = _operand(nodes, at - 4, scope)
        return first, {MOMENT: WALL, WALL: MOMENT}.get(inner or "")
    first = operand_before(nodes, at)
    return first, _type(nodes[first:at], scope)


def _type(value: Sequence[Node], scope: Scope) -> str | None:
    words = [node.word for node in value]
    name = [bare_name(node.text) for node in value]
    match value:
        case [Group(inside=inside)] if value[0].text == "(":
            whole = _is_zone(inside, len(inside) - 4) if len(inside) > 4 else False  # noqa: PLR2004
            end = len(inside) - 4 if whole else len(inside)
            first, type_ = _operand(inside, end, scope) if inside else (0, None)
            if first != 0:
                return None
            return {MOMENT: WALL, WALL: MOMENT}.get(type_ or "") if whole else type_
        case [_, Group()] if words[0] in _NOW:
            return MOMENT
        case [_, Group(inside=inside)] if words[0] in {"CAST", "TRY_CAST", "SAFE_CAST"}:
            cast = [node.word for node in inside[-2:]]
            return _TYPES.get(cast[1]) if cast[0] == "AS" else None
        case [*_, _, _] if value[-2].text == "::":
            return _TYPES.get(words[-1])
        case [_, _] if words[0] in {"TIMESTAMP_NTZ", "TIMESTAMP_LTZ"}:
            return _TYPES[words[0]]
        case [_]:
            return MOMENT if words[0] == "CURRENT_TIMESTAMP" else scope.times.get(name[0])
        case [*_, _, _, _] if value[-2].text == ".":
            return scope.times.get(f"{name[-3]}.{name[-1]}")
        case _:
            return None
