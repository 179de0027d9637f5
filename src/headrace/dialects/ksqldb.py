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
(:func:`refuse_ambiguous`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalog import is_ksqldb
from headrace.dialects.blocks import KSQL_WINDOWS, NAMES, blocks_of, opens_within, relations_of
from headrace.dialects.calls import CALLS, KSQL, CallTemplate, call_of
from headrace.dialects.ksqldb_further import AGGREGATES, FURTHER, further
from headrace.dialects.lambdas import makes_function
from headrace.dialects.streams import BY_OFFSET
from headrace.dialects.times import KEEPS_DATES
from headrace.dialects.tree import Found, Group, Node, TextPart, is_group
from headrace.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.catalog import Relation
    from headrace.dialects.sites import Form, Site
    from headrace.dialects.writer import Scope, Writer
    from headrace.errors import HeadraceError

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
_LOGARITHM = (
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
        ("LN", _LOGARITHM, "of 0 and less, too", None),
        ("LOG", _LOGARITHM, "of 0 and less, too", None),
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
