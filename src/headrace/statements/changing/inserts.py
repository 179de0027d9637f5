"""INSERT, and rows passed by a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.catalog import Stream, Table
from headrace.errors import Span
from headrace.parts.admission import takes_some
from headrace.parts.log import Changed
from headrace.parts.written_rows import require_present, weighted
from headrace.statements.changing.conflicts import Conflicts, require_key
from headrace.statements.changing.given_rows import Rows, given_rows
from headrace.statements.changing.query_rows import QueryRows
from headrace.statements.changing.targets import (
    WrittenRows,
    chosen,
    table_named,
    target_named,
    writable,
)

if TYPE_CHECKING:
    from headrace.ledger import ProducerPosition
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.parts.snapshots import Snapshots
    from headrace.sql import Insert, OnConflict
    from headrace.types import Column


@dataclass(frozen=True, slots=True)
class Inserts:
    """Appends rows to streams and tables; durable when a method returns."""

    reader: Reader
    snapshots: Snapshots
    log: Log

    def insert(self, statement: Insert) -> WrittenRows:
        """Append the rows of a query; a row replaces the existing row of its primary key."""
        relation = target_named(self.reader.catalog, statement.target)
        columns, clause = chosen(relation, statement.columns, statement.span), statement.on_conflict
        if clause is not None or statement.replace:
            require_key(relation, statement)
        if clause is None:
            rows = self._evaluated(relation, columns, statement.query.span)
            return self._append(relation, rows)
        table = table_named(self.reader.catalog, statement.target)
        for assignment in clause.assignments:
            chosen(table, (assignment.column,), assignment.span)
        rows = self._evaluated(table, columns, statement.query.span)
        return self._resolved(table, rows, clause)

    def append(
        self, name: str, rows: Rows, producer: ProducerPosition | None = None
    ) -> WrittenRows:
        """Append rows passed by a program, matched to columns by name."""
        relation = writable(self.reader.catalog, self.reader.catalog.resolve(name))
        span = Span.whole(name)
        given = given_rows(
            rows,
            chosen(relation, (), span),
            lambda names: chosen(relation, names, span),
            [name for name, _ in relation.declaration.defaults],
        )
        whole = self.log.with_defaults(relation, given)
        require_present(relation, whole, None)
        return self._append(relation, whole, producer)

    def _evaluated(
        self, relation: Stream | Table, columns: tuple[Column, ...], query: Span
    ) -> pa.Table:
        """Return the rows of a query for some columns, with the defaults of all others."""
        defaults = dict(relation.declaration.defaults)
        rows = QueryRows(self.reader, self.snapshots).evaluated(query, columns, defaults)
        rows = self.log.with_defaults(relation, rows)
        require_present(relation, rows, query)
        return rows

    def _append(
        self, relation: Stream | Table, rows: pa.Table, producer: ProducerPosition | None = None
    ) -> WrittenRows:
        changes = weighted(rows, 1) if isinstance(relation, Table) else rows
        appended = self.log.append(relation, changes, producer=producer)
        left_out = rows.num_rows - appended.rows if takes_some(relation) else 0
        return WrittenRows(relation.id, rows.num_rows - left_out, appended.end, left_out)

    def _resolved(self, table: Table, rows: pa.Table, clause: OnConflict) -> WrittenRows:
        """Append rows by a conflict clause; retry if the table's rows change meanwhile."""
        conflicts = Conflicts(self.snapshots.evaluator, table, clause)

        def changed() -> Changed:
            state = self.reader.settled([table.id])
            keys = rows.select(list(table.primary_key))
            there = self.reader.contents(state, table).with_keys(keys)
            written = conflicts.resolved(rows, there)
            require_present(table, written.updated, clause.span)
            new = pa.concat_tables([written.inserted, written.updated])
            return Changed(state, new.num_rows, (weighted(new, 1),))

        return WrittenRows(table.id, *self.log.change(table, changed))
