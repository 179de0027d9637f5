"""Row limits: ``OFFSET m ROWS FETCH FIRST n ROWS ONLY`` and ``SELECT TOP n``, as LIMIT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.dialects.blocks import blocks_of
from headrace.dialects.tree import Found, Group, Node, TextPart, is_group, is_query
from headrace.dialects.writer import Edits
from headrace.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.blocks import Block
    from headrace.dialects.writer import Scope, Writer

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
