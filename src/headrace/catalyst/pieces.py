"""The pieces of Catalyst's nodes as ours: attributes, expressions, orders, and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import DataType, MapType, VariantType, _parse_datatype_json_string

from headrace.catalyst.plan import Attribute, Expression, SortKey
from headrace.catalyst.scala import EXPRESSIONS, Scala, items
from headrace.errors import Code, HeadraceError, Span
from headrace.types import holds, is_collated


@dataclass(slots=True)
class Pieces:
    """Reads what one query's nodes are made of."""

    scala: Scala
    query: Span

    def normalised(self, value: Any) -> Any:
        """Return a value of which those that SQL takes for equal are the same: one NaN, no -0.0."""
        rule = "org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers"
        return self.scala.module(rule).normalize(value)

    def attributes(self, node: Any) -> tuple[Attribute, ...]:
        """Return a node's output columns."""
        return tuple(self.attribute(a) for a in items(node.output()))

    def attribute(self, handle: Any) -> Attribute:
        """Return a resolved column."""
        return Attribute(
            int(handle.exprId().id()),
            str(handle.name()),
            type_of(handle),
            bool(handle.nullable()),
            handle,
        )

    def expression(self, handle: Any) -> Expression:
        """Return a resolved expression; refuse what is not deterministic, and subqueries."""
        if not handle.deterministic():
            raise self.unsupported("an expression of the view is not deterministic", None, handle)
        subquery = self.scala.named(f"{EXPRESSIONS}.SubqueryExpression")
        if subquery.hasSubquery(handle):
            raise self.unsupported(
                "a subquery in an expression is not supported in a view",
                "Make the subquery a view of its own, and join it.",
                handle,
            )
        return Expression(
            str(handle.sql()),
            type_of(handle),
            str(handle.canonicalized().toString()),
            _passed_on(handle),
            handle,
        )

    def check_key(self, key: Expression, what: str, node: Any) -> None:
        """Refuse a key whose equality is not that of its bytes."""
        if is_collated(key.type):
            raise self.unsupported(
                f"{what} that is compared by a collation is not supported",
                "Use lower() or COLLATE UTF8_BINARY, so that equal values are the same text.",
                node,
            )
        if isinstance(key.type, (MapType, VariantType)):
            raise self.unsupported(
                f"{what} of type {key.type.simpleString().upper()} is not supported",
                "Use one of its fields, or to_json of it.",
                node,
            )

    def unsupported(self, primary: str, hint: str | None, node: Any) -> HeadraceError:
        """Return a refusal, at the place of a node as far as Spark knows it."""
        origin = node.origin()
        start, stop = origin.startIndex(), origin.stopIndex()
        query = self.query
        span = query
        if start.isDefined() and stop.isDefined():
            begin, end = query.start + start.get(), query.start + stop.get() + 1
            if query.start <= begin < end <= query.end:
                span = Span(query.text, begin, end, query.file, query.line)
        return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=span)

    def order(self, orders: list[Any]) -> tuple[SortKey, ...] | None:
        """Return an order, or None where it compares what we do not."""
        keys = []
        for order in orders:
            value = self.expression(order.child())
            if is_collated(value.type) or holds(value.type, (MapType, VariantType)):
                return None
            descending = str(order.direction().sql()) == "DESC"
            keys.append(SortKey(value, descending, "FIRST" in str(order.nullOrdering().sql())))
        return tuple(keys)


def type_of(handle: Any) -> DataType:
    """Return the Spark type of an expression on the JVM."""
    return _parse_datatype_json_string(handle.dataType().json())


def _passed_on(handle: Any) -> int | None:
    """Return the id of the attribute that is renamed or passed on as it is, if that is all."""
    kind = handle.getClass().getSimpleName()
    while kind in ("Alias", "KnownNotNull"):
        handle = handle.child()
        kind = handle.getClass().getSimpleName()
    return int(handle.exprId().id()) if kind == "AttributeReference" else None
