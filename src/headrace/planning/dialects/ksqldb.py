"""Detects queries of ksqlDB, and translates functions that have another meaning in Spark.

Some forms exist in ksqlDB and in Spark with different meanings: array indexes begin at 1, a
backslash in a string is a plain character, ``UNIX_TIMESTAMP`` counts milliseconds. A query is read
as ksqlDB as a whole if it has one of the forms that no other dialect has:

- ``struct->field``, and ``x => ...`` in the brackets of a function such as ``TRANSFORM``,
- ``STRUCT(a := 1)``, ``MAP('k' := 1)``,
- ``WINDOW TUMBLING (...)``, ``HOPPING``, ``SESSION``, and ``JOIN ... WITHIN 1 HOUR``,
- a function that only ksqlDB has, such as ``LATEST_BY_OFFSET`` or ``EXTRACTJSONFIELD``,

or if it reads a relation that was declared as in ksqlDB: with ``kafka_topic`` or ``value_format``,
or by ``CREATE STREAM | TABLE ... AS`` and a query of ksqlDB.

Otherwise, forms have Spark's meaning. ``CREATE STREAM ... AS`` is a statement of ksqlDB alone: in
its query, functions with another meaning there are refused if nothing else decides
(``refuse_undecided`` in ``translate.py``).

ksqlDB's joins of two streams within a time: ``a JOIN b WITHIN 1 HOUR ON a.x = b.x``.

The event times of joined rows satisfy ``a.time - before <= b.time <= a.time + after``, where
``WITHIN x`` gives both and ``WITHIN (x, y)`` gives ``before`` and ``after``. The translation adds a
condition to ON. The event time of a result is the latest of the joined rows' times. ``GRACE
PERIOD`` has no effect: late rows are joined too.

Lambda functions as arguments: ksqlDB's ``x => x + 1``, Spark's ``x -> x + 1``.

In ksqlDB, ``FILTER``, ``REDUCE`` and ``TRANSFORM`` also take maps, with lambdas of a key and a
value. The number of parameters decides which: unlike Spark, ksqlDB never passes the index of an
element.

Functions are translated by two tables: those of any query of ksqlDB, and those of queries over
relations that were declared as in ksqlDB. They stay apart because stored views are planned again
from their text, and must keep their meaning: earlier versions did not store how relations were
declared.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from headrace.planning.catalog import is_ksqldb
from headrace.planning.dialects.calls import CALLS, KSQL, CallTemplate, call_of
from headrace.planning.dialects.event_time import event_time, is_stream
from headrace.planning.dialects.intervals import microseconds, spelled
from headrace.planning.dialects.streams import BY_OFFSET
from headrace.planning.dialects.times import KEEPS_DATES
from headrace.planning.dialects.tree import (
    KSQL_WINDOWS,
    NAMES,
    Found,
    Group,
    Named,
    Node,
    TextPart,
    blocks_of,
    condition_end,
    is_group,
    opens_within,
    relations_of,
    split_at,
)
from headrace.planning.dialects.writer import Edits, Scope, Writer
from headrace.planning.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.errors import HeadraceError
    from headrace.planning.catalog import Relation
    from headrace.planning.dialects.tree import Block
    from headrace.planning.dialects.writer import Form, Site


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


LAMBDAS = frozenset(
    """
    AGGREGATE ARRAY_SORT EXISTS FILTER FORALL MAP_FILTER MAP_ZIP_WITH REDUCE TRANSFORM
    TRANSFORM_KEYS TRANSFORM_VALUES ZIP_WITH
    """.split()  # noqa: SIM905 - one word per line would be a screen of its own
)
"""The functions that take lambda functions as arguments."""


def makes_function(nodes: Sequence[Node], at: int, function: str) -> bool:
    """Return whether an arrow belongs to a lambda; ``->`` does not in a query that uses ``=>``."""
    if function not in LAMBDAS or at == 0 or (at > 1 and nodes[at - 2].text != ","):
        return False
    return nodes[at].text == "=>" or all(node.text != "=>" for node in nodes)


def parameter(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``(x) => x + 1``: Spark allows parentheses only around several parameters."""
    group = nodes[at]
    if not isinstance(group, Group) or not is_group(group) or len(group.inside) != 1:
        return None
    if at + 1 >= len(nodes) or nodes[at + 1].text not in {"=>", "->"}:
        return None
    (name,) = group.inside
    if not name.word or not makes_function(nodes, at + 1, scope.function):
        return None
    return Found(at + 1, [writer.put(name.text, name, name)])


