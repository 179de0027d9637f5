"""Operators and literals of other dialects: ``::type``, ``->``, ``~``, ``ARRAY[...]``, CAST.

Double-quoted names of PostgreSQL and Snowflake.

In Spark and BigQuery, a double-quoted token is a string. A string cannot be a relation in FROM, a
part of a qualified name, or a name after AS. If a query has a double-quoted token at such a
position, all double-quoted tokens of the query are names; otherwise they are strings. A string that
is also the name of a column is refused in new statements: it may be meant as either. The property
``double_quoted_identifiers`` of a session makes them all names.

``x = ANY (...)`` and ``x <> ALL (...)`` of a query or an array, as IN and array functions.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.dialects.ksqldb import makes_function
from headrace.planning.dialects.tree import (
    Found,
    Group,
    Node,
    TextPart,
    blocks_of,
    ends_operand,
    is_double_arrow,
    is_group,
    is_query,
    operand_before,
    split_at,
    tree_of,
)
from headrace.planning.sql.column_types import ALIASES, take_type
from headrace.planning.sql.cursor import Cursor
from headrace.planning.sql.lexer import (
    StatementText,
    Token,
    TokenKind,
    identifier_value,
    quote,
    string_value,
)
from headrace.planning.sql.rewritten import Rewriting, Rewritten, unchanged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from headrace.planning.catalog import Relation
    from headrace.planning.dialects.writer import Scope, Site, Writer


_CUT_OFF = re.compile(r"(?<![`\w])(?:VAR)?CHAR\(([0-9]+)\)")
"""A type with a length, also within an array or a struct."""

_JSON = frozenset({"JSON", "JSONB"})
_CAST = {"CAST": "CAST", "TRY_CAST": "TRY_CAST", "SAFE_CAST": "TRY_CAST"}
_NAMED = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_ELEMENTS = {"OFFSET": "{0}", "ORDINAL": "({0}) - 1"}
_SAFE = {"SAFE_OFFSET": "{0}", "SAFE_ORDINAL": "({0}) - 1"}


def cast(site: Site) -> Found | None:
    """``CAST(x AS type)``, ``TRY_CAST``, ``SAFE_CAST``: types of all dialects."""
    inside, name = site.group.inside, _CAST[site.name]
    words = [node.word for node in inside]
    at = len(words) - 1 - words[::-1].index("AS") if "AS" in words else -1
    if at <= 0 or at + 1 >= len(inside):
        return None
    type_, end = _type(site.writer, inside[at + 1 :], site.group.closing.start)
    if type_ is None or end != inside[-1].end:
        if site.name == "SAFE_CAST" or (end and words[-2:-1] == ["FORMAT"]):
            raise site.refused(
                f"{site.name} of this form is not supported", "Write CAST(x AS type)."
            )
        return None
    return site.written(f"{name}({{0}} AS {type_})", [inside[:at]])


def typed(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``x::type``; ``x::jsonb`` parses the string, as in PostgreSQL."""
    del scope
    if nodes[at].text != "::" or at + 1 >= len(nodes) or not ends_operand(nodes, at - 1):
        return None
    following = nodes[at + 1]
    if following.word in _JSON:
        first = operand_before(nodes, at)
        return Found(at + 2, [], first, ("parse_json(", ")"))
    type_, end = _type(writer, nodes[at + 1 :], nodes[-1].end)
    if type_ is None:
        return None
    last = next(i for i in range(at + 1, len(nodes)) if nodes[i].end >= end)
    return Found(last + 1, [writer.put(f"::{type_}", nodes[at], nodes[last])])


_SPARKS_LITERALS = frozenset(
    {"DATE", "INTERVAL", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "X"}
)
"""The type names that Spark accepts before a string literal, too."""


