"""Lists and strings: aggregates with ORDER BY inside, series, SPLIT, casts of every dialect.

Arrays in FROM: ``CROSS JOIN UNNEST(items) AS t(item)``, ``generate_series(1, 3) AS g``.

Spark's own ``range`` is a source of rows in a query that is evaluated once, and in a view, whose
inputs are relations, an array.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.planning.dialects.operators import cast
from headrace.planning.dialects.streams import in_order_of_arrival
from headrace.planning.dialects.tree import Found, Group, Node, is_group, split_at
from headrace.planning.dialects.writer import Edits, Scope, Writer, site_at
from headrace.planning.sql.lexer import NOT_NAMES, TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.planning.dialects.tree import Block
    from headrace.planning.dialects.writer import Form, Site


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


_FUNCTIONS = frozenset({"UNNEST", "GENERATE_SERIES", "RANGE"})
_ASCENDING = "CASE WHEN ({0}) <= ({1}) THEN sequence({0}, {1}) END"
_STEPPED = (
    "CASE WHEN (({2}) > 0 AND ({0}) <= ({1})) OR (({2}) < 0 AND ({0}) >= ({1})) "
    "THEN sequence({0}, {1}, {2}) END"
)
_RANGES = {
    1: "CASE WHEN ({0}) > 0 THEN sequence(0L, CAST({0} AS BIGINT) - 1) END",
    2: ("CASE WHEN ({0}) < ({1}) THEN sequence(CAST({0} AS BIGINT), CAST({1} AS BIGINT) - 1) END"),
    3: (
        "CASE WHEN ({2}) > 0 AND ({0}) < ({1}) THEN"
        " sequence(CAST({0} AS BIGINT), CAST({1} AS BIGINT) - 1, CAST({2} AS BIGINT))"
        " WHEN ({2}) < 0 AND ({0}) > ({1}) THEN"
        " sequence(CAST({0} AS BIGINT), CAST({1} AS BIGINT) + 1, CAST({2} AS BIGINT)) END"
    ),
}
"""Spark's ``range`` by the number of its arguments."""

_NUMBERED = "transform({0}, (__x, __i) -> struct(__x, __i + 1))"


@dataclass(frozen=True, slots=True)
class _Item:
    """An array in FROM: the nodes ``[start, end)`` with the words that join it, and its names.

    ``at`` is the function; it equals ``start`` if the array depends on no other relation.
    """

    start: int
    at: int
    end: int
    name: Node
    group: Group
    outer: bool
    alias: str
    columns: tuple[str, ...]
    numbered: bool
    """Whether the last column is the position of an element, from 1."""


