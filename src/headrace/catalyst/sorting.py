"""Replaces ``array_sort`` with the default comparison by ``sort_array``, where both are equal.

``array_sort`` takes a function that compares two elements. If the query has no such function, Spark
adds one that its optimiser then changes to an unrecognisable form, whereas ``sort_array`` does not
change. The two differ in the position of NULLs, and in the order of -0.0 and 0.0, which are equal.
An array that may contain such elements is left unchanged, unless it is the unordered list of a
group.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, DoubleType, FloatType

from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import ANALYSIS, Scala, items, kind_of, within
from headrace.catalyst.walk import with_replaced
from headrace.types import holds, is_collated

LISTS = frozenset({"CollectList", "CollectSet"})
"""The aggregate functions whose value is an unordered list of a group."""

ORDER_FORGOTTEN = frozenset({"SortArray", "Size", "ArrayMax", "ArrayMin", "ArrayContains"})
"""The expressions whose value does not depend on the order of a list."""


def with_arrays_sorted(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with ``sort_array`` for ``array_sort``, or the plan itself."""
    if not scala.may_hold("HIGH_ORDER_FUNCTION", plan):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind != "ArraySort" or not _is_plain(scala, expression):
            return None
        ascending = scala.module("org.apache.spark.sql.catalyst.expressions.Literal").apply(True)  # noqa: FBT003
        return scala.expression("SortArray", expression.argument(), ascending)

    new = with_replaced(scala, plan, replace)
    while new is not plan:  # calls may be nested
        plan, new = new, with_replaced(scala, new, replace)
    return plan


def _is_plain(scala: Scala, sort: Any) -> bool:
    """Return whether ``sort_array`` has the same result."""
    argument = sort.argument()
    type_ = type_of(argument)
    if not isinstance(type_, ArrayType) or type_.containsNull or is_collated(type_.elementType):
        return False
    if holds(type_, (DoubleType, FloatType)):
        of_group = any(kind_of(each) in LISTS for each in within(argument))
        if not of_group:
            return False
    return bool(_by_default(scala, argument).canonicalized().equals(sort.canonicalized()))


def _by_default(scala: Scala, argument: Any) -> Any:
    """Return the call of ``array_sort`` that Spark creates if no comparison is given."""
    call = scala.expression("ArraySort", argument)
    row = scala.logical("OneRowRelation")
    plan = scala.logical("Project", scala.seq([scala.alias(call, "sorted")]), row)
    resolved = scala.module(f"{ANALYSIS}.ResolveLambdaVariables").apply(plan)
    (named,) = items(resolved.projectList())
    return named.child()
