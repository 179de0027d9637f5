"""Lists and strings: aggregates with ORDER BY inside, series, SPLIT, casts of every dialect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from headrace.dialects.operators import cast
from headrace.dialects.sites import site_at
from headrace.dialects.streams import in_order_of_arrival
from headrace.dialects.tree import Found, Node, split_at
from headrace.sql.keywords import NOT_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.sites import Form, Site
    from headrace.dialects.writer import Scope, Writer


_LAST_CHR = 255
_NO_FUNCTIONS = NOT_NAMES | {"", "ALL"}
"""Tokens before parentheses that are not a call; '' is the start of the text."""

_GROUP = re.compile(r"\\\d")
_METACHARACTERS = frozenset(".|*+?^$()[]{}\\")


def _listed(site: Site) -> Found | None:
    """``STRING_AGG(x, ', ' ORDER BY y)``: in Spark the order follows the call."""
    inside = site.group.inside
    at = _order_by(inside)
    if at is None:
        return in_order_of_arrival(site)
    arguments = split_at(inside[:at])
    if len(arguments) == 2 and arguments[0][0].word != "DISTINCT" and site.literal(1) is None:  # noqa: PLR2004
        return _joined(site, arguments, split_at(inside[at + 2 :]))
    given = ", ".join(f"{{{i}}}" for i in range(len(arguments)))
    order = f"{{{len(arguments)}}}"
    return site.written(
        f"listagg({given}) WITHIN GROUP (ORDER BY {order})", [*arguments, inside[at + 2 :]]
    )


def _joined(
    site: Site, arguments: Sequence[tuple[Node, ...]], orders: Sequence[tuple[Node, ...]]
) -> Found | None:
    """``STRING_AGG(x, y ORDER BY z)``: each string after the separator of its own row."""
    value, separator = arguments
    keys = [_key(site, order) for order in orders]
    own = f", {{{len(keys) + 1}}} AS s"
    rows = _sorted(keys, own, "({0}) IS NOT NULL")
    later = "concat(coalesce(__e.s, ''), __e.v)"
    texts = f"transform({rows}, (__e, __i) -> IF(__i = 0, __e.v, {later}))"
    some = "count(*) FILTER (WHERE ({0}) IS NOT NULL{filter})"
    template = f"CASE WHEN {some} > 0 THEN array_join({texts}, '') END"
    return site.written(template, [value, *(key.nodes for key in keys), separator])


def _gathered(site: Site) -> Found | None:
    """``ARRAY_AGG(x ORDER BY y)``: the values in order, including NULLs."""
    inside = site.group.inside
    at = _order_by(inside)
    if at is None:
        return in_order_of_arrival(site)
    value, orders = inside[:at], split_at(inside[at + 2 :])
    if not value or value[0].word == "DISTINCT":
        raise site.refused(
            f"{site.name}(DISTINCT ... ORDER BY ...) is not supported",
            "Use sort_array(collect_set(x)).",
        )
    keys = [_key(site, order) for order in orders]
    gathered = f"transform({_sorted(keys)}, __e -> __e.v)"
    return site.written(gathered, [value, *(key.nodes for key in keys)])


class _Key(NamedTuple):
    """A sort key: whether it is descending, and whether NULLs come first."""

    nodes: tuple[Node, ...]
    descending: bool
    nulls_first: bool


def _key(site: Site, order: tuple[Node, ...]) -> _Key:
    """Return a key of ORDER BY; as in Spark, NULLs are the least values unless stated."""
    words = [node.word for node in order]
    if "LIMIT" in words or not words or "USING" in words:
        raise site.refused(
            f"an order of this form in {site.name} is not supported",
            "Write ORDER BY x DESC NULLS LAST; slice(list, 1, n) limits.",
        )
    nulls_first = None
    if words[-2:-1] == ["NULLS"] and words[-1] in {"FIRST", "LAST"}:
        nulls_first = words[-1] == "FIRST"
        order, words = order[:-2], words[:-2]
    descending = words[-1:] == ["DESC"]
    if words[-1:] in (["DESC"], ["ASC"]):
        order = order[:-1]
    return _Key(order, descending, not descending if nulls_first is None else nulls_first)


def _sorted(keys: Sequence[_Key], also: str = "", condition: str = "") -> str:
    """Return a sorted list of structs, as a template: the value is ``v``, at ``{0}``.

    Rows with equal keys are sorted by their value. ``also`` are further fields; ``condition``
    selects the rows.
    """
    fields = ", ".join(f"{{{i + 1}}} AS o{i}" for i in range(len(keys)))
    filtered = f" FILTER (WHERE {condition}{{filter}})" if condition else "{filter}"
    gathered = f"collect_list(struct({fields}, {{0}} AS v{also})){filtered}"
    descending = {key.descending for key in keys}
    if len(descending) == 1 and all(key.nulls_first is not key.descending for key in keys):
        return f"sort_array({gathered}, {'false' if descending == {True} else 'true'})"
    compared = "".join(
        _compared(f"o{i}", -1 if key.nulls_first else 1, 1 if key.descending else -1)
        for i, key in enumerate(keys)
    )
    last = f"{compared}{_compared('v', -1, -1)}"
    return f"array_sort(sort_array({gathered}), (__l, __r) -> CASE {last}ELSE 0 END)"


def _compared(field: str, null: int, less: int) -> str:
    left, right = f"__l.{field}", f"__r.{field}"
    return (
        f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {null} "
        f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {-null} "
        f"WHEN {left} < {right} THEN {less} WHEN {left} > {right} THEN {-less} "
    )


def _first(site: Site) -> Found | None:
    """``FIRST_VALUE(x ORDER BY y)``, ``LAST_VALUE``: an aggregate, the first row in an order."""
    inside = site.group.inside
    at = _order_by(inside)
    if at is None or inside[0].word == "DISTINCT":
        return None
    keys = [_key(site, order) for order in split_at(inside[at + 2 :])]
    which = "1" if site.name == "FIRST_VALUE" else "-1"
    template = f"try_element_at({_sorted(keys)}, {which}).v"
    return site.written(template, [inside[:at], *(key.nodes for key in keys)])


_NULLS = frozenset({"IGNORE", "RESPECT"})
_OF_NULLS = frozenset(
    {"FIRST_VALUE", "LAST_VALUE", "NTH_VALUE", "LAG", "LEAD", "FIRST", "LAST", "ANY_VALUE"}
)


def ignoring_nulls(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``FIRST_VALUE(x IGNORE NULLS)``: in Spark it follows the parentheses."""
    if nodes[at].word not in _OF_NULLS:
        return None
    site = site_at(writer, nodes, at, scope)
    words = [node.word for node in site.group.inside[-2:]] if site is not None else []
    if site is None or len(words) != 2 or words[0] not in _NULLS or words[1] != "NULLS":  # noqa: PLR2004
        return None
    following = site.following()
    if following is not None and following.word == "FILTER":
        raise site.refused(
            f"{words[0]} NULLS beside FILTER is not supported",
            f"Write {site.name}(CASE WHEN condition THEN x END) IGNORE NULLS.",
        )
    arguments = split_at(site.group.inside[:-2])
    return site.written(f"{site.name.lower()}({{*}}) {words[0]} NULLS", arguments)


