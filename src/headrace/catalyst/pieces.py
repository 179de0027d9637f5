"""Converts the parts of Catalyst's nodes: expressions, orders, and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import MapType, VariantType

from headrace.catalyst.clock import has_mark
from headrace.catalyst.fence import origin
from headrace.catalyst.plan import Expression, SortKey
from headrace.catalyst.resolved import passed_on, type_of
from headrace.catalyst.scala import EXPRESSIONS, Numbers, Scala
from headrace.catalyst.temporal import Temporals
from headrace.errors import Code, HeadraceError, Span
from headrace.types import holds, is_collated

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
