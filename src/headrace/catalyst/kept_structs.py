"""Keeps a struct that is NULL in ``SELECT * EXCEPT (s.a)``.

Spark expands the star to ``named_struct('b', s.b) AS s``, which is never NULL. Here it becomes
``if(s IS NULL, NULL, named_struct('b', s.b)) AS s``, at every level. A struct that the query itself
constructs is what its text says: only what a star was expanded to has the place of a whole SELECT.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.catalyst.scala import Scala, items, kind_of, maybe
from headrace.catalyst.walk import SUBQUERIES, with_replaced

_SELECT = re.compile(r"\s*(?:SELECT|FROM|WITH)\b|\s*\|>", re.IGNORECASE)


def with_structs_kept(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan in which fields left out of a NULL struct leave it NULL.

    Returns the plan itself if nothing changes.
    """
    if not (scala.may_hold("CREATE_NAMED_STRUCT", plan) or scala.may_hold("PLAN_EXPRESSION", plan)):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind in SUBQUERIES:
            inner = expression.plan()
            new = with_replaced(scala, inner, replace)
            return expression if new is inner else expression.withNewPlan(new)
        if kind != "CreateNamedStruct" or not _of_star(expression):
            return None
        found = _kept(scala, expression)
        return None if found is None else found[0]

    return with_replaced(scala, plan, replace)


def _of_star(expression: Any) -> bool:
    """Return whether the place of an expression is a whole SELECT."""
    origin = expression.origin()
    text, start = maybe(origin.sqlText()), maybe(origin.startIndex())
    return text is not None and start is not None and bool(_SELECT.match(str(text), int(start)))


def _kept(scala: Scala, struct: Any) -> tuple[Any, Any] | None:
    """Return a struct of fields of another one, NULL where that is, and the other one.

    None if it is not made of another struct's fields.
    """
    parts = items(struct.children())
    values, base = [], None
    for value in parts[1::2]:
        found = (value, value) if kind_of(value) == "GetStructField" else None
        if kind_of(value) == "CreateNamedStruct":
            found = _kept(scala, value)
        if found is None or kind_of(found[1]) != "GetStructField":
            return None
        whole = found[1].child()
        if base is not None and not base.semanticEquals(whole):
            return None
        base = whole
        values.append(found[0])
    if base is None:
        return None
    new = struct.withNewChildren(
        scala.seq([each for pair in zip(parts[::2], values, strict=True) for each in pair])
    )
    null = scala.expression("Literal", None, new.dataType())
    return scala.expression("If", scala.expression("IsNull", base), null, new), base
