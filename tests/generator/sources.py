"""Random FROM clauses: relations, queries, joins of every kind, LATERAL, explode."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from generator.syntax import Derived, Explode, Expr, Join, Kind, Named, Query, Source, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from generator.expressions import Expressions

MOST_ROWS = 2500
"""About as many rows as a query or any part of it may have."""

_CROSSED = 900
_OUTER = ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_ONE_SIDED = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
_CONSTANT = (("k", Kind.INT), ("g", Kind.INT), ("s", Kind.TEXT), ("d", Kind.DATE))
_KEYS = (
    Kind.INT,
    Kind.INT,
    Kind.INT,
    Kind.LONG,
    Kind.TEXT,
    Kind.DATE,
    Kind.DECIMAL,
    Kind.TIME,
    Kind.OF_DAY,
)


@dataclass(frozen=True, slots=True)
class Output:
    """A column that a relation or query has."""

    name: str
    kind: Kind
    bound: int


@dataclass(frozen=True, slots=True)
class Made:
    """A query, its columns, and about how many rows it has."""

    query: Query
    outputs: tuple[Output, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Known:
    """A relation, view or common table expression that can be read by name."""

    name: str
    outputs: tuple[Output, ...]
    rows: int
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of FROM, its columns as they are written, and about how many rows it has."""

    source: Source
    scope: tuple[Expr, ...]
    rows: int

    @property
    def qualified(self) -> tuple[Expr, ...]:
        """The columns that a subquery can refer to."""
        return tuple(c for c in self.scope if "." in c.template)

    @property
    def named_apart(self) -> bool:
        """Whether no column can be taken for one that SELECT names."""
        return len(self.qualified) == len(self.scope)


def _scope(alias: str, outputs: Sequence[Output]) -> tuple[Expr, ...]:
    return tuple(Expr(o.kind, f"{alias}.{o.name}", bound=o.bound) for o in outputs)


