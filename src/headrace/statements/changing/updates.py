"""INSERT, UPDATE, DELETE, TRUNCATE and COPY: statements that write to logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog import Relation, Sink, Stream, Table
from headrace.connectors import Given
from headrace.connectors.file_source import FileOptions, FileSource
from headrace.errors import Code, HeadraceError, Span, nearest
from headrace.formats.debezium import DebeziumChanges, image_schema, is_debezium, refuse_choices
from headrace.formats.envelopes import read_envelopes
from headrace.ledger import ProducerPosition
from headrace.log import LogShare, read_range
from headrace.parts.log import alone, append, changing
from headrace.parts.written_rows import completed
from headrace.runtime.ports import Part
from headrace.runtime.shares import log_share
from headrace.serving import Contents, key_values
from headrace.sql import Copy, Delete, Insert, Name, Truncate, Update, quote
from headrace.statements.changing.assignments import split_assignments, updated
from headrace.statements.changing.conflicts import Conflicts, found_in, place_of_text, require_key
from headrace.statements.changing.loading import Load
from headrace.statements.changing.query_rows import evaluate_query
from headrace.statements.results import Progress
from headrace.types import Column, Offset, Schema
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from headrace.catalyst.analysed import Analysed
    from headrace.ledger import ProducerPosition
    from headrace.parts.instance import Instance
    from headrace.runtime.published import Published

Report = Callable[[Progress], None]
Written = tuple[int, Offset]
"""The number of changes appended, and the log's end after them."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Writes to the streams and tables of one instance; durable when a method returns."""

    instance: Instance
    progress: Report

    # -- statements ------------------------------------------------------------------------

    def insert(self, statement: Insert) -> Written:
        """Append the rows of a query; a row replaces the existing row of its primary key."""
        relation = self.target(statement.target)
        columns = chosen(relation, statement.columns, statement.span)
        span, defaults = statement.query.span, dict(relation.declaration.defaults)
        if statement.on_conflict is not None or statement.replace:
            require_key(relation, statement)
        if statement.on_conflict is None:
            rows = evaluate_query(self.instance, span, columns, defaults)
            return self.append(relation, completed(self.instance.queries, relation, rows), span)
        table = self._table(statement.target)
        for assignment in statement.on_conflict.assignments:
            chosen(table, (assignment.column,), assignment.span)
        rows = evaluate_query(self.instance, span, columns, defaults)
        rows = completed(self.instance.queries, table, rows)
        require_present(table, rows, span)
        conflicts = Conflicts(self.instance, table, statement.on_conflict)

        def resolved() -> _Changed:
            state = self.instance.reader.settled([table.id])
            there = self._rows_with_keys(table, rows.select(list(table.primary_key)), state)
            written = conflicts.resolved(rows, there)
            require_present(table, written.updated, conflicts.clause.span)
            new = pa.concat_tables([written.inserted, written.updated])
            return _Changed(state, new.num_rows, (_weighted(new, 1),))

        return self._change(table, resolved)

    def append(
        self,
        relation: Stream | Table,
        rows: pa.Table,
        span: Span | None = None,
        producer: ProducerPosition | None = None,
    ) -> Written:
        """Append rows with all columns of the relation, as insertions."""
        require_present(relation, rows, span)
        if isinstance(relation, Table):
            rows = rows.append_column(WEIGHT, pa.array(np.ones(rows.num_rows, np.int64)))
        return rows.num_rows, append(self.instance, relation, rows, producer=producer)

    def update(self, statement: Update) -> Written:
        """Replace the matching rows; all are read before this statement's changes."""
        table = self._table(statement.target)
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

        def changed() -> _Changed:
            found, state = self._matching(table, text, statement.where, statement.span, names_of)
            old = found.select(range(len(names)))
            values = found.columns[len(names) :]
            new = updated(table.schema, old, constants, computed, values)
            require_present(table, new, statement.span)
            if not table.primary_key:
                changes = [_weighted(old, -1), _weighted(new, 1)]
            else:
                moved = not {a.column.lower() for a in statement.assignments}.isdisjoint(
                    name.lower() for name in table.primary_key
                )
                if moved:
                    _require_distinct(table, new, statement.span)
                    self._require_free(table, old, new, statement.span, state)
                changes = [*([_weighted(old, -1)] if moved else []), _weighted(new, 1)]
            return _Changed(state, old.num_rows, tuple(changes))

        return self._change(table, changed)

    def delete(self, statement: Delete) -> Written:
        """Delete the matching rows; all are read before this statement's changes."""
        table = self._table(statement.target)
        text = ", ".join(quote(name) for name in table.schema.names)

        def changed() -> _Changed:
            places = [statement.target.span]
            old, state = self._matching(table, text, statement.where, statement.span, places)
            return _Changed(state, old.num_rows, (_weighted(old, -1),))

        return self._change(table, changed)

    def truncate(self, statement: Truncate) -> Written:
        """Delete all rows of a table."""
        return self.delete(Delete(statement.target, statement.span))

    def copy(self, statement: Copy) -> tuple[int, int, Offset, str]:
        """Append a file's rows, in parts; rows that do not fit are stored as rejects.

        Returns the numbers of rows appended and rejected, the log's end, and a note. A load of the
        same file that was interrupted is resumed where it stopped.
        """
        relation = self.target(statement.target)
        path = Path(statement.path)
        if isinstance(relation, Table) and is_debezium(relation):
            # Without a key, deletions name rows that have to be there: nobody else may write them.
            keyed = bool(relation.primary_key)
            with nullcontext() if keyed else alone(self.instance, relation):
                return self._copy_envelopes(statement, relation, path)
        given = Given.of(statement.options)
        load = None
        try:
            options = FileOptions.of(path, given)
            columns = chosen(relation, statement.columns, statement.span)
            load = Load.begin(self.instance, relation, path, restart=options.restart)
            source = FileSource(path, Schema(columns), options)
            for part in source.parts(load.ingest.position):
                rows = completed(self.instance.queries, relation, part.rows)
                if isinstance(relation, Table):
                    rows = _weighted(rows, 1)
                load.land(part, rows)
                self._report(load, part)
            end = load.finish()
        except HeadraceError as error:
            failure = error if load is None else load.stopped(error)
            raise failure.at(statement.path_span) from error
        return load.ingest.landed, load.ingest.rejected, end, load.note

    def _copy_envelopes(
        self, statement: Copy, table: Table, path: Path
    ) -> tuple[int, int, Offset, str]:
        """Append the changes in the envelopes of a file."""
        restart = refuse_choices(statement)
        done, load = 0, None
        try:
            load = Load.begin(self.instance, table, path, restart=restart)
            envelopes = DebeziumChanges(table, str(path), self._rows_to_take_back(table))
            for found in read_envelopes(path, image_schema(table), load.resumed):
                rows, refused = envelopes.changes(found.found)
                rejects, at = (*found.rejects, *refused), found.progress.to_json()
                part = Part(rows, rejects, at, found.bytes_done, found.bytes_total)
                load.land(part, rows)
                done += len(found.found) - len(refused)
                self._report(load, part)
            end = load.finish()
        except HeadraceError as error:
            failure = error if load is None else load.stopped(error)
            raise failure.at(statement.path_span) from error
        return done, load.ingest.rejected, end, load.note

    def _report(self, load: Load, part: Part) -> None:
        what, rejected = f"copying {load.path.name}", load.ingest.rejected
        self.progress(Progress(what, part.done, part.total, "bytes", rejected))

    def _rows_to_take_back(self, table: Table) -> pa.Table | None:
        """Return the rows of a table without a key, in which the deleted rows are looked up."""
        if table.primary_key:
            return None
        state = self.instance.reader.settled([table.id])
        return Contents.of(self.instance.directory, state, table).whole()

    # -- targets ---------------------------------------------------------------------------

    def target(self, name: Name) -> Stream | Table:
        """Return the stream or table that a statement writes to."""
        relation = self.instance.catalog.resolve(name.dotted, name.span)
        return self.target_of(relation, name.span)

    def target_of(self, relation: Relation, span: Span | None = None) -> Stream | Table:
        """Return the relation if it can be written to, or raise."""
        if not isinstance(relation, Stream | Table):
            kind = "sink" if isinstance(relation, Sink) else "view"
            raise HeadraceError(
                Code.INVALID,
                f'{kind} "{relation.name}" cannot be written to',
                hint="Write to the streams and tables that it reads.",
                span=span,
            )
        return relation

    def _table(self, name: Name) -> Table:
        relation = self.target(name)
        if isinstance(relation, Stream):
            raise HeadraceError(
                Code.INVALID,
                f'stream "{relation.name}" is append-only',
                hint="Use a TABLE for rows that change.",
                span=name.span,
            )
        return relation

    # -- evaluation ------------------------------------------------------------------------

    def _require_free(
        self, table: Table, old: pa.Table, new: pa.Table, span: Span, state: Published
    ) -> None:
        """Refuse to give a row the key of another row that stays."""
        key = list(table.primary_key)
        moving = set(key_values(old, key))
        moved = [place for place, found in enumerate(key_values(new, key)) if found not in moving]
        there = self._rows_with_keys(
            table, new.select(key).take(pa.array(moved, pa.int64())), state
        )
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

    def _rows_with_keys(self, table: Table, keys: pa.Table, state: Published) -> pa.Table:
        """Return the rows of a table that have one of these keys."""
        return Contents.of(self.instance.directory, state, table).with_keys(keys)

    def _matching(
        self, table: Table, columns: str, where: Any, span: Span, names: Iterable[Span]
    ) -> tuple[pa.Table, Published]:
        # Doubled parentheses: `FROM t WHERE (x)` can also mean a table alias "where" with a column.
        condition = "" if where is None else f" WHERE (({where.text}))"
        # If the statement has double-quoted names, so has the query generated from it.
        doubled = any(name.source.startswith('"') for name in names)
        name = f'"{table.name}"' if doubled and '"' not in table.name else quote(table.name)
        text = f"SELECT {columns} FROM {name}{condition}"

        def state(analysed: Analysed) -> Published:
            return self.instance.reader.settled((*analysed.reads, table.id))

        whole, also = Span.whole(text), (table.id,)
        try:
            return self.instance.snapshots.rows(whole, state, lambda _: text, also)
        except HeadraceError as error:
            raise HeadraceError(
                error.code, error.primary, error.detail, error.hint, found_in(error.span, span)
            ) from error

    # -- changes of rows that were read ----------------------------------------------------

    def _change(self, table: Table, compute: Callable[[], _Changed]) -> Written:
        """Append the changes that a statement computed from the rows of a table.

        Inserts go on meanwhile. If they touch the rows that are to be changed, the statement is
        computed again, and other writers of this table wait for it.
        """
        with changing(self.instance, table):
            try:
                return self._append_changed(table, compute())
            except _OvertakenError:
                with self.instance.appender.closed(table.id):
                    return self._append_changed(table, compute())

    def _append_changed(self, table: Table, changed: _Changed) -> Written:
        rows = pa.concat_tables(changed.rows)

        def guard(end: Offset) -> None:
            read = changed.state.positions.get(table.id, Offset(0))
            share = log_share(self.instance.ledger, table.id, read, end)
            if _touches(table, rows, self._logged(share)):
                raise _OvertakenError(Code.CONFLICT, "other statements changed the same rows")

        return changed.count, append(self.instance, table, rows, guard=guard)

    def _logged(self, share: LogShare) -> pa.Table | None:
        """Return the changes of a part of a log; None if there are none."""
        directory = self.instance.directory / "log"
        batches = list(read_range(directory, share.segments, share.first, share.end))
        return pa.Table.from_batches(batches) if batches else None


