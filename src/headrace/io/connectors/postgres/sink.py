"""A sink that writes to a table of PostgreSQL: rows by key, or each change as a row of its own.

The changes of an epoch are one transaction, which also records the epoch in a table,
``headrace_sinks``. A transaction of a killed process may still be committed: so transactions of one
sink wait for each other, and each one checks that the recorded epoch is the expected one. Rows are
copied into a temporary table and inserted from there. A row that the server refuses is found by
halving refused ranges, within savepoints. Rows that conflict with other rows are deferred to the
end of the epoch (:mod:`headrace.io.connectors.postgres.deferring`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.offenders import offenders
from headrace.execution.runtime.ports import RefusedRow
from headrace.execution.serving import CHANGE_COLUMNS, OPERATION, with_operations
from headrace.io.connectors.options import Alters, option
from headrace.io.connectors.postgres.access import Access, connected, failure, library, read
from headrace.io.connectors.postgres.deferring import Deferred, Keyed, may_pass, reason
from headrace.io.connectors.postgres.tables import Reference, rows_of
from headrace.io.connectors.postgres.target import copied, create_sql, require_table
from headrace.io.connectors.sinks import (
    TableContents,
    change_lines,
    moved_on,
    refused_rows,
    require_key,
    require_own,
)
from headrace.planning.sql.lexer import double_quoted
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.io.connectors.sinks import SinkContext


T = TypeVar("T")

_RECORDS: Final = "headrace_sinks"
_ROWS: Final = "headrace_rows"
_KEYS: Final = "headrace_keys"
_OF_STATEMENT: Final = "42"
"""The class of errors that a user has to correct: missing objects, or missing permissions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTable(Access):
    """Options of a sink; ``table`` may name its schema, ``create_table`` creates a missing one."""

    table: str = option("table", "table-name", "table_name", alters=Alters.NEVER)
    mode: TableContents = option(default=TableContents.UPSERT, alters=Alters.NEVER)
    create_table: bool = option(default=False, alters=Alters.NEVER)


def check(options: SinkTable, context: SinkContext) -> None:
    """Raise if rows cannot be written to the table.

    Raises:
        HeadraceError: ``invalid`` if the table, a column or a unique index on the key is missing,
            or a type does not keep all values; or as :func:`connected`.
    """
    PostgresSink(options, context).prepare()


