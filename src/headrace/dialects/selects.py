"""Forms of SELECT: ``DISTINCT ON (key)``, ``* EXCLUDE (column)``, ksqlDB's ``PARTITION BY``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headrace.dialects.blocks import relations_of
from headrace.dialects.tree import Found, Group, Node, TextPart, bare_name, is_group, split_at
from headrace.dialects.writer import Edits, Scope, Writer
from headrace.sql.keywords import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.blocks import Block


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
