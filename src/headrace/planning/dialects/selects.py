"""Forms of SELECT: ``DISTINCT ON (key)``, ``* EXCLUDE (column)``, ksqlDB's ``PARTITION BY``.

Row limits: ``OFFSET m ROWS FETCH FIRST n ROWS ONLY`` and ``SELECT TOP n``, as LIMIT.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.planning.dialects.tree import (
    Found,
    Group,
    Node,
    TextPart,
    bare_name,
    blocks_of,
    is_group,
    is_query,
    relations_of,
    split_at,
)
from headrace.planning.dialects.writer import Edits, Scope, Writer
from headrace.planning.sql.lexer import Token, TokenKind, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.planning.dialects.tree import Block


def distinct_on(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """``SELECT DISTINCT ON (key) ... ORDER BY key, x``: the first row of each key."""
    nodes, at = block.nodes, block.start + 1
    words = [node.word for node in nodes[at : at + 2]]
    if words != ["DISTINCT", "ON"] or at + 2 >= block.end or not is_group(nodes[at + 2]):
        return None
    key = nodes[at + 2]
    assert isinstance(key, Group)  # noqa: S101 - is_group
    if block.clauses.keys() & {"GROUP", "QUALIFY", "HAVING"}:
        raise writer.refused(
            "DISTINCT ON with GROUP BY or QUALIFY is not supported",
            "Group in a subquery, and use DISTINCT ON outside.",
            nodes[at],
            key,
        )
    order = block.clause("ORDER")
    if not order or not key.inside:
        raise writer.refused(
            "DISTINCT ON without ORDER BY is not supported",
            "Add ORDER BY key, x: the first row of each key is kept.",
            nodes[at],
            key,
            "Which row is kept would not be determined.",
        )
    place = (nodes[at], key)
    template = " QUALIFY row_number() OVER (PARTITION BY {0} ORDER BY {1}) = 1 "
    text = writer.filled(template, [key.inside, tuple(order)], place, scope)
    nothing = Found(at + 3, [writer.put("", *place)])
    return Edits(scope, {at: nothing}, {block.clauses["ORDER"][0] - 2: text})


def excluded(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``SELECT * EXCLUDE (a, b)`` and ``SELECT * EXCLUDE a`` of Snowflake."""
    del scope
    if nodes[at].word != "EXCLUDE" or at < 1 or nodes[at - 1].text != "*" or at + 1 >= len(nodes):
        return None
    if is_group(nodes[at + 1]):
        return Found(at + 1, [writer.put("EXCEPT", nodes[at], nodes[at])])
    column = nodes[at + 1]
    if isinstance(column, Group):
        return None
    return Found(at + 2, [writer.put(f"EXCEPT ({column.text})", nodes[at], column)])


