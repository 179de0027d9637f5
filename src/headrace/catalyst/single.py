"""``SELECT (SELECT r.v FROM r WHERE r.k = l.k)``: at most one row of a subquery beside each row.

Spark joins by ``LeftSingle``: the left outer join that fails if a row has two matches. It equals a
left outer join with the matches of each key in one row, and their number::

    L ⟕¹ R on l.k = r.k  =  L ⟕ R by [k; count, v] on l.k = k, and an error where count > 1

If the condition is more than equalities, the key is the columns of the left that it uses, and the
matches are computed once for all rows with equal values of these columns::

    L ⟕¹ R on θ(l.x, r)  =  L ⟕ (δ(π[x](L)) ⋈ R on θ(x, r)) by [x; count, v] on l.x <=> x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DoubleType, FloatType

from headrace.catalyst.clock import all_of, conjuncts
from headrace.catalyst.resolved import columns_of, type_of
from headrace.catalyst.rewrite import count, join
from headrace.catalyst.scala import Scala, items, kind_of, maybe, within
from headrace.catalyst.subqueries import chosen, unless_many
from headrace.catalyst.walk import replaced
from headrace.types import holds

if TYPE_CHECKING:
    from headrace.catalyst.pieces import Pieces

_EQUALITIES = ("EqualTo", "EqualNullSafe")
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