def literal(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``INT '5'``, ``NUMERIC '1.50'``, ``JSON '{}'``: a string after the name of a type."""
    del scope
    word, text = nodes[at].word, nodes[at + 1] if at + 1 < len(nodes) else None
    if (
        not isinstance(text, Token)
        or text.kind is not TokenKind.STRING
        or ends_operand(nodes, at - 1)
    ):
        return None
    if at and (nodes[at - 1].text in {".", "::"} or nodes[at - 1].word == "AS"):
        return None
    if word in _JSON:
        return Found(at + 2, [writer.put(f"parse_json({text.text})", nodes[at], text)])
    if word not in ALIASES or word in _SPARKS_LITERALS:
        return None
    type_, _ = _type(writer, nodes[at : at + 1], nodes[at].end)
    if type_ is None:
        return None
    return Found(at + 2, [writer.put(f"CAST({text.text} AS {type_})", nodes[at], text)])


def _type(writer: Writer, nodes: Sequence[Node], stop: int) -> tuple[str | None, int]:
    """Return a type in Spark's notation, and its end; None if it needs no translation."""
    first, query = nodes[0], writer.query
    if not isinstance(first, Token) or first.kind is not TokenKind.WORD:
        return None, 0
    cursor = Cursor(StatementText(query.text, first.start, stop, query.file))
    try:
        fragment = take_type(cursor)
    except HeadraceError as error:
        if error.span is None or error.span.start < query.end:
            raise
        return None, 0
    spark = fragment.text
    cut = _CUT_OFF.search(spark)
    if cut is not None:
        length = cut[1]
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"a cast to {cut[0]} is not supported",
            "Spark ignores the length, which cuts texts off in other dialects.",
            f"Use CAST(x AS STRING) for the whole text, as Spark has it; left(CAST(x AS STRING),"
            f" {length}) to cut it off, as others do.",
            Span(query.text, fragment.span.start, fragment.span.end, query.file, query.line),
        )
    return spark, cursor.previous.end


