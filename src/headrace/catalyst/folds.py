"""Calls of folds: the list of a key's events, and the function on it, read as one node.

:mod:`headrace.dialects.folds` writes ``f(sort_array(collect_list(named_struct('by', struct(...),
'event', struct(*)))))`` over GROUP BY. After Spark's optimiser, this is an aggregate that collects
the lists, below a node that calls the function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DoubleType, FloatType, StructType

from headrace.catalyst.plan import Expression, Fold, Plan, Project
from headrace.catalyst.resolved import attribute_of, passed_on
from headrace.catalyst.scala import items, kind_of
from headrace.errors import Code, HeadraceError
from headrace.types import holds

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.catalyst.pieces import Pieces
    from headrace.catalyst.plan import Attribute
    from headrace.catalyst.python import Registered

_EVENT = 3
"""The position of the event's columns among the children of the named struct."""


def fold_of(
    pieces: Pieces,
    function: Registered,
    call: Any,
    result: Any,
    aggregate: Any,
    read: Callable[[Any], Plan],
) -> Fold:
    """Return the node of a call of a fold over an aggregate that collects events.

    ``result`` is the attribute of the call's value; ``read`` reads the aggregate's input.

    Raises: HeadraceError: ``unsupported`` if the events cannot be ordered, or Spark has changed the
    query to an unknown form.
    """
    folded, returns = function.function.folded, function.returns
    found = _collected(aggregate, call)
    if folded is None or not isinstance(returns, StructType) or found is None:
        raise pieces.unsupported("this form of calling a fold is not supported", None, call)
    id_, event = found
    parts = items(event.children())
    names = [str(each.value()) for each in parts[::2]]
    aliases = [
        pieces.scala.alias(value, name) for name, value in zip(names, parts[1::2], strict=True)
    ]
    attributes = tuple(attribute_of(alias.toAttribute()) for alias in aliases)
    given = tuple(map(pieces.expression, aliases))
    events = Project(read(aggregate.child()), given, attributes)
    by_name = {name.lower(): nth for nth, name in enumerate(names)}
    keys = [by_name[name.lower()] for name in folded.key]
    first = [by_name[name.lower()] for name in folded.order_by]
    columns = [pieces.expression(attribute.handle) for attribute in attributes]
    for nth in keys:
        _check_key(pieces, function, columns[nth], names[nth], call)
    order = []
    for nth in dict.fromkeys([*first, *range(len(columns))]):
        (sort,) = pieces.order([pieces.scala.ascending(columns[nth].handle)]) or (None,)
        if sort is None:
            raise _unordered(pieces, function, names[nth], columns[nth], call)
        order.append(sort)
    shown = [each for each in items(aggregate.aggregateExpressions()) if _id(each) != id_]
    own = _key_attributes([given[nth] for nth in keys], [attributes[nth] for nth in keys], shown)
    if own is None:
        raise pieces.unsupported("this form of calling a fold is not supported", None, call)
    return Fold(
        events,
        function.function.key,
        tuple(names),
        tuple(columns[nth] for nth in keys),
        tuple(order),
        returns,
        function.folding,
        (*own, attribute_of(result)),
    )


def _collected(aggregate: Any, call: Any) -> tuple[int, Any] | None:
    """Return the id of the list that a call takes, and the struct of an event's columns."""
    if str(aggregate.nodeName()) != "Aggregate":
        return None
    (argument,) = items(call.children())
    while kind_of(argument) == "SortArray":
        argument = argument.base()
    id_ = passed_on(argument)
    for named in items(aggregate.aggregateExpressions()):
        if _id(named) != id_ or kind_of(named) != "Alias":
            continue
        listed = named.child()
        if kind_of(listed) == "AggregateExpression":
            listed = listed.aggregateFunction()
        if kind_of(listed) == "CollectList" and kind_of(listed.child()) == "CreateNamedStruct":
            event = items(listed.child().children())[_EVENT]
            if kind_of(event) == "CreateNamedStruct":
                return int(named.exprId().id()), event
    return None


def _id(named: Any) -> int:
    return int(named.exprId().id())


def _key_attributes(
    given: list[Expression], own: list[Attribute], shown: list[Any]
) -> list[Attribute] | None:
    """Return the attributes of the keys; those in the output have the output's attributes.

    None if the output has other columns.
    """
    found = list(own)
    free = list(range(len(given)))
    for each in shown:
        passes = passed_on(each)
        nth = next((n for n in free if given[n].passes == passes), None)
        if nth is None or passes is None:
            return None
        free.remove(nth)
        found[nth] = attribute_of(each.toAttribute())
    return found


def _check_key(pieces: Pieces, function: Registered, key: Expression, name: str, call: Any) -> None:
    what = f'key "{name}" of fold "{function.function.name}"'
    pieces.check_key(key, what, call)
    if holds(key.type, (DoubleType, FloatType)):
        raise pieces.unsupported(
            f"{what} of type {key.type.simpleString().upper()} is not supported",
            "Cast it to DECIMAL or STRING in the query.",
            call,
        )


def _unordered(
    pieces: Pieces, function: Registered, name: str, column: Expression, call: Any
) -> HeadraceError:
    type_ = column.type.simpleString().upper()
    error = pieces.unsupported(
        f'fold "{function.function.name}" cannot order events by column "{name}" of type {type_}',
        "Leave it out, cast it, or use one of its fields in the query.",
        call,
    )
    return HeadraceError(
        Code.UNSUPPORTED,
        error.primary,
        "Events that are equal in the fold's order are ordered by all their columns.",
        error.hint,
        error.span,
    )
