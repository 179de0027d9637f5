"""Forms of SELECT: ``DISTINCT ON (key)``, ``* EXCLUDE (column)``, ksqlDB's ``PARTITION BY``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sql.dialect.tree import Found, Group, Node, is_group
from headrace.sql.dialect.writer import Edits, Scope, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sql.dialect.blocks import Block


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


def partitioned(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Take ``PARTITION BY x`` of ksqlDB, which changes nothing: a row is where its view has it."""
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
