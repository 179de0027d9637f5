"""Converts the parts of Catalyst's nodes: expressions, orders, and refusals.

Choosing the columns of a plan, and removing repeated ones.

A Catalyst node may list one column twice, as ``SELECT k, k`` does. A node that stores rows stores
each column once; where columns are matched by position, they must be exactly those of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import MapType, VariantType

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalyst.clock import has_mark
from headrace.planning.catalyst.fence import origin
from headrace.planning.catalyst.plan import Expression, Project, SortKey
from headrace.planning.catalyst.resolved import passed_on, type_of
from headrace.planning.catalyst.scala import EXPRESSIONS, Numbers, Scala
from headrace.planning.catalyst.temporal import Temporals
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.planning.catalyst.plan import Attribute, Plan


_AS_TEXT = {
    MapType: "to_json(array_sort(map_entries(m)))",
    VariantType: "to_json(v)",
}
"""Expressions, by type, of a text that differs for different values that Spark cannot order."""


@dataclass(slots=True)
class Pieces:
    """Reads the parts of one query's nodes."""

    scala: Scala
    query: Span
    clocked: bool = False
    _numbers: Numbers = field(default_factory=Numbers)

    @property
    def temporals(self) -> Temporals:
        """Reads conditions on the clock."""
        return Temporals(self.scala, self.query, self.expression)

    def expression(self, handle: Any) -> Expression:
        """Return a resolved expression; refuse subqueries and non-deterministic expressions."""
        if self.clocked and has_mark(handle):
            hint = "Compare it with a time of the row in WHERE or ON."
            raise self.temporals.refusal("the clock is not supported here", hint, handle)
        if not handle.deterministic():
            raise self.unsupported("an expression of the view is not deterministic", None, handle)
        if self.scala.call(f"{EXPRESSIONS}.SubqueryExpression", "hasSubquery", handle):
            raise self.unsupported(
                "a subquery in an expression is not supported in a view",
                "Make the subquery a view of its own, and join it.",
                handle,
            )
        passes = passed_on(handle)
        identity = self._numbers.of(handle.canonicalized()) if passes is None else passes
        return Expression(str(handle.sql()), type_of(handle), identity, passes, handle)

    def check_key(self, key: Expression, what: str, node: Any) -> None:
        """Refuse a key whose equal values can have different bytes."""
        if is_collated(key.type):
            raise self.unsupported(
                f"{what} that is compared by a collation is not supported",
                "Use lower() or COLLATE UTF8_BINARY, so that equal values are the same text.",
                node,
            )
        for kind, text in _AS_TEXT.items():
            if isinstance(key.type, kind):
                raise self.unsupported(
                    f"{what} of type {key.type.simpleString().upper()} is not supported",
                    f"Use one of its fields, or {text}.",
                    node,
                )

    def unsupported(self, primary: str, hint: str | None, node: Any) -> HeadraceError:
        """Return a refusal, at the place of a node as far as Spark knows it."""
        span = origin(node, self.query)
        return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=span)

    def order(self, orders: list[Any]) -> tuple[SortKey, ...] | None:
        """Return an order, or None if it compares types that cannot be ordered here."""
        keys = []
        for order in orders:
            value = self.expression(order.child())
            if is_collated(value.type) or holds(value.type, (MapType, VariantType)):
                return None
            descending = str(order.direction().sql()) == "DESC"
            keys.append(SortKey(value, descending, "FIRST" in str(order.nullOrdering().sql())))
        return tuple(keys)


def select_columns(pieces: Pieces, plan: Plan, attributes: Iterable[Attribute]) -> Project:
    """Return the given columns of a plan, in their order."""
    wanted = tuple(attributes)
    return Project(plan, tuple(pieces.expression(a.handle) for a in wanted), wanted)


def distinct_columns(pieces: Pieces, plan: Plan) -> Plan:
    """Return a plan without repeated columns, as the input of a node that stores its rows."""
    own = _by_id(plan.attributes)
    return plan if len(own) == len(plan.attributes) else select_columns(pieces, plan, own.values())


def only_columns(pieces: Pieces, plan: Plan, attributes: Iterable[Attribute]) -> Plan:
    """Return a plan with only the given columns, each once; unchanged if it has only these."""
    own = _by_id(attributes)
    if own.keys() >= _by_id(plan.attributes).keys():
        return plan
    return select_columns(pieces, plan, own.values())


def exact_columns(pieces: Pieces, plan: Plan, attributes: tuple[Attribute, ...]) -> Plan:
    """Return a plan with exactly the given columns, in their order, repeated ones included."""
    if [a.id for a in plan.attributes] == [a.id for a in attributes]:
        return plan
    return select_columns(pieces, plan, attributes)


def _by_id(attributes: Iterable[Attribute]) -> dict[int, Attribute]:
    return {attribute.id: attribute for attribute in attributes}
