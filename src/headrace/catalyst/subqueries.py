"""Scalar subqueries as joins: a value that is the same for all rows is a row to pair them with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import MapType, VariantType

from headrace.catalyst.resolved import type_of
from headrace.catalyst.rewrite import count, join
from headrace.catalyst.scala import EXPRESSIONS, Scala, items, kind_of, within
from headrace.types import holds

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOO_MANY = "more than one row returned by a subquery used as an expression"
_TRANSPARENT = ("Project", "SubqueryAlias")


@dataclass(slots=True)
class Scalars:
    """The scalar subqueries of some expressions, each as a plan with one attribute.

    ``plans`` has Catalyst plans of one row; of those in ``outer`` the row may be absent, which
    stands for NULL.
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
        below = items(expression.children())
        new = [self.replaced(child) for child in below]
        if all(a is b for a, b in zip(below, new, strict=True)):
            return expression
        return expression.withNewChildren(self.scala.seq(new))

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
        """Return a plan with one row, or at most one; a second row is an error when it is there."""
        below = _through(plan)
        kind = str(below.nodeName())
        if kind == "Aggregate" and not items(below.groupingExpressions()):
            return plan, False
        if kind == "GlobalLimit" and str(below.limitExpr()) == "1":
            found = below.child().child()
            if str(_through(found).nodeName()) in ("Sort", "Offset"):
                return plan, True
            return self._any_of(found), False
        return self._checked(plan), False

    def _any_of(self, plan: Any) -> Any:
        """Return the value of any row, or NULL where there is none: what ``EXISTS`` asks for."""
        scala = self.scala
        value = items(plan.output())[0]
        constant = _constant_of(plan)
        if constant is None:
            chosen = scala.alias(self._chosen(value).toAggregateExpression(), "chosen")
            return scala.logical("Aggregate", scala.seq([]), scala.seq([chosen]), plan, scala.none)
        rows = scala.alias(count(scala), "rows")
        counted = scala.logical("Aggregate", scala.seq([]), scala.seq([rows]), plan, scala.none)
        some = scala.expression("GreaterThan", rows.toAttribute(), scala.long(0))
        null = scala.expression("Literal", None, constant.dataType())
        chosen = scala.alias(scala.expression("If", some, constant, null), "chosen")
        return scala.logical("Project", scala.seq([chosen]), counted)

    def _chosen(self, value: Any) -> Any:
        """Return the aggregate that yields one of some values: of one value, that one."""
        functions = f"{EXPRESSIONS}.aggregate"
        if holds(type_of(value), (MapType, VariantType)):
            return self.scala.named(f"{functions}.First")(value, False)  # noqa: FBT003
        return self.scala.named(f"{functions}.Max")(value)

    def _checked(self, plan: Any) -> Any:
        scala = self.scala
        value = items(plan.output())[0]
        literal = scala.module(f"{EXPRESSIONS}.Literal")
        rows = scala.alias(count(scala), "rows")
        found = scala.alias(self._chosen(value).toAggregateExpression(), "found")
        counted = scala.logical(
            "Aggregate", scala.seq([]), scala.seq([rows, found]), plan, scala.none
        )
        many = scala.expression("GreaterThan", rows.toAttribute(), scala.long(1))
        error = scala.expression("RaiseError", literal.apply(_TOO_MANY))
        failed = scala.cast(error, value.dataType())
        checked = scala.expression("If", many, failed, found.toAttribute())
        named = scala.alias(checked, "checked")
        return scala.logical("Project", scala.seq([named]), counted)


def _through(plan: Any) -> Any:
    """Return what is below projections."""
    while str(plan.nodeName()) in _TRANSPARENT:
        plan = plan.child()
    return plan


def _constant_of(plan: Any) -> Any | None:
    """Return the literal that is the only column of a projection, if that is what it is."""
    if str(plan.nodeName()) != "Project":
        return None
    (named,) = items(plan.projectList())
    if kind_of(named) != "Alias":
        return None
    value = named.child()
    return value if kind_of(value) == "Literal" else None


def has_scalar(expressions: Iterable[Any]) -> bool:
    """Say whether there is a scalar subquery in any of the expressions."""
    return any(kind_of(each) == "ScalarSubquery" for e in expressions for each in within(e))