def _order_by(nodes: tuple[Node, ...]) -> int | None:
    for i in range(1, len(nodes) - 2):
        if nodes[i].word == "ORDER" and nodes[i + 1].word == "BY":
            return i
    return None


def _split(site: Site) -> Found | None:
    """``SPLIT(x, '.')``: Spark takes a regular expression, other dialects a string."""
    delimiter = site.literal(1)
    if len(site.arguments) != 2 or delimiter is None or delimiter not in _METACHARACTERS:  # noqa: PLR2004
        return None
    raise site.refused(
        f"SPLIT at '{delimiter}' is not supported",
        f"Write SPLIT(x, '[{delimiter}]') for the character itself."
        if delimiter not in "[]\\^"
        else "Write the character as \\\\ and itself, as in a regular expression.",
        "In Spark, this is a regular expression; in other dialects, a text.",
    )


def _series(site: Site) -> Found | None:
    """``GENERATE_SERIES`` as an expression, which is an array in ksqlDB."""
    if len(site.arguments) not in {2, 3}:
        return None
    if not site.writer.ksqldb and site.scope.function in _NO_FUNCTIONS:
        raise site.refused(
            "GENERATE_SERIES in SELECT is not supported",
            "Use FROM generate_series(1, 10) AS g(n) for rows, sequence(1, 10) for an array.",
            "It makes rows in PostgreSQL, and an array in ksqlDB.",
        )
    return site.written("sequence({*})")


def _replaced(site: Site) -> Found | None:
    """``REGEXP_REPLACE(x, pattern, text, 'g')`` of PostgreSQL."""
    if len(site.arguments) > 2 and _GROUP.search(_source(site, site.arguments[2])):  # noqa: PLR2004
        raise site.refused(
            r"\1 in the text of REGEXP_REPLACE is not supported",
            "Write $1.",
            "In Spark it is the digit; in PostgreSQL and BigQuery, what a group has matched.",
        )
    if len(site.arguments) != 4 or site.literal(3) is None:  # noqa: PLR2004
        return None
    if site.literal(3) != "g":
        raise site.refused(
            "REGEXP_REPLACE with these flags is not supported", "Write (?i) into the pattern."
        )
    pattern, text = (_source(site, argument) for argument in site.arguments[1:3])
    if "\\" in pattern + text or "$" in text:
        raise site.refused(
            "REGEXP_REPLACE of this form is not supported with the flag 'g'",
            r"Write REGEXP_REPLACE(x, r'(\d+)', '<$1>'): without 'g', Spark replaces all.",
            r"In PostgreSQL, \ is a plain character, and \1 is Spark's $1.",
        )
    return site.written("regexp_replace({0}, {1}, {2})", site.arguments[:3])


