"""Random aggregate and window function calls whose value does not hang on an order of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator.syntax import Expr, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from generator.expressions import Expressions

INT, LONG, TEXT, DECIMAL = Kind.INT, Kind.LONG, Kind.TEXT, Kind.DECIMAL
DATE, TIME, BOOL, DOUBLE, LIST = Kind.DATE, Kind.TIME, Kind.BOOL, Kind.DOUBLE, Kind.LIST

ROWS = 100_000
"""More rows than a query of a case has: what bounds a sum."""

_SUMMED = (INT, LONG, DECIMAL)
_SORTED = (INT, LONG, TEXT, DECIMAL, DATE, TIME, Kind.OF_DAY)
_EXACT = 2**53

# The kinds that a function takes, the kind that it returns (None: the one it takes), a template.
_CALLS: dict[str, tuple[int, tuple[Kind, ...], Kind | None, str]] = {
    "count(*)": (6, (), LONG, "count(*)"),
    "count": (3, (*_SORTED, BOOL, DOUBLE), LONG, "count({0})"),
    "sum": (6, _SUMMED, LONG, "sum({0})"),
    "sum FILTER that guards": (1, (INT,), LONG, "sum(7 DIV {0}) FILTER (WHERE {0} <> 0)"),
    "avg": (3, (INT, DECIMAL), DOUBLE, "avg({0})"),
    "min": (3, (*_SORTED, BOOL, DOUBLE), None, "min({0})"),
    "max": (3, (*_SORTED, BOOL, DOUBLE), None, "max({0})"),
    "count(DISTINCT)": (3, (*_SORTED, BOOL), LONG, "count(DISTINCT {0})"),
    "count(DISTINCT *)": (1, (), LONG, "count(DISTINCT *)"),
    "sum(DISTINCT)": (1, _SUMMED, LONG, "sum(DISTINCT {0})"),
    "avg(DISTINCT)": (1, (INT,), DOUBLE, "avg(DISTINCT {0})"),
    "bool_and": (1, (BOOL,), BOOL, "bool_and({0})"),
    "bool_or": (1, (BOOL,), BOOL, "bool_or({0})"),
    "count_if": (1, (BOOL,), LONG, "count_if({0})"),
    "bit_xor": (1, (INT,), INT, "bit_xor({0})"),
    "stddev_samp": (1, (INT, DECIMAL), DOUBLE, "round(stddev_samp({0}), 6)"),
    "var_pop": (1, (INT,), DOUBLE, "round(var_pop({0}), 6)"),
    "collect_list": (2, _SORTED, LIST, "sort_array(collect_list({0}))"),
    "collect_set": (1, _SORTED, LIST, "sort_array(collect_set({0}))"),
    "collect_list, array_sort": (1, _SORTED, LIST, "array_sort(collect_list({0}))"),
    "percentile": (1, (INT, DECIMAL), DOUBLE, "percentile({0}, 0.5)"),
    "median": (1, (INT,), DOUBLE, "median({0})"),
    "percentile_cont": (
        1,
        (INT, DECIMAL),
        DOUBLE,
        "percentile_cont(0.25) WITHIN GROUP (ORDER BY {0} DESC)",
    ),
    "mode": (1, _SORTED, None, "mode({0}, true)"),
    "approx_count_distinct": (1, (INT, TEXT, DATE), LONG, "approx_count_distinct({0})"),
    "bit_or": (1, (INT,), INT, "bit_or({0})"),
    "max(struct)": (1, (*_SORTED, BOOL), LIST, "max(struct({0} IS NULL, {0}))"),
    "min(array)": (1, (*_SORTED, BOOL), LIST, "min(array({0}, {0}))"),
    "listagg": (1, (TEXT,), TEXT, "listagg({0}, ',') WITHIN GROUP (ORDER BY {0})"),
}
_NOT_FILTERED = (
    "stddev_samp",
    "var_pop",
    "collect_list",
    "collect_set",
    "collect_list, array_sort",
    "sum FILTER that guards",
)


class Calls:
    """Makes calls over the columns in scope."""

    def __init__(self, random: Random, expressions: Expressions) -> None:
        self.random = random
        self.expressions = expressions

    # -- aggregates ------------------------------------------------------------------------

    def aggregate(self, scope: Sequence[Expr]) -> Expr:
        """Return a call of an aggregate function."""
        draw = self.random.random()
        if draw < 0.05:
            return self._extreme_by(scope)
        if draw < 0.08:
            pair = [self._argument((INT, TEXT), scope) for _ in range(2)]
            template = "count(DISTINCT {0}, {1})"
            return Expr(LONG, template, tuple(pair), "count(DISTINCT a, b)", ROWS)
        names = list(_CALLS)
        name = self.random.choices(names, [_CALLS[n][0] for n in names])[0]
        return self._filtered(name, self._call(name, scope), scope)

    def _call(self, name: str, scope: Sequence[Expr]) -> Expr:
        _, kinds, result, template = _CALLS[name]
        if not kinds:
            return Expr(LONG, template, (), name, ROWS)
        argument = self._argument(kinds, scope)
        kind = result or argument.kind
        if name.startswith(("sum", "avg")) and argument.bound * ROWS > _EXACT:
            return Expr(LONG, "count({0})", (argument,), "count", ROWS)
        if name.startswith("sum") and argument.kind is DECIMAL:
            kind = DECIMAL
        if name == "avg" and argument.kind is DECIMAL:
            kind = DECIMAL
        bound = ROWS if kind is LONG and not name.startswith("sum") else argument.bound
        bound = argument.bound * ROWS if name.startswith("sum") else bound
        return Expr(kind, template, (argument,), name, bound)

    def _filtered(self, name: str, call: Expr, scope: Sequence[Expr]) -> Expr:
        if name in _NOT_FILTERED or self.random.random() > 0.12:
            return call
        condition = self.expressions.comparison(scope)
        template = f"{call.template} FILTER (WHERE {{{len(call.args)}}})"
        return Expr(call.kind, template, (*call.args, condition), f"{name} FILTER", call.bound)

    def _extreme_by(self, scope: Sequence[Expr]) -> Expr:
        """Return max_by or min_by, whose order is unique: it ends with the value itself."""
        value, by = self._argument(_SORTED, scope), self._argument(_SORTED, scope)
        name = self.random.choice(("max_by", "min_by"))
        return Expr(
            value.kind, f"{name}({{0}}, struct({{1}}, {{0}}))", (value, by), name, value.bound
        )

    def _argument(self, kinds: Sequence[Kind], scope: Sequence[Expr]) -> Expr:
        columns = [c for c in scope if c.kind in kinds]
        if columns and self.random.random() < 0.75:
            return self.random.choice(columns)
        there = [k for k in kinds if any(c.kind is k for c in scope)]
        return self.expressions.make(self.random.choice(there or list(kinds)), scope, 1)

    # -- window functions ------------------------------------------------------------------

    def window(self, scope: Sequence[Expr]) -> Expr:
        """Return a window function; its order ends with all columns where ties would matter."""
        return self.random.choice((self._ranked, self._ranked, self._framed, self._ranged))(scope)

    def row_number(self, scope: Sequence[Expr]) -> Expr:
        """Return ROW_NUMBER, for the first rows of each partition."""
        partition, by = self._argument(_SORTED, scope), self._argument(_SORTED, scope)
        desc = self.random.choice(("", " DESC"))
        template = f"row_number() OVER (PARTITION BY {{0}} ORDER BY {{1}}{desc}, {{total}})"
        return Expr(INT, template, (partition, by), "row_number()", ROWS)

    def _ranked(self, scope: Sequence[Expr]) -> Expr:
        name = self.random.choice(
            (
                "row_number",
                "rank",
                "dense_rank",
                "ntile",
                "lag",
                "lead",
                "first_value",
                "last_value",
                "nth_value",
                "percent_rank",
                "cume_dist",
            )
        )
        over, args = self._over(scope)
        if name in ("rank", "dense_rank", "percent_rank", "cume_dist"):
            order = self._argument(_SORTED, scope)
            return Expr(
                DOUBLE if name in ("percent_rank", "cume_dist") else INT,
                f"{name}() OVER ({over} ORDER BY {{{len(args)}}})",
                (*args, order),
                f"{name}()",
                ROWS,
            )
        if name in ("row_number", "ntile"):
            count = "3" if name == "ntile" else ""
            return Expr(
                INT, f"{name}({count}) OVER ({over} ORDER BY {{total}})", args, f"{name}()", ROWS
            )
        value = self._argument(_SORTED, scope)
        given = f"{{{len(args)}}}"
        more = {
            "lag": ("", ", 2", f", 1, {given}"),
            "lead": ("", ", 2", f", 1, {given}"),
            "nth_value": (", 2", ", 3"),
        }
        arguments = given + self.random.choice(more.get(name, ("",)))
        nulls = self.random.choice(("", "", " IGNORE NULLS"))
        template = f"{name}({arguments}){nulls} OVER ({over} ORDER BY {{total}})"
        return Expr(value.kind, template, (*args, value), f"{name}()", value.bound)

    def _framed(self, scope: Sequence[Expr]) -> Expr:
        """Return an aggregate over ROWS in a total order, or over the whole partition."""
        over, args = self._over(scope)
        frame = self.random.choice(
            (
                "",
                "ORDER BY {total}",
                "ORDER BY {total} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                "ORDER BY {total} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                "ORDER BY {total} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            )
        )
        form = "ROWS frame" if "ROWS" in frame else "ordered" if frame else "whole partition"
        return self._over_frame(scope, args, f"{over} {frame}", form)

    def _ranged(self, scope: Sequence[Expr]) -> Expr:
        """Return an aggregate over RANGE, where ties are all in or all out."""
        over, args = self._over(scope)
        order = self.expressions.column(self.random.choice((INT, INT, DATE, TIME)), scope)
        if order is None:
            return self._framed(scope)
        step = {INT: "2", DATE: "1", TIME: "INTERVAL '10' MINUTE"}[order.kind]
        start = self.random.choice(("UNBOUNDED", step))
        end = self.random.choice(("CURRENT ROW", f"{step} FOLLOWING"))
        frame = f"ORDER BY {{{len(args)}}} RANGE BETWEEN {start} PRECEDING AND {end}"
        return self._over_frame(scope, (*args, order), f"{over} {frame}", "RANGE frame")

    def _over_frame(
        self, scope: Sequence[Expr], args: tuple[Expr, ...], over: str, form: str
    ) -> Expr:
        name = self.random.choice(("sum", "sum", "count(*)", "count", "min", "max", "avg"))
        call = self._call(name, scope)
        template = call.template.replace("{0}", f"{{{len(args)}}}")
        tag = f"{call.tag} OVER {form}"
        return Expr(call.kind, f"{template} OVER ({over})", (*args, *call.args), tag, call.bound)

    def _over(self, scope: Sequence[Expr]) -> tuple[str, tuple[Expr, ...]]:
        if self.random.random() < 0.2:
            return "", ()
        columns = [c for c in scope if c.kind in (INT, TEXT, DATE, BOOL)]
        key = self.random.choice(columns or list(scope))
        return "PARTITION BY {0}", (key,)
