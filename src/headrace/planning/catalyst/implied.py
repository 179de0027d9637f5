"""Facts that resolved expressions imply: constants, equal columns, disjoint intervals.

No plan is changed. Facts that are not recognised are left out: the results are true, but may be
incomplete.

Finds ``IS NOT NULL`` conditions without effect, since a join above drops these rows anyway.

Spark infers such conditions from the equalities of joins, and pushes them down as far as possible.
So one use of a common table expression may have a condition that another use lacks. Without it, a
row with a NULL reaches the join and is dropped there: NULL equals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headrace.planning.catalyst import plan
from headrace.planning.catalyst.clock import all_of, conjuncts
from headrace.planning.catalyst.plan import JoinKind
from headrace.planning.catalyst.resolved import columns_of, passed_on, present, type_of
from headrace.planning.catalyst.scala import items, kind_of
from headrace.types import is_collated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.planning.catalyst.plan import Expression, Plan
    from headrace.planning.catalyst.scala import Scala


Ids = frozenset[int]
"""Attributes for which rows with NULL have no effect on the result."""

_ALONE_LEFT = (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI, JoinKind.EXISTENCE)
_ALONE_RIGHT = (JoinKind.RIGHT, JoinKind.FULL)
_OF_LEFT = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE)
_OF_RIGHT = (JoinKind.INNER, JoinKind.RIGHT)


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A plan without some idle conditions; ``origin`` maps its nodes to those of the original plan.

    ``idle`` are the filters of the original plan with such a condition.
    """

    query: Plan
    origin: Mapping[Plan, Plan]
    idle: frozenset[Plan]


def relaxed(
    scala: Scala,
    expression: Callable[[Any], Expression],
    query: Plan,
    among: frozenset[Plan] | None = None,
) -> Relaxed:
    """Return the plan without ``IS NOT NULL`` conditions on columns that a join above compares.

    ``expression`` converts Catalyst's expressions. If ``among`` is given, only conditions of these
    filters are removed.
    """
    origin: dict[Plan, Plan] = {}
    found: set[Plan] = set()

    def of(node: Plan, idle: Ids) -> Plan:
        pairs = zip(node.inputs, _below(node, idle), strict=True)
        new: Plan = node.rebuilt(of(child, ids) for child, ids in pairs)
        if isinstance(new, plan.Filter) and (among is None or node in among):
            given = conjuncts(new.condition.handle)
            kept = [each for each in given if not _is_idle(each, idle)]
            if len(kept) < len(given):
                found.add(node)
                condition = all_of(scala, kept)
                if condition is None:
                    new = new.child
                else:
                    new = replace(new, condition=expression(condition), present=present(kept))
        origin[new] = node
        return new

    return Relaxed(of(query, frozenset()), origin, frozenset(found))


def _is_idle(condition: Any, idle: Ids) -> bool:
    asked = present([condition])
    return asked is not None and asked <= idle


def _below(node: Plan, idle: Ids) -> tuple[Ids, ...]:
    """Return the attributes of each input in which rows with NULL have no effect on the result."""
    if isinstance(node, plan.Join):
        return _below_join(node, idle)
    found = (frozenset(below for own, below in passed if own in idle) for passed in node.passed())
    if node.by_row:
        return tuple(found)
    return tuple(ids & _passes(node.groups) for ids in found)


def _below_join(node: plan.Join, idle: Ids) -> tuple[Ids, Ids]:
    """Return these attributes for a join, whose unmatched and repeated rows must not change."""
    left = idle if node.kind in _OF_LEFT else frozenset()
    right = idle if node.kind in _OF_RIGHT else frozenset()
    if node.kind not in _ALONE_LEFT:
        left |= _passes(node.left_keys)
    if node.kind not in _ALONE_RIGHT:
        right |= _passes(node.right_keys)
    return left & _ids(node.left), right & _ids(node.right)


def _passes(keys: Iterable[Expression]) -> Ids:
    return frozenset(key.passes for key in keys if key.passes is not None)


def _ids(node: Plan) -> Ids:
    return frozenset(attribute.id for attribute in node.attributes)


_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_TIMES = (DateType, TimestampType, TimestampNTZType)
_EXACT = (*_INTEGERS, *_TIMES, BinaryType, BooleanType, DecimalType, StringType)
_WINDOW = "spark.timeWindow"
_LONGEST = 200
"""The most characters of constants that are compared."""

_WITHIN = {
    ("GreaterThanOrEqual", "LessThan"): True,
    ("GreaterThan", "LessThanOrEqual"): True,
    ("LessThanOrEqual", "GreaterThan"): False,
    ("LessThan", "GreaterThanOrEqual"): False,
}
"""Comparisons of a time with an interval's bounds; True if the bounds ascend."""
_TURNED = {
    "GreaterThanOrEqual": "LessThanOrEqual",
    "GreaterThan": "LessThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "LessThan": "GreaterThan",
}


