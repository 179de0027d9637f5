"""Random subqueries in expressions: IN, EXISTS and scalar ones, correlated or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator.sources import Made, Output, Piece, Sources
from generator.syntax import Expr, Item, Kind, Limit, Select

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from generator.aggregates import Calls

_CORRELATED = (Kind.INT, Kind.TEXT, Kind.LONG, Kind.DATE, Kind.DECIMAL, Kind.OF_DAY)


class Subqueries:
    """Makes subqueries over relations; ``outer`` are the columns of the query around."""

    def __init__(self, random: Random, sources: Sources, calls: Calls) -> None:
        self.random = random
        self.sources = sources
        self.calls = calls
        self.expressions = sources.expressions

    def predicate(self, outer: Sequence[Expr]) -> Expr:
        """Return a condition with a subquery."""
        draw = self.random.random()
        if draw < 0.4:
            return self._in(outer)
        return self._exists(outer) if draw < 0.75 else self.compared(outer)

    def compared(self, outer: Sequence[Expr], *, correlated: bool = True) -> Expr:
        """Return the comparison of something with a scalar subquery."""
        value = self.scalar(outer if correlated else ())
        other = self.expressions.make(value.kind, outer, 1)
        operator = self.random.choice(("<", ">=", "=", "<>", "<=>"))
        return Expr(Kind.BOOL, f"({{0}} {operator} {{1}})", (other, value))

    def scalar(self, outer: Sequence[Expr]) -> Expr:
        """Return a scalar subquery: an aggregate, a first row, or the row of a key.

        A correlated one orders by what it selects: Spark's planner forgets any other order.
        """
        by_key = self._by_key(outer) if self.random.random() < 0.4 else None
        if by_key is not None:
            return by_key
        piece = self.sources.named()
        where, correlated = self._where(piece, outer)
        columns = [c for c in piece.scope if c.kind not in (Kind.LIST, Kind.DOUBLE)]
        if columns and self.random.random() < 0.2:
            first = Limit(1, turn=self.random.randrange(4), whole=not correlated)
            column = self.random.choice(columns)
            query = Select((Item(column, "a"),), piece.source, where, limit=first)
            tag = "scalar subquery of a first row"
            return Expr(column.kind, "{0}", (query,), tag, column.bound)
        call = self.calls.aggregate(piece.scope)
        while call.kind in (Kind.LIST, Kind.DOUBLE):
            call = self.calls.aggregate(piece.scope)
        query = Select((Item(call, "a"),), piece.source, where)
        tag = "correlated scalar subquery" if correlated else "scalar subquery"
        tag += " of count" if call.tag.startswith("count") and correlated else ""
        return Expr(call.kind, "{0}", (query,), tag, call.bound)

    def _by_key(self, outer: Sequence[Expr]) -> Expr | None:
        """Return a column of the one row whose key the columns around have, if they have one."""
        keyed = [known for known in self.sources.known if known.key]
        if not keyed:
            return None
        known = self.random.choice(keyed)
        piece = self.sources.named(known)
        columns = list(zip(known.outputs, piece.scope, strict=True))
        conditions = []
        for column in (column for output, column in columns if output.name in known.key):
            same = [o for o in outer if o.kind is column.kind]
            if not same:
                return None
            pair = (column, self.random.choice(same))
            conditions.append(Expr(Kind.BOOL, "{0} = {1}", pair))
        if self.random.random() < 0.3:
            conditions.append(self.expressions.comparison([*piece.scope, *outer]))
        shown = [c for o, c in columns if o.name not in known.key and c.kind is not Kind.DOUBLE]
        column = self.random.choice(shown or piece.scope)
        where = Expr(
            Kind.BOOL, " AND ".join(f"{{{i}}}" for i in range(len(conditions))), tuple(conditions)
        )
        query = Select((Item(column, "a"),), piece.source, where)
        return Expr(column.kind, "{0}", (query,), "scalar subquery of a row", column.bound)

    def lateral(self, outer: Piece) -> Made:
        """Return what stands after LATERAL."""
        piece = self.sources.named()
        where, correlated = self._where(piece, outer.qualified)
        if self.random.random() < 0.6:
            call = self.calls.aggregate(piece.scope)
            query = Select((Item(call, "la"),), piece.source, where)
            return Made(query, (Output("la", call.kind, call.bound),), outer.rows)
        column = self.random.choice(piece.scope)
        first = Limit(2, turn=self.random.randrange(4), whole=not correlated)
        query = Select((Item(column, "la"),), piece.source, where, limit=first)
        return Made(query, (Output("la", column.kind, column.bound),), outer.rows)

    def _in(self, outer: Sequence[Expr]) -> Expr:
        piece = self.sources.named()
        pairs = [
            (a, b) for a in outer for b in piece.scope if a.kind is b.kind and a.kind in _CORRELATED
        ]
        if not pairs:
            return self._exists(outer)
        chosen = self.random.sample(pairs, min(len(pairs), self.random.choice((1, 1, 1, 2))))
        inner = [o for o in outer if "." in o.template] if self.random.random() < 0.3 else []
        where, correlated = self._where(piece, inner)
        items = tuple(Item(column, f"a{i}") for i, (_, column) in enumerate(chosen))
        query = Select(items, piece.source, where)
        word = self.random.choice(("IN", "IN", "NOT IN"))
        pair = " of two" if len(chosen) > 1 else ""
        tag = f"{'correlated ' if correlated else ''}{word} subquery{pair}"
        values = tuple(value for value, _ in chosen)
        row = ", ".join(f"{{{i}}}" for i in range(len(values)))
        return Expr(Kind.BOOL, f"(({row}) {word} {{{len(values)}}})", (*values, query), tag)

    def _exists(self, outer: Sequence[Expr]) -> Expr:
        piece = self.sources.named()
        where, correlated = self._where(piece, [o for o in outer if "." in o.template])
        query = Select((Item(Expr(Kind.INT, "1"), "a"),), piece.source, where)
        word = self.random.choice(("EXISTS", "NOT EXISTS"))
        tag = word if correlated else f"uncorrelated {word}"
        return Expr(Kind.BOOL, f"{word} {{0}}", (query,), tag)

    def _where(self, piece: Piece, outer: Sequence[Expr]) -> tuple[Expr | None, bool]:
        """Return the condition of a subquery, and whether it refers to the query around."""
        pairs = [
            (a, b) for a in piece.scope for b in outer if a.kind is b.kind and a.kind in _CORRELATED
        ]
        own = self.expressions.comparison(piece.scope) if self.random.random() < 0.35 else None
        if self.random.random() < 0.05:
            own = self.expressions.temporal(piece.scope) or own
        if not pairs or self.random.random() < 0.15:
            return own, False
        equality = Expr(Kind.BOOL, "{0} = {1}", self.random.choice(pairs))
        conditions = [equality, own] if own is not None else [equality]
        if self.random.random() < 0.12:
            other = Expr(Kind.BOOL, "{0} < {1}", self.random.choice(pairs))
            conditions.append(replace(other, tag="correlation without equality"))
        template = " AND ".join(f"{{{i}}}" for i in range(len(conditions)))
        return Expr(Kind.BOOL, template, tuple(conditions)), True
