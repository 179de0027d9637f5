"""Translates queries of four dialects to Spark SQL.

The text is split into tokens and brackets but not parsed: known forms are rewritten to Spark SQL,
and the rest is left to Spark. Every place of the new text maps back to the original.

Functions of other dialects that are always refused, as a table.

Clauses of other dialects without an equivalent in Spark, refused by their words.

Refuses words of other dialects after a relation, where Spark would read an alias.

``a LATEST JOIN b``, ``FROM t FINAL``, ``a OUTER JOIN b``: none of these words is reserved in Spark,
so the query would run with another meaning. Such a word is refused unless the query shows that it
is an alias: by AS, by quotes, or by a column that it qualifies.

Rewrites a query to plain Spark SQL: SQL functions, folds, dialects, versions of tables.

The array index base of a query: 0 in Spark, 1 in most other dialects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.planning.catalog import is_ksqldb
from headrace.planning.dialects.asof_joins import asof_joins, opens_asof
from headrace.planning.dialects.calls import CALLS, CallTemplate
from headrace.planning.dialects.event_time import final_windows, table_windows
from headrace.planning.dialects.formats import FORMATS, at_time_zone, columns_of_time
from headrace.planning.dialects.functions import with_folds, with_macros
from headrace.planning.dialects.intervals import between, interval
from headrace.planning.dialects.ksqldb import (
    FURTHER,
    FURTHER_FORMS,
    MEANINGS,
    MEANT,
    OVER_MAPS,
    backslashes,
    meant,
    parameter,
    reads_ksqldb,
    speaks_ksqldb,
    within,
)
from headrace.planning.dialects.lists import LISTS, array_sources, ignoring_nulls
from headrace.planning.dialects.operators import (
    array_literal,
    arrow,
    assigned,
    element,
    literal,
    matching,
    one_based,
    quantified,
    quoted,
    typed,
    with_names_unquoted,
)
from headrace.planning.dialects.selects import (
    distinct_on,
    excluded,
    existing,
    joined_names,
    limited,
    partitioned,
    top,
)
from headrace.planning.dialects.streams import BY_ORDER, star, stream_columns
from headrace.planning.dialects.table_versions import common_tables, with_versions
from headrace.planning.dialects.times import TIMES
from headrace.planning.dialects.tree import (
    KINDS_OF_JOIN,
    NAMES,
    Found,
    Group,
    Node,
    ends_operand,
    is_group,
    tree_of,
)
from headrace.planning.dialects.windows import (
    KINDS,
    group_window,
    ksql_window,
    window_column,
    window_name,
)
from headrace.planning.dialects.writer import Form, Scope, Writer, site_at
from headrace.planning.sql.column_types import ALIASES
from headrace.planning.sql.cursor import Cursor
from headrace.planning.sql.lexer import StatementText, Token, TokenKind
from headrace.planning.sql.rewritten import Rewritten, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.errors import Span
    from headrace.planning.catalog import Relation
    from headrace.planning.dialects.tree import Block
    from headrace.planning.dialects.writer import Edits
    from headrace.planning.functions import Folded


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A function that is always refused: the reason, and an alternative."""

    dialects: str
    reason: str
    hint: str


_PROCESSING = "It is the time of processing, so the same rows would give another answer each time."
_EVENT = "Use a time in the data; compare it with now() in WHERE."
_JSON_HINT = "Use get_json_object(x, '$.path'), or parse_json(x):path."
_JSON_REASON = "Objects and arrays give NULL there, and their text in Spark's functions."

REFUSED_CALLS: dict[str, RefusedCall] = {
    "PROCTIME": RefusedCall("Flink", _PROCESSING, _EVENT),
    "CURRENT_ROW_TIMESTAMP": RefusedCall("Flink", _PROCESSING, _EVENT),
    "CURRENT_WATERMARK": RefusedCall(
        "Flink", "Late rows are not dropped, so nothing depends on a watermark.", _EVENT
    ),
    "COLLECT": RefusedCall(
        "Flink", "Spark has no multisets.", "Use sort_array(collect_list(x)), or count by value."
    ),
    "JSON_VALUE": RefusedCall("Flink, BigQuery", _JSON_REASON, _JSON_HINT),
    "JSON_QUERY": RefusedCall("Flink, BigQuery", _JSON_REASON, _JSON_HINT),
    "JSON_EXTRACT_SCALAR": RefusedCall("BigQuery", _JSON_REASON, _JSON_HINT),
    "AGE": RefusedCall(
        "PostgreSQL",
        "Its result has months and days at once, which Spark's intervals have not.",
        "Use timestampdiff(unit, start, end), or end - start.",
    ),
    "IEEE_DIVIDE": RefusedCall(
        "BigQuery",
        "It gives infinity and NaN where a divisor is 0.",
        "Use try_divide(a, b), which gives NULL.",
    ),
}
"""Functions by name; Spark's own functions that are refused are in the planner's fence."""