def _source(site: Site, argument: tuple[Node, ...]) -> str:
    return site.writer.span(argument[0], argument[-1]).source if argument else ""


def _character(site: Site) -> Found | None:
    """Refuse ``CHR(22909)``, which only Spark reads as the character 22909 % 256."""
    (node, *rest) = site.arguments[0] if len(site.arguments) == 1 else (None,)
    if rest or node is None or not node.text.isdecimal() or int(node.text) <= _LAST_CHR:
        return None
    raise site.refused(
        f"CHR of {node.text} is not supported",
        f"Use decode(unhex(lpad(hex({node.text}), 8, '0')), 'UTF-32') for the character, as in"
        f" other dialects; chr({int(node.text) % (_LAST_CHR + 1)}) for Spark's.",
        f"Spark takes the code modulo {_LAST_CHR + 1}.",
    )


def _placed(site: Site) -> Found | None:
    """Refuse ``REGEXP_INSTR(x, pattern, 2)``: Spark ignores the position of other dialects."""
    if len(site.arguments) < 3:  # noqa: PLR2004
        return None
    raise site.refused(
        f"{site.name} with {len(site.arguments)} arguments is not supported",
        "Use REGEXP_INSTR(x, pattern), on substring(x, position) to begin further on.",
        "The third is where to begin in other dialects; Spark ignores it.",
    )


def _truncated(site: Site) -> Found | None:
    """``TRUNC(x)`` and ``TRUNC(x, 2)`` of numbers, toward zero; with a string it is Spark's own."""
    given = site.arguments
    if len(given) == 1 and given[0]:
        return site.written("CASE WHEN ({0}) < 0 THEN ceil({0}) ELSE floor({0}) END")
    digits = given[1] if len(given) == 2 else ()  # noqa: PLR2004
    if len(digits) != 1 or not digits[0].text.isdecimal():
        return None
    return site.written("CASE WHEN ({0}) < 0 THEN ceil({0}, {1}) ELSE floor({0}, {1}) END")


def _field(site: Site) -> Found | None:
    """``FIELD(x, a, b)`` of ksqlDB and MySQL: the index of the first value among the others."""
    if len(site.arguments) < 2:  # noqa: PLR2004
        return None
    others = ", ".join(f"{{{i}}}" for i in range(1, len(site.arguments)))
    return site.written(f"CAST(coalesce(array_position(array({others}), {{0}}), 0) AS INT)")


def _extracted(site: Site) -> Found | None:
    """Refuse ``REGEXP_EXTRACT(pattern, x)`` of ksqlDB, which has Spark's arguments reversed."""
    if len(site.arguments) < 2 or site.literal(0) is None or site.literal(1) is not None:  # noqa: PLR2004
        return None
    raise site.refused(
        f"{site.name} of a pattern and a text is not supported",
        f"Write {site.name}(text, pattern, group).",
        "The pattern is the first argument in ksqlDB, and the second elsewhere.",
    )


def _array_length(site: Site) -> Found | None:
    """``ARRAY_LENGTH(x, 1)`` of PostgreSQL, which is NULL for an empty array."""
    if len(site.arguments) != 2:  # noqa: PLR2004
        return None
    (node, *rest) = site.arguments[1] or (None,)
    if rest or node is None or node.text != "1":
        raise site.refused("ARRAY_LENGTH of an inner dimension is not supported", "Use size(x[0]).")
    return site.written("nullif(array_size({0}), 0)", site.arguments[:1])


LISTS: dict[str, Form] = {
    "CAST": cast,
    "TRY_CAST": cast,
    "SAFE_CAST": cast,
    "STRING_AGG": _listed,
    "LISTAGG": _listed,
    "ARRAY_AGG": _gathered,
    "FIRST_VALUE": _first,
    "LAST_VALUE": _first,
    "SPLIT": _split,
    "GENERATE_SERIES": _series,
    "REGEXP_REPLACE": _replaced,
    "ARRAY_LENGTH": _array_length,
    "REGEXP_EXTRACT": _extracted,
    "REGEXP_EXTRACT_ALL": _extracted,
    "REGEXP_INSTR": _placed,
    "CHR": _character,
    "TRUNC": _truncated,
    "FIELD": _field,
}
"""The functions of this module, by name."""