def joined_names(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Name the columns of a join as ksqlDB does: ``S_V`` for ``s.v``.

    A column keeps its name if no other one of the SELECT list has it; all columns of ``*`` are
    renamed.
    """
    first, last = block.clauses.get("FROM", (0, 0))
    words = {node.word for node in block.nodes[first:last]}
    named = list(relations_of(block))
    relations = {bare_name(each.qualifier): writer.relation(each.name) for each in named}
    joined = "JOIN" in words and not words & {"USING", "NATURAL"}
    if not (writer.ksqldb and joined) or None in relations.values():
        return None
    if sum(node.word == "JOIN" for node in block.nodes[first:last]) != len(named) - 1:
        return None  # a subquery, whose columns are not known
    columns = {
        bare_name(each.qualifier): (each.qualifier, relation.schema.names)
        for each in named
        if (relation := relations[bare_name(each.qualifier)]) is not None
    }
    at = block.start + 1
    items = split_at(block.nodes[at : first - 1])
    counts = Counter(bare_name(item[-1].text) for item in items if item)
    replaced: dict[int, Found] = {}
    inserted: dict[int, list[TextPart]] = {}
    for item in items:
        end = at + len(item)
        texts = [node.text for node in item]
        place = (item[0], item[-1]) if item else (block.nodes[at], block.nodes[at])
        own = bare_name(texts[0]) if texts else ""
        if texts == ["*"] or (texts[1:] == [".", "*"] and own in columns):
            shown = columns.values() if texts == ["*"] else [columns[own]]
            listed = [
                f"{qualifier}.{quote(name)} AS {_prefixed(qualifier, name)}"
                for qualifier, names in shown
                for name in names
            ]
            replaced[at] = Found(end, [writer.put(", ".join(listed), *place)])
        elif len(texts) == 3 and texts[1] == "." and own in columns:  # noqa: PLR2004 - s.v
            name = bare_name(texts[2])
            if counts[name] > 1:
                alias = writer.put(f" AS {_prefixed(texts[0], name)} ", *place)
                inserted[end] = [alias]
        at = end + 1
    return Edits(scope, replaced, inserted) if replaced or inserted else None


def _prefixed(qualifier: str, name: str) -> str:
    return quote(f"{qualifier.strip('`')}_{name}")


def partitioned(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Drop ``PARTITION BY x`` of ksqlDB, which has no effect: views partition rows themselves."""
    first, last = block.clauses.get("PARTITION", (0, 0))
    if not first:
        return None
    keyword, by = block.nodes[first - 2], block.nodes[first - 1]
    if first == last or "FROM" not in block.clauses:
        raise writer.invalid(
            "PARTITION BY has no column", "Name one, or leave it out.", keyword, by
        )
    if "GROUP" in block.clauses:
        raise writer.invalid(
            "PARTITION BY with GROUP BY", "Leave it out: groups have their keys.", keyword, by
        )
    nothing = Found(last, [writer.put(" ", keyword, block.nodes[last - 1])])
    return Edits(scope, {first - 2: nothing})


_ROWS = frozenset({"ROW", "ROWS"})
_FIRST = frozenset({"FIRST", "NEXT"})


class _Count(NamedTuple):
    """The number of rows in a clause, if any; ``end`` is the node after it."""

    nodes: tuple[Node, ...]
    end: int
    spark: bool
    """Whether the clause is valid in Spark."""


def limited(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Translate FETCH to LIMIT, and move it before OFFSET."""
    skipped = _offset(nodes, at)
    taken = _taken(writer, nodes, at if skipped is None else skipped.end)
    if taken is None:
        if skipped is None or skipped.spark:
            return None
        place = nodes[at], nodes[skipped.end - 1]
        return Found(skipped.end, writer.filled("OFFSET {0}", [skipped.nodes], place, scope))
    if skipped is None:
        if taken.spark:
            return None
        template, counts = "LIMIT {0}" if taken.nodes else "LIMIT 1", [taken.nodes]
    else:
        template = "LIMIT {0} OFFSET {1}" if taken.nodes else "LIMIT 1 OFFSET {1}"
        counts = [taken.nodes, skipped.nodes]
    place = nodes[at], nodes[taken.end - 1]
    return Found(taken.end, writer.filled(template, counts, place, scope))


def existing(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``EXISTS (SELECT ... LIMIT n)``: without the LIMIT, which has no effect there."""
    group = nodes[at + 1] if at + 1 < len(nodes) else None
    if nodes[at].word != "EXISTS" or not isinstance(group, Group) or not is_query(group.inside):
        return None
    *query, limit, count = group.inside[-3:]
    clauses = {"OFFSET", "LIMIT", "FETCH"}
    if limit.word != "LIMIT" or not _is_some(count) or not query:
        return None
    if len(blocks_of(group.inside)) > 1 or any(n.word in clauses for n in group.inside[:-2]):
        return None
    inside = group.inside[:-2]
    return Found(
        at + 2,
        [
            TextPart(None, nodes[at].start, inside[0].start),
            *writer.level(inside, replace(scope, function="")),
            TextPart(None, group.closing.start, group.end),
        ],
    )


def _is_some(node: Node) -> bool:
    """Return whether a node is a literal number of at least 1."""
    return isinstance(node, Token) and node.text.isdecimal() and int(node.text[:9]) > 0


def top(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Translate ``SELECT TOP n`` to LIMIT."""
    nodes, at = block.nodes, block.start + 1
    at += at < block.end and nodes[at].word in {"DISTINCT", "ALL"}
    if at + 1 >= block.end or nodes[at].word != "TOP":
        return None
    number = nodes[at + 1]
    if not isinstance(number, Token) or number.kind is not TokenKind.NUMBER:
        return None
    place = nodes[at], number
    if len(blocks_of(nodes)) > 1 or block.clauses.keys() & {"LIMIT", "FETCH", "OFFSET"}:
        raise writer.refused(
            "TOP beside another LIMIT or SELECT is not supported", "Use LIMIT.", *place
        )
    limit = [writer.put(f" LIMIT {number.text}", *place)]
    return Edits(scope, {at: Found(at + 2, [writer.put(" ", *place)])}, {block.end: limit})


def _offset(nodes: Sequence[Node], at: int) -> _Count | None:
    """Return the number of rows of ``OFFSET m [ROWS]``."""
    if nodes[at].word != "OFFSET" or not _is_count(nodes, at + 1):
        return None
    rows = at + 2 < len(nodes) and nodes[at + 2].word in _ROWS
    return _Count((nodes[at + 1],), at + 2 + rows, not rows)


def _taken(writer: Writer, nodes: Sequence[Node], at: int) -> _Count | None:
    """Return the number of rows of ``FETCH FIRST [n] ROWS ONLY`` or ``LIMIT n``."""
    if at + 1 >= len(nodes):
        return None
    if nodes[at].word == "LIMIT" and _is_count(nodes, at + 1):
        return _Count((nodes[at + 1],), at + 2, spark=True)
    if nodes[at].word != "FETCH" or nodes[at + 1].word not in _FIRST:
        return None
    counted = _is_count(nodes, at + 2)
    end = at + 2 + counted
    words = [node.word for node in nodes[end : end + 3]]
    ties = len(words) > 1 and words[0] in _ROWS and words[1] == "WITH"
    if ties or words[:1] == ["PERCENT"]:
        what = "WITH TIES" if ties else "PERCENT"
        raise writer.refused(
            f"FETCH {nodes[at + 1].word} ... {what} is not supported",
            "Use QUALIFY rank() OVER (ORDER BY ...) <= n to have those that tie with the last one.",
            nodes[at],
            nodes[end + len(words) - 1],
        )
    if len(words) < 2 or words[0] not in _ROWS or words[1] != "ONLY":  # noqa: PLR2004 - ROWS ONLY
        raise writer.invalid(
            f"FETCH {nodes[at + 1].word} is not ended by ROWS ONLY",
            "Write FETCH FIRST 10 ROWS ONLY.",
            nodes[at],
            nodes[end - 1],
        )
    return _Count(tuple(nodes[at + 2 : end]), end + 2, spark=False)


def _is_count(nodes: Sequence[Node], at: int) -> bool:
    node = nodes[at] if at < len(nodes) else None
    return is_group(node) or (isinstance(node, Token) and node.kind is TokenKind.NUMBER)
