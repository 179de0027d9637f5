"""Rewrites Catalyst nodes to equivalent nodes that are cheaper to maintain."""

from __future__ import annotations

from typing import Any

from headrace.catalyst.scala import EXPRESSIONS, Scala, items, maybe, part

_PLANS = "org.apache.spark.sql.catalyst.plans"


def not_in(scala: Scala, node: Any) -> Any | None:
    """Return ``x NOT IN (SELECT y ...)`` without a condition that is not an equality, or None.

    Spark's anti join on ``x = y OR isnull(x = y)`` would compare every row with every other. The
    equivalent is a filter by two facts about the subquery, which rarely change, and a plain anti
    join: the row is in the result if the subquery is empty, or if the subquery has no NULL, ``x``
    is not NULL, and no ``y`` equals ``x``.
    """
    single = scala.module(
        "org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin"
    )
    found = maybe(single.unapply(node))
    if found is None:
        return None
    (wanted,), (given,) = items(part(found, 0)), items(part(found, 1))
    left, right = node.left(), node.right()
    rows = scala.alias(count(scala), "rows")
    values = scala.alias(count(scala, given), "values")
    counted = scala.logical(
        "Aggregate", scala.seq([]), scala.seq([rows, values]), right, scala.none
    )
    n, m = rows.toAttribute(), values.toAttribute()
    empty = scala.alias(scala.expression("EqualTo", n, scala.long(0)), "empty")
    whole = scala.alias(scala.expression("EqualTo", n, m), "whole")
    facts = scala.logical("Project", scala.seq([empty, whole]), counted)
    both = join(scala, left, facts, "Inner")
    sound = scala.expression("And", whole.toAttribute(), scala.expression("IsNotNull", wanted))
    kept = scala.logical("Filter", scala.expression("Or", empty.toAttribute(), sound), both)
    bare = scala.logical("Project", left.output(), kept)
    return join(scala, bare, right, "LeftAnti", scala.expression("EqualTo", wanted, given))


def join(scala: Scala, left: Any, right: Any, kind: str, condition: Any | None = None) -> Any:
    """Return a Catalyst join of two plans; ``kind`` names the object of its type."""
    type_ = scala.module(f"{_PLANS}.{kind}")
    hint = scala.module("org.apache.spark.sql.catalyst.plans.logical.JoinHint").NONE()
    on = scala.option(condition)
    return scala.logical("Join", left, right, type_, on, hint)


def count(scala: Scala, value: Any | None = None) -> Any:
    """Return the call of ``count`` for a value, or for all rows."""
    counted = scala.module(f"{EXPRESSIONS}.Literal").apply(1) if value is None else value
    function = scala.named(f"{EXPRESSIONS}.aggregate.Count")(scala.seq([counted]))
    return function.toAggregateExpression()
