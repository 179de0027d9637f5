"""Smaller forms of a query, the largest cuts first. Not all are valid SQL: Spark decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator.syntax import (
    Explode,
    Expr,
    Grouping,
    Join,
    Kind,
    Limit,
    Named,
    Node,
    Pivot,
    Select,
    SetOperation,
    Text,
    Unpivot,
    With,
    children,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_QUERIES = (Select, SetOperation, With, Pivot, Unpivot, Text)
_OPTIONAL = ("where", "group", "having", "qualify", "limit", "on")
_PLAIN = {
    Kind.INT: "1",
    Kind.LONG: "1L",
    Kind.TEXT: "'a'",
    Kind.DECIMAL: "1.25",
    Kind.DATE: "DATE '2024-02-28'",
    Kind.TIME: "TIMESTAMP '2024-02-28 23:05:00'",
    Kind.OF_DAY: "TIME '03:12:00'",
    Kind.BOOL: "TRUE",
}


def smaller(node: Node) -> Iterator[Node]:
    """Return nodes that can stand in place of one, each with one thing less."""
    yield from _instead(node)
    for name in node.__dataclass_fields__:
        value = getattr(node, name)
        if isinstance(value, tuple):
            yield from _fewer(node, name, value)
        elif value is not None and name in _OPTIONAL:
            yield replace(node, **{name: None})
    for name in node.__dataclass_fields__:
        value = getattr(node, name)
        if isinstance(value, tuple):
            for i, child in enumerate(value):
                for cut in smaller(child) if hasattr(child, "__dataclass_fields__") else ():
                    yield replace(node, **{name: (*value[:i], cut, *value[i + 1 :])})
        elif hasattr(value, "__dataclass_fields__"):
            for cut in smaller(value):
                yield replace(node, **{name: cut})


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the tree with every node changed, from the leaves up."""
    changed = {}
    for name in node.__dataclass_fields__:
        value = getattr(node, name)
        if isinstance(value, tuple):
            changed[name] = tuple(
                mapped(v, change) if hasattr(v, "__dataclass_fields__") else v for v in value
            )
        elif hasattr(value, "__dataclass_fields__"):
            changed[name] = mapped(value, change)
    return change(replace(node, **changed))


def narrowed(node: Node, relation: str, columns: tuple[str, ...]) -> Node:
    """Return the query over a relation that has only some columns left."""

    def change(one: Node) -> Node:
        named = isinstance(one, Named) and one.name == relation
        return replace(one, columns=columns) if named else one

    return mapped(node, change)


def _instead(node: Node) -> Iterator[Node]:
    match node:
        case Select() | SetOperation() | With() | Pivot() | Unpivot():
            yield from _within(node)
            if isinstance(node, Select) and node.distinct:
                yield replace(node, distinct=False)
            if isinstance(node, Select) and node.is_pipe:
                yield replace(node, piped=False)
        case Expr():
            yield from (a for a in node.args if isinstance(a, Expr) and a.kind is node.kind)
            plain = _PLAIN.get(node.kind)
            if plain is not None and (node.args or "." in node.template):
                yield Expr(node.kind, plain)
        case Join():
            yield node.left
            yield node.right
            if node.kind in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN"):
                yield replace(node, kind="JOIN")
        case Explode():
            yield node.source
        case Grouping() if node.form:
            yield replace(node, form="", sets=())
        case Limit() if node.first or node.offset or node.turn:
            yield replace(node, first=())
            yield replace(node, offset=0, turn=0)
        case _:
            pass


def _within(node: Node) -> Iterator[Node]:
    """Return the queries in a query, down to the first level of each branch."""
    for child in children(node):
        if isinstance(child, _QUERIES):
            yield child
        elif not isinstance(child, Expr) or any(isinstance(a, _QUERIES) for a in child.args):
            yield from _within(child)


def _fewer(node: Node, name: str, value: tuple[Node, ...]) -> Iterator[Node]:
    """Leave out one of several columns, keys, or shared columns."""
    droppable = isinstance(node, Select | Grouping) or name == "using"
    if droppable and len(value) > 1:
        for i in range(len(value)):
            yield replace(node, **{name: (*value[:i], *value[i + 1 :])})
