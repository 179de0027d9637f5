"""Changes staged for a warehouse: Parquet files, and the SQL that merges them.

The changes of an epoch are a directory with the rows to merge, a statement that loads them into a
staging table, and a script that merges that table into the target by the view's key. The script
records the epoch in the same transaction, and has no effect unless the previous epoch is recorded:
it may be run again, or too early.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as t

from headrace.algebra.spine import sync_directory
from headrace.errors import Code, HeadraceError
from headrace.io.connectors.files.sink import (
    epoch_directories,
    new_draft,
    place,
    remove_drafts,
    sink_path,
)
from headrace.io.connectors.lake.tables import DELETED, merge_rows, require_types, table_schema
from headrace.io.connectors.options import Alters, option
from headrace.io.connectors.sinks import TableContents, moved_on, require_key
from headrace.io.formats.values import type_name
from headrace.planning.sql.lexer import double_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.sinks import SinkContext
    from headrace.types import DataType, Epoch, Schema


class Warehouse(StrEnum):
    """The warehouse, which determines the SQL dialect."""

    BIGQUERY = "bigquery"
    SNOWFLAKE = "snowflake"


TYPES: Final[Mapping[Warehouse, Mapping[str, str]]] = {
    Warehouse.BIGQUERY: {
        "BOOLEAN": "BOOL",
        "TINYINT": "INT64",
        "SMALLINT": "INT64",
        "INT": "INT64",
        "BIGINT": "INT64",
        "FLOAT": "FLOAT64",
        "DOUBLE": "FLOAT64",
        "DECIMAL": "BIGNUMERIC",
        "STRING": "STRING",
        "BINARY": "BYTES",
        "DATE": "DATE",
        "TIMESTAMP": "TIMESTAMP",
        "TIMESTAMP_NTZ": "DATETIME",
    },
    Warehouse.SNOWFLAKE: {
        "BOOLEAN": "BOOLEAN",
        "TINYINT": "NUMBER(38,0)",
        "SMALLINT": "NUMBER(38,0)",
        "INT": "NUMBER(38,0)",
        "BIGINT": "NUMBER(38,0)",
        "FLOAT": "FLOAT",
        "DOUBLE": "FLOAT",
        "DECIMAL": "NUMBER",
        "STRING": "VARCHAR",
        "BINARY": "BINARY",
        "DATE": "DATE",
        "TIMESTAMP": "TIMESTAMP_TZ",
        "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
    },
}
"""The warehouse's type for each type of column."""
MAPPING: Final = {
    kind: f"BigQuery: {name}. Snowflake: {TYPES[Warehouse.SNOWFLAKE][kind]}"
    for kind, name in TYPES[Warehouse.BIGQUERY].items()
}
_RECORDS: Final = "headrace_sinks"
_STAGED: Final = "__headrace"
_LARGEST: Final = {Warehouse.BIGQUERY: (38, 38), Warehouse.SNOWFLAKE: (38, 37)}
"""The largest precision and scale of a decimal."""


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_]+)*", text):
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not the name of a table",
            hint="Write it in letters, digits and underscores, with its schema: shop.spent.",
        )
    return text