@dataclass(frozen=True, slots=True)
class IntervalBounds:
    """Two columns that bound an interval; ``ascending``: the first bound is the smaller one."""

    first: int
    next: int
    ascending: bool


@dataclass(frozen=True, slots=True)
class Implied:
    """The facts that a condition implies if it is true.

    ``fixed`` maps columns with a single value to its text; ``equal`` has pairs of equal columns.
    ``within`` has intervals that contain a value, each with the columns on which the value depends.
    """

    fixed: Mapping[int, str]
    equal: tuple[tuple[int, int], ...]
    within: tuple[tuple[IntervalBounds, frozenset[int]], ...]


def implied(condition: Any) -> Implied:
    """Return the facts that hold for the rows for which a condition is true."""
    fixed: dict[int, str] = {}
    equal: list[tuple[int, int]] = []
    lower: list[tuple[str, Any, int]] = []
    upper: list[tuple[str, Any, int]] = []
    for each in conjuncts(condition):
        kind = kind_of(each)
        if kind in ("EqualTo", "EqualNullSafe"):
            first, second = items(each.children())
            ids, texts = (passed_on(first), passed_on(second)), (constant(first), constant(second))
            if ids[0] is not None and ids[1] is not None and comparable(first, second):
                equal.append((ids[0], ids[1]))
            elif ids[0] is not None and texts[1] is not None:
                fixed[ids[0]] = texts[1]
            elif ids[1] is not None and texts[0] is not None:
                fixed[ids[1]] = texts[0]
        elif kind in _TURNED:
            lower += _compared(each)
        elif kind == "Or":
            upper += _until_next(each)
    within = [
        (IntervalBounds(first, after, _WITHIN[kinds]), _references(value))
        for kind, value, first in lower
        for other, same, after in upper
        if (kinds := (kind, other)) in _WITHIN and value.semanticEquals(same)
    ]
    return Implied(fixed, tuple(equal), tuple(within))


def comparable(first: Any, second: Any) -> bool:
    """Whether two expressions have the same type, whose equal values are identical."""
    mine = type_of(first)
    return mine == type_of(second) and _is_exact(mine)


def constant(expression: Any) -> str | None:
    """Return a text of a constant, distinct for each value of its type, or None."""
    while kind_of(expression) == "Alias":
        expression = expression.child()
    if kind_of(expression) != "Literal" or not _is_exact(type_of(expression)):
        return None
    text = str(expression.sql())
    return text if len(text) <= _LONGEST else None


def determines(expression: plan.Expression, windows: frozenset[int]) -> int | None:
    """Return the column whose value an expression's value determines, or None.

    Such expressions are columns that are passed on, lossless casts, and the start or end of one of
    the ``windows``.
    """
    if expression.passes is not None:
        return expression.passes
    handle = expression.handle
    while kind_of(handle) == "Alias":
        handle = handle.child()
    match kind_of(handle):
        case "Cast":
            child = handle.child()
            return passed_on(child) if _keeps_all(type_of(child), type_of(handle)) else None
        case "GetStructField":
            id_ = passed_on(handle.child())
            return id_ if id_ in windows else None
        case _:
            return None


def merged_session(expression: plan.Expression, node: plan.Aggregate) -> int | None:
    """Return the session of ``if(count(*) > 0, session, NULL)`` in a result, or None.

    Conditions see sessions in this form. A group has at least one row.
    """
    handle = expression.handle
    while kind_of(handle) == "Alias":
        handle = handle.child()
    if kind_of(handle) != "If" or kind_of(handle.predicate()) != "GreaterThan":
        return None
    counts = {
        int(call.handle.resultAttribute().exprId().id())
        for call in node.functions
        if call.counts_rows and call.condition is None
    }
    count, least = items(handle.predicate().children())
    above_none = passed_on(count) in counts and str(least.sql()) in ("0", "0L")
    nothing = kind_of(handle.falseValue()) == "Literal" and handle.falseValue().value() is None
    return passed_on(handle.trueValue()) if above_none and nothing else None


def first_present(expression: plan.Expression) -> tuple[int, int] | None:
    """Return the two columns of ``coalesce(a, b)``, or None for any other expression."""
    handle = expression.handle
    while kind_of(handle) == "Alias":
        handle = handle.child()
    if kind_of(handle) != "Coalesce":
        return None
    ids = [passed_on(each) for each in items(handle.children())]
    if len(ids) != 2 or ids[0] is None or ids[1] is None:  # noqa: PLR2004
        return None
    return ids[0], ids[1]