def arrow(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``json -> 'key'``, ``json ->> 'key'``, ksqlDB's ``struct->field`` and ``x => x + 1``."""
    node = nodes[at]
    if node.text not in {"->", "=>"} or at == 0 or at + 1 >= len(nodes):
        return None
    if makes_function(nodes, at, scope.function):
        return Found(at + 1, [writer.put("->", node, node)]) if node.text == "=>" else None
    if node.text == "=>":
        return None
    double = is_double_arrow(nodes, at)
    key = nodes[at + 1 + double] if at + 1 + double < len(nodes) else None
    if not isinstance(key, Token) or key.kind is TokenKind.SYMBOL:
        return None
    if key.kind in {TokenKind.WORD, TokenKind.BACKQUOTED} and not double:
        if at > 1 and nodes[at - 2].word == "EXPLODE" and is_group(nodes[at - 1]):
            raise writer.refused(
                "a field of EXPLODE(...) is not supported",
                "Use FROM s LATERAL VIEW explode(structs) x AS element, and element.field.",
                nodes[at - 2],
                key,
            )
        return Found(at + 1, [writer.put(".", node, node)])
    path = _path(writer, key)
    first, type_ = operand_before(nodes, at), "string" if double else "variant"
    end = f", {path}, '{type_}')"
    return Found(at + 2 + double, [], first, ("variant_get(", end))


def _path(writer: Writer, key: Token) -> str:
    if key.kind is TokenKind.NUMBER and key.text.isdecimal():
        return f"'$[{key.text}]'"
    text = string_value(key) if key.kind is TokenKind.STRING else ""
    if not text or not text.replace("_", "").replace("-", "").replace(" ", "").isalnum():
        raise writer.refused(
            "a key of this form is not supported after -> and ->>",
            "Use variant_get(json, '$.path', 'string').",
            key,
        )
    return f"'$[\"{text}\"]'"


def matching(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``x ~ 'pattern'``, ``~*``, ``!~``, ``!~*``, ``~~`` and similar operators of PostgreSQL."""
    del scope
    if nodes[at].text not in {"~", "!"} or not ends_operand(nodes, at - 1):
        return None
    end = at
    while end < len(nodes) and end - at < 4 and nodes[end].text in "!~*":  # noqa: PLR2004 - !~~*
        if end > at and nodes[end].start != nodes[end - 1].end:
            break
        end += 1
    symbol = "".join(node.text for node in nodes[at:end])
    words = {
        "~": "RLIKE", "~*": "RLIKE", "!~": "NOT RLIKE", "!~*": "NOT RLIKE",
        "~~": "LIKE", "~~*": "ILIKE", "!~~": "NOT LIKE", "!~~*": "NOT ILIKE",
    }  # fmt: skip
    if symbol not in words or end >= len(nodes):
        return None
    regex, insensitive = "RLIKE" in words[symbol], symbol.endswith("~*") and "~~" not in symbol
    written = f" {words[symbol]} " + ("'(?i)' || " if insensitive else "")
    pattern = nodes[end]
    if not regex or not isinstance(pattern, Token) or "\\" not in pattern.text:
        return Found(end, [writer.put(written, nodes[at], nodes[end - 1])])
    raw = pattern.text[1:-1]
    if pattern.kind is not TokenKind.STRING or "'" in raw:
        raise writer.refused("a pattern of this form is not supported", "Use RLIKE.", pattern)
    return Found(end + 1, [writer.put(f"{written}r'{raw}'", nodes[at], pattern)])


def array_literal(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``ARRAY[1, 2]``, ``ARRAY<INT64>[1]``, ``[1, 2]``, ``MAP['a', 1]``, ``STRUCT<...>(1, 2)``."""
    node = nodes[at]
    following = nodes[at + 1] if at + 1 < len(nodes) else None
    if node.word in {"ARRAY", "MAP"} and is_group(following, "["):
        return _constructed(writer, node.word.lower(), (node, following), at + 2, scope)
    if is_group(node, "[") and not ends_operand(nodes, at - 1):
        return _constructed(writer, "array", (node, node), at + 1, scope)
    if node.word not in {"ARRAY", "STRUCT"} or following is None or following.text != "<":
        return None
    if at and nodes[at - 1].word == "AS":
        return None
    last = _after_type(nodes, at + 1)
    if last is None or not isinstance(nodes[last], Group):
        return None
    type_, _ = _type(writer, nodes[at:], nodes[last].start)
    if type_ is None:
        return None
    function = node.word.lower()
    found = _constructed(writer, function, (nodes[last], nodes[last]), last + 1, scope)
    place = node, nodes[last]
    parts = [writer.put("CAST(", *place), *found.parts, writer.put(f" AS {type_})", *place)]
    return Found(last + 1, parts)


def _after_type(nodes: Sequence[Node], at: int) -> int | None:
    """Return the node after the ``>`` that closes the one at a node."""
    depth = 0
    for i in range(at, len(nodes) - 1):
        depth += (nodes[i].text == "<") - (nodes[i].text == ">")
        if depth == 0:
            return i + 1
    return None


def _constructed(
    writer: Writer, function: str, place: tuple[Node, Node | None], end: int, scope: Scope
) -> Found:
    first, group = place
    assert isinstance(group, Group)  # noqa: S101 - the caller has found a bracket
    inside = writer.level(group.inside, scope)
    return Found(
        end, [writer.put(f"{function}(", first, group), *inside, writer.put(")", first, group)]
    )


def assigned(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``STRUCT(a := 1)`` and ``MAP('k' := 1)`` of ksqlDB."""
    word, group = nodes[at].word, nodes[at + 1] if at + 1 < len(nodes) else None
    if word not in {"STRUCT", "MAP"} or not isinstance(group, Group) or group.text != "(":
        return None
    pairs = [_assignment(argument) for argument in split_at(group.inside)]
    if not pairs or None in pairs:
        return None
    place = (nodes[at], group)
    parts = [writer.put("named_struct(" if word == "STRUCT" else "map(", *place)]
    for number, (name, value) in enumerate(filter(None, pairs)):
        parts.append(writer.put(", " if number else "", *place))
        if word == "MAP":
            parts += writer.level(name, scope)
        elif len(name) == 1 and isinstance(name[0], Token) and name[0].kind in _NAMED:
            text = identifier_value(name[0]).replace("\\", "\\\\").replace("'", "\\'")
            parts.append(writer.put(f"'{text}'", name[0], name[0]))
        else:
            return None
        parts += [writer.put(", ", *place), *writer.level(value, scope)]
    return Found(at + 2, [*(part for part in parts if part.text != ""), writer.put(")", *place)])


def _assignment(nodes: Sequence[Node]) -> tuple[Sequence[Node], Sequence[Node]] | None:
    """Return the nodes before and after ``:=``."""
    for at in range(1, len(nodes) - 2):
        if nodes[at].text == ":" and nodes[at + 1].text == "=":
            return nodes[:at], nodes[at + 2 :]
    return None


def element(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``array[OFFSET(0)]``, ``array[ORDINAL(1)]``, ``array[SAFE_OFFSET(0)]`` of BigQuery."""
    node = nodes[at]
    if not isinstance(node, Group) or node.text != "[" or len(node.inside) != 2:  # noqa: PLR2004
        return None
    name, group = node.inside
    if not isinstance(group, Group) or not ends_operand(nodes, at - 1):
        return None
    arguments = split_at(group.inside)
    if len(arguments) != 1:
        return None
    place = (node, node)
    if name.word in _ELEMENTS:
        index = writer.filled(_ELEMENTS[name.word], arguments, place, scope)
        return Found(at + 1, [writer.put("[", *place), *index, writer.put("]", *place)])
    if name.word in _SAFE:
        index = writer.filled(_SAFE[name.word], arguments, place, scope)
        parts = [writer.put(", ", *place), *index]
        return Found(at + 1, parts, operand_before(nodes, at), ("get(", ")"))
    return None


def one_based(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``array[1]`` and ``map['key']`` in a query of ksqlDB, where array indexes begin at 1.

    In other queries, ``array[1]`` has Spark's meaning: array indexes begin at 0.
    """
    group = nodes[at]
    if not writer.ksqldb or not isinstance(group, Group) or group.text != "[":
        return None
    if not ends_operand(nodes, at - 1) or not group.inside:
        return None
    if len(group.inside) == 1 and group.inside[0].text == "0":
        raise writer.refused(
            "the index 0 is not supported in a query of ksqlDB",
            "Write [1] for the first element; try_element_at(map, 0) for the key 0 of a map.",
            group,
            detail="Arrays begin at 1 in ksqlDB, and this query has forms that ksqlDB alone has.",
        )
    first = operand_before(nodes, at)
    made = (i for i in range(at - 1, first, -1) if makes_function(nodes, i, scope.function))
    first = next((i + 1 for i in made if nodes[i].text == "->"), first)
    parts = [writer.put(", ", group, group), *writer.level(group.inside, scope)]
    return Found(at + 1, parts, first, ("try_element_at(", ")"))


def quoted(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Strings between typographic quotes, which Spark does not know."""
    del scope, writer
    node = nodes[at]
    if not isinstance(node, Token) or node.kind not in {TokenKind.STRING, TokenKind.DQUOTED}:
        return None
    if node.text[0] not in "\u2018\u2019\u201c\u201d":
        return None
    text = string_value(node).replace("\\", "\\\\").replace("'", "\\'")
    return Found(at + 1, [TextPart(f"'{text}'", node.start, node.end)])


_IDENTIFIERS = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_OF_NAMES = frozenset({"MAP", "NAMED_STRUCT"})
"""Functions whose strings are names, often those of the columns beside them."""


def with_names_unquoted(query: Span) -> Rewritten:
    """Return the query with backticks for double quotes, if double quotes denote names in it."""
    if query.text.find('"', query.start, query.end) < 0:
        return unchanged(query)
    tokens = Cursor(StatementText(query.text, query.start, query.end, query.file)).tokens[:-1]
    quoted = [token for token in tokens if _is_quoted(token)]
    nodes = tree_of(tokens, query) if quoted else None
    if nodes is None or not _has_name(nodes):
        return unchanged(query)
    return _unquoted(query, quoted)


def with_all_unquoted(statement: Span) -> Rewritten:
    """Return a statement with backticks for all double quotes."""
    tokens = Cursor(StatementText(statement.text, statement.start, statement.end)).tokens[:-1]
    quoted = [token for token in tokens if _is_quoted(token)]
    return _unquoted(statement, quoted) if quoted else unchanged(statement)


def _unquoted(query: Span, quoted: Iterable[Token]) -> Rewritten:
    rewriting = Rewriting(query)
    for token in quoted:
        rewriting.replace(_place(query, token), [quote(identifier_value(token))])
    return rewriting.done()


def _place(query: Span, token: Token) -> Span:
    return Span(query.text, token.start, token.end, query.file, query.line)


def refuse_quoted_columns(query: Span, relations: Iterable[Relation]) -> None:
    """Refuse a double-quoted string that is the name of a column of what a query reads.

    Raises:
        HeadraceError: ``invalid``, at the string.
    """
    if query.text.find('"', query.start, query.end) < 0:
        return
    tokens = Cursor(StatementText(query.text, query.start, query.end, query.file)).tokens[:-1]
    nodes = tree_of(tokens, query) if any(map(_is_quoted, tokens)) else None
    if nodes is None or _has_name(nodes):
        return
    words = {identifier_value(token).lower() for token in tokens if token.kind in _IDENTIFIERS}
    columns = {
        name.lower()
        for relation in relations
        if relation.name.rpartition(".")[2].lower() in words
        for name in relation.schema.names
    }
    _refuse_columns(query, nodes, columns)


def _refuse_columns(query: Span, nodes: Sequence[Node], columns: Collection[str]) -> set[str]:
    """Refuse columns of relations and of subqueries in strings; return the aliases of a level."""
    inner: set[str] = set()
    for at, node in enumerate(nodes):
        if isinstance(node, Group) and not (at and nodes[at - 1].word in _OF_NAMES):
            inner |= _refuse_columns(query, node.inside, columns)
    for node in nodes:
        if isinstance(node, Token) and _is_quoted(node):
            value = identifier_value(node)
            if value.lower() in columns or value.lower() in inner:
                raise HeadraceError(
                    Code.INVALID,
                    f'"{value}" is a text in Spark SQL, and there is a column of this name',
                    hint=f"Write `{value}` for the column, or '{value}' for the text. SET"
                    " double_quoted_identifiers = true makes names of all double-quoted texts.",
                    span=_place(query, node),
                )
    return inner | {
        identifier_value(after).lower()
        for before, after in pairwise(nodes)
        if before.word == "AS" and isinstance(after, Token) and after.kind in _IDENTIFIERS
    }


def _is_quoted(node: Node | None) -> TypeGuard[Token]:
    return isinstance(node, Token) and node.kind is TokenKind.DQUOTED and node.text[0] == '"'


def _has_name(nodes: Sequence[Node]) -> bool:
    """Return whether a double-quoted token is at a position where only a name can be."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            if _has_name(node.inside):
                return True
        elif _is_quoted(node):
            before = nodes[at - 1] if at else None
            after = nodes[at + 1] if at + 1 < len(nodes) else None
            if before is not None and (before.text == "." or before.word == "AS"):
                return True
            if after is not None and after.text == ".":
                return True
    return any(_is_quoted(nodes[at]) for at in _relations(nodes))


def _relations(nodes: Sequence[Node]) -> Iterable[int]:
    """Yield the index at which each relation of FROM begins, for all SELECTs of a level."""
    for block in blocks_of(nodes):
        first, last = block.clauses.get("FROM", (0, 0))
        for at in range(first, last):
            before = nodes[at - 1]
            if at == first or before.text == "," or before.word == "JOIN":
                yield at


_FORMS = {
    ("=", "ANY"): ("IN", "arrays_overlap(array(", ")"),
    ("=", "SOME"): ("IN", "arrays_overlap(array(", ")"),
    ("<>", "ALL"): ("NOT IN", "(NOT arrays_overlap(array(", "))"),
    ("!=", "ALL"): ("NOT IN", "(NOT arrays_overlap(array(", "))"),
}


def quantified(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Translate a comparison with the values of a query, or with those of an array literal."""
    if at + 2 >= len(nodes) or not ends_operand(nodes, at - 1):
        return None
    form, group = _FORMS.get((nodes[at].text, nodes[at + 1].word)), nodes[at + 2]
    if form is None or not isinstance(group, Group) or group.text != "(":
        return None
    within, before, after = form
    if is_query(group.inside):
        return Found(at + 2, [writer.put(within, nodes[at], nodes[at + 1])])
    if not group.inside or group.inside[0].word != "ARRAY":
        return None  # any(x) is an aggregate function too
    place = nodes[at], group
    parts = [
        writer.put("), ", *place),
        *writer.level(group.inside, scope),
        writer.put(after, *place),
    ]
    return Found(at + 3, parts, operand_before(nodes, at), (before, ""))
