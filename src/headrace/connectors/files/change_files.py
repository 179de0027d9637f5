"""Files of changes in each format, and files partitioned into directories by column values."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from headrace.connectors.lines import json_lines
from headrace.errors import Code, HeadraceError
from headrace.runtime.ports import RefusedRow
from headrace.serving import with_operations
from headrace.serving.python_values import beyond_python
from headrace.serving.text_columns import text_column
from headrace.spine import sync_directory
from headrace.types import is_variant
from headrace.zset import row_codes
from headrace.zset.zset import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from headrace.types import Epoch


class OutputFormat(StrEnum):
    """The formats of written files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"

    @property
    def ending(self) -> str:
        """The file name extension, without a dot."""
        return "jsonl" if self is OutputFormat.JSON else self.value


_OPEN: Final = 128
"""The most files of partitions that are open at the same time."""
_LONGEST_NAME: Final = 250
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's directory name for a NULL or empty value."""


def require_format(schema: pa.Schema, form: OutputFormat) -> None:
    """Refuse columns that files of a format cannot hold.

    Raises:
        HeadraceError: ``unsupported``, with the first such column.
    """
    for field in schema:
        try:
            if form is OutputFormat.CSV:
                pa_csv.write_csv(pa.schema([field]).empty_table(), pa.BufferOutputStream())
            elif form is OutputFormat.PARQUET:
                pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except pa.ArrowException as error:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{field.name}" of type'
                f" {'VARIANT' if is_variant(field.type) else field.type} cannot be written as"
                f" {form.value.upper() if form is OutputFormat.CSV else 'Parquet'}",
                hint="Use format = 'json'; or select to_json(column), or its elements.",
            ) from error


class _Writer(Protocol):
    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None: ...


class _Lines:
    """Writes lines of JSON."""

    def __init__(self, file: BinaryIO, epoch: Epoch, key: Sequence[str]) -> None:
        self._file, self._epoch, self._key = file, epoch, key

    def write(self, rows: pa.Table) -> None:
        self._file.writelines(
            f"{line}\n".encode() for line in json_lines(self._epoch, rows, self._key)
        )

    def close(self) -> None:
        pass


def csv_columns(rows: pa.Table) -> pa.Table:
    """Convert columns of dates beyond the range of Arrow's CSV writer into text."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            given = rows.column(at)
            if any(pc.any(beyond_python(chunk)).as_py() for chunk in given.chunks):
                rows = rows.set_column(at, field.name, text_column(given))
    return rows


class _Csv:
    """Writes CSV, with a header even without rows; ``schema`` is that of the changes."""

    def __init__(self, file: BinaryIO, key: Sequence[str], schema: pa.Schema) -> None:
        self._file, self._key, self._schema, self._begun = file, key, schema, False

    def write(self, rows: pa.Table) -> None:
        options = pa_csv.WriteOptions(include_header=not self._begun)
        pa_csv.write_csv(csv_columns(with_operations(rows, self._key)), self._file, options)
        self._begun = True

    def close(self) -> None:
        if not self._begun:
            self.write(self._schema.empty_table())


class _Parquet:
    """Writes Parquet; ``schema`` is that of the changes, without the column of operations."""

    def __init__(self, file: BinaryIO, key: Sequence[str], schema: pa.Schema) -> None:
        self._key = key
        self._schema = with_operations(schema.empty_table(), key).schema
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: pa.Table) -> None:
        ordered = with_operations(rows, self._key).select(self._schema.names)
        self._writer.write_table(ordered.cast(self._schema))

    def close(self) -> None:
        self._writer.close()


class ChangeFile:
    """One new file of changes, durable once closed; an existing file or link is an error.

    ``schema`` is that of the changes.
    """

    def __init__(
        self, place: Path, form: OutputFormat, epoch: Epoch, key: Sequence[str], schema: pa.Schema
    ) -> None:
        self._file = place.open("xb")
        made: dict[OutputFormat, Callable[[], _Writer]] = {
            OutputFormat.JSON: lambda: _Lines(self._file, epoch, key),
            OutputFormat.CSV: lambda: _Csv(self._file, key, schema),
            OutputFormat.PARQUET: lambda: _Parquet(self._file, key, schema),
        }
        self._writer = made[form]()

    def write(self, rows: pa.Table) -> None:
        """Write changes: rows with weights."""
        self._writer.write(rows)

    def close(self) -> None:
        """Finish, sync and close the file."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def write_all(self, parts: Iterable[pa.Table]) -> None:
        """Write all parts and close the file; if that fails, abandon it."""
        try:
            for part in parts:
                self.write(part)
            self.close()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close the file without syncing it."""
        self._writer.close()
        self._file.close()


class Partitions:
    """Files of changes in directories named by column values: ``country=DE/0.parquet``.

    The number of open files is bounded: if it is reached, all are closed, and further rows of a
    directory go to another file.
    """

    def __init__(
        self, directory: Path, by: Sequence[str], opened: Callable[[Path], ChangeFile], ending: str
    ) -> None:
        self._directory = directory
        self._by = by
        self._opened = opened
        self._ending = ending
        self._open: dict[str, ChangeFile] = {}
        self._files: dict[str, int] = {}

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write all changes of an epoch; return those whose directory name would be too long."""
        refused: list[RefusedRow] = []
        try:
            for part in parts:
                for row, why in sorted(self._write(part).items()):
                    (line,) = json_lines(epoch, part.slice(row, 1), ())
                    refused.append(RefusedRow(line, why))
            self._close()
        except BaseException:
            self._abandon()
            raise
        return refused

    def _write(self, rows: pa.Table) -> dict[int, str]:
        codes = row_codes([column(rows, name) for name in self._by], rows.num_rows)
        order = np.argsort(codes, kind="stable")
        bounds = np.flatnonzero(np.diff(codes[order], prepend=codes[order][:1] - 1))
        refused: dict[int, str] = {}
        for places in np.split(order, bounds[1:]) if len(order) else []:
            some = rows.take(pa.array(places))
            name = self._name(some.slice(0, 1))
            if max(map(len, name.split("/"))) > _LONGEST_NAME:
                why = f"the value of {', '.join(self._by)} is too long for the name of a directory"
                refused |= dict.fromkeys(places.tolist(), why)
                continue
            self._file(name).write(some)
        return refused

    def _close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        found = {self._directory, *(place.parent for place in self._directory.rglob("*"))}
        for directory in found:
            sync_directory(directory)

    def _abandon(self) -> None:
        for file in self._open.values():
            file.abandon()

    def _file(self, name: str) -> ChangeFile:
        if name not in self._open:
            if len(self._open) >= _OPEN:
                for file in self._open.values():
                    file.close()
                self._open.clear()
            number = self._files.get(name, 0)
            self._files[name] = number + 1
            directory = self._directory / name
            directory.mkdir(parents=True, exist_ok=True)
            self._open[name] = self._opened(directory / f"{number}.{self._ending}")
        return self._open[name]

    def _name(self, row: pa.Table) -> str:
        values: list[Any] = [text_column(row[name])[0].as_py() for name in self._by]
        return "/".join(
            f"{quote(name, safe='')}={quote(value, safe='') if value else _NO_VALUE}"
            for name, value in zip(self._by, values, strict=True)
        )
