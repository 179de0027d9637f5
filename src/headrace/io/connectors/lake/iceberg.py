"""A sink into a table of Apache Iceberg: one commit per epoch, which records the epoch.

The table is in an SQL catalogue in a directory, or in a REST catalogue. The record is a property of
the table, set in the commit of the epoch's snapshot; the snapshot also has the epoch, for readers.
"""

from __future__ import annotations

import itertools
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.execution.serving import by_key
from headrace.io.connectors import s3
from headrace.io.connectors.files.sink import place, sink_path
from headrace.io.connectors.lake.iceberg_catalogues import (
    CatalogueKind,
    RestAccess,
    RestCatalogue,
    SqlCatalogue,
)
from headrace.io.connectors.lake.tables import (
    ForwardedParts,
    among,
    change_rows,
    require_columns,
    require_types,
    table_schema,
)
from headrace.io.connectors.options import Alters, option
from headrace.io.connectors.sinks import (
    TableContents,
    belongs_to_another,
    moved_on,
    require_key,
    require_own,
)
from headrace.io.formats.libraries import library
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import PurePath

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.sinks import SinkContext


MAPPING: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DECIMAL": "decimal",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp",
    "ARRAY": "list",
    "MAP": "map",
    "STRUCT": "struct",
}
"""Iceberg's type for each type of column."""
_RETRIES: Final = "commit.retry.num-retries"
_MARK: Final = "headrace.epoch."
"""The prefix of table properties that record the epochs of sinks."""


def _table_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*\.[A-Za-z0-9_]+", text):
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not the name of a table of Iceberg",
            hint="Write it with its namespace, in letters, digits and underscores: shop.spent.",
        )
    return text


