"""The array index base of a query: 0 in Spark, 1 in most other dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.operands import ends_operand
from headrace.dialects.translate import is_of_ksqldb
from headrace.dialects.tree import Group, tree_of
from headrace.sql.cursor import Cursor
from headrace.sql.lexer import StatementText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.catalog import Relation
    from headrace.dialects.tree import Node
    from headrace.errors import Span


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
