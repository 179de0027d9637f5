"""The text of a resolved expression by where its columns come from, not by what they are called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from headrace.catalyst.scala import items, node_name, within

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_NULL: Final = re.compile(r"(count|isnull|isnotnull)\(<([\d.]*):[\w(),]*>\)")
"""Functions of a column that only ask whether it is NULL, whatever its type."""
_SHORTENED: Final = re.compile(r"\.\.\. \d+ more fields")


def bound_text(handle: Any, places: Mapping[int, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the text of an expression, and the types of all its parts, parents first.

    In the text, a column is its place by the id of its attribute, with its type. There are no types
    of functions that only ask whether a column is NULL. Returns None if Spark has shortened the
    text, so that it does not say what the expression is.
    """
    while node_name(handle) == "Alias":
        handle = handle.child()
    text = str(handle.toString())
    if _SHORTENED.search(text):
        return None
    for each in items(handle.references().toSeq()):
        id_ = int(each.exprId().id())
        place = f"<{places.get(id_, '')}:{each.dataType().simpleString()}>"
        text = re.sub(rf"{re.escape(str(each.name()))}#{id_}L?\b", place, text)
    if _OF_NULL.fullmatch(text):
        return _OF_NULL.sub(r"\1(<\2>)", text), ()
    return text, tuple(map(_type_of, within(handle)))


def _type_of(part: Any) -> str:
    try:
        return f"{node_name(part)} {part.dataType().simpleString()}"
    except Py4JError:  # it has none, such as the frame of a window
        return node_name(part)
