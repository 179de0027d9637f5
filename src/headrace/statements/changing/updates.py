"""UPDATE, DELETE and TRUNCATE: statements that change the rows they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span
from headrace.parts.log import Changed
from headrace.parts.places import in_statement
from headrace.parts.written_rows import require_present, weighted
from headrace.serving import key_values
from headrace.sql import Delete, Truncate, Update, quote
from headrace.statements.changing.assignments import split_assignments, updated
from headrace.statements.changing.targets import (
    WrittenRows,
    as_defined,
    chosen,
    require_defined,
    table_named,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalog import Table
    from headrace.catalyst.analysed import Shape
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.parts.snapshots import Snapshots
    from headrace.runtime.published import Published


@dataclass(frozen=True, slots=True)
class Updates:
    """Changes the rows of tables; durable when a method returns."""

    reader: Reader
    snapshots: Snapshots
    log: Log

    def update(self, statement: Update) -> WrittenRows:
        """Replace the matching rows; all are read before this statement's changes."""
        return as_defined(
            lambda: table_named(self.reader.catalog, statement.target),
            lambda table: self._update(table, statement),
        )

    def _update(self, table: Table, statement: Update) -> WrittenRows:
        names = table.schema.names
        for assignment in statement.assignments:
            chosen(table, (assignment.column,), assignment.span)
        columns = {column.name.lower(): column for column in table.schema.columns}
        assigned = [(columns[a.column.lower()], a.expression.span) for a in statement.assignments]
        constants, computed = split_assignments(assigned, dict(table.declaration.defaults))
        text = ", ".join(
            [quote(name) for name in names]
            + [f"({span.source}) AS `__new{i}`" for i, (_, span) in enumerate(computed)]
        )
        names_of = [statement.target.span, *(a.span for a in statement.assignments)]

        def changed() -> Changed:
            found, state = self._matching(table, text, statement.where, statement.span, names_of)
            old = found.select(range(len(names)))
            values = found.columns[len(names) :]
            new = updated(table.schema, old, constants, computed, values)
            require_present(table, new, statement.span)
            if not table.primary_key:
                changes = [weighted(old, -1), weighted(new, 1)]
            else:
                moved = not {a.column.lower() for a in statement.assignments}.isdisjoint(
                    name.lower() for name in table.primary_key
                )
                if moved:
                    _require_distinct(table, new, statement.span)
                    self._require_free(table, old, new, statement.span, state)
                changes = [*([weighted(old, -1)] if moved else []), weighted(new, 1)]
            return Changed(state, old.num_rows, tuple(changes))

        return WrittenRows(table.id, *self.log.change(table, changed))

    def delete(self, statement: Delete) -> WrittenRows:
        """Delete the matching rows; all are read before this statement's changes."""
        return as_defined(
            lambda: table_named(self.reader.catalog, statement.target),
            lambda table: self._delete(table, statement),
        )

    def _delete(self, table: Table, statement: Delete) -> WrittenRows:
        text = ", ".join(quote(name) for name in table.schema.names)

        def changed() -> Changed:
            places = [statement.target.span]
            old, state = self._matching(table, text, statement.where, statement.span, places)
            return Changed(state, old.num_rows, (weighted(old, -1),))

        return WrittenRows(table.id, *self.log.change(table, changed))

    def truncate(self, statement: Truncate) -> WrittenRows:
        """Delete all rows of a table."""
        return self.delete(Delete(statement.target, statement.span))

    # -- evaluation ------------------------------------------------------------------------

    def _require_free(
        self, table: Table, old: pa.Table, new: pa.Table, span: Span, state: Published
    ) -> None:
        """Raise if an update would give a row the key of another remaining row."""
        key = list(table.primary_key)
        moving = set(key_values(old, key))
        moved = [place for place, found in enumerate(key_values(new, key)) if found not in moving]
        keys = new.select(key).take(pa.array(moved, pa.int64()))
        there = self.reader.contents(state, table).with_keys(keys)
        if not there.num_rows:
            return
        shown = ", ".join(f"{name} = {there[name][0]}" for name in key)
        raise HeadraceError(
            Code.CONFLICT,
            f'table "{table.name}" has another row with {shown}',
            detail="The update would replace it. Nothing was changed.",
            hint="Choose a key that is free, or DELETE the other row first.",
            span=span,
        )

    def _matching(
        self, table: Table, columns: str, where: Any, span: Span, names: Iterable[Span]
    ) -> tuple[pa.Table, Published]:
        # Doubled parentheses: `FROM t WHERE (x)` can also mean a table alias "where" with a column.
        condition = "" if where is None else f" WHERE (({where.text}))"
        # If the statement has double-quoted names, the generated query has them, too.
        doubled = any(name.source.startswith('"') for name in names)
        name = f'"{table.name}"' if doubled and '"' not in table.name else quote(table.name)
        text = f"SELECT {columns} FROM {name}{condition}"

        def state(shape: Shape) -> Published:
            return self.reader.settled((*shape.reads, table.id))

        whole, also = Span.whole(text), (table.id,)
        try:
            rows, read = self.snapshots.rows(whole, state, lambda _: text, also)
        except HeadraceError as error:
            raise in_statement(error, span) from error
        require_defined(table, read)
        return rows, read


def _require_distinct(table: Table, rows: pa.Table, span: Span) -> None:
    keys = rows.select(list(table.primary_key))
    if keys.group_by(list(table.primary_key)).aggregate([]).num_rows < rows.num_rows:
        raise HeadraceError(
            Code.INVALID,
            f'the update would give two rows of table "{table.name}" the same primary key',
            span=span,
        )
