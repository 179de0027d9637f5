"""Random queries: how the clauses are put together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator.aggregates import ROWS, Calls
from generator.expressions import COMPARED, Expressions
from generator.sources import MOST_ROWS, Known, Made, Output, Piece, Sources
from generator.subqueries import Subqueries
from generator.syntax import (
    Expr,
    Grouping,
    Item,
    Kind,
    Limit,
    Pivot,
    Select,
    SetOperation,
    Table,
    Unpivot,
    With,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

FUEL = (0, 1, 1, 2, 2, 3, 4, 6)
"""How much a query may nest, as often as it is drawn."""

_GROUPS = 300
_SETS = ("UNION", "UNION ALL", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
_GROUPED = (
    Kind.INT,
    Kind.TEXT,
    Kind.DATE,
    Kind.BOOL,
    Kind.LONG,
    Kind.DECIMAL,
    Kind.TIME,
    Kind.OF_DAY,
)
_CHAINED = (Kind.INT, Kind.INT, Kind.LONG, Kind.TEXT, Kind.DATE)
_PIVOTED = (Kind.INT, Kind.TEXT, Kind.DATE, Kind.BOOL)
_STAR = "CAST(pmod(xxhash64(*), 97) AS INT)"
_POOL = {"id", "k", "g", "v", "n", "s", "m", "d", "at", "b", "x"}


class Queries:
    """Makes queries over relations that are known by name."""

    def __init__(self, random: Random, known: Iterable[Known]) -> None:
        self.random = random
        self.expressions = Expressions(random)
        self.calls = Calls(random, self.expressions)
        self.sources = Sources(random, self.expressions)
        self.sources.known.extend(known)
        self.subqueries = Subqueries(random, self.sources, self.calls)
        self.sources.query = self.make
        self.sources.lateral = self.subqueries.lateral
        self.sources.predicate = self.subqueries.predicate
        self._tables = 0

    def make(self, fuel: int) -> Made:
        """Return a query."""
        draw = self.random.random()
        if fuel >= 3 and draw < 0.08:
            return self._with(fuel)
        if fuel >= 1 and draw < 0.18:
            return self._set_operation(fuel)
        if fuel >= 2 and draw < 0.22:
            return self._recursion(fuel)
        if fuel and draw > 0.97:
            return self._pivot(fuel) if draw > 0.98 else self._unpivot(fuel)
        return self._select(fuel)

    # -- one SELECT ------------------------------------------------------------------------

    def _select(self, fuel: int) -> Made:
        piece = self.sources.make(fuel)
        where = self._where(piece, fuel)
        draw = self.random.random()
        if draw < 0.38:
            made = self._grouped(piece, where, fuel)
        elif draw < 0.5 and fuel:
            made = self._windowed(piece, where)
        elif draw < 0.57 and fuel:
            made = self._first_of_each(piece, where)
        else:
            made = self._projected(piece, where, self._kinds(piece), fuel)
        if self.random.random() < 0.05:
            return _limited(made, self._limit())
        return made

    def _where(self, piece: Piece, fuel: int) -> Expr | None:
        temporal = self.expressions.temporal(piece.scope) if self.random.random() < 0.06 else None
        where = self._condition(piece, fuel)
        if temporal is None or where is None:
            return temporal or where
        return Expr(Kind.BOOL, "({0} AND {1})", (where, temporal), "AND")

    def _condition(self, piece: Piece, fuel: int) -> Expr | None:
        draw = self.random.random()
        if draw < 0.5:
            return None
        if fuel and draw < 0.65:
            predicate = self.subqueries.predicate(piece.scope)
            if draw < 0.58:
                return predicate
            own = self.expressions.comparison(piece.scope)
            word = self.random.choice(("AND", "AND", "OR"))
            return Expr(Kind.BOOL, f"({{0}} {word} {{1}})", (own, predicate), word)
        if draw < 0.9:
            return self.expressions.comparison(piece.scope, 1)
        return self.expressions.make(Kind.BOOL, piece.scope, 2)

    def _kinds(self, piece: Piece) -> list[Kind]:
        count = self.random.choice((1, 2, 3, 3, 4))
        return [self.random.choice(piece.scope).kind for _ in range(count)]

    def _projected(
        self, piece: Piece, where: Expr | None, kinds: Sequence[Kind], fuel: int
    ) -> Made:
        chosen = [self.expressions.make(kind, piece.scope, 2) for kind in kinds]
        if fuel and self.random.random() < 0.08:
            made = self.subqueries
            one = self.random.choice((made.scalar, made.predicate))
            chosen.append(one(piece.qualified))
        if fuel and self.random.random() < 0.03:
            chosen.append(Expr(Kind.INT, _STAR, (), "xxhash64(*)", 97))
        distinct = self.random.random() < 0.12
        made = _made(chosen, piece, where, distinct=distinct)
        if not distinct and piece.named_apart and self.random.random() < 0.03:
            first = ()
            if fuel and self.random.random() < 0.3:
                compared = self.subqueries.compared(piece.scope, correlated=False)
                first = (replace(compared, tag="subquery in ORDER BY ... LIMIT"),)
            return _limited(made, replace(self._limit(), whole=True, first=first))
        piped = self.random.random() < 0.06
        return replace(made, query=replace(made.query, piped=piped))

    def _grouped(self, piece: Piece, where: Expr | None, fuel: int) -> Made:
        random = self.random
        keys, scope = self._keys(piece)
        calls = [self.calls.aggregate(piece.scope) for _ in range(random.choice((1, 1, 2, 3)))]
        if fuel and random.random() < 0.08:
            compared = self.subqueries.compared(piece.qualified)
            template = random.choice(("count_if({0})", "count(*) FILTER (WHERE {0})"))
            calls.append(Expr(Kind.LONG, template, (compared,), "subquery in an aggregate", ROWS))
        if fuel and random.random() < 0.05:
            compared = self.subqueries.compared(piece.scope, correlated=False)
            keys.append(replace(compared, tag="subquery in GROUP BY"))
            scope.append(keys[-1])
        after = [*scope, *calls]
        chosen = [*scope, *calls] if random.random() < 0.8 else [*calls, *scope[:1]]
        form, sets = "", ()
        if len(keys) > 1 and random.random() < 0.2:
            form = random.choice(("ROLLUP", "CUBE", "GROUPING SETS"))
            sets = ((0, 1), *random.sample([(0,), (1,), ()], 2))
            chosen.append(Expr(Kind.INT, "grouping({0})", (keys[0],), "grouping()", 1))
        if random.random() < 0.3:
            chosen.append(self.expressions.make(random.choice(after).kind, after, 1))
        having = self._having(after, fuel) if random.random() < 0.25 else None
        rows = min(piece.rows, _GROUPS) if keys else 1
        group = Grouping(tuple(keys), form, sets)
        made = _made(chosen, piece, where)
        return replace(made, query=replace(made.query, group=group, having=having), rows=rows)

    def _keys(self, piece: Piece) -> tuple[list[Expr], list[Expr]]:
        """Return the keys of GROUP BY, and what can be selected because of them."""
        random = self.random
        columns = [c for c in piece.scope if c.kind in _GROUPED]
        if not columns or random.random() < 0.12:
            return [], []
        keys = random.sample(columns, min(len(columns), random.choice((1, 1, 2))))
        if random.random() < 0.15:
            made = self.expressions.make(keys[0].kind, keys, 1)
            keys[0] = made if made.args else keys[0]
        times = [c for c in piece.scope if c.kind is Kind.TIME]
        if times and random.random() < 0.35:
            text = random.choice(
                (
                    "window({0}, '30 minutes')",
                    "window({0}, '30 minutes', '15 minutes')",
                    "session_window({0}, '5 minutes')",
                )
            )
            name = text.partition("(")[0]
            key = Expr(Kind.LIST, text, (random.choice(times),), f"{name}()")
            start = Expr(Kind.TIME, f"{name}.start")
            return [key, *keys[:1]], [start, *keys[:1]]
        return keys, list(keys)

    def _having(self, after: Sequence[Expr], fuel: int) -> Expr:
        if fuel and self.random.random() < 0.2:
            condition = self.subqueries.compared(after, correlated=False)
            return replace(condition, tag="subquery in HAVING")
        return self.expressions.comparison(after, 1)

    def _windowed(self, piece: Piece, where: Expr | None) -> Made:
        columns = self.random.sample(piece.scope, min(len(piece.scope), 2))
        calls = [self.calls.window(piece.scope) for _ in range(self.random.choice((1, 1, 2)))]
        if all("{total}" in call.template for call in calls):
            del calls[1:]  # rows that are equal may stand in another order for another function
        return _made([*columns, *calls], piece, where)

    def _first_of_each(self, piece: Piece, where: Expr | None) -> Made:
        """Return the first rows of each partition, by ROW_NUMBER."""
        columns = self.random.sample(piece.scope, min(len(piece.scope), 3))
        number = self.calls.row_number(piece.scope)
        most = self.random.choice(("= 1", "<= 2", "<= 3"))
        if piece.named_apart and self.random.random() < 0.3:
            made = _made(columns, piece, where)
            first = Expr(Kind.BOOL, f"{{0}} {most}", (number,))
            return replace(made, query=replace(made.query, qualify=first))
        inner = self.sources.derived(_made([*columns, number], piece, where))
        first = Expr(Kind.BOOL, f"{{0}} {most}", (inner.scope[-1],), "first rows by row_number")
        return _made(list(inner.scope[:-1]), inner, first)

    def _pivot(self, fuel: int) -> Made:
        """Return a query with a column for each of some values."""
        piece = self.sources.make(fuel - 1)
        pivoted = [c for c in piece.scope if c.kind in _PIVOTED]
        if not pivoted:
            return self._select(fuel)
        last = self.random.choice(pivoted)
        rest = [self.random.choice(piece.scope) for _ in range(self.random.choice((1, 2)))]
        argument = self.random.choice(piece.scope)
        chosen = [Item(c, f"c{i}") for i, c in enumerate((*rest, argument, last))]
        query = Select(tuple(chosen), piece.source, self._where(piece, 0))
        call = self.calls.aggregate([replace(argument, template=f"c{len(rest)}")])
        values = tuple(self._pivot_values(last.kind))
        names = tuple(f"c{i}" for i in range(len(rest)))
        made = Pivot(query, call, names, values)
        outputs = [Output(n, c.kind, c.bound) for n, c in zip(names, rest, strict=True)]
        outputs += [Output(f"p{i}", call.kind, call.bound) for i in range(len(values))]
        return Made(made, tuple(outputs), min(piece.rows, _GROUPS))

    def _unpivot(self, fuel: int) -> Made:
        """Return a query with a row for each of some columns of a kind."""
        piece = self.sources.make(fuel - 1)
        kinds = [c.kind for c in piece.scope if c.kind is not Kind.LIST]
        kind = max(kinds, key=kinds.count, default=None)
        if kind is None:
            return self._select(fuel)
        values = [self.expressions.make(kind, piece.scope, 1) for _ in range(2)]
        columns = [self.random.choice(piece.scope), *(c for c in piece.scope if c.kind is kind)]
        chosen = [Item(c, f"c{i}") for i, c in enumerate((*columns, *values))]
        query = Select(tuple(chosen), piece.source, self._where(piece, 0))
        bound = max(item.expr.bound for item in chosen[1:])
        outputs = [
            Output("c0", columns[0].kind, columns[0].bound),
            Output("u0", Kind.TEXT, 1),
            Output("u1", kind, bound),
        ]
        made = Unpivot(query, self.random.random() < 0.5)
        return Made(made, tuple(outputs), piece.rows * (len(chosen) - 1))

    def _pivot_values(self, kind: Kind) -> list[Expr]:
        drawn = [self.expressions.literal(kind) for _ in range(3)]
        return list({value.template: value for value in drawn}.values())

    def _limit(self) -> Limit:
        offset = self.random.choice((0, 0, 2))
        return Limit(self.random.choice((1, 3, 10)), offset, self.random.randrange(4))

    # -- several ---------------------------------------------------------------------------

    def _set_operation(self, fuel: int) -> Made:
        there = [
            o.kind for known in self.sources.known for o in known.outputs if o.kind in COMPARED
        ]
        kinds = [
            self.random.choice(there or COMPARED) for _ in range(self.random.choice((1, 2, 3)))
        ]
        sides = [self._side(kinds, fuel // 2) for _ in range(2)]
        outputs = tuple(
            replace(a, bound=max(a.bound, b.bound))
            for a, b in zip(sides[0].outputs, sides[1].outputs, strict=True)
        )
        query = SetOperation(self.random.choice(_SETS), sides[0].query, sides[1].query)
        return Made(query, outputs, sides[0].rows + sides[1].rows)

    def _side(self, kinds: Sequence[Kind], fuel: int) -> Made:
        piece = self.sources.make(fuel)
        there = [c for c in piece.scope if c.kind in kinds]
        where = self.expressions.comparison(there or piece.scope)
        made = self._projected(piece, where if self.random.random() < 0.5 else None, kinds, 0)
        names = [Item(item.expr, f"c{i}") for i, item in enumerate(made.query.items)]
        outputs = tuple(replace(o, name=f"c{i}") for i, o in enumerate(made.outputs))
        return Made(replace(made.query, items=tuple(names)), outputs, made.rows)

    def _with(self, fuel: int) -> Made:
        """Return a query that reads a common table expression twice, or more often."""
        self._tables += 1
        name = f"w{self._tables}"
        inner = self.make(fuel // 2)
        known = Known(name, inner.outputs, inner.rows)
        others, self.sources.known = self.sources.known, [known, known]
        body = self.make(2)
        self.sources.known = others
        return Made(With((Table(name, inner.query),), body.query), body.outputs, body.rows)

    def _recursion(self, fuel: int) -> Made:
        """Return a query over rows that are made of rows, a few levels deep."""
        first = self.sources.named()
        starts = [c for c in first.scope if c.kind in _CHAINED]
        if not starts:
            return self._select(fuel)
        self._tables += 1
        name, start = f"w{self._tables}", self.random.choice(starts)
        level = Expr(Kind.INT, "0", bound=4)
        base = _made([start, level], first, self._where(first, 0))
        step, rows = self._step(Known(name, base.outputs, base.rows), start.kind)
        if step is None or rows > MOST_ROWS:
            return base
        table = Table(name, SetOperation("UNION ALL", base.query, step))
        others = self.sources.known
        self.sources.known = [Known(name, base.outputs, rows)] * 3 + others[:2]
        body = self._select(1)
        self.sources.known = others
        return Made(With((table,), body.query, recursive=True), body.outputs, body.rows)

    def _step(self, known: Known, kind: Kind) -> tuple[Select | None, int]:
        """Return what makes rows of those of the level before, and about how many there will be."""
        before = self.sources.named(known)
        after = self.sources.joined(before, kind)
        if after is None:
            return None, 0
        levels = self.random.choice((1, 2, 3))
        made = known.rows * max(1, after.rows // known.rows) ** levels * 2
        value, level = self.expressions.make(kind, after.scope, 1), before.scope[1]
        where = Expr(Kind.BOOL, f"({{0}} < {levels})", (level,))
        if self.random.random() < 0.4:
            own = self.expressions.comparison(after.scope)
            where = Expr(Kind.BOOL, "({0} AND {1})", (where, own), "AND")
        deeper = Expr(Kind.INT, "({0} + 1)", (level,))
        items = [Item(e, o.name) for e, o in zip((value, deeper), known.outputs, strict=True)]
        return Select(tuple(items), after.source, where), made


def _made(
    chosen: Sequence[Expr], piece: Piece, where: Expr | None, *, distinct: bool = False
) -> Made:
    """Return a SELECT of expressions; a plain column keeps its name if no other has it."""
    items, outputs = [], []
    for i, expr in enumerate(chosen):
        last = expr.template.rpartition(".")[2]
        taken = {item.name for item in items}
        plain = not expr.args and last in _POOL and last not in taken
        items.append(Item(expr, last if plain else f"c{i}"))
        outputs.append(Output(items[-1].name, expr.kind, min(expr.bound, 2**62)))
    query = Select(tuple(items), piece.source, where, distinct=distinct)
    return Made(query, tuple(outputs), min(piece.rows, ROWS))


def _limited(made: Made, limit: Limit) -> Made:
    if not isinstance(made.query, Select):
        return made
    return replace(made, query=replace(made.query, limit=limit), rows=limit.count)