@dataclass(frozen=True, slots=True)
class _Changed:
    """The changes of a statement, the number of rows it counts, and the state it has read."""

    state: Published
    count: int
    rows: tuple[pa.Table, ...]


class _OvertakenError(HeadraceError):
    """Rows that a statement is about to change were changed since it read them."""


def _touches(table: Table, rows: pa.Table, meanwhile: pa.Table | None) -> bool:
    """Return whether changes that were made meanwhile are of the same rows.

    The order of all others does not matter. Without a key, rows are equal or not: insertions touch
    no row that was there.
    """
    if meanwhile is None:
        return False
    if not table.primary_key:
        return bool((pc.min(meanwhile[WEIGHT]).as_py() or 0) < 0)
    key = list(table.primary_key)
    return not set(key_values(rows, key)).isdisjoint(key_values(meanwhile, key))


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.array(np.full(rows.num_rows, weight, np.int64)))


def chosen(relation: Stream | Table, names: tuple[str, ...], span: Span) -> tuple[Column, ...]:
    """Return the columns of these names; all columns if there are none."""
    generated = relation.declaration.generated
    if not names:
        return tuple(c for c in relation.schema.columns if c.name not in generated)
    by_name = {column.name.lower(): column for column in relation.schema.columns}
    for name in names:
        _require_column(relation, name, span)
        if by_name[name.lower()].name in generated:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" is generated, so it cannot be written',
                hint="Leave it out: it is computed, or is the origin of the row.",
                span=place_of_text(name, span),
            )
    return tuple(by_name[name.lower()] for name in names)


