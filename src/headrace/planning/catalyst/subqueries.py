"""Scalar subqueries as joins: the value is a row that is joined to every row.

``SELECT (SELECT r.v FROM r WHERE r.k = l.k)``: at most one row of a subquery beside each row.

Spark joins by ``LeftSingle``: the left outer join that fails if a row has two matches. It equals a
left outer join with the matches of each key in one row, and their number::

    L ⟕¹ R on l.k = r.k  =  L ⟕ R by [k; count, v] on l.k = k, and an error where count > 1

If the condition is more than equalities, the key is the columns of the left that it uses, and the
matches are computed once for all rows with equal values of these columns::

    L ⟕¹ R on θ(l.x, r)  =  L ⟕ (δ(π[x](L)) ⋈ R on θ(x, r)) by [x; count, v] on l.x <=> x
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
)

from headrace.planning.catalyst.allowed import is_total
from headrace.planning.catalyst.clock import all_of, conjuncts
from headrace.planning.catalyst.resolved import columns_of, type_of
from headrace.planning.catalyst.rewrite import count, join
from headrace.planning.catalyst.scala import (
    EXPRESSIONS,
    SUBQUERIES,
    Scala,
    items,
    kind_of,
    maybe,
    replaced,
    with_children,
    within,
)
from headrace.planning.catalyst.select import Edition
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.planning.catalyst.pieces import Pieces


_TOO_MANY = "more than one row returned by a subquery used as an expression"
_TRANSPARENT = ("Project", "SubqueryAlias")


@dataclass(slots=True)
class Scalars:
    """The scalar subqueries of some expressions, each as a plan with one attribute.

    ``plans`` are Catalyst plans of one row. Plans in ``outer`` may have no row, which means NULL.
    """

    scala: Scala
    plans: list[Any] = field(default_factory=list)
    outer: list[bool] = field(default_factory=list)
    _values: dict[int, Any] = field(default_factory=dict)

    def replaced(self, expression: Any) -> Any:
        """Return an expression that refers to attributes instead of its scalar subqueries."""
        kind = kind_of(expression)
        if kind == "ScalarSubquery":
            return self._value(expression)
        return with_children(self.scala, expression, self.replaced)

    def joined(self, child: Any) -> Any:
        """Return a plan with the values of the subqueries beside each row."""
        for plan, outer in zip(self.plans, self.outer, strict=True):
            child = join(self.scala, child, plan, "LeftOuter" if outer else "Inner")
        return child

    def _value(self, subquery: Any) -> Any:
        id_ = int(subquery.exprId().id())
        if id_ not in self._values:
            plan, outer = self._one_row(subquery.plan())
            named = self.scala.alias(items(plan.output())[0], "value")
            self.plans.append(self.scala.logical("Project", self.scala.seq([named]), plan))
            self.outer.append(outer)
            self._values[id_] = named.toAttribute()
        return self._values[id_]

    def _one_row(self, plan: Any) -> tuple[Any, bool]:
        """Return a plan of at most one row, two being an error, and whether it may have no row."""
        below = _through(plan)
        kind = str(below.nodeName())
        if _is_one_row(below):
            return plan, False
        if kind == "GlobalLimit" and str(below.limitExpr()) == "1":
            limited = _through(below.child(), "LocalLimit")
            if str(limited.nodeName()) in ("Sort", "Offset"):
                return plan, True
            rows = below.child().child()
            if _constant_of(rows) is None and not _is_one_row(limited):
                return plan, True  # refused, like any LIMIT without ORDER BY
            return self._any_of(rows), False
        return self._checked(plan), False

    def _any_of(self, plan: Any) -> Any:
        """Return the value of any row, or NULL if there is none, for ``EXISTS``."""
        scala = self.scala
        value = items(plan.output())[0]
        constant = _constant_of(plan)
        if constant is None:
            any_ = scala.alias(chosen(scala, value).toAggregateExpression(), "chosen")
            return scala.logical("Aggregate", scala.seq([]), scala.seq([any_]), plan, scala.none)
        rows = scala.alias(count(scala), "rows")
        counted = scala.logical("Aggregate", scala.seq([]), scala.seq([rows]), plan, scala.none)
        some = scala.expression("GreaterThan", rows.toAttribute(), scala.long(0))
        null = scala.expression("Literal", None, constant.dataType())
        any_ = scala.alias(scala.expression("If", some, constant, null), "chosen")
        return scala.logical("Project", scala.seq([any_]), counted)

    def _checked(self, plan: Any) -> Any:
        scala = self.scala
        value = items(plan.output())[0]
        rows = scala.alias(count(scala), "rows")
        found = scala.alias(chosen(scala, value).toAggregateExpression(), "found")
        counted = scala.logical(
            "Aggregate", scala.seq([]), scala.seq([rows, found]), plan, scala.none
        )
        checked = unless_many(scala, rows.toAttribute(), found.toAttribute())
        return scala.logical("Project", scala.seq([scala.alias(checked, "checked")]), counted)


def chosen(scala: Scala, value: Any) -> Any:
    """Return an aggregate that returns any one of some values."""
    functions = f"{EXPRESSIONS}.aggregate"
    if holds(type_of(value), (MapType, VariantType)):
        return scala.named(f"{functions}.First")(value, False)  # noqa: FBT003
    return scala.named(f"{functions}.Max")(value)


def unless_many(scala: Scala, rows: Any, value: Any) -> Any:
    """Return the value of a subquery, or raise the error that it has more than one row."""
    literal = scala.module(f"{EXPRESSIONS}.Literal")
    many = scala.expression("GreaterThan", rows, scala.long(1))
    error = scala.expression("RaiseError", literal.apply(_TOO_MANY))
    return scala.expression("If", many, scala.cast(error, value.dataType()), value)


@dataclass(frozen=True, slots=True)
class SubqueryComparison:
    """``bound > (SELECT ...)``: the condition over a column with the value, and its plan.

    ``below``: whether it is true for bounds smaller than the value; None for equality.
    """

    bound: Any
    below: bool | None
    value: Any
    condition: Any


_BELOW = {
    "LessThan": True,
    "LessThanOrEqual": True,
    "GreaterThan": False,
    "GreaterThanOrEqual": False,
    "EqualTo": None,
}
_ARITHMETIC = ("Add", "Subtract", "Multiply", "Divide", "UnaryMinus", "Cast", "Coalesce")
_EQUALITIES = ("EqualTo", "EqualNullSafe")


def comparison_of(scala: Scala, condition: Any, edition: Edition) -> SubqueryComparison | None:
    """Return a comparison of an expression over a row with subqueries; None for other conditions.

    Spark compares values of one type. Its order must be that of numbers, times or bytes.
    """
    if kind_of(condition) not in _BELOW or not has_scalar(scala, [condition]):
        return None
    left, right = items(condition.children())
    is_left = has_scalar(scala, [left])
    side, bound = (left, right) if is_left else (right, left)
    below = _BELOW[kind_of(condition)]
    if has_scalar(scala, [bound]) or columns_of(side) or not columns_of(bound):
        return None
    type_ = type_of(bound)
    if type_of(side) != type_ or not _is_orderly(type_, equal=below is None):
        return None
    if not _cannot_fail(side, edition):
        return None  # evaluated only if there are rows to compare, after its guards
    scalars = Scalars(scala)
    replaced = scalars.replaced(side)
    if any(scalars.outer) and kind_of(side) != "ScalarSubquery":
        return None  # even without a row, an expression may have a value
    plan = scalars.plans.pop()
    scalars.outer.pop()
    named = scala.alias(replaced, "value")
    value = scala.logical("Project", scala.seq([named]), scalars.joined(plan))
    given = named.toAttribute()
    sides = [given, bound] if is_left else [bound, given]
    if below is not None and is_left:
        below = not below
    return SubqueryComparison(bound, below, value, condition.withNewChildren(scala.seq(sides)))


def with_values(scala: Scala, node: Any, edition: Edition) -> Any | None:
    """Return a join without scalar subqueries in its condition; None if nothing changes.

    Comparisons with their values become filters after an inner join; other values become columns of
    the right, after its own. Equalities stay: Spark's own joins by such a key may fail.
    """
    condition = maybe(node.condition())
    parts = conjuncts(condition) if condition is not None and has_scalar(scala, [condition]) else []
    if not any(has_scalar(scala, [part]) and kind_of(part) not in _EQUALITIES for part in parts):
        return None
    if kind_of(node.joinType()).removesuffix("$") in ("Inner", "Cross"):
        after = [part for part in parts if comparison_of(scala, part, edition)]
        if after:
            rest = all_of(scala, [part for part in parts if part not in after])
            joined = _over(scala, node, node.right(), rest)
            return scala.logical("Filter", all_of(scala, after), joined)
    scalars = Scalars(scala)
    replaced = [part if kind_of(part) in _EQUALITIES else scalars.replaced(part) for part in parts]
    return _over(scala, node, scalars.joined(node.right()), all_of(scala, replaced))


def ordered_by_columns(scala: Scala, sort: Any) -> Any:
    """Return a sort whose order has no scalar subqueries; the node itself if it has none.

    The expressions of the order become columns, after those of the input.
    """
    orders, added = [], []
    for order in items(sort.order()):
        if has_scalar(scala, [order]):
            value, *same = items(order.children())
            added.append(scala.alias(value, "order"))
            orders.append(order.withNewChildren(scala.seq([added[-1].toAttribute(), *same])))
        else:
            orders.append(order)
    if not added:
        return sort
    named = [*items(sort.child().output()), *added]
    below = scala.logical("Project", scala.seq(named), sort.child())
    return scala.logical("Sort", scala.seq(orders), getattr(sort, "global")(), below, sort.hint())


def of_columns(scala: Scala, aggregate: Any) -> Any:
    """Return an aggregate whose keys and functions have no scalar subqueries, or the node itself.

    The values become columns of the input. Subqueries in result expressions stay.
    """
    keys, results = items(aggregate.groupingExpressions()), items(aggregate.aggregateExpressions())
    if not has_scalar(scala, [*keys, *results]):
        return aggregate
    scalars = Scalars(scala)

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind == "AggregateExpression":
            return scalars.replaced(expression)
        return expression if kind in SUBQUERIES else None

    by = scala.seq([scalars.replaced(each) for each in keys])
    shown = scala.seq([replaced(scala, each, "Aggregate", replace) for each in results])
    if not scalars.plans:
        return aggregate
    child = scalars.joined(aggregate.child())
    return scala.logical("Aggregate", by, shown, child, aggregate.hint())


def _over(scala: Scala, node: Any, right: Any, condition: Any | None) -> Any:
    on = scala.option(condition)
    return scala.logical("Join", node.left(), right, node.joinType(), on, node.hint())


def _cannot_fail(value: Any, edition: Edition) -> bool:
    """Return whether an expression fails for no results of the subqueries, except by overflow."""
    kind, parts = kind_of(value), items(value.children())
    match kind:
        case "ScalarSubquery" | "Literal":
            return True
        case "Divide" if kind_of(parts[1]) != "Literal" or str(parts[1].sql()).startswith("0"):
            return False
        case "Cast" if isinstance(type_of(parts[0]), StringType):
            return False
        case _:
            known = kind in _ARITHMETIC or (
                edition >= Edition.TIMES_COMPARED and is_total(value, kind, parts)
            )
            return known and all(_cannot_fail(part, edition) for part in parts)


def _is_orderly(type_: DataType, *, equal: bool) -> bool:
    if is_collated(type_):
        return False
    kinds = (
        *(NumericType, StringType, BinaryType),
        *(DateType, TimeType, TimestampType, TimestampNTZType),
    )
    return isinstance(type_, (*kinds, BooleanType) if equal else kinds)


def _through(plan: Any, *passed: str) -> Any:
    """Return the plan below projections, and below nodes of the kinds that are ``passed``."""
    while str(plan.nodeName()) in (*_TRANSPARENT, *passed):
        plan = plan.child()
    return plan


def _is_one_row(plan: Any) -> bool:
    """Return whether a plan is an aggregate without grouping."""
    return str(plan.nodeName()) == "Aggregate" and not items(plan.groupingExpressions())


def _constant_of(plan: Any) -> Any | None:
    """Return the literal that is the only column of a projection, or None."""
    if str(plan.nodeName()) != "Project":
        return None
    (named,) = items(plan.projectList())
    if kind_of(named) != "Alias":
        return None
    value = named.child()
    return value if kind_of(value) == "Literal" else None


def has_scalar(scala: Scala, expressions: Iterable[Any]) -> bool:
    """Return whether any of the expressions has a scalar subquery."""
    return any(
        kind_of(each) == "ScalarSubquery"
        for expression in expressions
        if scala.may_hold("SCALAR_SUBQUERY", expression)
        for each in within(expression)
    )


_ORDERS = ("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")
_SIGNLESS = (*_EQUALITIES, *_ORDERS, "Add", "Subtract", "Multiply", "IsNotNull", "IsNull")
"""Expressions whose results, or whose uses in such expressions, are equal for 0.0 and -0.0."""


@dataclass(frozen=True, slots=True)
class Single:
    """A Catalyst join by ``LeftSingle``."""

    pieces: Pieces
    node: Any

    @property
    def scala(self) -> Scala:
        """The JVM's classes."""
        return self.pieces.scala

    def rewritten(self) -> Any:
        """Return an equivalent outer join with groups, with the columns of the join."""
        scala, left, right = self.scala, self.node.left(), self.node.right()
        shown = items(right.output())
        condition = maybe(self.node.condition())
        parts = conjuncts(condition) if condition is not None else []
        pairs = [self._equality(part) for part in parts]
        if all(pair is not None for pair in pairs):
            equalities = [pair for pair in pairs if pair is not None]
        else:
            right, equalities = self._with_partners(parts)
        keys = [scala.alias(given, "key") for _, _, given in equalities]
        rows = scala.alias(count(scala), "rows")
        values = [
            scala.alias(chosen(scala, column).toAggregateExpression(), "value") for column in shown
        ]
        by = scala.seq([given for _, _, given in equalities])
        groups = scala.logical(
            "Aggregate", by, scala.seq([*keys, rows, *values]), right, scala.none
        )
        on = [
            scala.expression(kind, wanted, key.toAttribute())
            for (kind, wanted, _), key in zip(equalities, keys, strict=True)
        ]
        joined = join(scala, left, groups, "LeftOuter", all_of(scala, on))
        checked = [
            scala.alias(
                unless_many(scala, rows.toAttribute(), value.toAttribute()), "value", like=column
            )
            for value, column in zip(values, shown, strict=True)
        ]
        return scala.logical("Project", scala.seq([*items(left.output()), *checked]), joined)

    def _equality(self, part: Any) -> tuple[str, Any, Any] | None:
        """Return the kind of an equality and its sides, left first; None for other conditions."""
        if kind_of(part) not in _EQUALITIES:
            return None
        sides = items(part.children())
        of = [{self._is_of_left(c) for c in columns_of(side)} for side in sides]
        if of == [{False}, {True}]:
            sides.reverse()
        elif of != [{True}, {False}]:
            return None
        return kind_of(part), *sides

    def _is_of_left(self, column: Any) -> bool:
        return bool(self.node.left().outputSet().contains(column))

    def _with_partners(self, parts: list[Any]) -> tuple[Any, list[tuple[str, Any, Any]]]:
        """Return the rows of the right side with the left columns that the condition uses."""
        scala, left = self.scala, self.node.left()
        about = {
            int(column.exprId().id()): column
            for part in parts
            for column in columns_of(part)
            if self._is_of_left(column)
        }
        self._check_zeros(parts, about)
        keys = {id_: scala.alias(column, "of_left") for id_, column in about.items()}
        named, by = scala.seq(keys.values()), scala.seq(about.values())
        distinct = scala.logical("Aggregate", by, named, left, scala.none)

        def of_key(expression: Any, kind: str, _node: str) -> Any | None:
            id_ = int(expression.exprId().id()) if kind == "AttributeReference" else None
            return keys[id_].toAttribute() if id_ in keys else None

        on = [replaced(scala, part, "Join", of_key) for part in parts]
        right = join(scala, distinct, self.node.right(), "Inner", all_of(scala, on))
        equalities = [
            ("EqualNullSafe", column, keys[id_].toAttribute()) for id_, column in about.items()
        ]
        return right, equalities

    def _check_zeros(self, parts: list[Any], about: dict[int, Any]) -> None:
        """Refuse expressions that distinguish 0.0 from -0.0, which are one key."""
        for column in about.values():
            if not holds(type_of(column), (FloatType, DoubleType)):
                continue
            users = [
                each
                for part in parts
                for each in within(part)
                if any(child.semanticEquals(column) for child in items(each.children()))
            ]
            if any(kind_of(user) not in _SIGNLESS for user in users):
                raise self.pieces.unsupported(
                    f'a subquery whose condition computes with "{column.name()}" is not supported',
                    "Compute it in a subquery below, and compare the result.",
                    self.node,
                )
