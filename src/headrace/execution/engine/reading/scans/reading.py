"""Reads the plan of a query that Spark has resolved and optimised as a tree of small values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DecimalType, StringType

from headrace.execution.engine.reading.scans import tree
from headrace.execution.engine.reading.scans.expressions import EXPRESSIONS, Refused, is_exact
from headrace.execution.engine.reading.scans.tree import Call, Ordering, Tree, Value
from headrace.planning.catalyst import select
from headrace.planning.catalyst.allowed import adds_in_order, keeps_all_digits, plain_pattern
from headrace.planning.catalyst.resolved import columns_of, id_of, type_of
from headrace.planning.catalyst.scala import items, kind_of, maybe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.planning.catalyst.select import Node
    from headrace.types import RelationId


if TYPE_CHECKING:
    Relations = Mapping[tuple[RelationId, bool], "Readable"]


@dataclass(frozen=True, slots=True)
class Readable:
    """The columns of a relation in a plan; ``events`` are those of a stream."""

    columns: tuple[str, ...]
    events: bool = False


def tree_of(node: Node, relations: Relations) -> Tree:
    """Return the tree of a plan.

    ``relations`` says what can be read, by relation and whether that is its rows or its log.

    Raises: Refused: only Spark can answer it; the text is the reason.
    """
    match node:
        case select.Stored():
            return _stored(node, relations)
        case select.Project():
            below = tree_of(node.below[0], relations)
            return tree.Project(_values(node.expressions), below)
        case select.Filter():
            below = tree_of(node.below[0], relations)
            return tree.Filter(_value(node.condition), below)
        case select.Aggregate():
            below = tree_of(node.below[0], relations)
            return tree.Aggregate(_values(node.keys), _values(node.expressions), below)
        case select.Sort():
            if not node.is_total:
                raise Refused("a sort of partitions")
            below = tree_of(node.below[0], relations)
            return tree.Sort(tuple(map(_order, node.order)), below)
        case select.Limit():
            if kind_of(node.most) != "Literal":
                raise Refused("a limit that is computed")
            return tree.Limit(int(node.most.value()), 0, tree_of(node.below[0], relations))
        case select.Offset():
            if kind_of(node.skipped) != "Literal":
                raise Refused("an offset that is computed")
            return tree.Limit(None, int(node.skipped.value()), tree_of(node.below[0], relations))
        case select.Join():
            return _join(node, relations)
        case select.Union():
            inputs = tuple(tree_of(each, relations) for each in node.below)
            return tree.Union(inputs, _values(node.output))
        case _:
            raise Refused(f"{node.name} of Spark's plan")


def _stored(node: select.Stored, relations: Relations) -> tree.Stored:
    given = relations.get((node.relation, node.whole))
    if given is None:
        raise Refused("rows that are not stored")
    output = _values(node.output)
    if len(output) != len(given.columns):
        raise Refused("other columns than are stored")
    columns = tuple(zip(given.columns, output, strict=True))
    return tree.Stored(node.relation, columns, given.events)


def _join(node: select.Join, relations: Relations) -> tree.Join:
    condition = node.condition
    if condition is None or not _has_equality(condition):
        raise Refused("a join without an equality")
    for attribute in columns_of(condition):
        if not is_exact(type_of(attribute)):
            raise Refused("a join by floats")
    left, right = (tree_of(each, relations) for each in node.below)
    return tree.Join(node.how, _value(condition), left, right, _values(node.output))


def _has_equality(condition: Any) -> bool:
    kind = kind_of(condition)
    if kind == "And":
        return _has_equality(condition.left()) or _has_equality(condition.right())
    return kind == "EqualTo"


def _order(by: Any) -> Ordering:
    descending = str(by.direction().sql()) == "DESC"
    return Ordering(_value(by.child()), descending, str(by.nullOrdering().sql()) == "NULLS LAST")


def _values(handles: list[Any]) -> tuple[Value, ...]:
    return tuple(map(_value, handles))


def _value(handle: Any) -> Value:
    """Return one of Catalyst's resolved expressions.

    Raises: Refused: it is not in the allow-list of :mod:`.expressions`.
    """
    kind = kind_of(handle)
    if kind not in EXPRESSIONS:
        raise Refused(f"function {handle.prettyName()}")
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(kind, handle)
    return Value(kind, type_of(handle), _values(items(handle.children())))


def _named(kind: str, handle: Any) -> Value:
    return Value(kind, type_of(handle), _values(items(handle.children())), id_of(handle))


def _literal(kind: str, handle: Any) -> Value:
    return Value(kind, type_of(handle), (), _constant(type_of(handle), handle.value()))


def _in_set(kind: str, handle: Any) -> Value:
    child = _value(handle.child())
    given = tuple(_constant(child.type, each) for each in items(handle.hset().toSeq()))
    return Value(kind, type_of(handle), (child,), given)


def _constant(type_: Any, value: Any) -> Any:
    """Return a constant of the JVM as a Python value."""
    if value is None:
        return None
    if isinstance(type_, DecimalType):
        return Decimal(str(value.toString()))
    return str(value.toString()) if isinstance(type_, StringType) else value


def _cast(kind: str, handle: Any) -> Value:
    found = Value(kind, type_of(handle), (_value(handle.child()),))
    if str(handle.evalMode().toString()) == "TRY":
        source, target = found.below[0].type.simpleString(), found.type.simpleString()
        raise Refused(f"CAST of {source} to {target}")
    return found


def _arithmetic(kind: str, handle: Any) -> Value:
    found = Value(kind, type_of(handle), _values(items(handle.children())))
    if not keeps_all_digits(handle):
        raise Refused(f"arithmetic on type {found.type.simpleString()}")
    return found


def _like(kind: str, handle: Any) -> Value:
    if kind_of(handle.right()) != "Literal":
        raise Refused("LIKE with a pattern that is computed")
    text, left = plain_pattern(handle), _value(handle.left())
    if text is None or type(left.type) is not StringType:
        raise Refused("LIKE with an escape character")
    return Value(kind, type_of(handle), (left,), text)


def _aggregate(kind: str, handle: Any) -> Value:
    function, condition = handle.aggregateFunction(), maybe(handle.filter())
    arguments = _values(items(function.children()))
    name = str(function.prettyName())
    if arguments and adds_in_order(function):
        raise Refused(f"function {name} on type {arguments[0].type.simpleString()}")
    filtered = () if condition is None else (_value(condition),)
    call = Call(kind_of(function), name, bool(handle.isDistinct()), bool(filtered))
    return Value(kind, type_of(handle), (*arguments, *filtered), call)


_SPECIAL: Final[Mapping[str, Callable[[str, Any], Value]]] = {
    "Add": _arithmetic,
    "AggregateExpression": _aggregate,
    "Alias": _named,
    "AttributeReference": _named,
    "Cast": _cast,
    "InSet": _in_set,
    "Like": _like,
    "Literal": _literal,
    "Multiply": _arithmetic,
    "Subtract": _arithmetic,
    "UnaryMinus": _arithmetic,
}
"""How kinds of expressions are read that have more than inputs, or that Spark may round."""
