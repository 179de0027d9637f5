"""Patterns of times: PostgreSQL's and Snowflake's ``YYYY-MM-DD HH24:MI``, BigQuery's ``%Y-%m-%d``.

Spark's patterns are Java's. A pattern is translated if Java has an equivalent of each field, and
refused otherwise.

``time AT TIME ZONE 'Europe/Berlin'`` of PostgreSQL and Materialize.

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

from headrace.errors import meant
from headrace.planning.dialects.tree import (
    Found,
    Group,
    Node,
    bare_name,
    ends_operand,
    operand_before,
    relations_of,
    split_at,
)
from headrace.planning.dialects.writer import Edits, Scope, Writer
from headrace.planning.sql.lexer import Token, TokenKind, string_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.planning.dialects.tree import Block
    from headrace.planning.dialects.writer import Form, Site


_POSTGRES = {
    "YYYY": "yyyy", "YY": "yy", "MM": "MM", "Mon": "MMM", "FMMonth": "MMMM", "DDD": "DDD",
    "DD": "dd", "Dy": "EEE", "FMDay": "EEEE", "HH24": "HH", "HH12": "hh", "HH": "hh", "MI": "mm",
    "SS": "ss", "MS": "SSS", "US": "SSSSSS", "AM": "a", "PM": "a", "FF3": "SSS", "FF6": "SSSSSS",
}  # fmt: skip
"""Fields of PostgreSQL and Snowflake; a field comes before its prefixes."""

_STRFTIME = {
    "Y": "yyyy", "y": "yy", "m": "MM", "d": "dd", "H": "HH", "I": "hh", "M": "mm", "S": "ss",
    "F": "yyyy-MM-dd", "T": "HH:mm:ss", "R": "HH:mm", "D": "MM/dd/yy", "B": "MMMM", "b": "MMM",
    "A": "EEEE", "a": "EEE", "j": "DDD", "p": "a", "E3S": "ss.SSS", "E6S": "ss.SSSSSS", "%": "%",
}  # fmt: skip
_POSTGRES_FIELD = re.compile(
    "(?!SSSS)(?:" + "|".join(sorted(_POSTGRES, key=len, reverse=True)) + r')|"[^"]*"|[^A-Za-z"\']+'
)
_STRFTIME_FIELD = re.compile(r"%(E[36]S|[A-Za-z%])|[^%']+")
_NUMBERS = re.compile(r"(?=.*[09])[\s09.,$SDGLPRMIFV+-]*$")
_SHORT_YEAR = re.compile(r"(?<!y)yy(?!y)")
_ONLY_POSTGRES = re.compile(r"Y|HH24|HH12|MI")
_JAVA = "Use date_format(x, 'yyyy-MM-dd HH:mm:ss'), with Java's patterns."
_READS = "Use to_timestamp(x, 'yyyy-MM-dd HH:mm:ss'), with Java's patterns."


def java_of_postgres(pattern: str) -> str | None:
    """Return the pattern in Java's letters; None if a field has no equivalent."""
    return _translated(pattern, _POSTGRES_FIELD, _POSTGRES)


def java_of_strftime(pattern: str) -> str | None:
    """Return the pattern in Java's letters; None if a field has no equivalent."""
    return _translated(pattern, _STRFTIME_FIELD, _STRFTIME)


def _translated(pattern: str, field: re.Pattern[str], known: dict[str, str]) -> str | None:
    written, at = [], 0
    while at < len(pattern):
        found = field.match(pattern, at)
        if found is None or not found[0]:
            return None
        at = found.end()
        key = found[1] if field.groups and found[1] else found[0]
        java = known.get(key)
        if java is None:
            if field.groups and found[1]:
                return None
            text = key.strip('"') if key.startswith('"') else key
            java = "".join(f"'{c}'" if c.isalpha() or c in "[]{}#" else c for c in text)
        written.append(java)
    return "".join(written).replace("''", "")


