"""Rewrites of whole plans before and after Spark's optimiser, and the rules that it is given.

Rewrites of analysed plans for which Spark's optimiser would return wrong rows.

Gives map keys that Spark leaves without a type a type that Arrow supports.

``map()`` without arguments is a ``MAP<VOID, VOID>``. Such a map has no entries, since a key is
never NULL, so any other type of key describes the same value.

Replaces ``array_sort`` with the default comparison by ``sort_array``, where both are equal.

``array_sort`` takes a function that compares two elements. If the query has no such function, Spark
adds one that its optimiser then changes to an unrecognisable form, whereas ``sort_array`` does not
change. The two differ in the position of NULLs, and in the order of -0.0 and 0.0, which are equal.
An array that may contain such elements is left unchanged, unless it is the unordered list of a
group.

Keeps DISTINCT in aggregates from being rewritten by Spark's optimiser.

Spark rewrites several ``DISTINCT`` aggregates of one query into two levels of grouping, numbered in
an order that differs from one planning to the next. Headrace counts distinct values in one
operator, and stored state must have the same meaning when the query is planned again. So before the
query is optimised, the ``DISTINCT`` of a call is replaced by a mark around its first argument,
which is removed when the call is read. The mark is a Catalyst expression with the value of its
argument that no rule creates or removes once a query is analysed, and that is never folded into a
constant: ``1`` twice is one value with ``DISTINCT``, and two without. To Spark its value is
nullable, since ``count`` of an expression that is not nullable drops its argument.

Sums of BIGINT beyond 64 bits, as sums of the upper and of the lower halves of the values.

The rules of Spark's optimizer.

Column pruning: scans read only the columns that the query needs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
)

from headrace.planning.catalyst.plan import Scan
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.rewrite import with_sessions_merged
from headrace.planning.catalyst.scala import (
    ANALYSIS,
    EXPRESSIONS,
    SUBQUERIES,
    Scala,
    items,
    kind_of,
    maybe,
    scala_of,
    with_children,
    with_replaced,
    within,
)
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.planning.catalyst.plan import Plan


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


_VOID_KEY = '"keyType":"void"'


def with_keys_typed(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan whose columns have maps of STRING keys instead of VOID ones.

    Returns the plan itself if nothing changes.
    """
    if _VOID_KEY not in str(plan.schema().json()):
        return plan
    named = []
    for column in items(plan.output()):
        given = type_of(column)
        type_ = _typed(given)
        cast = column if type_ == given else scala.cast(column, scala.type(type_.json()))
        named.append(column if cast is column else scala.alias(cast, str(column.name())))
    return scala.logical("Project", scala.seq(named), plan)


def _typed(type_: DataType) -> DataType:
    match type_:
        case ArrayType():
            return ArrayType(_typed(type_.elementType), type_.containsNull)
        case MapType():
            void = isinstance(type_.keyType, NullType)
            key = StringType() if void else _typed(type_.keyType)
            return MapType(key, _typed(type_.valueType), type_.valueContainsNull)
        case StructType():
            fields = [(f, _typed(f.dataType)) for f in type_.fields]
            return StructType([type(f)(f.name, t, f.nullable, f.metadata) for f, t in fields])
        case _:
            return type_


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


_MARK, _MAY_BE_NULL = "NamedArgumentExpression", "KnownNullable"


def marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with marks in place of ``DISTINCT``, subqueries included."""
    if not scala.may_hold("AGGREGATE_EXPRESSION", plan):
        return plan

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind != "AggregateExpression" or not expression.isDistinct():
            return None
        function = expression.aggregateFunction()
        first, *others = items(function.children())
        arguments = [_marked(scala, first), *others]
        return _call(
            scala, expression, function.withNewChildren(scala.seq(arguments)), distinct=False
        )

    return with_replaced(scala, plan, replace)


def unmarked(scala: Scala, call: Any) -> Any:
    """Return an aggregate call with its ``DISTINCT`` restored, if it had one."""
    function = call.aggregateFunction()
    if not any(kind_of(each) == _MARK for each in within(function)):
        return call
    return _call(scala, call, _without_marks(scala, function), distinct=True)


def _marked(scala: Scala, argument: Any) -> Any:
    return scala.expression(_MAY_BE_NULL, scala.expression(_MARK, "DISTINCT", argument))


def _without_marks(scala: Scala, expression: Any) -> Any:
    if kind_of(expression) in {_MAY_BE_NULL, _MARK}:
        return _without_marks(scala, items(expression.children())[0])
    return with_children(scala, expression, lambda child: _without_marks(scala, child))


def _call(scala: Scala, call: Any, function: Any, *, distinct: bool) -> Any:
    parts = (function, call.mode(), distinct, call.filter(), call.resultId())
    return scala.expression("aggregate.AggregateExpression", *parts)


_BITS = 32
_TOP = 1 << 31
_LOWER = (1 << 32) - 1
_TOO_LARGE = "a sum of BIGINT is too large for its type: cast the argument to DECIMAL(38, 0)"


def halves(scala: Scala, value: Any) -> tuple[Any, Any]:
    """Return the upper 32 bits of a BIGINT, with its sign, and the lower ones."""
    bits = scala.module(f"{EXPRESSIONS}.Literal").apply(_BITS)
    lower = scala.expression("BitwiseAnd", value, scala.long(_LOWER))
    return scala.expression("ShiftRight", value, bits), lower


def whole(scala: Scala, upper: Any, lower: Any, type_: DataType) -> Any:
    """Return the sum of two halves; an overflow is an error.

    The lower half may have more than 32 bits. Sums of at most 64 bits are computed without
    decimals.
    """
    expression, long = scala.expression, scala.long
    carry, low = halves(scala, lower)
    high, base = expression("Add", upper, carry), long(_LOWER + 1)
    short = expression("Add", expression("Multiply", high, base), low)
    fits = expression(
        "And",
        expression("GreaterThanOrEqual", high, long(-_TOP)),
        expression("LessThan", high, long(_TOP)),
    )
    if isinstance(type_, LongType):
        said = scala.module(f"{EXPRESSIONS}.Literal").apply(_TOO_LARGE)
        failed = _cast(scala, expression("RaiseError", said), type_)
        return expression("If", fits, short, failed)
    digits, factor = DecimalType(20, 0), _cast(scala, base, DecimalType(10, 0))
    shifted = expression("Multiply", _cast(scala, high, digits), factor, scala.exact)
    wide = expression("Add", shifted, _cast(scala, low, digits), scala.exact)
    return expression("If", fits, _cast(scala, short, type_), _cast(scala, wide, type_))


def _cast(scala: Scala, value: Any, type_: DataType) -> Any:
    return scala.cast(value, scala.type(type_.json()))


def optional_rules(session: SparkSession) -> frozenset[str]:
    """Return the names of the rules that a session can exclude, which depend on its settings."""
    with scala_of(session).active(session):
        optimizer = session._jsparkSession.sessionState().optimizer()  # noqa: SLF001
        needed = frozenset(items(optimizer.nonExcludableRules()))
        batches = (items(batch.rules()) for batch in items(optimizer.batches()))
        return frozenset(str(rule.ruleName()) for rules in batches for rule in rules) - needed


Ids = frozenset[int]
"""The ids of the attributes that nodes above use."""


def pruned(plan: Plan) -> Plan:
    """Return the plan with the same output columns, and scans of only the columns that it needs."""
    return _pruned(plan, _all(plan))


def _pruned(plan: Plan, needed: Ids) -> Plan:
    if isinstance(plan, Scan):
        return _scan(plan, needed)
    below = zip(plan.inputs, _prune_below(plan, needed), strict=True)
    return plan.rebuilt(_pruned(child, ids) for child, ids in below)


def _scan(scan: Scan, needed: Ids) -> Scan:
    kept = [n for n, attribute in enumerate(scan.attributes) if attribute.id in needed]
    return replace(
        scan,
        attributes=tuple(scan.attributes[n] for n in kept),
        columns=tuple(scan.columns[n] for n in kept),
    )


def _prune_below(plan: Plan, needed: Ids) -> tuple[Ids, ...]:
    """Return the columns needed of each input: those used, and those passed on and needed above."""
    if plan.by_position:
        return tuple(map(_all, plan.inputs))
    uses = [(use.inputs, use.columns) for use in plan.uses()]
    found = []
    for child, passed in zip(plan.inputs, plan.passed(), strict=True):
        used = (columns for inputs, columns in uses if any(child is each for each in inputs))
        found.append(frozenset(below for own, below in passed if own in needed).union(*used))
    return tuple(found)


def _all(plan: Plan) -> Ids:
    return frozenset(attribute.id for attribute in plan.attributes)
