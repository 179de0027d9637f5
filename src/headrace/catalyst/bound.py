"""The text of a resolved expression by where its columns come from, not by what they are called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from headrace.catalyst.scala import items, node_name, references, within

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_NULL: Final = re.compile(r"(count|isnull|isnotnull)\(<([\d.]*):[\w(),]*>\)")
"""Functions of a column that only ask whether it is NULL, whatever its type."""
_ALIKE: Final = frozenset(
    """
    AggregateExpression And AttributeReference Average CaseWhen Cast Coalesce Count EqualNullSafe
    EqualTo GreaterThan GreaterThanOrEqual Greatest If In IsNotNull IsNull Least LessThan
    LessThanOrEqual Literal Not Or Sum
    """.split()  # noqa: SIM905
)
"""Expressions of integers whose value does not depend on how many bytes these have."""
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_VARIABLE: Final = "NamedLambdaVariable"
_CALL: Final = "AggregateExpression"
_SHORTENED: Final = re.compile(r"\.\.\. \d+ more fields")


@dataclass(frozen=True, slots=True)
class BoundExpression:
    """An expression over columns: its text and types as of :func:`bound_text`.

    ``reads`` are the positions of the columns that it reads. Two that are equal compute the same,
    whatever the columns and the variables of lambdas are called.
    """

    text: str
    types: tuple[str, ...]
    reads: frozenset[int]


def bound_column(resolved: Any) -> BoundExpression | None:
    """Return the only column of a resolved projection, over the columns of its input.

    None if it is no such projection, or Spark does not say what it computes.
    """
    if node_name(resolved) != "Project":
        return None
    (column,) = items(resolved.projectList())
    ids = [int(each.exprId().id()) for each in items(resolved.child().output())]
    found = bound_text(column, {id_: str(position) for position, id_ in enumerate(ids)})
    if found is None:
        return None
    read = references(column)
    reads = frozenset(position for position, id_ in enumerate(ids) if id_ in read)
    return BoundExpression(*found, reads)


def bound_text(handle: Any, places: Mapping[int, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the text of an expression, and the types of all its parts, parents first.

    In the text, a column is its place by the id of its attribute, with its type, and the variable
    of a lambda is its number. There are no types of functions that only ask whether a column is
    NULL. Returns None if Spark has shortened the text, so that it does not say what the expression
    is.
    """
    while node_name(handle) == "Alias":
        handle = handle.child()
    text = str(handle.toString())
    every = list(within(handle))
    variables = [each for each in every if node_name(each) == _VARIABLE]
    numbers: dict[int, int] = {}
    for each in variables:
        id_ = int(each.exprId().id())
        number = numbers.setdefault(id_, len(numbers))
        text = re.sub(rf"lambda {re.escape(str(each.name()))}#{id_}L?\b", f"lambda {number}", text)
    if _SHORTENED.search(text):
        return None
    for each in items(handle.references().toSeq()):
        id_ = int(each.exprId().id())
        place = f"<{places.get(id_, '')}:{each.dataType().simpleString()}>"
        text = re.sub(rf"{re.escape(str(each.name()))}#{id_}L?\b", place, text)
    if _OF_NULL.fullmatch(text):
        return _OF_NULL.sub(r"\1(<\2>)", text), ()
    return text, tuple(map(_type_of, every))


def alike_text(handle: Any, places: Mapping[int, str]) -> Any:
    """Return a value that is equal for expressions which compute the same from wider integers.

    In it, integers have no types, and are not cast to others; all else is as in :func:`bound_text`.
    None if that is.
    """
    kind, below = node_name(handle), items(handle.children())
    if kind == "Alias" or (kind == "Cast" and _is_integer(handle) and _is_integer(below[0])):
        return alike_text(below[0], places)
    known = kind in _ALIKE and (
        _is_integer(handle) or kind in (_CALL, "Average") or _type(handle) == "boolean"
    )
    if kind == "Cast" or not known:
        return bound_text(handle, places)
    found = tuple(alike_text(child, places) for child in below)
    shown: Any = None
    if kind == "AttributeReference":
        shown = places.get(int(handle.exprId().id()))
    elif kind == "Literal":
        shown = str(handle.value())
    elif kind == _CALL:
        shown = bool(handle.isDistinct())
    if None in found or (shown is None and not below):
        return None
    return kind, "integer" if _is_integer(handle) else _type(handle), shown, found


def _is_integer(handle: Any) -> bool:
    return _type(handle) in _INTEGERS


def _type(handle: Any) -> str:
    return str(handle.dataType().simpleString())


def _type_of(part: Any) -> str:
    try:
        return f"{node_name(part)} {part.dataType().simpleString()}"
    except Py4JError:  # it has none, such as the frame of a window
        return node_name(part)