def is_window(column: plan.Attribute) -> bool:
    """Whether Spark has marked a column as time windows of one size.

    Columns that pass a window on and columns of a union of windows are marked as well.
    """
    return bool(column.handle.metadata().contains(_WINDOW))


def numbers(node: plan.Window) -> tuple[int, ...]:
    """Return the columns of a node that are ``row_number()``: unique within a partition."""
    return tuple(id_ for id_, function in _functions(node) if kind_of(function) == "RowNumber")


def following(node: plan.Window) -> tuple[IntervalBounds, ...]:
    """Return pairs of a column and its value in the next row, in the order of the column."""
    orders = items(node.handle.orderSpec())
    if not orders:
        return ()
    by, ascending = passed_on(orders[0].child()), str(orders[0].direction().sql()) == "ASC"
    found = []
    for id_, function in _functions(node):
        if kind_of(function) != "Lead" or function.ignoreNulls() or by is None:
            continue
        one = str(function.offset().sql()) == "1"
        nothing = function.default().foldable() and function.default().eval(None) is None
        if one and nothing and passed_on(function.input()) == by:
            found.append(IntervalBounds(by, id_, ascending))
    return tuple(found)


def has_one_row(node: plan.Constant) -> bool:
    """Whether the rows of a constant are at most one."""
    if kind_of(node.handle) == "OneRowRelation":
        return True
    return kind_of(node.handle) == "LocalRelation" and node.handle.data().length() <= 1


def position(node: plan.Generate) -> int | None:
    """Return the column that numbers the elements that a generator returns for a row, or None."""
    if kind_of(node.handle.generator()) != "PosExplode":
        return None
    return int(items(node.handle.generatorOutput())[0].exprId().id())


def unchanged(node: plan.Expand) -> tuple[frozenset[int], frozenset[int]]:
    """Return the columns that are equal in all copies of a row, and those with a copy's window."""
    every = range(len(node.attributes))
    ids = [attribute.id for attribute in node.attributes]
    same = {ids[i] for i in every if all(passed_on(p[i]) == ids[i] for p in node.projections)}
    made = {i for i in every if all(kind_of(p[i]) == "CreateNamedStruct" for p in node.projections)}
    windows = {ids[i] for i in made if is_window(node.attributes[i])}
    return frozenset(same), frozenset(windows)


def _functions(node: plan.Window) -> list[tuple[int, Any]]:
    """Return the window functions of a node, with the ids of their columns."""
    return [
        (int(each.exprId().id()), each.child().windowFunction())
        for each in items(node.handle.windowExpressions())
        if kind_of(each) == "Alias" and kind_of(each.child()) == "WindowExpression"
    ]


def _compared(condition: Any) -> list[tuple[str, Any, int]]:
    """Return a comparison as its kind, the value on the left, and the column on the right."""
    kind, (first, second) = kind_of(condition), items(condition.children())
    found = []
    for each, value, column in ((kind, first, second), (_TURNED[kind], second, first)):
        id_ = _in_order(column)
        if id_ is not None:
            found.append((each, value, id_))
    return found


def _until_next(condition: Any) -> list[tuple[str, Any, int]]:
    """Return the comparison in ``next IS NULL OR value < next``, as :func:`_compared` does."""
    sides = items(condition.children())
    for none, other in (sides, sides[::-1]):
        if kind_of(none) == "IsNull" and kind_of(other) in _TURNED:
            id_ = passed_on(none.child())
            return [each for each in _compared(other) if each[2] == id_]
    return []


def _in_order(value: Any) -> int | None:
    """Return the column that an expression passes on, or casts without changing its order."""
    if kind_of(value) == "Cast":
        child = value.child()
        pair = (type_of(child), type_of(value))
        widens = isinstance(pair[0], DateType) and isinstance(pair[1], _TIMES)
        return passed_on(child) if widens or _widens(*pair) else None
    return passed_on(value)


def _keeps_all(given: DataType, wanted: DataType) -> bool:
    """Whether a cast that succeeds gives different values for different values."""
    if isinstance(wanted, StringType):
        return not is_collated(wanted) and isinstance(given, (*_INTEGERS, DateType, BooleanType))
    if isinstance(given, DateType):
        return isinstance(wanted, (TimestampType, TimestampNTZType))
    return _widens(given, wanted)


def _widens(given: DataType, wanted: DataType) -> bool:
    sizes = [type(type_) for type_ in (given, wanted)]
    return all(size in _INTEGERS for size in sizes) and (
        _INTEGERS.index(sizes[0]) <= _INTEGERS.index(sizes[1])
    )


def _is_exact(type_: DataType) -> bool:
    return isinstance(type_, _EXACT) and not is_collated(type_)


def _references(value: Any) -> frozenset[int]:
    return frozenset(int(column.exprId().id()) for column in columns_of(value))