def _path(text: str) -> str:
    if s3.is_location(text):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a catalogue of SQL in an object store is not supported",
            hint="Use catalog = 'rest' and uri = '...': the catalogue chooses the locations.",
        )
    return sink_path(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergTable(RestAccess):
    """Options of a sink: ``table`` is the name of the table with its namespace.

    ``path`` is the directory of an SQL catalogue; a REST catalogue has none.
    """

    table: str = option(convert=_table_name, alters=Alters.NEVER)
    path: str | None = option(default=None, convert=_path, alters=Alters.NEVER)
    mode: TableContents = option(default=TableContents.UPSERT, alters=Alters.NEVER)
    catalog: CatalogueKind = option(default=CatalogueKind.SQL, alters=Alters.NEVER)

    def __post_init__(self) -> None:
        """Refuse a catalogue without a path or uri, and options of the other kind.

        Raises:
            HeadraceError: ``invalid``.
        """
        RestAccess.__post_init__(self)
        if self.catalog is CatalogueKind.SQL:
            self.require_no_server()
        if (self.path is None) == (self.catalog is CatalogueKind.SQL):
            wrong = "has no path" if self.path is None else "has a path"
            raise HeadraceError(
                Code.INVALID,
                f"a catalogue of {self.catalog.upper()} {wrong}",
                hint="Give path = 'directory', or catalog = 'rest' and uri = '...'.",
            )

    def catalogue(self, context: SinkContext) -> SqlCatalogue | RestCatalogue:
        """Return the catalogue, not opened yet."""
        if self.path is not None:
            return SqlCatalogue(place(self.path, context))
        return RestCatalogue(self, context.secrets.value)


def path_of(options: IcebergTable, context: SinkContext) -> PurePath | None:
    """Return the directory of an SQL catalogue; None for a REST catalogue."""
    return None if options.path is None else place(options.path, context)


def check(options: IcebergTable, context: SinkContext) -> None:
    """Raise if rows cannot be written to the table.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported`` if a column or the key is missing, or has
            another type; an error of the catalogue or store; ``conflict`` if another sink owns the
            table, or if, after a change of address, it has no record of the sink.
    """
    require_types(context.schema, MAPPING, "Iceberg")
    if options.mode is TableContents.UPSERT:
        require_key(context, "a table of Iceberg")
    writer = opened(options, context)
    if context.tries and not writer.would_be_there():
        return
    if context.moved is not None and not writer.is_there():  # do not create the table
        require_own(None, context, writer.target, "")
    writer.check()
    if context.moved is not None:
        require_own(None, context, writer.target, "", writer.durable())
        writer.close()


def opened(options: IcebergTable, context: SinkContext) -> IcebergSink:
    """Return the writer of a sink."""
    rows = table_schema(context.schema, options.mode)
    return IcebergSink(
        options.catalogue(context),
        options.table,
        options.mode,
        rows,
        context.key,
        f"{_MARK}{context.identity.replace('/', '.')}",
    )


@dataclass(slots=True)
class IcebergSink:
    """Writes the changes of each epoch in one commit, which sets the property ``mark``.

    ``rows`` is the schema of the written rows, ``schema`` that of the table, with Iceberg's types.
    """

    catalogue: SqlCatalogue | RestCatalogue
    name: str
    mode: TableContents
    rows: pa.Schema
    key: tuple[str, ...]
    mark: str
    guarantee: str = "exactly once: one commit per epoch, which records it"
    _reached: Epoch | None = None
    """The last epoch in the table, as far as this writer knows."""
    _opened: Any = field(default=None, repr=False)

    @property
    def target(self) -> str:
        """The table, for messages."""
        return f'the Iceberg table "{self.name}"'

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pa.schema([pa.field(each.name, _widened(each.type)) for each in self.rows])

    def check(self) -> None:
        """Create the table, or refuse an existing one whose columns differ.

        Raises:
            HeadraceError: ``invalid``, with the first column that differs.
        """
        table = self._table()
        found = table.schema().as_arrow()
        plain = [pa.field(each.name, _plain(each.type)) for each in found]
        wanted = [pa.field(each.name, _plain(each.type)) for each in self.schema]
        require_columns(pa.schema(plain), pa.schema(wanted), self.target)
        try:
            self.catalogue.require_writable(table)
        except Exception as error:
            raise self._failed(error) from error
        self.close()

    def would_be_there(self) -> bool:
        """Whether the Iceberg table exists; no catalogue is created to find that out."""
        if isinstance(self.catalogue, SqlCatalogue) and not self.catalogue.directory.exists():
            return False
        there = self.is_there()
        if not there:
            self.close()
        return there

    def is_there(self) -> bool:
        """Whether the Iceberg table exists.

        Raises:
            HeadraceError: ``unavailable`` or ``invalid`` if the catalogue does not answer.
        """
        try:
            if self._opened is None:
                self._opened = self.catalogue.opened()
            return bool(self._opened.table_exists(self.name))
        except HeadraceError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def durable(self) -> Epoch | None:
        """Return the epoch recorded in the table; None without a record."""
        self._reached = self._recorded(self._table())
        return self._reached

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Commit the changes of an epoch.

        Raises:
            HeadraceError: ``unavailable`` if the commit fails.
        """
        table = self._table()
        there = self._recorded(table)
        if there != self._reached:
            raise moved_on(self.target, there, self._reached)
        guarded = ForwardedParts(parts)
        try:
            made, replaced = self._written(table, epoch, guarded)
        except Exception as error:
            if guarded.raised is not None:
                raise guarded.raised from None
            raise self._failed(error) from error
        self._commit(table, made, replaced, epoch)
        self._reached = epoch
        return ()

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the table; None for a table of changes."""
        return self._stored() if self.mode is TableContents.UPSERT else None

    def clear(self) -> None:
        """Delete all rows of the table, and the record of the epoch.

        Raises:
            HeadraceError: ``unavailable`` if the commit fails.
        """
        table = self._table()
        try:
            files = [task.file for task in table.scan().plan_files()]
        except Exception as error:
            raise self._failed(error) from error
        self._commit(table, [], files, None)
        self._reached = None

    def close(self) -> None:
        """Close the catalogue."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # -- pieces ----------------------------------------------------------------------------

    def _table(self) -> Any:
        """Load the table, creating a missing one; refuse the table of another sink.

        Retries of commits are switched off: a commit after a concurrent one must fail, since the
        recorded epoch is compared before each.
        """
        try:
            if self._opened is None:
                self._opened = self.catalogue.opened()
            self._opened.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            table = self._opened.create_table_if_not_exists(self.name, self.schema)
            if table.properties.get(_RETRIES) != "0":
                with table.transaction() as transaction:
                    transaction.set_properties({_RETRIES: "0"})
        except HeadraceError:
            raise
        except Exception as error:
            raise self._failed(error) from error
        others = {key for key in table.properties if key.startswith(_MARK)} - {self.mark}
        if others:
            removed = f"the property {min(others)} of the table, or the table"
            raise belongs_to_another(self.target, removed)
        return table

    def _recorded(self, table: Any) -> Epoch | None:
        found = table.properties.get(self.mark)
        return None if found is None else Epoch(int(found))

    def _written(
        self, table: Any, epoch: Epoch, parts: Iterable[pa.Table]
    ) -> tuple[list[Any], list[Any]]:
        """Write the data files of an epoch; return them, and the files that they replace."""
        made = _Files(table, self.schema)
        changed: list[pa.Table] = []
        former = table.current_snapshot() is not None and self.mode is TableContents.UPSERT
        for part in parts:
            if self.mode is TableContents.APPEND:
                made.write(change_rows(epoch, part, self.key, self.schema))
                continue
            made.write(by_key(part, self.key)[0].select(self.rows.names).cast(self.schema))
            if former:
                changed.append(part.select(self.key))
        replaced = self._without(table, pa.concat_tables(changed), made) if changed else []
        return made.found, replaced

    def _without(self, table: Any, changed: pa.Table, made: _Files) -> list[Any]:
        """Rewrite files without the rows of changed keys; return the replaced files."""
        keys = changed.cast(pa.schema([self.schema.field(name) for name in self.key]))
        replaced = []
        for task in table.scan().plan_files():
            kept = ~among(made.read(task, self.key), keys, self.key)
            if not kept.all():
                made.write(made.read(task, self.schema.names).filter(pa.array(kept)))
                replaced.append(task.file)
        return replaced

    def _commit(
        self, table: Any, added: Iterable[Any], removed: Iterable[Any], epoch: Epoch | None
    ) -> None:
        """Commit a snapshot with added and removed files, and the epoch; None clears the record."""
        shown = {} if epoch is None else {"headrace.epoch": str(epoch)}
        try:
            with table.transaction() as transaction:
                with transaction.update_snapshot(snapshot_properties=shown).overwrite() as files:
                    for each in added:
                        files.append_data_file(each)
                    for each in removed:
                        files.delete_data_file(each)
                if epoch is not None:
                    transaction.set_properties({self.mark: str(epoch)})
                elif self.mark in table.properties:
                    transaction.remove_properties(self.mark)
        except Exception as error:
            raise self._failed(error) from error

    def _stored(self) -> Iterator[pa.Table]:
        table = self._table()
        try:
            for batch in table.scan().to_arrow_batch_reader():
                yield pa.Table.from_batches([batch]).select(self.rows.names).cast(self.rows)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> HeadraceError:
        """Translate a failure; close a REST catalogue, so that secrets are read again."""
        if isinstance(self.catalogue, RestCatalogue):
            self.close()
        return self.catalogue.failed(self.target, error)


class _Files:
    """Reads data files of a table, and writes new ones, which it collects in ``found``."""

    def __init__(self, table: Any, schema: pa.Schema) -> None:
        self._table = table
        self._schema = schema
        self._io = library("pyiceberg.io.pyarrow", "library for Iceberg", "iceberg")
        self._always = library("pyiceberg.expressions", "library for Iceberg", "iceberg").AlwaysTrue
        self._id = uuid.uuid4()
        self._count = itertools.count(0)
        self.found: list[Any] = []

    def write(self, rows: pa.Table) -> None:
        """Write rows to new files, and add these to ``found``."""
        if rows.num_rows:
            self.found += self._io._dataframe_to_data_files(  # noqa: SLF001 - no other way
                table_metadata=self._table.metadata,
                df=rows.select(self._schema.names).cast(self._schema),
                io=self._table.io,
                write_uuid=self._id,
                counter=self._count,
            )

    def read(self, task: Any, names: Sequence[str]) -> pa.Table:
        """Read columns of a file."""
        scan = self._io.ArrowScan(
            table_metadata=self._table.metadata,
            io=self._table.io,
            projected_schema=self._table.schema().select(*names),
            row_filter=self._always(),
        )
        found: pa.Table = scan.to_table([task])
        return found


def _widened(kind: pa.DataType) -> pa.DataType:
    """Widen small integers to 32 bits, and times of day to microseconds, also in nested types."""
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_list(kind):
        return pa.list_(_widened(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_widened(kind.key_type), _widened(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _widened(each.type)) for each in kind])
    return kind


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type without large offsets and custom field names of elements, to compare types."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in kind])
    return kind
