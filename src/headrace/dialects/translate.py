"""Translates queries of four dialects to Spark SQL.

The text is split into tokens and brackets but not parsed: known forms are rewritten to Spark SQL,
and the rest is left to Spark. Every place of the new text maps back to the original.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.catalog import is_ksqldb
from headrace.dialects.aliases import CLAUSES, UNFINISHED, WORDS, aliases
from headrace.dialects.asof_joins import asof_joins
from headrace.dialects.calls import CALLS, CallTemplate
from headrace.dialects.final import final_windows
from headrace.dialects.formats import FORMATS
from headrace.dialects.interval_forms import between, interval
from headrace.dialects.joins import within
from headrace.dialects.ksqldb import (
    MEANINGS,
    MEANT,
    backslashes,
    meant,
    reads_ksqldb,
    speaks_ksqldb,
)
from headrace.dialects.ksqldb_further import FURTHER, FURTHER_FORMS
from headrace.dialects.lambdas import OVER_MAPS, parameter
from headrace.dialects.limits import existing, limited, top
from headrace.dialects.lists import LISTS, ignoring_nulls
from headrace.dialects.operators import (
    array_literal,
    arrow,
    assigned,
    element,
    literal,
    matching,
    one_based,
    quoted,
    typed,
)
from headrace.dialects.quantified import quantified
from headrace.dialects.refused import REFUSED_CALLS
from headrace.dialects.selects import distinct_on, excluded, joined_names, partitioned
from headrace.dialects.sites import Form, site_at
from headrace.dialects.sources import array_sources
from headrace.dialects.streams import BY_ORDER, star, stream_columns
from headrace.dialects.system_time import common_tables
from headrace.dialects.table_windows import table_windows
from headrace.dialects.times import TIMES
from headrace.dialects.tree import Found, tree_of
from headrace.dialects.unserved import unserved
from headrace.dialects.windows import (
    KINDS,
    group_window,
    ksql_window,
    window_column,
    window_name,
)
from headrace.dialects.writer import Scope, Writer
from headrace.dialects.zones import at_time_zone, columns_of_time
from headrace.sql.column_types import ALIASES
from headrace.sql.cursor import Cursor
from headrace.sql.lexer import StatementText
from headrace.sql.rewritten import Rewritten, unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.catalog import Relation
    from headrace.dialects.tree import Node
    from headrace.errors import Span

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