def _location(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9@:/._~%-]+", text):
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not a location of files",
            hint="Write a URL as in gs://bucket/spent, or a stage as in @files/spent.",
        )
    return text.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a sink: ``path`` is a directory below ``sinks/``, ``table`` the warehouse's table.

    ``location`` is the URL or stage to which the directory's contents are copied for the warehouse.
    """

    path: str = option(convert=sink_path, alters=Alters.NEVER)
    warehouse: Warehouse = option(alters=Alters.NEVER)
    table: str = option(convert=_name, alters=Alters.NEVER)
    location: str = option(convert=_location, alters=Alters.NEVER)


def check(options: Options, context: SinkContext) -> None:
    """Raise if rows cannot be merged into the table.

    Raises:
        HeadraceError: ``invalid`` without a key; ``unsupported`` for a type that it lacks.
    """
    named = options.warehouse.value
    require_types(context.schema, TYPES[options.warehouse], named)
    require_key(context, "a table of a warehouse")
    digits, scale = _LARGEST[options.warehouse]
    for each in context.schema.columns:
        kind = each.type
        if isinstance(kind, t.DecimalType) and (kind.precision > digits or kind.scale > scale):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{each.name}" of type {each.sql} has too many digits for {named}',
                hint="CAST it to a smaller DECIMAL, or to STRING, in the view.",
            )


def opened(options: Options, context: SinkContext) -> WarehouseSink:
    """Return the writer of a sink."""
    return WarehouseSink(
        place(options.path, context),
        WarehouseStatements(options, context.schema, context.key, context.identity),
        table_schema(context.schema, TableContents.UPSERT),
        context.key,
    )


@dataclass(frozen=True, slots=True)
class WarehouseStatements:
    """Generates the SQL of one sink."""

    options: Options
    columns: Schema
    key: tuple[str, ...]
    identity: str

    @property
    def tables(self) -> str:
        """The statements that create the target table and the table of records, if missing."""
        keys = f"sink {self._type(t.StringType())}, epoch {self._type(t.LongType())}"
        listed = ", ".join(self._described())
        return (
            f"CREATE TABLE IF NOT EXISTS {self._target} ({listed});\n"
            f"CREATE TABLE IF NOT EXISTS {self._records} ({keys});\n"
        )

    def load(self, directory: str) -> str:
        """Return the statements that replace the staging table's rows by a directory's files."""
        listed = ", ".join([*self._described(), f"{self._deleted} {self._type(t.BooleanType())}"])
        found = f"{self.options.location}/{directory}/"
        if self.options.warehouse is Warehouse.BIGQUERY:
            return (
                f"LOAD DATA OVERWRITE {self._stage} ({listed})\n"
                f"FROM FILES (format = 'PARQUET', uris = ['{found}*.parquet']);\n"
            )
        return (
            f"CREATE OR REPLACE TABLE {self._stage} ({listed});\n"
            f"COPY INTO {self._stage} FROM '{found}' PATTERN = '.*[.]parquet'\n"
            "  FILE_FORMAT = (TYPE = PARQUET USE_LOGICAL_TYPE = TRUE)"
            " MATCH_BY_COLUMN_NAME = CASE_SENSITIVE;\n"
        )

    def merge(self, epoch: Epoch, before: Epoch | None) -> str:
        """Return the script that merges the staging table, if epoch ``before`` is recorded.

        The first script, for which ``before`` is None, replaces all rows.
        """
        names = [self._quoted(each.name) for each in self.columns.columns]
        same = [f"t.{name} IS NOT DISTINCT FROM s.{name}" for name in map(self._quoted, self.key)]
        recorded = f"SELECT 1 FROM {self._records} WHERE sink = '{self.identity}' AND epoch"
        due = (
            f"NOT EXISTS ({recorded} >= {epoch})"
            if before is None
            else f"EXISTS ({recorded} = {before})"
        )
        replaced = f"DELETE FROM {self._target} WHERE {due};\n" if before is None else ""
        return (
            "BEGIN TRANSACTION;\n"
            f"{replaced}"
            f"MERGE INTO {self._target} AS t\n"
            f"USING (SELECT * FROM {self._stage} WHERE {due}) AS s\n"
            f"ON {' AND '.join(f'({each})' for each in same)}\n"
            f"WHEN MATCHED AND s.{self._deleted} THEN DELETE\n"
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{n} = s.{n}' for n in names)}\n"
            f"WHEN NOT MATCHED AND NOT s.{self._deleted} THEN INSERT ({', '.join(names)})"
            f" VALUES ({', '.join(f's.{n}' for n in names)});\n"
            f"MERGE INTO {self._records} AS r\n"
            f"USING (SELECT * FROM (SELECT '{self.identity}' AS sink, {epoch} AS epoch) AS this"
            f" WHERE {due}) AS s\n"
            "ON r.sink = s.sink\n"
            "WHEN MATCHED THEN UPDATE SET epoch = s.epoch\n"
            "WHEN NOT MATCHED THEN INSERT (sink, epoch) VALUES (s.sink, s.epoch);\n"
            "COMMIT;\n"
        )

    def _described(self) -> list[str]:
        return [f"{self._quoted(c.name)} {self._type(c.type)}" for c in self.columns.columns]

    def _type(self, kind: DataType) -> str:
        found = TYPES[self.options.warehouse][type_name(kind).partition("(")[0]]
        return (
            f"{found}({kind.precision}, {kind.scale})" if isinstance(kind, t.DecimalType) else found
        )

    @property
    def _deleted(self) -> str:
        return self._quoted(DELETED)

    @property
    def _target(self) -> str:
        return self._path(self.options.table)

    @property
    def _stage(self) -> str:
        return self._path(self.options.table + _STAGED)

    @property
    def _records(self) -> str:
        schema, dot, _ = self.options.table.rpartition(".")
        return self._path(schema + dot + _RECORDS)

    def _path(self, name: str) -> str:
        return ".".join(map(self._quoted, name.split(".")))

    def _quoted(self, name: str) -> str:
        if self.options.warehouse is Warehouse.BIGQUERY:
            escaped = name.replace("\\", "\\\\").replace("`", "\\`")
            return f"`{escaped}`"
        return double_quoted(name)


@dataclass(slots=True)
class WarehouseSink:
    """Writes ``epoch=<epoch>`` with ``<number>.parquet``, ``load.sql`` and ``merge.sql``."""

    directory: Path
    statements: WarehouseStatements
    schema: pa.Schema
    key: tuple[str, ...]
    guarantee: str = "exactly once: a merge has an effect only after the one before it"
    _reached: Epoch | None = None
    """The last epoch in the directory, as far as this writer knows."""

    @property
    def target(self) -> str:
        """The directory, for messages."""
        return f'the directory "{self.directory.name}"'

    def durable(self) -> Epoch | None:
        """Remove leftover drafts; return the epoch of the newest directory."""
        remove_drafts(self.directory)
        self._reached = max(epoch_directories(self.directory), default=None)
        return self._reached

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the directory of an epoch.

        Raises:
            HeadraceError: ``conflict`` if directories were removed; ``unavailable`` if another
                process has written one.
        """
        before = max(epoch_directories(self.directory), default=None)
        if before != self._reached:
            raise moved_on(self.target, before, self._reached)
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = new_draft(self.directory, epoch)
        draft.write_text(self.statements.tables, "utf-8")
        draft.replace(self.directory / "create.sql")
        draft.mkdir()
        rows = (merge_rows(part, self.key, self.schema) for part in parts)
        nothing = self.schema.append(pa.field(DELETED, pa.bool_())).empty_table()
        for number, each in enumerate(_or(rows, nothing)):
            pq.write_table(each, draft / f"{number}.parquet", compression="zstd")
        name = f"epoch={epoch:020d}"
        (draft / "load.sql").write_text(self.statements.load(name), "utf-8")
        (draft / "merge.sql").write_text(self.statements.merge(epoch, before), "utf-8")
        for file in draft.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        sync_directory(draft)
        draft.replace(self.directory / name)
        sync_directory(self.directory)
        self._reached = epoch
        return ()

    def stored(self) -> Iterator[pa.Table] | None:
        """Return None: the warehouse cannot be read."""
        return None

    def clear(self) -> None:
        """Remove all directories: the next one replaces all rows."""
        remove_drafts(self.directory)
        for written in epoch_directories(self.directory).values():
            shutil.rmtree(written)
        self._reached = None

    def close(self) -> None:
        """Do nothing: no file is held open."""


def _or(tables: Iterable[pa.Table], empty: pa.Table) -> Iterator[pa.Table]:
    """Yield tables; the empty one if there are no others."""
    first = True
    for each in tables:
        first = False
        yield each
    if first:
        yield empty
