"""A sink into a table of Delta Lake: one commit per epoch, which records the epoch.

The record is the transaction version of an application, in Delta's terms: of two commits that set
it from the same version of the table, the later one fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.io.connectors import s3
from headrace.io.connectors.lake.tables import (
    DELETED,
    Directory,
    ForwardedParts,
    LakeTable,
    change_rows,
    failed,
    merge_rows,
    require_columns,
    require_types,
    table_schema,
)
from headrace.io.connectors.sinks import TableContents, moved_on, require_key, require_own
from headrace.io.formats.libraries import library
from headrace.planning.sql.lexer import double_quoted
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.errors import HeadraceError
    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.sinks import SinkContext


MAPPING: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DECIMAL": "decimal",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "ARRAY": "array",
    "MAP": "map",
    "STRUCT": "struct",
}
"""Delta's type for each type of column."""
_NONE: Final = -1
"""The transaction version of a sink that was cleared."""
_STREAMED: Final = 2
"""The least number of parts that are streamed; fewer are merged at once, which prunes files."""


def check(options: LakeTable, context: SinkContext) -> None:
    """Raise if rows cannot be written to the table.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported`` if a column or the key is missing, or has
            another type; an error of the store; ``conflict`` if the prefix of a new table is not
            empty, or if, after a change of address, the table has no record of the sink.
    """
    require_types(context.schema, MAPPING, "Delta")
    if options.mode is TableContents.UPSERT:
        require_key(context, "a table of Delta")
    where, writer = options.where(context), opened(options, context)
    _library()
    if isinstance(where, s3.Prefix) and not context.exists:
        where.require_empty(f"{writer.target} cannot be written to")
    writer.check()
    if context.moved is not None:
        require_own(None, context, writer.target, "", writer.durable())


def opened(options: LakeTable, context: SinkContext) -> DeltaSink:
    """Return the writer of a sink."""
    return DeltaSink(
        options.where(context),
        options.mode,
        table_schema(context.schema, options.mode),
        context.key,
        f"headrace/{context.identity}",
    )


@dataclass(slots=True)
class DeltaSink:
    """Writes each epoch in one commit, which sets the transaction version of ``application``."""

    where: Directory | s3.Prefix
    mode: TableContents
    schema: pa.Schema
    key: tuple[str, ...]
    application: str
    guarantee: str = "exactly once: one commit per epoch, which records it"
    _reached: Epoch | None = None
    """The last epoch in the table, as far as this writer knows."""

    @property
    def target(self) -> str:
        """The table, for messages."""
        return f'the Delta table at "{self.where.name}"'

    def check(self) -> None:
        """Refuse an existing table whose columns differ.

        Raises:
            HeadraceError: ``invalid``, with the first column that differs.
        """
        if self._is_there():
            found = pa.schema(self._table().schema().to_arrow())
            require_columns(found, self.schema, self.target)

    def durable(self) -> Epoch | None:
        """Return the epoch recorded in the table; None without a table or record."""
        self._reached = self._recorded(self._table()) if self._is_there() else None
        return self._reached

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Commit the changes of an epoch.

        Raises:
            HeadraceError: ``unavailable`` if the commit fails.
        """
        guarded = ForwardedParts(parts)
        table = self._table()
        there = self._recorded(table)
        if there != self._reached:
            raise moved_on(self.target, there, self._reached)
        try:
            if self.mode is TableContents.APPEND:
                self._append(table, epoch, guarded)
            else:
                self._merge(table, epoch, guarded)
            self._require_record(table, epoch)
        except Exception as error:
            if guarded.raised is not None:
                raise guarded.raised from None
            raise self._failed(error) from error
        self._reached = epoch
        return ()

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the table; None for a table of changes."""
        return self._rows() if self.mode is TableContents.UPSERT else None

    def clear(self) -> None:
        """Delete all rows of the table, and the record of the epoch.

        Raises:
            HeadraceError: ``unavailable`` if the commit fails.
        """
        try:
            table = self._table()
            table.delete(commit_properties=self._recording(_NONE))
            self._require_record(table, _NONE)
        except Exception as error:
            raise self._failed(error) from error
        self._reached = None

    def close(self) -> None:
        """Do nothing: the table is opened for each write."""

    # -- pieces ----------------------------------------------------------------------------

    def _is_there(self) -> bool:
        """Whether the Delta table exists."""
        delta, storage = _library(), self.where.storage
        try:
            return bool(delta.DeltaTable.is_deltatable(self.where.uri, storage))
        except Exception as error:
            raise self._failed(error) from error

    def _table(self) -> Any:
        """Return the current version of the table, creating a missing table."""
        delta, storage = _library(), self.where.storage
        try:
            return delta.DeltaTable.create(
                self.where.uri, self.schema, mode="ignore", storage_options=storage
            )
        except Exception as error:
            raise self._failed(error) from error

    def _recorded(self, table: Any) -> Epoch | None:
        try:
            found = table.transaction_version(self.application)
        except Exception as error:
            raise self._failed(error) from error
        return None if found is None or found == _NONE else Epoch(found)

    def _append(self, table: Any, epoch: Epoch, parts: Iterable[pa.Table]) -> None:
        rows = (change_rows(epoch, part, self.key, self.schema) for part in parts)
        _library().write_deltalake(
            table,
            _reader(self.schema, rows),
            mode="append",
            commit_properties=self._recording(epoch),
        )

    def _merge(self, table: Any, epoch: Epoch, parts: Iterable[pa.Table]) -> None:
        rows = (merge_rows(part, self.key, self.schema) for part in parts)
        first = list(islice(rows, _STREAMED))
        streamed = len(first) == _STREAMED
        schema = self.schema.append(pa.field(DELETED, pa.bool_()))
        names = map(double_quoted, self.key)
        keys = " AND ".join(f"(t.{name} IS NOT DISTINCT FROM s.{name})" for name in names)
        new = {double_quoted(name): f"s.{double_quoted(name)}" for name in self.schema.names}
        merge = table.merge(
            _reader(schema, chain(first, rows)),
            keys,
            source_alias="s",
            target_alias="t",
            streamed_exec=streamed,
            commit_properties=self._recording(epoch),
        )
        merge = merge.when_matched_delete(f"s.{DELETED}")
        merge = merge.when_matched_update(new)
        merge.when_not_matched_insert(new, predicate=f"NOT s.{DELETED}").execute()

    def _require_record(self, table: Any, epoch: int) -> None:
        """Record an epoch whose changes had no effect, since Delta then made no commit."""
        if table.transaction_version(self.application) != epoch:
            table.create_write_transaction(
                [], "append", table.schema(), commit_properties=self._recording(epoch)
            )

    def _recording(self, epoch: int) -> Any:
        """Return commit properties that record an epoch and let a conflicting commit fail."""
        delta = _library()
        record = delta.Transaction(self.application, epoch)
        return delta.CommitProperties(app_transactions=[record], max_commit_retries=0)

    def _rows(self) -> Iterator[pa.Table]:
        table = self._table()
        try:
            for batch in table.to_pyarrow_dataset().to_batches(columns=self.schema.names):
                yield pa.Table.from_batches([batch]).cast(self.schema)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> HeadraceError:
        lake = isinstance(self.where, s3.Prefix)
        return failed(self.target, "Delta", self.where.said(error), lake=lake)


def _reader(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.RecordBatchReader:
    batches = (batch for table in tables for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _library() -> Any:
    return library("deltalake", "library for Delta", "delta")
