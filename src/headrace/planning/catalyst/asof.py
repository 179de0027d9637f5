"""``left ASOF JOIN right MATCH_CONDITION (l.t >= r.t) ON l.k = r.k``: the nearest row by time.

Spark has one node for it. Here, a row of the right side is the nearest one in an interval: from its
own time up to the time of the next row with its keys. So the right side gets the time of the next
row as a column, computed by a window over each key, and the join becomes a plain one::

    r.t <= l.t AND (r.next IS NULL OR l.t < r.next)

A change on either side costs the rows near it: see :mod:`headrace.planning.catalyst.predicates`.
Rows of the right side with equal times are ordered by the values of all columns that the query
reads: the greatest is the nearest. A time that is NULL has no match.

Spark's own node may take any of the rows with equal times. Before it runs, in queries and in
VERIFY, its right side is reduced to the greatest of them: see :func:`without_ties`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import MapType, VariantType

from headrace.errors import Code, HeadraceError
from headrace.planning.catalyst.clock import all_of, conjuncts
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.rewrite import join
from headrace.planning.catalyst.scala import (
    EXPRESSIONS,
    Scala,
    items,
    kind_of,
    maybe,
    with_children,
)
from headrace.types import holds

Refuse = Callable[[str, str, Any], HeadraceError]
"""Creates a refusal from a message, a hint and the node at fault."""

_EQUALITIES = ("EqualTo", "EqualNullSafe")
_OPPOSITE = {
    "GreaterThanOrEqual": "LessThanOrEqual",
    "GreaterThan": "LessThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "LessThan": "GreaterThan",
}
_UNTIL_NEXT = {
    "GreaterThanOrEqual": "LessThan",
    "GreaterThan": "LessThanOrEqual",
    "LessThanOrEqual": "GreaterThan",
    "LessThan": "GreaterThanOrEqual",
}
"""For each comparison with the time of the match, the comparison with the next row's time."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """Rewrites one as-of join."""

    scala: Scala
    node: Any
    refuse: Refuse

    def rewritten(self) -> tuple[Any, int]:
        """Return the plan with a plain join in place of the node, with the same columns.

        Also returns the id of the column with the time of the next row.

        Raises:
            HeadraceError: ``unsupported`` if a condition over both sides is not an equality.
        """
        scala, node = self.scala, self.node
        operator, mine, time = self._match()
        keys, own, rest = self._conditions()
        named = scala.alias(time, "__time")
        grouped = [scala.alias(scala.normalised(key), "__key") for _, _, key in keys]
        filtered = all_of(scala, [*own, scala.expression("IsNotNull", time)])
        right = scala.logical("Filter", filtered, node.right())
        columns = items(right.output())
        right = scala.logical("Project", scala.seq([*columns, named, *grouped]), right)
        attribute = named.toAttribute()
        following = self._following(attribute)
        order = self._order(operator, attribute, columns)
        partition = scala.seq([each.toAttribute() for each in grouped])
        call = scala.expression("WindowSpecDefinition", partition, order, following.frame())
        window = scala.alias(scala.expression("WindowExpression", following, call), "__next")
        right = scala.logical("Window", scala.seq([window]), partition, order, right, scala.none)
        after = window.toAttribute()
        none = scala.expression("IsNull", after)
        within = scala.expression(_UNTIL_NEXT[operator], mine, after)
        met = [
            scala.expression(kind, scala.normalised(left), each.toAttribute())
            for (kind, left, _), each in zip(keys, grouped, strict=True)
        ]
        condition = all_of(
            scala,
            [
                *met,
                *rest,
                scala.expression(operator, mine, attribute),
                scala.expression("Or", none, within),
            ],
        )
        kind = kind_of(node.joinType()).removesuffix("$")
        joined = join(scala, node.left(), right, kind, condition)
        return scala.logical("Project", node.output(), joined), int(after.exprId().id())

    def without_ties(self) -> Any:
        """Return the node with one row of each key and time on its right side.

        Raises:
            HeadraceError: as :meth:`rewritten` does.
        """
        scala, node = self.scala, self.node
        _, _, time = self._match()
        keys, own, _ = self._conditions()
        named = [scala.alias(each, "__tied") for each in (time, *(key for _, _, key in keys))]
        filtered = all_of(scala, [*own, scala.expression("IsNotNull", time)])
        right = scala.logical("Filter", filtered, node.right())
        columns = items(right.output())
        right = scala.logical("Project", scala.seq([*columns, *named]), right)
        number = scala.expression("RowNumber")
        partition = scala.seq([each.toAttribute() for each in named])
        order = scala.seq(
            [self._sorted(c, "Descending", "NullsLast") for c in self._comparable(columns)]
        )
        call = scala.expression("WindowSpecDefinition", partition, order, number.frame())
        nth = scala.alias(scala.expression("WindowExpression", number, call), "__nth")
        right = scala.logical("Window", scala.seq([nth]), partition, order, right, scala.none)
        one = self.scala.module(f"{EXPRESSIONS}.Literal").apply(1)
        first = scala.expression("EqualTo", nth.toAttribute(), one)
        right = scala.logical("Project", scala.seq(columns), scala.logical("Filter", first, right))
        return node.withNewChildren(scala.seq([node.left(), right]))

    def _match(self) -> tuple[str, Any, Any]:
        """Return the comparison of the left time with its match, and the two times."""
        condition = self.node.asOfCondition()
        operator = kind_of(condition)
        first, second = items(condition.children()) if operator in _OPPOSITE else (None, None)
        if first is not None and self._of(first) == "right" and self._of(second) == "left":
            operator, first, second = _OPPOSITE[operator], second, first
        if first is None or self._of(first) != "left" or self._of(second) != "right":
            raise self.refuse(
                "MATCH_CONDITION must compare a time of the left side with one of the right side",
                "Write it as l.time >= r.time, with a column of each side.",
                condition,
            )
        return operator, first, second

    def _conditions(self) -> tuple[list[tuple[str, Any, Any]], list[Any], list[Any]]:
        """Return the equalities (kind, left, right), conditions of the right, and all others."""
        keys: list[tuple[str, Any, Any]] = []
        own: list[Any] = []
        rest: list[Any] = []
        condition = maybe(self.node.condition())
        for each in conjuncts(condition) if condition is not None else ():
            match self._of(each):
                case "right":
                    own.append(each)
                case "left" | "neither":
                    rest.append(each)
                case _:
                    keys.append(self._equality(each))
        return keys, own, rest

    def _equality(self, condition: Any) -> tuple[str, Any, Any]:
        kind = kind_of(condition)
        if kind in _EQUALITIES:
            first, second = items(condition.children())
            sides = (self._of(first), self._of(second))
            if sides == ("left", "right"):
                return kind, first, second
            if sides == ("right", "left"):
                return kind, second, first
        raise self.refuse(
            "an as-of join on a condition over both sides other than an equality is not supported",
            "Use equalities of a column of each side, and filter by the rest in WHERE.",
            condition,
        )

    def _of(self, expression: Any) -> str:
        """Return the sides whose columns are used: ``left``, ``right``, both or neither."""
        used = expression.references()
        left = used.subsetOf(self.node.left().outputSet())
        right = used.subsetOf(self.node.right().outputSet())
        if left and right:
            return "neither"
        return "left" if left else "right" if right else "both"

    def _following(self, time: Any) -> Any:
        """Return the call that returns the time of the next row, in the order of the window."""
        literal = self.scala.module(f"{EXPRESSIONS}.Literal")
        nothing = self.scala.expression("Literal", None, time.dataType())
        return self.scala.expression("Lead", time, literal.apply(1), nothing, False)  # noqa: FBT003

    def _order(self, operator: str, time: Any, columns: list[Any]) -> Any:
        """Return the order of the window: by time, away from the left's, then by the others."""
        ascending = operator in ("GreaterThanOrEqual", "GreaterThan")
        orders = [self._sorted(time, "Ascending" if ascending else "Descending")]
        rest = [self._sorted(c, "Ascending") for c in self._comparable(columns)]
        return self.scala.seq([*orders, *rest])

    def _comparable(self, columns: list[Any]) -> list[Any]:
        return [c for c in columns if not holds(type_of(c), (MapType, VariantType))]

    def _sorted(self, value: Any, direction: str, where: str = "NullsFirst") -> Any:
        way = self.scala.module(f"{EXPRESSIONS}.{direction}")
        nulls = self.scala.module(f"{EXPRESSIONS}.{where}")
        return self.scala.expression("SortOrder", value, way, nulls, self.scala.seq([]))


def has_asof(plan: Any) -> bool:
    """Return whether a plan has an as-of join."""
    return "AsOfJoin" in str(plan.toString())


def without_ties(scala: Scala, plan: Any) -> Any:
    """Return an optimised plan whose as-of joins break ties as views do.

    The plan must be optimised, since the tie-break uses the columns that are read. Joins that views
    refuse are unchanged.
    """
    plan = with_children(scala, plan, lambda child: without_ties(scala, child))
    if plan.nodeName() != "AsOfJoin":
        return plan
    try:
        return AsOf(scala, plan, _left_alone).without_ties()
    except HeadraceError:
        return plan


def _left_alone(message: str, hint: str, _node: Any) -> HeadraceError:
    return HeadraceError(Code.UNSUPPORTED, message, hint=hint)
