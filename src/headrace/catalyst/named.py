"""The relations that the text of a query names: those that whoever asks has to be allowed to read.

What a plain view reads is not among them, nor are the common table expressions of the query, each
where it is visible: outside of there, its name is that of a relation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst.fence import expressions_of, name_of
from headrace.catalyst.scala import items, part
from headrace.catalyst.walk import SUBQUERIES

if TYPE_CHECKING:
    from collections.abc import Iterator


def relations_named(plan: Any, visible: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the dotted names, in lower case, of the relations in a parsed query.

    ``visible`` are the common table expressions that are visible to it.
    """
    kind = str(plan.nodeName())
    if kind == "UnresolvedRelation":
        name = name_of(plan)
        if name not in visible:
            yield name
    if kind == "UnresolvedWith":
        recursive = bool(plan.allowRecursion())
        for pair in items(plan.cteRelations()):
            alias = {str(part(pair, 0)).lower()}
            yield from relations_named(part(pair, 1), visible | alias if recursive else visible)
            visible |= alias
    for child in items(plan.children()):
        yield from relations_named(child, visible)
    for expression, name in expressions_of(plan):
        if name in SUBQUERIES:
            yield from relations_named(expression.plan(), visible)