def array_sources(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Translate arrays in FROM: to LATERAL VIEW at the end of FROM, else to a subquery."""
    first, last = block.clauses.get("FROM", (0, 0))
    items = [
        _item(writer, block, at, last)
        for at in range(first, last - 1)
        if block.nodes[at].word in _FUNCTIONS
        and is_group(block.nodes[at + 1])
        and (at == first or block.nodes[at - 1].text == "," or _joins(block.nodes[at - 1]))
    ]
    if not items:
        return None
    replaced = {}
    for which, item in enumerate(items):
        place = block.nodes[item.start], block.nodes[item.end - 1]
        template, arguments = _array(writer, item)
        whole = item.start in {first, item.at}
        if writer.once and item.start == item.at and item.name.word == "RANGE":
            begin, end = "range(", f") AS {item.alias}({', '.join(item.columns)})"
            listed = ", ".join(f"{{{n}}}" for n in range(len(arguments)))
            inside = replace(scope, function=item.name.word)
            text = begin + listed + end
            replaced[item.start] = Found(item.end, writer.filled(text, arguments, place, inside))
            continue
        if whole:
            begin, end = "(SELECT ", f") AS {item.alias}"
        elif item.end == (items[which + 1].start if which + 1 < len(items) else last):
            begin = f" LATERAL VIEW {'OUTER ' if item.outer else ''}"
            end = f" {item.alias}"
        else:
            raise writer.refused(
                f"{item.name.text} before other relations is not supported",
                "Move it to the end of FROM.",
                *place,
            )
        function = "inline" if len(item.columns) > 1 else "explode"
        text = f"{begin}{function}({template})"
        listed = ", ".join(item.columns)
        if whole:
            text += f" AS ({listed}){end}" if len(item.columns) > 1 else f" AS {listed}{end}"
        else:
            text += f"{end} AS {listed}"
        inside = replace(scope, function=item.name.word)
        replaced[item.start] = Found(item.end, writer.filled(text, arguments, place, inside))
    return Edits(scope, replaced)


def _joins(node: Node) -> bool:
    return node.word in {"JOIN", "LATERAL"}


def _array(writer: Writer, item: _Item) -> tuple[str, list[tuple[Node, ...]]]:
    arguments = split_at(item.group.inside)
    if item.name.word == "UNNEST" and len(arguments) == 1:
        return _NUMBERED if item.numbered else "{0}", arguments
    if item.name.word == "RANGE" and len(arguments) in _RANGES:
        return _RANGES[len(arguments)], arguments
    if item.name.word == "GENERATE_SERIES" and len(arguments) in {2, 3}:
        return (_ASCENDING if len(arguments) == 2 else _STEPPED), arguments  # noqa: PLR2004
    raise writer.refused(
        f"{item.name.text} with {len(arguments)} arguments is not supported",
        "Use one UNNEST for each array.",
        item.name,
        item.group,
    )


def _item(writer: Writer, block: Block, at: int, last: int) -> _Item:
    nodes = block.nodes
    group = nodes[at + 1]
    assert isinstance(group, Group)  # noqa: S101 - is_group
    start, outer = _sources_joined(nodes, at)
    end = at + 2
    numbered = [node.word for node in nodes[end : end + 2]] == ["WITH", "ORDINALITY"]
    if end < last and nodes[end].word == "WITH":
        if not numbered or nodes[at].word != "UNNEST":
            raise writer.refused(
                f"{nodes[at].text} WITH {nodes[min(end + 1, last - 1)].text} is not supported",
                "Use LATERAL VIEW posexplode(array) t AS position, element.",
                nodes[end],
            )
        end += 2
    if end < last and nodes[end].word == "AS":
        end += 1
    alias = nodes[at].text.lower()
    if end < last and _is_alias(nodes[end]):
        alias = nodes[end].text
        end += 1
    named = "id" if nodes[at].word == "RANGE" else alias
    columns: tuple[str, ...] = (named, "ordinality") if numbered else (named,)
    if end < last and is_group(nodes[end]):
        listed = nodes[end]
        assert isinstance(listed, Group)  # noqa: S101 - is_group
        columns = tuple(each[0].text for each in split_at(listed.inside) if each) or columns
        if numbered and len(columns) != 2:  # noqa: PLR2004 - an element and its position
            raise writer.refused(
                f"UNNEST WITH ORDINALITY AS {alias} with {len(columns)} columns is not supported",
                "Name two, the element and its position; take the fields of a struct in SELECT.",
                listed,
            )
        end += 1
    if _is_constant(group.inside):
        return _Item(at, at, end, nodes[at], group, False, alias, columns, numbered)  # noqa: FBT003
    on_true = [n.word for n in nodes[end : end + 2]] == ["ON", "TRUE"]
    if outer is None or (outer and not on_true) or (end < last and nodes[end].word in _CONDITIONS):
        if not (outer is not None and on_true):
            raise writer.refused(
                f"this join with {nodes[at].text} is not supported",
                "Use CROSS JOIN, or LEFT JOIN ... ON TRUE.",
                nodes[start],
                group,
            )
        end += 2
    return _Item(start, at, end, nodes[at], group, bool(outer), alias, columns, numbered)


def _is_constant(nodes: Sequence[Node]) -> bool:
    """Return whether an array is a literal."""
    for node in nodes:
        if isinstance(node, Group):
            if not _is_constant(node.inside):
                return False
        elif node.kind in {TokenKind.WORD, TokenKind.BACKQUOTED} and node.word != "ARRAY":
            return False
    return True


_CONDITIONS = frozenset({"ON", "USING"})
_NOT_ALIASES = frozenset({"ON", "JOIN", "CROSS", "LEFT", "INNER", "RIGHT", "FULL", "LATERAL"})


def _is_alias(node: Node) -> bool:
    named = bool(node.word) and node.word not in _NOT_ALIASES
    return named or node.text.startswith("`")


def _sources_joined(nodes: Sequence[Node], at: int) -> tuple[int, bool | None]:
    """Return the first node of the words that join an item, and whether it is an outer join."""
    start = at
    while nodes[start - 1].word in {
        "LATERAL",
        "JOIN",
        "CROSS",
        "INNER",
        "LEFT",
        "OUTER",
        "RIGHT",
        "FULL",
    }:
        start -= 1
    words = {node.word for node in nodes[start:at]}
    if nodes[start - 1].text == ",":
        start -= 1
    if words & {"RIGHT", "FULL"}:
        return start, None
    return start, "LEFT" in words
