"""Shared by sinks into tables of files: locations, schemas, and rows to append or merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT, row_codes
from headrace.algebra.zset.zset import column, take
from headrace.errors import Code, HeadraceError
from headrace.execution.serving import CHANGE_COLUMNS, OPERATION, with_operations
from headrace.execution.serving.changes import paired
from headrace.io.connectors import s3
from headrace.io.connectors.files.sink import Placed, place
from headrace.io.connectors.options import Alters, option
from headrace.io.connectors.sinks import TableContents
from headrace.io.formats.values import type_name
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path, PurePath

    from numpy.typing import NDArray

    from headrace.io.connectors.sinks import SinkContext
    from headrace.types import DataType, Epoch, Schema


DELETED: Final = "headrace_deleted"
"""The column of merged rows that is true if the key's row is to be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable(Placed):
    """Options of a table: its location, and whether it has rows or changes."""

    mode: TableContents = option(default=TableContents.UPSERT, alters=Alters.NEVER)

    def where(self, context: SinkContext) -> Directory | s3.Prefix:
        """Return the location of the table."""
        if s3.is_location(self.path):
            return s3.Prefix(self.path, self, context.secrets.value)
        return Directory(place(self.path, context))


@dataclass(frozen=True, slots=True)
class Directory:
    """The location of a table in a local directory."""

    path: Path

    @property
    def name(self) -> str:
        """The name of the directory, for messages."""
        return self.path.name

    @property
    def uri(self) -> str:
        """The path, for Delta's library."""
        return str(self.path)

    @property
    def storage(self) -> None:
        """Return None: a local directory needs no storage options."""
        return

    def said(self, error: Exception) -> str:
        """Return the reason in an error of a library, without the path of the directory."""
        return words_of(error, self.path)


def path_of(options: LakeTable, context: SinkContext) -> PurePath:
    """Return the directory, or S3 endpoint, bucket and key, of a table, to compare sinks."""
    return options.where(context).path


def failed(target: str, system: str, said: str, *, lake: bool) -> HeadraceError:
    """Return the error that a table cannot be written to; ``lake``: it is in an object store."""
    primary, detail = f"{target} cannot be written to", f"{system} says: {said}."
    if lake and s3.is_denied(said):
        return HeadraceError(Code.INVALID, primary, detail, s3.CREDENTIALS)
    if lake and s3.is_missing(said):
        return HeadraceError(Code.INVALID, primary, detail, s3.MISSING)
    hint = "It is tried again. Let no other program write to the table at the same time."
    return HeadraceError(Code.UNAVAILABLE, primary, detail, hint)


def table_schema(schema: Schema, mode: TableContents) -> pa.Schema:
    """Return the columns of a table for rows of a schema."""
    fields = [pa.field(each.name, to_arrow(each.type)) for each in schema.columns]
    if mode is TableContents.APPEND:
        kinds = (pa.string(), pa.int64(), pa.int64())
        fields += [pa.field(*pair) for pair in zip(CHANGE_COLUMNS, kinds, strict=True)]
    return pa.schema(fields)


def require_types(schema: Schema, mapping: Mapping[str, str], system: str) -> None:
    """Refuse columns whose type, or nested type, is not a key of ``mapping``.

    Raises:
        HeadraceError: ``unsupported``, with the first such column.
    """
    for each in schema.columns:
        if not set(_names(each.type)) <= mapping.keys():
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{each.name}" of type {each.sql} cannot be written to {system}',
                hint="CAST it to STRING in the view.",
            )


def _names(kind: DataType) -> Iterator[str]:
    """Yield the name of a type, and those of the types nested in it."""
    yield type_name(kind).partition("<")[0].partition("(")[0]
    match kind:
        case t.ArrayType():
            yield from _names(kind.elementType)
        case t.MapType():
            yield from _names(kind.keyType)
            yield from _names(kind.valueType)
        case t.StructType():
            for field in kind.fields:
                yield from _names(field.dataType)


def require_columns(found: pa.Schema, wanted: pa.Schema, what: str) -> None:
    """Refuse an existing table whose columns differ.

    Raises:
        HeadraceError: ``invalid``, with the first column that differs.
    """
    for field in wanted:
        at = found.get_field_index(field.name)
        kind = None if at < 0 else found.field(at).type
        if kind != field.type:
            is_ = "does not have" if kind is None else f"has as {kind}"
            raise HeadraceError(
                Code.INVALID,
                f'{what} {is_} column "{field.name}" of type {field.type}',
                hint="Write into another path, or select the columns that the table has.",
            )


def change_rows(epoch: Epoch, part: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the changes of a part as rows of a table of changes."""
    ordered = with_operations(part, key)
    epochs = pa.array(np.full(ordered.num_rows, epoch, np.int64))
    rows = ordered.append_column("epoch", epochs)
    names = schema.names[: -len(CHANGE_COLUMNS)]
    named = rows.select([*names, OPERATION, WEIGHT, "epoch"]).rename_columns(schema.names)
    return named.cast(schema)


def merge_rows(part: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return one row for each changed key: the new row, or the old one marked as deleted."""
    before, after = paired(part, key)
    rows = take(part, np.where(after < 0, before, after)).select(schema.names).cast(schema)
    return rows.append_column(DELETED, pa.array(after < 0))


def words_of(error: Exception, directory: Path) -> str:
    """Return the first line of an error, without the path of a table's directory."""
    first = str(error).partition("\n")[0].rstrip(".")
    return first.replace(directory.as_uri(), directory.name).replace(str(directory), directory.name)


def among(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> NDArray[np.bool_]:
    """Return a mask of rows whose key is among those of ``others``; NULLs are equal."""
    found = rows.select(list(key)).cast(others.select(list(key)).schema)
    both = pa.concat_tables([found, others.select(list(key))])
    codes = row_codes([column(both, name) for name in key], both.num_rows)
    return np.isin(codes[: rows.num_rows], codes[rows.num_rows :])


class ForwardedParts:
    """Parts that a library reads; ``raised`` is the exception that their producer has raised."""

    def __init__(self, parts: Iterable[pa.Table]) -> None:
        self._parts = parts
        self.raised: BaseException | None = None

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the parts."""
        try:
            yield from self._parts
        except GeneratorExit:  # the library has stopped reading
            raise
        except BaseException as error:
            self.raised = error
            raise RuntimeError("the parts ended early") from error