class Sources:
    """Makes FROM clauses; ``query`` makes the queries in them."""

    def __init__(self, random: Random, expressions: Expressions) -> None:
        self.random = random
        self.expressions = expressions
        self.known: list[Known] = []
        self.query: Callable[[int], Made]
        self.lateral: Callable[[Piece], Made]
        self.predicate: Callable[[Sequence[Expr]], Expr]
        self._numbers = itertools.count()

    def alias(self) -> str:
        """Return a name that no other source of the query has."""
        return f"r{next(self._numbers)}"

    def named(self, known: Known | None = None) -> Piece:
        """Return a relation by name."""
        one = known or self.random.choice(self.known)
        alias = self.alias()
        source = Named(one.name, alias, tuple(o.name for o in one.outputs))
        return Piece(source, _scope(alias, one.outputs), one.rows)

    def derived(self, made: Made) -> Piece:
        """Return a query in FROM."""
        alias = self.alias()
        return Piece(Derived(made.query, alias), _scope(alias, made.outputs), made.rows)

    def one(self, fuel: int) -> Piece:
        """Return a relation or, with fuel, sometimes a query."""
        draw = self.random.random()
        if fuel >= 2 and draw < 0.4:
            return self.derived(self.query(fuel - 1))
        return self._values() if fuel and draw > 0.96 else self.named()

    def _values(self) -> Piece:
        """Return rows of constants, under names that relations have as well."""
        random = self.random
        columns = random.sample(_CONSTANT, random.choice((1, 2)))
        rows = tuple(
            tuple(self.expressions.literal(kind) for _, kind in columns)
            for _ in range(random.choice((1, 2, 4)))
        )
        alias = self.alias()
        source = Values(rows, alias, tuple(name for name, _ in columns))
        outputs = [Output(name, kind, 8) for name, kind in columns]
        return Piece(source, _scope(alias, outputs), len(rows))

    def make(self, fuel: int) -> Piece:
        """Return what a query reads from."""
        random = self.random
        piece = self.one(fuel // 2)
        joins = (
            0 if fuel < 1 else random.choice((0, 1, 1)) if fuel < 3 else random.choice((1, 1, 2))
        )
        if joins == 1 and random.random() < 0.15:
            return self._using(piece, self.named())
        for _ in range(joins):
            piece = self._lateral(piece) if random.random() < 0.06 else self._join(piece, fuel // 2)
        if fuel and random.random() < 0.08:
            piece = self._explode(piece)
        return piece

    # -- joins -----------------------------------------------------------------------------

    def joined(self, left: Piece, kind: Kind) -> Piece | None:
        """Return a source joined by its first column, of a kind, with a relation that has one."""
        right = self.named()
        column = self.expressions.column(kind, right.scope)
        if column is None:
            return None
        on = Expr(Kind.BOOL, "{0} = {1}", (left.scope[0], column))
        join = self.random.choice(("JOIN", "JOIN", "LEFT JOIN", *_ONE_SIDED))
        rows = left.rows if join in _ONE_SIDED else _fan_out(left, right)
        return _joined(join, left, right, on, rows)

    def _join(self, left: Piece, fuel: int) -> Piece:
        random = self.random
        right = self.one(fuel)
        if isinstance(left.source, Named) and random.random() < 0.15:  # with itself
            right = self.named(next(k for k in self.known if k.name == left.source.name))
        kind = random.choice(("JOIN", "JOIN", "JOIN", *_OUTER, "LEFT JOIN", *_ONE_SIDED))
        small = left.rows * right.rows <= _CROSSED
        draw = random.random()
        if small and draw < 0.05:
            return _joined("CROSS JOIN", left, right, None, left.rows * right.rows)
        if small and draw < 0.12:
            on = self.expressions.comparison((*left.scope, *right.scope), 1)
            return _joined(kind, left, right, replace(on, tag="ON without equality"), _CROSSED)
        on = self._equality(left, right)
        if on is None:
            return left
        rows = _fan_out(left, right)
        if kind in _ONE_SIDED:
            rows = left.rows
        if rows > MOST_ROWS:
            return left
        draw = random.random()
        if draw < 0.25:
            residual = self._residual(left, right)
            on = Expr(Kind.BOOL, "{0} AND {1}", (on, residual), "ON with residual")
        elif draw < 0.29:
            side = random.choice((left, right)).qualified
            on = Expr(Kind.BOOL, "{0} AND {1}", (on, self.predicate(side)), "ON with subquery")
        return _joined(kind, left, right, on, rows)

    def _equality(self, left: Piece, right: Piece) -> Expr | None:
        pairs = [
            (a, b) for a in left.scope for b in right.scope if a.kind is b.kind and a.kind in _KEYS
        ]
        if not pairs:
            return None
        same = [(a, b) for a, b in pairs if a.template.split(".")[-1] == b.template.split(".")[-1]]
        a, b = self.random.choice(same if same and self.random.random() < 0.7 else pairs)
        draw = self.random.random()
        if draw < 0.08:
            return Expr(Kind.BOOL, "{0} <=> {1}", (a, b), "ON <=>")
        if draw < 0.14 and a.kind is Kind.INT:
            return Expr(Kind.BOOL, "{0} = {1} + 1", (a, b), "ON expression")
        equality = Expr(Kind.BOOL, "{0} = {1}", (a, b))
        if draw > 0.85:
            more = Expr(Kind.BOOL, "{0} = {1}", self.random.choice(pairs))
            return Expr(Kind.BOOL, "{0} AND {1}", (equality, more), "ON two equalities")
        return equality

    def _residual(self, left: Piece, right: Piece) -> Expr:
        temporal = self.expressions.temporal((*left.scope, *right.scope))
        if temporal is not None and self.random.random() < 0.12:
            return temporal
        times = [(a, b) for a in left.scope for b in right.scope if a.kind is b.kind is Kind.TIME]
        if times and self.random.random() < 0.6:
            template = "{0} BETWEEN {1} - INTERVAL '20' MINUTE AND {1} + INTERVAL '10' MINUTE"
            return Expr(Kind.BOOL, template, self.random.choice(times), "interval join")
        return self.expressions.comparison((*left.scope, *right.scope), 1)

    def _using(self, left: Piece, right: Piece) -> Piece:
        """Join two sources by the columns that have the same name."""
        of_right = {c.template.split(".")[-1]: c for c in right.scope}
        names = [c.template.split(".")[-1] for c in left.scope]
        shared = [n for n, c in zip(names, left.scope, strict=True) if _fits(c, of_right.get(n))]
        natural = self.random.random() < 0.3
        if natural and any(n in of_right and n not in shared for n in names):
            return left
        if not natural:
            shared = sorted(
                self.random.sample(shared, min(len(shared), self.random.choice((1, 1, 2))))
            )
        rows = _fan_out(left, right)
        if not shared or rows > MOST_ROWS:
            return left
        kinds = ("JOIN", "JOIN", *_OUTER, *(() if natural else _ONE_SIDED))
        kind = self.random.choice(kinds)
        join = Join(kind, left.source, right.source, None, tuple(shared), natural)
        by_text = {c.template: c for c in (*left.scope, *right.scope)}
        scope = [by_text[o] if "." in o else replace(of_right[o], template=o) for o in join.outputs]
        return Piece(join, tuple(scope), rows)

    def _lateral(self, piece: Piece) -> Piece:
        if not piece.qualified:
            return piece
        right = self.derived(self.lateral(piece))
        kind = self.random.choice(("CROSS JOIN LATERAL", "LEFT JOIN LATERAL"))
        on = Expr(Kind.BOOL, "TRUE") if kind.startswith("LEFT") else None
        return _joined(kind, piece, right, on, piece.rows)

    def _explode(self, piece: Piece) -> Piece:
        kind, template, columns = self.random.choice(
            (
                (Kind.INT, "explode(array({0}, 1, {0}))", (Kind.INT,)),
                (Kind.INT, "explode(sequence(1, pmod({0}, 3)))", (Kind.INT,)),
                (Kind.TEXT, "explode(split({0}, ''))", (Kind.TEXT,)),
                (Kind.INT, "posexplode(array({0}, 2))", (Kind.INT, Kind.INT)),
            )
        )
        view = self.random.choice(
            ("LATERAL VIEW", "LATERAL VIEW OUTER", "CROSS JOIN LATERAL", "LEFT JOIN LATERAL")
        )
        scope = piece.qualified if "JOIN" in view else piece.scope
        argument = self.expressions.column(kind, scope)
        if argument is None or 3 * piece.rows > MOST_ROWS:
            return piece
        alias = self.alias()
        call = Expr(
            Kind.LIST, f"{view} {template}", (argument,), f"{view} {template.split('(')[0]}"
        )
        names = tuple(f"e{i}" for i in range(len(columns)))
        exploded = Explode(piece.source, call, alias, names)
        outputs = [Output(n, k, argument.bound + 3) for n, k in zip(names, columns, strict=True)]
        return Piece(exploded, (*piece.scope, *_scope(alias, outputs)), 3 * piece.rows)


def _fits(left: Expr, right: Expr | None) -> bool:
    return right is not None and left.kind is right.kind and left.kind is not Kind.LIST


def _fan_out(left: Piece, right: Piece) -> int:
    return max(left.rows, right.rows, left.rows * right.rows // 5)


def _joined(kind: str, left: Piece, right: Piece, on: Expr | None, rows: int) -> Piece:
    scope = left.scope if kind in _ONE_SIDED else (*left.scope, *right.scope)
    return Piece(Join(kind, left.source, right.source, on), scope, rows)
