"""Clauses of other dialects without an equivalent in Spark, refused by their words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.tree import Found, Group, Node, is_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.writer import Scope, Writer

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
