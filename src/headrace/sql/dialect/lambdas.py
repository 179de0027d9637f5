"""Lambda functions as arguments: ksqlDB's ``x => x + 1``, Spark's ``x -> x + 1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sql.dialect.tree import Found, Group, Node, is_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sql.dialect.writer import Scope, Writer

LAMBDAS = frozenset(
    """
    AGGREGATE ARRAY_SORT EXISTS FILTER FORALL MAP_FILTER MAP_ZIP_WITH REDUCE TRANSFORM
    TRANSFORM_KEYS TRANSFORM_VALUES ZIP_WITH
    """.split()  # noqa: SIM905 - one word per line would be a screen of its own
)
"""The functions that take lambda functions as arguments."""


def makes_function(nodes: Sequence[Node], at: int, function: str) -> bool:
    """Return whether an arrow is that of a lambda; ``->`` is none in a query that uses ``=>``."""
    if function not in LAMBDAS or at == 0 or (at > 1 and nodes[at - 2].text != ","):
        return False
    return nodes[at].text == "=>" or all(node.text != "=>" for node in nodes)


def parameter(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``(x) => x + 1``: Spark allows parentheses only around several parameters."""
    group = nodes[at]
    if not isinstance(group, Group) or not is_group(group) or len(group.inside) != 1:
        return None
    if at + 1 >= len(nodes) or nodes[at + 1].text not in {"=>", "->"}:
        return None
    (name,) = group.inside
    if not name.word or not makes_function(nodes, at + 1, scope.function):
        return None
    return Found(at + 1, [writer.put(name.text, name, name)])
