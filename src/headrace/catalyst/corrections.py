"""Rewrites of analysed plans for which Spark's optimiser would return wrong rows."""

from __future__ import annotations

import re
from typing import Any

from headrace.catalyst.scala import Scala, items, kind_of, maybe
from headrace.catalyst.session_windows import with_sessions_merged
from headrace.catalyst.walk import SUBQUERIES, with_children, with_replaced

_LIMITS = ("GlobalLimit", "LocalLimit", "Offset")
_BETWEEN = ("Project", "SubqueryAlias")
_SELECT = re.compile(r"\s*(?:SELECT|FROM|WITH)\b|\s*\|>", re.IGNORECASE)


def corrected(scala: Scala, plan: Any) -> Any:
    """Return an equivalent plan that Spark gets right; the plan itself if nothing changes."""
    plan = with_structs_kept(scala, with_limits_below(scala, plan))
    return with_sessions_merged(scala, plan)


def with_limits_below(scala: Scala, plan: Any) -> Any:
    """Move the limit of ``ORDER BY ... LIMIT`` in correlated subqueries next to its order.

    Spark computes such a subquery for all outer rows at once, and selects its first rows by
    ``row_number()`` in the order of a ``Sort`` directly below the limit. If the order uses a column
    that is not selected, a projection is between the two, and Spark numbers the rows in no order. A
    projection keeps the number of rows, so the limit can be applied below it.

    Returns the plan itself if nothing changes.
    """
    if not (scala.may_hold("LIMIT", plan) and scala.may_hold("PLAN_EXPRESSION", plan)):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind not in SUBQUERIES:
            return None
        inner = expression.plan()
        new = _lowered(scala, with_replaced(scala, inner, replace))
        return expression if new is inner else expression.withNewPlan(new)

    return with_replaced(scala, plan, replace)


def _lowered(scala: Scala, plan: Any) -> Any:
    if plan.nodeName() in _LIMITS:
        plan = _below(scala, plan)
    return with_children(scala, plan, lambda child: _lowered(scala, child))


def _below(scala: Scala, plan: Any) -> Any:
    """Return limits above projections of sorted rows as projections of limits."""
    limits: list[Any] = []
    between: list[Any] = []
    sort = plan
    while sort.nodeName() in (*_LIMITS, *_BETWEEN):
        (between if sort.nodeName() in _BETWEEN else limits).append(sort)
        sort = sort.child()
    if sort.nodeName() != "Sort" or not between:
        return plan
    for each in (*reversed(limits), *reversed(between)):
        sort = each.withNewChildren(scala.seq([sort]))
    return sort


def with_structs_kept(scala: Scala, plan: Any) -> Any:
    """Keep a struct that is NULL in ``SELECT * EXCEPT (s.a)``.

    Spark expands the star to ``named_struct('b', s.b) AS s``, which is never NULL. Here it becomes
    ``if(s IS NULL, NULL, named_struct('b', s.b)) AS s``, at every level. Structs that the query
    constructs itself do not change: only the expansion of a star has the origin of a whole SELECT.

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