def _quoted(pattern: str) -> str:
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _to_char(site: Site) -> Found | None:
    """``TO_CHAR(x, 'YYYY-MM-DD')``, ``TO_VARCHAR``."""
    if len(site.arguments) != 2:  # noqa: PLR2004
        return None
    pattern = site.literal(1)
    if pattern is None:
        raise site.refused(
            f"{site.name} with a pattern that is not a literal is not supported", _JAVA
        )
    if _NUMBERS.match(pattern):
        raise site.refused(
            f"{site.name} of a number is not supported",
            "Use format_number(x, '#,##0.00'), or lpad(CAST(x AS STRING), n).",
            "PostgreSQL adds a space for the sign, Spark does not.",
        )
    java = java_of_postgres(pattern)
    if java is not None:
        return site.written(f"date_format({{0}}, {_quoted(java)})")
    if java_of_postgres(pattern.upper()) == pattern:
        return site.written(f"date_format({{0}}, {_quoted(pattern)})")
    raise site.refused(
        f"{site.name} with this pattern is not supported",
        _JAVA,
        "PostgreSQL's and Snowflake's patterns mean something else than Java's, which Spark has.",
    )


def _reading(site: Site) -> Found | None:
    """``TO_TIMESTAMP(text, 'YYYY-MM-DD HH24:MI')``; patterns in Java's letters stay unchanged."""
    pattern = site.literal(1)
    if len(site.arguments) != 2 or pattern is None or not _ONLY_POSTGRES.search(pattern):  # noqa: PLR2004
        return None
    java = java_of_postgres(pattern)
    if java is None:
        raise site.refused(f"{site.name} with this pattern is not supported", _READS)
    _check_years(site, java)
    return site.written(f"{site.name.lower()}({{0}}, {_quoted(java)})")


def _formatting(site: Site) -> Found | None:
    """``FORMAT_TIMESTAMP('%Y', ts)`` of BigQuery, ``FORMAT_TIMESTAMP(ts, 'yyyy')`` of ksqlDB."""
    return _strftime(site, "date_format({1}, {pattern})", "date_format({0}, {1})", reads=False)


def _parsing(site: Site) -> Found | None:
    """``PARSE_TIMESTAMP('%Y', text)`` of BigQuery, ``PARSE_TIMESTAMP(text, 'yyyy')`` of ksqlDB.

    A text that is not a time is an error in BigQuery, and NULL in ksqlDB.
    """
    function = "to_date" if site.name.endswith("_DATE") else "to_timestamp"
    return _strftime(
        site, f"{function}({{1}}, {{pattern}})", f"try_{function}({{0}}, {{1}})", reads=True
    )


def _strftime(site: Site, by_percent: str, by_java: str, *, reads: bool) -> Found | None:
    hint = _READS if reads else _JAVA
    if len(site.arguments) != 2:  # noqa: PLR2004
        raise site.refused(f"{site.name} takes a time and a pattern here", hint)
    pattern = site.literal(0)
    if pattern is None or "%" not in pattern:
        return site.written(by_java)
    java = java_of_strftime(pattern)
    if java is None:
        raise site.refused(f"{site.name} with this pattern is not supported", hint)
    if reads:
        _check_years(site, java)
    return site.written(by_percent.replace("{pattern}", _quoted(java)))


def _check_years(site: Site, java: str) -> None:
    """Refuse two-digit years in patterns for parsing."""
    if _SHORT_YEAR.search(java):
        raise site.refused(
            f"{site.name} of years of two digits is not supported",
            "Use to_date(x, 'dd/MM/yy'), with Java's patterns, if all are from 2000 on.",
            "In PostgreSQL and BigQuery, 70 to 99 are of the last century; in Spark, of this one.",
        )


FORMATS: dict[str, Form] = {
    "TO_CHAR": _to_char,
    "TO_VARCHAR": _to_char,
    "TO_TIMESTAMP": _reading,
    "TO_DATE": _reading,
    "TRY_TO_TIMESTAMP": _reading,
    "TRY_TO_DATE": _reading,
    **dict.fromkeys(("FORMAT_TIMESTAMP", "FORMAT_DATE", "FORMAT_DATETIME"), _formatting),
    **dict.fromkeys(("PARSE_TIMESTAMP", "PARSE_DATE", "PARSE_DATETIME"), _parsing),
}
"""The functions of this module, by name."""


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