def _require_column(relation: Stream | Table, name: str, span: Span) -> None:
    known = relation.schema.names
    if name.lower() in {column.lower() for column in known}:
        return
    close = nearest(name, known)
    raise HeadraceError(
        Code.INVALID,
        f'column "{name}" does not exist in {relation.kind} "{relation.name}"',
        hint=f'Did you mean "{close}"?' if close else f"There are: {', '.join(known)}.",
        span=place_of_text(name, span),
    )


def require_present(relation: Stream | Table, rows: pa.Table, span: Span | None) -> None:
    """Refuse NULL in a NOT NULL column, unless the column is generated."""
    for column in relation.schema.columns:
        found = rows[column.name]
        arrives = column.name not in relation.declaration.generated
        if column.nullable or not arrives or found.null_count == 0:
            continue
        row = found.is_null().to_pylist().index(True) + 1
        raise HeadraceError(
            Code.INVALID,
            f'column "{column.name}" of {relation.kind} "{relation.name}" is NULL in row {row}',
            hint="Give it a value: it is NOT NULL or part of the primary key.",
            span=span,
        )


def _require_distinct(table: Table, rows: pa.Table, span: Span) -> None:
    keys = rows.select(list(table.primary_key))
    if keys.group_by(list(table.primary_key)).aggregate([]).num_rows < rows.num_rows:
        raise HeadraceError(
            Code.INVALID,
            f'the update would give two rows of table "{table.name}" the same primary key',
            span=span,
        )
