"""``array_sort`` by its own comparison, as ``sort_array``, wherever the two are the same.

``array_sort`` is a function of a function: of how two elements compare. What the query leaves out
Spark fills in, and its optimiser then simplifies beyond recognition. ``sort_array`` says that it
sorts. The two differ in where they put NULL, and in the order of -0.0 and 0.0, which are equal: an
array that may hold those is left as it is, unless it is a list of a group, whose order is nobody's.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, DoubleType, FloatType

from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import ANALYSIS, Scala, items, kind_of, within
from headrace.catalyst.walk import with_replaced
from headrace.types import holds, is_collated

LISTS = frozenset({"CollectList", "CollectSet"})
"""The aggregate functions whose value is a list of a group, in no order."""


def with_arrays_sorted(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with ``sort_array`` for ``array_sort``; itself if nothing is."""
    if not scala.may_hold("HIGH_ORDER_FUNCTION", plan):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind != "ArraySort" or not _is_plain(scala, expression):
            return None
        ascending = scala.module("org.apache.spark.sql.catalyst.expressions.Literal").apply(True)  # noqa: FBT003
        return scala.expression("SortArray", expression.argument(), ascending)

    new = with_replaced(scala, plan, replace)
    while new is not plan:  # one may stand within another
        plan, new = new, with_replaced(scala, new, replace)
    return plan


def _is_plain(scala: Scala, sort: Any) -> bool:
    """Say whether ``sort_array`` gives the same."""
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
    """Return the call of ``array_sort`` that Spark makes where no comparison is given."""
    call = scala.expression("ArraySort", argument)
    row = scala.logical("OneRowRelation")
    plan = scala.logical("Project", scala.seq([scala.alias(call, "sorted")]), row)
    resolved = scala.module(f"{ANALYSIS}.ResolveLambdaVariables").apply(plan)
    (named,) = items(resolved.projectList())
    return named.child()