_COLUMNS = "Use * EXCEPT (x), expression AS x: the column comes last."
_PAST = "Use SELECT ... AS OF TIMESTAMP '...' or AS OF EPOCH n, at the end of the query."
_AFTER_STAR = {
    "REPLACE": _COLUMNS,
    "RENAME": _COLUMNS,
    "ILIKE": "List the columns.",
}
_BEFORE_BRACKETS = {
    "MATCH_RECOGNIZE": "Use lag(...) and lead(...) OVER (PARTITION BY ... ORDER BY ...).",
    "SAMPLE": "A sample is not deterministic: choose rows with WHERE.",
}
_SETS = frozenset({"UNION", "INTERSECT", "EXCEPT", "ALL", "DISTINCT"})
_MOMENTS = frozenset({"OFFSET", "TIMESTAMP", "STATEMENT", "STREAM"})


def unserved(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Refuse the clause that begins at a node, if it is listed here."""
    del scope
    word, following = nodes[at].word, nodes[at + 1] if at + 1 < len(nodes) else None
    if not word or following is None:
        return None
    before = nodes[at - 1] if at else None
    if word == "MUTUALLY" and following.word == "RECURSIVE":
        hint = "Use WITH RECURSIVE name AS (start UNION ALL step), one after the other."
        raise writer.refused("WITH MUTUALLY RECURSIVE is not supported", hint, nodes[at], following)
    if word == "CORRESPONDING" and before is not None and before.word in _SETS:
        hint = "List the columns of both sides; UNION BY NAME matches columns of equal names."
        raise writer.refused(
            f"{before.word} CORRESPONDING is not supported", hint, before, nodes[at]
        )
    if word == "SIMILAR" and following.word == "TO":
        hint = "Use LIKE for % and _, or RLIKE with ^ and $ around a regular expression."
        raise writer.refused("SIMILAR TO is not supported", hint, nodes[at], following)
    within = following.inside[:2] if isinstance(following, Group) else ()
    inside = [node.word or node.text for node in within]
    if word == "FLATTEN" and inside == ["INPUT", "=>"]:
        hint = "Use LATERAL VIEW explode(array) t AS value."
        raise writer.refused("FLATTEN (INPUT => ...) is not supported", hint, nodes[at], following)
    star = _is_star(nodes, at - 1)
    if before is None or not (star or _is_relation(before)):
        return None
    if star and word in _AFTER_STAR and (is_group(following) or word == "ILIKE"):
        raise writer.refused(f"* {word} is not supported", _AFTER_STAR[word], before, following)
    if not isinstance(following, Group) or following.text != "(" or star:
        return None
    if word in _BEFORE_BRACKETS:
        raise writer.refused(f"{word} is not supported", _BEFORE_BRACKETS[word], nodes[at])
    if word in {"AT", "BEFORE"} and inside[1:] == ["=>"] and inside[0] in _MOMENTS:
        raise writer.refused(f"{word} (...) is not supported", _PAST, nodes[at], following)
    return None


def _is_star(nodes: Sequence[Node], at: int) -> bool:
    """Return whether a node is the star of SELECT, and not a multiplication sign."""
    if at < 1 or nodes[at].text != "*":
        return False
    return nodes[at - 1].word in {"SELECT", "DISTINCT", "ALL"} or nodes[at - 1].text in {",", "."}


def _is_relation(node: Node) -> bool:
    """Return whether a node can be the end of a relation: a name, or a subquery."""
    return is_group(node) or bool(node.word) or node.text.startswith("`")


_ONE_ROW = "Read a table with a PRIMARY KEY: it has the last row of each key."
CLAUSES: dict[str, str] = {
    "CLUSTER": "",
    "DISTRIBUTE": "",
    "GROUP": "Write GROUP BY and expressions.",
    "HAVING": "Write HAVING and a condition.",
    "ORDER": "Write ORDER BY and expressions.",
    "SORT": "Write ORDER BY and expressions.",
    "WHERE": "Write WHERE and a condition.",
}
"""Words that begin a clause; they are aliases only if nothing follows."""

_AFTER_VALUE = CLAUSES | {"FROM": "Write FROM and a relation."}
"""The words that can directly follow the expressions of a SELECT."""

WORDS: dict[str, str] = CLAUSES | {
    "ALL": "",
    "ANY": "Join a subquery with one row of each key: QUALIFY row_number() OVER (...) = 1.",
    "APPLY": "Use JOIN LATERAL (...).",
    "ARRAY": "Use LATERAL VIEW explode(array) t AS element.",
    "ASOF": "Write ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k.",
    "CHANGES": "Use SUBSCRIBE to read the changes of a relation.",
    "CONNECT": "Use WITH RECURSIVE.",
    "EMIT": "EMIT CHANGES and EMIT FINAL end the statement.",
    "FETCH": "Write FETCH FIRST 10 ROWS ONLY, or LIMIT 10.",
    "FINAL": _ONE_ROW,
    "FORMAT": "",
    "GLOBAL": "Leave it out: all rows are in one place.",
    "LATEST": _ONE_ROW,
    "LIMIT": "Write LIMIT and a number.",
    "LOOKUP": "",
    "MATCH_CONDITION": "Write ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k.",
    "OFFSET": "Write OFFSET and a number.",
    "ONLY": "",
    "OUTER": "Write LEFT, RIGHT or FULL before OUTER JOIN.",
    "PARTITION": "",
    "PASTE": "Number the rows of both sides by row_number(), and join by the number.",
    "POSITIONAL": "Number the rows of both sides by row_number(), and join by the number.",
    "PREWHERE": "Use WHERE.",
    "QUALIFY": "Write QUALIFY and a condition.",
    "SAMPLE": "A sample is not deterministic: choose rows with WHERE.",
    "SETTINGS": "Use SET for settings of the session.",
    "STRAIGHT_JOIN": "Use JOIN.",
    "TABLESAMPLE": "A sample is not deterministic: choose rows with WHERE.",
    "TEMPORAL": "Use JOIN name FOR SYSTEM_TIME AS OF time, of a versioned table.",
    "TOP": "Use LIMIT.",
    "WINDOW": "Write WINDOW name AS (...), or WINDOW TUMBLING (SIZE 1 HOUR).",
    "WITHIN": "Write WITHIN and a length of time: WITHIN 1 HOUR.",
}
"""The words, each with an alternative, "" if there is no alternative."""

_AFTER_ALIAS = KINDS_OF_JOIN | {"JOIN", "ON", "USING", "LATERAL"}

_NO_BEGINNING = "|".join(sorted(_AFTER_ALIAS))
UNFINISHED = rf"\b(?:{'|'.join(_AFTER_VALUE)})(?=\s*(?:\Z|[),;]|--|/\*|(?:{_NO_BEGINNING})\b))"
"""Matches a word that begins a clause before text that cannot continue the clause."""


def aliases(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Refuse words of other dialects that Spark would read as aliases."""
    del scope
    first, last = block.clauses.get("FROM", (0, 0))
    if not last and block.nodes[block.end - 1].word in _AFTER_VALUE:
        _refuse_unfinished(writer, block)
    for at in range(first + 1, last):
        word = block.nodes[at].word
        if word not in WORDS or not _is_alias(block.nodes, at, first, last):
            continue
        if word.lower() in _qualifiers(block.nodes[block.start : block.end]):
            continue
        following = block.nodes[at + 1] if at + 1 < last else None
        joins = following is not None and following.word in _AFTER_ALIAS - {"ON", "USING"}
        shown = f"{word} JOIN" if joins else f"{word} after a relation"
        also = f"If it is an alias, write AS {block.nodes[at].text}."
        raise writer.refused(
            f"{shown} is not supported",
            f"{WORDS[word]} {also}".lstrip(),
            block.nodes[at],
            detail="Spark would read the word as an alias of the relation before it.",
        )
    return None


def _refuse_unfinished(writer: Writer, block: Block) -> None:
    """Refuse a clause's first word at the end of a SELECT without FROM."""
    before, last = block.nodes[block.end - 2 : block.end]
    if before.text in {",", "."} or before.word in {"AS", "SELECT", "DISTINCT", "ALL"}:
        return
    raise writer.refused(
        f"{last.text} with nothing after it is not supported",
        f"{_AFTER_VALUE[last.word]} If it is the name of the column, write AS {last.text}.",
        last,
        detail="Spark would read the word as the name of the column before it.",
    )


def _is_alias(nodes: Sequence[Node], at: int, first: int, last: int) -> bool:
    """Return whether Spark reads the word at a node as the alias of the relation before it."""
    before = nodes[at - 1]
    named = isinstance(before, Group) and before.text == "("
    named = named or (isinstance(before, Token) and before.kind in NAMES)
    if not named or opens_asof(nodes, at, last):
        return False
    start = at - 1
    if isinstance(before, Group) and start > first:
        function = nodes[start - 1]
        if isinstance(function, Token) and function.kind in NAMES:
            start -= function.word not in _INTRODUCING
    while start - 2 >= first and nodes[start - 1].text == ".":
        start -= 2
    if start > first and nodes[start - 1].text != "," and nodes[start - 1].word not in _INTRODUCING:
        return False
    return at + 1 == last or nodes[at + 1].text == "," or nodes[at + 1].word in _AFTER_ALIAS


_INTRODUCING = frozenset({"FROM", "JOIN", "LATERAL"})


def _qualifiers(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the qualifiers of columns, in lower case."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            yield from _qualifiers(node.inside)
        elif node.kind is TokenKind.WORD and at + 1 < len(nodes) and nodes[at + 1].text == ".":
            yield node.word.lower()


FORMS: dict[str, Form] = {**TIMES, **FORMATS, **LISTS, **BY_ORDER, **OVER_MAPS}
"""The functions that need more than a template."""

_TEMPLATES: dict[tuple[str, int | None], CallTemplate] = {}
for _each in CALLS:
    _TEMPLATES[_each.name, None if "{*}" in _each.template else _each.arguments] = _each
_NAMED = frozenset(name for name, _ in _TEMPLATES)

_MEANT = frozenset({*MEANT, *FURTHER_FORMS, *(each.name for each in (*MEANINGS, *FURTHER))})

TRANSLATED = frozenset({*FORMS, *_NAMED, *REFUSED_CALLS, *KINDS, "UNNEST"})
"""Function names that always have another dialect's meaning, in upper case."""

_WORDS = sorted(
    {
        *FORMS,
        *_NAMED,
        *REFUSED_CALLS,
        *KINDS,
        *(WORDS.keys() - CLAUSES.keys()),
        "MAP",
        "STRUCT",
        "UNNEST",
        "RANGE",
        "INTERVAL",
        "EXISTS",
        "EXCLUDE",
        "DISTINCT",
        "SOME",
        "MATCH_RECOGNIZE",
        "MUTUALLY",
        "SIMILAR",
        "REPLACE",
        "RENAME",
        "ILIKE",
        "AT",
        "BEFORE",
        "ZONE",
        "IGNORE",
        "RESPECT",
        "CORRESPONDING",
    }
)
_TRIGGER = re.compile(
    rf"\b(?:{'|'.join(_WORDS)}|(?:TUMBLE|HOP|SESSION|CUMULATE)_\w+|WINDOW\w*|(?:__)?ROW\w+)\b"
    rf"|\b(?:{'|'.join([*ALIASES, 'JSON', 'JSONB'])})\s*'"
    rf"|{UNFINISHED}"
    r"|\)\s*(?:YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)S?\b"
    r"|::|[-=]>|~|\[|[\u2018\u2019\u201c\u201d]",
    re.IGNORECASE,
)
"""Matches queries that may have something to translate; most have nothing."""


def translated(query: Span, relations: Mapping[str, Relation], *, once: bool = False) -> Rewritten:
    """Return the query in Spark SQL; ``relations`` are by their dotted names.

    ``once``: it is evaluated once, and not maintained as a view.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at the place in the query, if a form of
            another dialect is malformed or has no equivalent in Spark.
    """
    any_ksqldb = any(map(is_ksqldb, relations.values()))
    if not any_ksqldb and not _TRIGGER.search(query.text, query.start, query.end):
        return unchanged(query)
    cursor = Cursor(StatementText(query.text, query.start, query.end, query.file))
    nodes = tree_of(cursor.tokens[:-1], query)
    if nodes is None:
        return unchanged(query)
    named = common_tables(cursor.tokens)
    declared = any_ksqldb and reads_ksqldb(nodes, relations)
    ksqldb = declared or speaks_ksqldb(nodes)
    writer = Writer(
        query, relations, RULES, BLOCK_RULES, named, ksqldb, declared=declared, once=once
    )
    return writer.whole(nodes)


def is_of_ksqldb(query: Span, relations: Mapping[str, Relation]) -> bool:
    """Return whether a query is read as ksqlDB's as a whole."""
    nodes = tree_of(Cursor(StatementText(query.text, query.start, query.end)).tokens[:-1], query)
    return nodes is not None and (speaks_ksqldb(nodes) or reads_ksqldb(nodes, relations))


def refuse_undecided(query: Span, relations: Mapping[str, Relation]) -> None:
    """Refuse functions with another meaning in ksqlDB in a query that may be meant as ksqlDB's.

    Raises:
        HeadraceError: ``unsupported``, at the call, unless the query is read as ksqlDB's.
    """
    cursor = Cursor(StatementText(query.text, query.start, query.end, query.file))
    nodes = tree_of(cursor.tokens[:-1], query)
    if nodes is None or speaks_ksqldb(nodes) or reads_ksqldb(nodes, relations):
        return
    named = common_tables(cursor.tokens)
    Writer(query, relations, RULES, BLOCK_RULES, named, undecided=True).whole(nodes)


def _called(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Translate a call of a function of another dialect."""
    word = nodes[at].word
    if not (word in FORMS or word in _NAMED or word in REFUSED_CALLS or word in _MEANT):
        return None
    site = site_at(writer, nodes, at, scope)
    if site is None:
        return None
    found = meant(site)
    if found is not None:
        return found
    if word in REFUSED_CALLS:
        why = REFUSED_CALLS[word]
        raise site.refused(f"{word} is not supported", why.hint, why.reason)
    form = FORMS.get(word)
    found = form(site) if form is not None else None
    if found is not None:
        return found
    call = _TEMPLATES.get((word, len(site.arguments))) or _TEMPLATES.get((word, None))
    return site.written(call.template) if call is not None else None


RULES = (
    star,
    window_column,
    window_name,
    _called,
    ignoring_nulls,
    interval,
    between,
    literal,
    typed,
    parameter,
    arrow,
    matching,
    element,
    assigned,
    array_literal,
    excluded,
    existing,
    limited,
    at_time_zone,
    quantified,
    one_based,
    unserved,
    backslashes,
    quoted,
)
BLOCK_RULES = (
    aliases,
    stream_columns,
    columns_of_time,
    ksql_window,
    group_window,
    table_windows,
    array_sources,
    distinct_on,
    final_windows,
    within,
    asof_joins,
    partitioned,
    joined_names,
    top,
)


_NONE: Mapping[str, Folded] = MappingProxyType({})


def spark_text(
    query: Span,
    relations: Mapping[str, Relation],
    folds: Mapping[str, Folded] = _NONE,
    *,
    once: bool = False,
) -> Rewritten:
    """Return the query for Spark; ``relations`` are by their dotted names, ``folds`` by their own.

    ``once``: it is evaluated once, and not maintained as a view.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at the place in the query as written.
    """
    named = with_names_unquoted(query)
    with named.mapping_errors():
        expanded = with_macros(named.span, relations).after(named)
    with expanded.mapping_errors():
        called = with_folds(expanded.span, folds).after(expanded)
    with called.mapping_errors():
        first = translated(called.span, relations, once=once).after(called)
    with first.mapping_errors():
        return with_versions(first.span, relations).after(first)


def index_base(query: Span, relations: Mapping[str, Relation]) -> str:
    """Return a sentence part saying where array indexes begin; "" if no index depends on it.

    An index of 0 is unambiguous.
    """
    if "[" not in query.text[query.start : query.end]:
        return ""
    nodes = tree_of(Cursor(StatementText(query.text, query.start, query.end)).tokens[:-1], query)
    indexes = set(_indexes(nodes or ()))
    if not indexes or 0 in indexes:
        return ""
    least = min(indexes)
    if is_of_ksqldb(query, relations):
        return f"array indexes begin at 1, as in ksqlDB: [{least}] is element {least}"
    return f"array indexes begin at 0: [{least}] is element {least + 1}"


def _indexes(nodes: Sequence[Node]) -> Iterator[int]:
    for at, node in enumerate(nodes):
        if not isinstance(node, Group):
            continue
        yield from _indexes(node.inside)
        if node.text == "[" and len(node.inside) == 1 and ends_operand(nodes, at - 1):
            (index,) = node.inside
            literal = nodes[at - 1].word in {"ARRAY", "MAP"}
            if index.text.isdecimal() and not literal:
                yield int(index.text[:9])
