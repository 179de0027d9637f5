"""Converts Catalyst's resolved columns and expressions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import _parse_datatype_json_string

from headrace.planning.catalyst.plan import Attribute
from headrace.planning.catalyst.scala import items, kind_of, node_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import DataType


_BETWEEN = "\x1f"
_AS_TEXT = re.compile(r"#(\d+)L?(?:-T\d+ms)?\Z")
"""How Catalyst writes an attribute: name, id, a mark of LONG, a mark of event time."""


def attributes_of(node: Any) -> tuple[Attribute, ...]:
    """Return the output columns of a node."""
    return tuple(attribute_of(a) for a in items(node.output()))


def columns_of(expression: Any) -> list[Any]:
    """Return the columns that an expression refers to, as Catalyst's attributes."""
    return items(expression.references().toSeq())


def id_of(attribute: Any) -> int:
    """Return the id of Catalyst's attribute of a column."""
    return int(attribute.exprId().id())


def names_and_ids(node: Any) -> list[tuple[str, int]]:
    """Return the name and the id of each output column of a node, by few calls of the JVM."""
    output = node.output()
    found = [_AS_TEXT.search(text) for text in str(output.mkString(_BETWEEN)).split(_BETWEEN)]
    if len(found) == output.length() and None not in found:
        return [(each.string[: each.start()], int(each[1])) for each in found if each is not None]
    return [(str(each.name()), id_of(each)) for each in items(output)]


def attribute_of(handle: Any) -> Attribute:
    """Convert an attribute of Catalyst."""
    return Attribute(
        int(handle.exprId().id()),
        str(handle.name()),
        type_of(handle),
        bool(handle.nullable()),
        handle,
    )


def type_of(handle: Any) -> DataType:
    """Return the Spark type of an expression on the JVM."""
    return _type_of_json(handle.dataType().json())


@lru_cache(maxsize=1 << 12)
def _type_of_json(json: str) -> DataType:
    return _parse_datatype_json_string(json)


def passed_on(handle: Any) -> int | None:
    """Return the id of the attribute that is renamed or passed on unchanged, else None."""
    kind = node_name(handle)
    while kind in ("Alias", "KnownNotNull"):
        handle = handle.child()
        kind = node_name(handle)
    return int(handle.exprId().id()) if kind == "AttributeReference" else None


def present(conditions: Iterable[Any]) -> frozenset[int] | None:
    """Return the ids of the attributes that must not be NULL, or None for other conditions."""
    found = set()
    for condition in conditions:
        id_ = passed_on(condition.child()) if kind_of(condition) == "IsNotNull" else None
        if id_ is None:
            return None
        found.add(id_)
    return frozenset(found)


def is_never(condition: Any) -> bool:
    """Return whether a condition is FALSE or NULL."""
    return kind_of(condition) == "Literal" and not condition.value()


def is_true(condition: Any) -> bool:
    """Return whether a condition is TRUE, to which Spark reduces redundant conditions."""
    return kind_of(condition) == "Literal" and str(condition.sql()) == "true"