@dataclass(slots=True)
class PostgresSink:
    """Writes the changes of one sink; one session is open between writes."""

    options: SinkTable
    context: SinkContext
    _session: Any = None
    _refused: tuple[RefusedRow, ...] = ()
    _known: Epoch | None = None
    """The last epoch recorded in the target, as far as this writer knows."""

    @property
    def guarantee(self) -> str:
        """Exactly once: see :class:`headrace.execution.runtime.ports.SinkWriter`."""
        return "exactly once: one transaction per epoch, which records it"

    @property
    def target(self) -> str:
        """The table, for messages."""
        return f'table "{self.options.table}" of PostgreSQL at "{self.options.place}"'

    @property
    def _table(self) -> Reference:
        return Reference.of(self.options.table)

    @property
    def _records(self) -> str:
        return Reference(self._table.schema, _RECORDS).sql

    # -- the port --------------------------------------------------------------------------

    def durable(self) -> Epoch | None:
        """Return the epoch recorded in the database."""
        self._known = self._server(self._read_record)
        return self._known

    def last_refused(self) -> Sequence[RefusedRow]:
        """Return the refused rows that are recorded with that epoch."""
        return self._refused

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write changes and record their epoch, in one transaction."""

        def written(session: Any) -> Sequence[RefusedRow]:
            refused: list[RefusedRow] = []
            with session.transaction() as transaction:
                session.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", identity)
                done, known = self._read_record(session), self._known
                if done is not None and done >= epoch:
                    return self._refused
                if done != known:
                    raise moved_on(self.target, done, known)
                later = Deferred(session, self._table, self._names, self.context.key)
                for part in parts:
                    refused += self._write_part(session, epoch, part, later)
                refused += later.apply(epoch)
                if refused and self.context.stops:
                    raise library().Rollback(transaction)
                self._record(session, epoch, refused)
            self._known = epoch
            return refused

        identity = (self.context.identity,)

        return self._server(written)

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the table; None for a table of changes."""
        return self._stored() if self.options.mode is TableContents.UPSERT else None

    def _stored(self) -> Iterator[pa.Table]:
        columns = self.context.schema.columns
        listed = ", ".join(double_quoted(column.name) for column in columns)
        query = f"SELECT {listed} FROM {self._table.sql}"
        session = connected(self.options, self.context.secrets.value)
        try:
            for texts in rows_of(session, query, len(columns)):
                found = [read(text, column) for text, column in zip(texts, columns, strict=True)]
                yield pa.Table.from_arrays([each.values for each in found], names=self._names)
        except library().Error as error:
            raise failure(error, self.options) from error
        finally:
            session.close()

    def clear(self) -> None:
        """Delete all rows, and the record of the sink."""
        self._create()

        def cleared(session: Any) -> None:
            with session.transaction():
                session.execute(f"DELETE FROM {self._table.sql}")
                session.execute(
                    f"DELETE FROM {self._records} WHERE sink = %s", (self.context.identity,)
                )

        self._server(cleared)

    def close(self) -> None:
        """Close the session; the next use opens another one."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def prepare(self) -> None:
        """Check the table, after creating it for a new sink if the options ask for that.

        See :func:`check` for errors.
        """
        if self.options.mode is TableContents.UPSERT:
            require_key(self.context, f'table "{self.options.table}"')
        if self.context.tries:
            self._try()
            return
        if not self.context.exists:
            self._create()
        try:
            there = self.durable()
        finally:
            self.close()
        require_own(None, self.context, self.target, self._records, there)

    # -- pieces ----------------------------------------------------------------------------

    def _try(self) -> None:
        """Check the table without creating anything; a missing one may be to be created."""
        session = connected(self.options, self.context.secrets.value)
        try:
            if self.options.create_table and not self._is_there(session, self._table.sql):
                return
            append = self.options.mode is TableContents.APPEND
            key = () if append else self.context.key
            require_table(session, self._table, self.context.schema, key, changes=append)
            if self._is_there(session, self._records):
                self._require_own(session)
        except library().Error as error:
            raise self._failure(error) from error
        finally:
            session.close()

    def _is_there(self, session: Any, table: str) -> bool:
        found = session.execute("SELECT to_regclass(%s)", (table,)).fetchone()[0]
        return found is not None

    def _create(self) -> None:
        """Create a missing table if the options ask for that.

        It is only called before all rows are written: a table that is dropped later is not replaced
        by an empty one.
        """
        if not self.options.create_table:
            return
        append = self.options.mode is TableContents.APPEND
        key = () if append else self.context.key
        session = connected(self.options, self.context.secrets.value)
        try:
            session.execute(create_sql(self._table, self.context.schema, key, changes=append))
        except library().Error as error:
            raise self._failure(error) from error
        finally:
            session.close()

    @property
    def _names(self) -> list[str]:
        return list(self.context.schema.names)

    def _server(self, work: Callable[[Any], T]) -> T:
        """Run ``work`` in the session, opening and preparing one if necessary.

        Any failure closes the session.
        """
        try:
            if self._session is None:
                self._session = connected(self.options, self.context.secrets.value)
                self._begin(self._session)
            return work(self._session)
        except library().Error as error:
            self.close()
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise

    def _failure(self, error: Any) -> HeadraceError:
        found = failure(error, self.options)
        if found.code is Code.UNAVAILABLE and (error.sqlstate or "").startswith(_OF_STATEMENT):
            hint = "Correct the cause that it names; the sink then continues by itself."
            return HeadraceError(Code.INVALID, found.primary, found.detail, hint)
        return found

    def _begin(self, session: Any) -> None:
        append = self.options.mode is TableContents.APPEND
        key = () if append else self.context.key
        require_table(session, self._table, self.context.schema, key, changes=append)
        if not self._is_there(session, self._records):
            try:
                session.execute(
                    f"CREATE TABLE IF NOT EXISTS {self._records} (sink text PRIMARY KEY,"
                    " target text NOT NULL UNIQUE, epoch bigint NOT NULL,"
                    " refused jsonb NOT NULL, at timestamptz NOT NULL)"
                )
            except library().errors.UniqueViolation:
                pass  # another sink has created it at the same time
        self._require_own(session)
        columns = [*self._names, *(CHANGE_COLUMNS if append else ())]
        listed = ", ".join(map(double_quoted, columns))
        session.execute(
            f"CREATE TEMP TABLE {_ROWS} AS SELECT {listed} FROM {self._table.sql} WITH NO DATA"
        )
        if key:
            listed = ", ".join(map(double_quoted, key))
            session.execute(
                f"CREATE TEMP TABLE {_KEYS} AS SELECT {listed} FROM {self._table.sql} WITH NO DATA"
            )
            Deferred.prepare(session, self._table, self._names)

    def _require_own(self, session: Any) -> None:
        """Refuse a table into which another sink has written."""
        row = session.execute(
            f"SELECT sink FROM {self._records} WHERE target = %s AND sink <> %s",
            (self._table.table, self.context.identity),
        ).fetchone()
        if row is not None:
            raise HeadraceError(
                Code.CONFLICT,
                f'another sink has written into table "{self._table}" in PostgreSQL',
                f"Table {_RECORDS} there has its record, {row[0]}.",
                "Choose another table. If that sink no longer exists, empty the table, and delete"
                f" the record from {self._records}.",
            )

    def _read_record(self, session: Any) -> Epoch | None:
        row = session.execute(
            f"SELECT epoch, refused FROM {self._records} WHERE sink = %s AND target = %s",
            (self.context.identity, self._table.table),
        ).fetchone()
        if row is None:
            self._refused = ()
            return None
        self._refused = tuple(RefusedRow(each["row"], each["why"]) for each in row[1])
        return Epoch(row[0])

    def _record(self, session: Any, epoch: Epoch, refused: Sequence[RefusedRow]) -> None:
        listed = json.dumps([{"row": each.row, "why": each.why} for each in refused])
        session.execute(
            f"INSERT INTO {self._records} VALUES (%s, %s, %s, %s, now()) ON CONFLICT (sink) DO"
            " UPDATE SET epoch = EXCLUDED.epoch, refused = EXCLUDED.refused, at = EXCLUDED.at",
            (
                self.context.identity,
                self._table.table,
                epoch,
                listed.replace("\\u0000", "\\ufffd"),
            ),
        )

    def _write_part(
        self, session: Any, epoch: Epoch, part: pa.Table, later: Deferred
    ) -> list[RefusedRow]:
        """Write the changes of a part, deferring conflicts to ``later``; return refused ones."""
        if self.options.mode is TableContents.APPEND:
            rows = with_operations(part, self.context.key)
            rows = rows.append_column("epoch", pa.array(np.full(rows.num_rows, epoch, np.int64)))
            named = rows.select([*self._names, OPERATION, WEIGHT, "epoch"])
            insert = f"INSERT INTO {self._table.sql} ({self._listed(CHANGE_COLUMNS)}) TABLE {_ROWS}"
            wrong = self._tried(session, named, _ROWS, insert)
            if not wrong:
                return []
            lines = change_lines(epoch, part, self.context.key).texts.to_pylist()
            return [RefusedRow(lines[place], why) for place, why in wrong.items()]
        key, keyed = self.context.key, Keyed.of(part, self.context.key)
        without = dict.fromkeys(range(keyed.without_key.num_rows), "a column of the key is NULL")
        refused = refused_rows(epoch, part, keyed.without_key, key, without)
        wrong = self._tried(
            session, keyed.deleted, _KEYS, self._delete, partial(later.add, part, deletes=True)
        )
        refused += refused_rows(epoch, part, keyed.deleted, key, wrong)
        wrong = self._tried(
            session, keyed.rows, _ROWS, self._upsert, partial(later.add, part, deletes=False)
        )
        refused += refused_rows(epoch, part, keyed.rows, key, wrong)
        return refused

    def _listed(self, more: Iterable[str] = ()) -> str:
        return ", ".join(map(double_quoted, [*self._names, *more]))

    @property
    def _upsert(self) -> str:
        key = self.context.key
        others = [name for name in self._names if name not in key]
        update = ", ".join(
            f"{double_quoted(name)} = EXCLUDED.{double_quoted(name)}" for name in others
        )
        action = f"UPDATE SET {update}" if others else "NOTHING"
        return (
            f"INSERT INTO {self._table.sql} ({self._listed()}) SELECT {self._listed()} FROM {_ROWS}"
            f" ON CONFLICT ({', '.join(map(double_quoted, key))}) DO {action}"
        )

    @property
    def _delete(self) -> str:
        equal = [f"t.{double_quoted(name)} = k.{double_quoted(name)}" for name in self.context.key]
        return f"DELETE FROM {self._table.sql} t USING {_KEYS} k WHERE {' AND '.join(equal)}"

    def _tried(
        self,
        session: Any,
        rows: pa.Table,
        temporary: str,
        statement: str,
        deferred: Callable[[int, pa.Table], None] | None = None,
    ) -> dict[int, str]:
        """Copy rows into a temporary table and run a statement that applies them.

        Returns the indices of refused rows, and why. Ranges that conflict with other rows are given
        to ``deferred``, with the index of their first row.
        """

        def attempt(start: int, stop: int) -> str | None:
            some = rows.slice(start, stop - start)
            try:
                with session.transaction(), session.cursor() as cursor:  # a savepoint
                    cursor.execute(f"TRUNCATE {temporary}")
                    copied(cursor, temporary, some)
                    cursor.execute(statement)
            except library().Error as error:
                if deferred is not None and may_pass(error):
                    deferred(start, some)
                    return None
                why = reason(error)
                if why is None:
                    raise
                return why
            return None

        return offenders(rows.num_rows, attempt)
