"""``x = ANY (...)`` and ``x <> ALL (...)`` of a query or an array, as IN and array functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.operands import ends_operand, operand_before
from headrace.dialects.tree import Found, Group, Node, is_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.writer import Scope, Writer

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