_FILTERED = "map_filter({0}, {1})"
_TRANSFORMED = (
    "map_from_arrays(map_values(transform_values({0}, {1})),"
    " map_values(transform_values({0}, {2})))"
)
_REDUCED = (
    "aggregate(map_entries({0}), {1}, ({2}, __e) -> map_values(transform_values("
    "map(__e.key, __e.value), ({3}, {4}) -> {5}))[0])"
)


def _over_map(site: Site) -> Found | None:
    """``FILTER(m, (k, v) => ...)``, ``TRANSFORM(m, (k, v) => ..., (k, v) => ...)``, ``REDUCE``."""
    counts = tuple(len(_parameters(argument)) for argument in site.arguments)
    match site.name, counts:
        case "FILTER", (0, 2):
            return site.written(_FILTERED)
        case "TRANSFORM", (0, 2, 2):
            return site.written(_TRANSFORMED)
        case "REDUCE", (0, 0, 3):
            given, start, function = site.arguments
            return site.written(_REDUCED, [given, start, *_parameters(function), function[2:]])
        case _:
            return None


def reduced(site: Site) -> Found | None:
    """``REDUCE(x, start, ...)`` of ksqlDB: the start where ``x`` is NULL, NULL where that is."""
    counts = tuple(len(_parameters(argument)) for argument in site.arguments)
    given = "CASE WHEN ({0}) IS NULL OR ({1}) IS NULL THEN {1} ELSE "
    if counts == (0, 0, 3):
        over, start, function = site.arguments
        parts = [over, start, *_parameters(function), function[2:]]
        return site.written(f"{given}{_REDUCED} END", parts)
    if counts == (0, 0, 2):
        return site.written(f"{given}aggregate({{0}}, {{1}}, {{2}}) END")
    return None


