"""``INSERT ... ON CONFLICT``: resolves new rows whose key exists in the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog import Table
from headrace.errors import Code, HeadraceError, Span
from headrace.parts.places import in_statement
from headrace.serving import key_values
from headrace.sql import Insert, OnConflict, quote
from headrace.statements.changing.assignments import split_assignments, updated

if TYPE_CHECKING:
    from headrace.catalog import Stream
    from headrace.parts.evaluating import Evaluator
    from headrace.types import RelationId

EXCLUDED = "excluded"
"""The name of the new row in assignments, as in PostgreSQL."""


def require_key(table: Stream | Table, statement: Insert) -> None:
    """Raise if a conflict clause can never apply.

    Raises:
        HeadraceError: ``invalid`` without a primary key, or for other columns than the key's.
    """
    chosen = statement.on_conflict
    if not isinstance(table, Table) or not table.primary_key:
        what = "OR REPLACE" if chosen is None else "ON CONFLICT"
        raise HeadraceError(
            Code.INVALID,
            f'{what} on {table.kind} "{table.name}", which has no PRIMARY KEY',
            hint="Leave it out: without a key, all rows are kept.",
            span=statement.span if chosen is None else chosen.span,
        )
    key = {name.lower() for name in table.primary_key}
    if chosen is None:
        return
    if chosen.columns and {name.lower() for name in chosen.columns} != key:
        raise HeadraceError(
            Code.INVALID,
            f"ON CONFLICT ({', '.join(chosen.columns)}) does not name the primary key",
            hint=f"Rows are unique by ({', '.join(table.primary_key)}) only.",
            span=chosen.span,
        )
    for assignment in chosen.assignments:
        if assignment.column.lower() in key:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'DO UPDATE of "{assignment.column}", part of the primary key, is not supported',
                hint="Use UPDATE to give a row another key.",
                span=assignment.span,
            )


@dataclass(frozen=True, slots=True)
class Resolved:
    """The rows that an INSERT with a conflict clause writes: new rows and updated existing ones."""

    inserted: pa.Table
    updated: pa.Table


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Resolves conflicts between new rows and the rows of a table."""

    evaluator: Evaluator
    table: Table
    clause: OnConflict

    def resolved(self, rows: pa.Table, existing: pa.Table) -> Resolved:
        """Return the rows to write; ``existing`` has the existing rows of the same keys.

        Raises:
            HeadraceError: ``conflict`` if two new rows would update one.
        """
        key = self.table.primary_key
        places = {found: place for place, found in enumerate(key_values(existing, key))}
        fresh: list[int] = []
        pairs: list[tuple[int, int]] = []
        seen: set[object] = set()
        for row, found in enumerate(key_values(rows, key)):
            twice = found in seen
            seen.add(found)
            if twice and self.clause.assignments:
                raise self._twice(rows, row)
            if found in places:
                pairs.append((places[found], row))
            elif not twice:
                fresh.append(row)
        inserted = rows.take(pa.array(fresh, pa.int64()))
        if not self.clause.assignments or not pairs:
            return Resolved(inserted, existing.slice(0, 0))
        old = existing.take(pa.array([place for place, _ in pairs], pa.int64()))
        new = rows.take(pa.array([row for _, row in pairs], pa.int64()))
        return Resolved(inserted, self._updated(old, new))

    def _updated(self, old: pa.Table, excluded: pa.Table) -> pa.Table:
        table, clause = self.table, self.clause
        columns = {column.name.lower(): column for column in table.schema.columns}
        constants, computed = split_assignments(
            [(columns[a.column.lower()], a.expression.span) for a in clause.assignments],
            dict(table.declaration.defaults),
        )
        expressions = [f"({span.source}) AS `__new{i}`" for i, (_, span) in enumerate(computed)]
        if clause.where is not None:
            expressions.append(f"({clause.where.text}) AS `__where`")
        values: list[Any] = []
        if expressions:
            found = self._evaluated(old, excluded, expressions)
            values = [found[f"__new{i}"] for i in range(len(computed))]
            if clause.where is not None:
                chosen_rows = found["__where"]
                old = old.filter(chosen_rows)
                values = [column.filter(chosen_rows) for column in values]
        return updated(table.schema, old, constants, computed, values)

    def _evaluated(self, old: pa.Table, excluded: pa.Table, expressions: list[str]) -> pa.Table:
        """Evaluate expressions with Spark over pairs of an existing row and a new row."""
        table, span = self.table, self.clause.span
        columns = table.schema.columns
        doubled = any(a.span.source.startswith('"') for a in self.clause.assignments)
        name = table.name.rsplit(".", 1)[-1]
        alias = f'"{name}"' if doubled and '"' not in name else quote(name)

        def given(value: Any) -> str:
            own = [f"{value('o', i, c)} AS {quote(c.name)}" for i, c in enumerate(columns)]
            other = [f"{value('e', i, c)} AS {quote(c.name)}" for i, c in enumerate(columns)]
            return ", ".join([*own, f"struct({', '.join(other)}) AS `{EXCLUDED}`"])

        nothing = given(lambda _side, _i, c: f"CAST(NULL AS {c.type.simpleString()})")
        text = f"SELECT {', '.join(expressions)} FROM (SELECT {nothing}) AS {alias}"
        try:
            planned = self.evaluator.planned(Span.whole(text))
            self._require_own(planned.shape.names)
            pairs = pa.table(
                [*old.select(table.schema.names).columns, *excluded.columns],
                names=[f"{side}{i}" for side in "oe" for i in range(len(columns))],
            )
            columns_given = given(lambda side, i, _c: f"`{side}{i}`")
            source = f"(SELECT __place, {columns_given} FROM __rows) AS {alias}"
            return self.evaluator.computed(pairs, expressions, source)
        except HeadraceError as error:
            raise in_statement(error, span) from error

    def _require_own(self, names: tuple[RelationId, ...]) -> None:
        """Raise if an expression reads other relations."""
        if names:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "ON CONFLICT that reads other relations is not supported",
                hint="Use INSERT ... SELECT with a join.",
            )

    def _twice(self, rows: pa.Table, row: int) -> HeadraceError:
        shown = ", ".join(f"{name} = {rows[name][row]}" for name in self.table.primary_key)
        return HeadraceError(
            Code.CONFLICT,
            f'ON CONFLICT DO UPDATE would change a row of table "{self.table.name}" twice',
            detail=f"Several rows to be inserted have {shown}. Nothing was changed.",
            hint="Insert one row per key.",
            span=self.clause.span,
        )