def _parameters(argument: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return the parameters of ``(k, v) => ...``; empty if an argument is anything else."""
    if len(argument) < 3 or argument[1].text != "=>" or not isinstance(argument[0], Group):  # noqa: PLR2004
        return []
    return split_at(argument[0].inside)


OVER_MAPS: dict[str, Form] = dict.fromkeys(("FILTER", "REDUCE", "TRANSFORM"), _over_map)
"""The functions over maps, by name."""


_LN = (
    "CASE WHEN ({1}) = 0 THEN CAST('-Infinity' AS DOUBLE)"
    " WHEN ({1}) < 0 THEN CAST('NaN' AS DOUBLE) ELSE ln({1}) END"
)
_LOGARITHM = (
    "CASE WHEN ({0}) IS NULL OR ({1}) IS NULL THEN NULL"
    " WHEN ({0}) <= 0 OR ({0}) = 1 THEN CAST('NaN' AS DOUBLE)"
    f" ELSE ({_LN}) / ln({{0}}) END"
)
_CAPITALS = (
    r"array_join(transform(regexp_extract_all(lower({0}), '\\S+\\s*', 0),"
    " __w -> concat(upper(left(__w, 1)), substring(__w, 2))), '')"
)
_WITHIN = "substring({0}, CASE WHEN ({1}) < -length({0}) THEN 1 ELSE ({1}) END, {2})"
_KEYS = "filter(array_distinct({0}), __k -> __k IS NOT NULL)"
_LAST = "get({1}, CAST(size({0}) - array_position(reverse({0}), __k) AS INT))"
_PAIRS = (
    f"CASE WHEN ({{1}}) IS NOT NULL THEN map_from_arrays({_KEYS},"
    f" transform({_KEYS}, __k -> {_LAST})) END"
)
_DIGITS = "concat(array_join(regexp_extract_all(hex({}), '..', 0), ' '), ' ')"
_BYTES = (
    "transform(CASE WHEN length({1}) = 0 THEN regexp_extract_all(hex({0}), '..', 0)"
    f" ELSE split({_DIGITS.format('{0}')}, {_DIGITS.format('{1}')}, -1) END,"
    " __h -> unhex(replace(__h, ' ', '')))"
)

FURTHER: tuple[CallTemplate, ...] = tuple(
    call_of(name, KSQL, template, note, arity)
    for name, template, note, arity in (
        ("AS_MAP", _PAIRS, "NULL for keys beyond the values; the last value of a key", None),
        ("INITCAP", _CAPITALS, "words between blanks of any kind", None),
        ("LOG", _LOGARITHM, "of 0 and less, too", None),
        ("SIGN", "CAST(sign({0}) AS INT)", "an integer", None),
        ("SUBSTRING", _WITHIN, "from the beginning, where the position is before it", None),
        ("UNIX_TIMESTAMP", "unix_millis(now())", "milliseconds; the clock", 0),
    )
)
"""Functions with another meaning in Spark, and their translation."""


def _rounded(site: Site) -> Found | None:
    """``ROUND(x, n)``: half up, toward positive infinity, for negative numbers too."""
    if len(site.arguments) != 2:  # noqa: PLR2004
        return None
    sign, *digits = ([] if site.arguments[1][0].text == "-" else [""]) + [
        node.text for node in site.arguments[1]
    ]
    if len(digits) != 1 or not digits[0].isdecimal() or len(digits[0]) > 2:  # noqa: PLR2004
        raise site.refused(
            "ROUND to a number of digits that is not a literal is not supported",
            "Write ROUND(x, 2).",
        )
    places = int(sign + digits[0])
    less = f"{Decimal(4).scaleb(-places - 2):f}"  # less than half of the digit after the last
    return site.written(
        f"CASE WHEN ({{0}}) < 0 AND round({{0}}, {places + 1}) = ({{0}})"
        f" THEN round(({{0}}) + {less}, {places}) ELSE round({{0}}, {places}) END"
    )


def _from_zero(site: Site) -> Found | None:
    """``SUM(x)`` and ``AVG(x)``: 0 if all values are NULL."""
    if len(site.arguments) != 1 or site.over:
        return None
    return site.written(f"zeroifnull({site.name.lower()}({{0}}){{filter}})")


def _split(site: Site) -> Found | None:
    """``SPLIT(x, TO_BYTES(...))``: an array of bytes."""
    if len(site.arguments) != 2 or site.arguments[1][0].word != "TO_BYTES":  # noqa: PLR2004
        return None
    return site.written(_BYTES)


AGGREGATES = frozenset({"AVG", "SUM"})
FURTHER_FORMS: dict[str, Form] = {
    **dict.fromkeys(AGGREGATES, _from_zero),
    "REDUCE": reduced,
    "ROUND": _rounded,
    "SPLIT": _split,
}
"""Those functions whose translation needs more than a template."""

_CALLS = {(each.name, each.arguments): each for each in FURTHER}


def further(site: Site) -> Found | None:
    """Return the translation of a call; None if it has no such meaning."""
    form = FURTHER_FORMS.get(site.name)
    found = form(site) if form is not None else None
    if found is not None:
        return found
    call = _CALLS.get((site.name, len(site.arguments)))
    return site.written(call.template) if call is not None else None


_OWN = frozenset({*BY_OFFSET, *(call.name for call in CALLS if call.dialects == (KSQL,))})
"""The functions that only ksqlDB has."""


def speaks_ksqldb(nodes: Sequence[Node], function: str = "") -> bool:
    """Return whether a query has a form that only ksqlDB has; ``function`` encloses the nodes."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            if speaks_ksqldb(node.inside, nodes[at - 1].word if at else ""):
                return True
        elif _is_sign(nodes, at, function):
            return True
    return False


def reads_ksqldb(nodes: Sequence[Node], relations: Mapping[str, Relation]) -> bool:
    """Return whether a query names a relation that was declared as in ksqlDB in a FROM."""
    names = (named.name for block in blocks_of(nodes) for named in relations_of(block))
    found = (relations.get(name) for name in names)
    return any(each is not None and is_ksqldb(each) for each in found) or any(
        reads_ksqldb(node.inside, relations) for node in nodes if isinstance(node, Group)
    )


def _is_sign(nodes: Sequence[Node], at: int, function: str) -> bool:
    node, before = nodes[at], nodes[at - 1] if at else None
    after = nodes[at + 1] if at + 1 < len(nodes) else None
    if node.text == "=>":
        return makes_function(nodes, at, function)
    if node.text == "->":
        named = isinstance(after, Token) and after.kind in NAMES
        return named and before is not None and not makes_function(nodes, at, function)
    if node.text == ":" and after is not None and after.text == "=":
        return function in {"STRUCT", "MAP"}
    if node.word == "WINDOW" and after is not None and after.word in KSQL_WINDOWS:
        return at + 2 < len(nodes) and is_group(nodes[at + 2])
    if opens_within(nodes, at):
        return any(earlier.word == "JOIN" for earlier in nodes[:at])
    own = node.word in _OWN and is_group(after)
    return own and (before is None or before.text != ".")


_CODE = "decode(unhex(lpad(hex({0}), 8, '0')), 'UTF-32')"
_BETWEEN_BLANKS = r"'^[\\x00-\\x20]+|[\\x00-\\x20]+\\z'"
_ELEMENTS = (
    "CASE WHEN coalesce({1}, 1) >= 1 AND coalesce({1}, 1) <= coalesce({2}, size({0})) + 1"
    " AND coalesce({2}, size({0})) <= size({0})"
    " THEN slice({0}, coalesce({1}, 1), coalesce({2}, size({0})) - coalesce({1}, 1) + 1) END"
)
_KSQLDB_LOGARITHM = (
    "CASE WHEN ({0}) = 0 THEN CAST('-Infinity' AS DOUBLE)"
    " WHEN ({0}) < 0 THEN CAST('NaN' AS DOUBLE) ELSE ln({0}) END"
)
_MATCHED = "CASE WHEN regexp_like({1}, {0}) THEN regexp_extract({1}, {0}, {group}) END"
_NOT_THERE = "coalesce(exists({0}, __e -> __e <=> ({1})), false)"
_SPLIT = r"split({0}, CASE WHEN ({1}) = '' THEN '' ELSE concat('\\Q', {1}, '\\E') END, -1)"

MEANINGS: tuple[CallTemplate, ...] = tuple(
    call_of(name, KSQL, template, note, arity)
    for name, template, note, arity in (
        ("ARRAY_CONTAINS", _NOT_THERE, "never NULL; finds NULL", None),
        ("ARRAY_JOIN", "array_join({0}, ',', 'null')", "NULLs are shown", None),
        ("ARRAY_JOIN", "array_join({0}, {1}, 'null')", "NULLs are shown", None),
        ("ARRAY_REMOVE", "filter({0}, __e -> NOT (__e <=> ({1})))", "removes NULLs, too", None),
        ("CHR", _CODE, "the character with this code", None),
        ("CONCAT", "array_join(array({*}), '')", "skips NULLs", None),
        ("FROM_UNIXTIME", "timestamp_millis({0})", "a timestamp, of milliseconds", None),
        ("LN", _KSQLDB_LOGARITHM, "of 0 and less, too", None),
        ("LOG", _KSQLDB_LOGARITHM, "of 0 and less, too", None),
        ("LPAD", "CASE WHEN ({1}) >= 0 AND ({2}) <> '' THEN lpad({0}, {1}, {2}) END", "", None),
        ("RPAD", "CASE WHEN ({1}) >= 0 AND ({2}) <> '' THEN rpad({0}, {1}, {2}) END", "", None),
        ("MASK", "mask({0}, 'X', 'x', 'n', '-')", "other signs become -", None),
        ("REGEXP_EXTRACT", _MATCHED.replace("{group}", "0"), "the pattern first", None),
        ("REGEXP_EXTRACT", _MATCHED.replace("{group}", "{2}"), "the pattern first", None),
        ("REGEXP_EXTRACT_ALL", "regexp_extract_all({1}, {0}, 0)", "the pattern first", None),
        ("REGEXP_EXTRACT_ALL", "regexp_extract_all({1}, {0}, {2})", "the pattern first", None),
        (
            "ROUND",
            "CASE WHEN ({0}) - floor({0}) >= 0.5 THEN floor({0}) + 1 ELSE floor({0}) END",
            "halves go up",
            None,
        ),
        ("SLICE", _ELEMENTS, "from an element to another one", None),
        ("SPLIT", _SPLIT, "at a text", None),
        ("UNIX_TIMESTAMP", "unix_millis({0})", "milliseconds", None),
    )
)
"""Functions with another meaning in Spark, and their translation in queries of ksqlDB."""


def _trimmed(site: Site) -> Found | None:
    """``TRIM(x)``: removes control characters too, not only spaces."""
    if len(site.arguments) != 1 or any(node.word == "FROM" for node in site.group.inside):
        return None
    return site.written(f"regexp_replace({{0}}, {_BETWEEN_BLANKS}, '')")


def _sorted(site: Site) -> Found | None:
    """``ARRAY_SORT(x, 'DESC')``: NULLs last, as with ASC."""
    direction = (site.literal(1) or "").upper()
    if len(site.arguments) != 2 or not direction:  # noqa: PLR2004
        return None
    descending = direction.startswith("DESC")
    return site.written("sort_array({0}, false)" if descending else "array_sort({0})")


def _chosen(site: Site) -> Found | None:
    """``ELT(n, a, b)``: NULL if there is no such value."""
    last = len(site.arguments) - 1
    return site.written(f"CASE WHEN ({{0}}) BETWEEN 1 AND {last} THEN elt({{*}}) END")


def _deviation(site: Site) -> Found | None:
    raise site.refused(
        "STDDEV_SAMP in a query of ksqlDB is not supported",
        "Use STDDEV_SAMPLE(x), or power(STDDEV_SAMPLE(x), 2) for the variance.",
        "It is the variance of the sample in older versions of ksqlDB.",
    )


MEANT: dict[str, Form] = {
    "ARRAY_SORT": _sorted,
    "DATEADD": KEEPS_DATES,
    "ELT": _chosen,
    "STDDEV_SAMP": _deviation,
    "TRIM": _trimmed,
}
"""Those functions whose translation needs more than a template."""

_MEANINGS = {
    (each.name, None if "{*}" in each.template else each.arguments): each for each in MEANINGS
}


def meant(site: Site) -> Found | None:
    """Return the translation of a call that has different meanings in ksqlDB and in Spark.

    Raises:
        HeadraceError: ``unsupported`` if the query does not decide between the two.
    """
    writer = site.writer
    found = further(site) if writer.declared or writer.undecided else None
    if found is None and (writer.ksqldb or writer.undecided):
        found = _translated(site)
    if found is not None and writer.undecided and site.name not in AGGREGATES:
        raise _undecided(site)
    return None if writer.undecided else found


def _translated(site: Site) -> Found | None:
    form = MEANT.get(site.name)
    found = form(site) if form is not None else None
    if found is not None:
        return found
    given = len(site.arguments)
    call = _MEANINGS.get((site.name, given)) or _MEANINGS.get((site.name, None))
    return site.written(call.template) if call is not None else None


def _undecided(site: Site) -> HeadraceError:
    notes = (call.note for call in (*MEANINGS, *FURTHER) if call.name == site.name and call.note)
    note = next(notes, "")
    differs = f" In ksqlDB: {note}." if note else ""
    return site.refused(
        f"{site.name}, which ksqlDB and Spark give different meanings, is not supported",
        "Declare a relation that it reads with kafka_topic or value_format, for the meaning in"
        " ksqlDB; use CREATE MATERIALIZED VIEW, for the meaning in Spark.",
        f"The statement is one of ksqlDB, and no relation of its query is.{differs}",
    )


def backslashes(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    r"""Keep a backslash in a string, as in ``'\d+'``, which Spark reads as an escape."""
    del scope
    node = nodes[at]
    if not writer.ksqldb or not isinstance(node, Token) or node.kind is not TokenKind.STRING:
        return None
    if "\\" not in node.text or node.text[0] != "'":
        return None
    if "\\'" in node.text:
        raise writer.refused(
            "a backslash before a quote is not supported in a query of ksqlDB",
            "Write '' for a quote within a text; concat(x, chr(92)) ends one in a backslash.",
            node,
            detail="A backslash is itself in ksqlDB, so that the text would end at the quote.",
        )
    return Found(at + 1, [TextPart(node.text.replace("\\", "\\\\"), node.start, node.end)])
