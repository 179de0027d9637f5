"""JSON files: one object per line; names in any case, unknown names ignored.

A missing field is NULL, but an object without any of the columns is rejected. Numbers for DECIMAL
columns are not converted to floating point.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import (
    Decoded,
    RecordBlock,
    RecordSpan,
    after_mark,
    is_utf8,
    last_line_end,
    lines_of,
    salvage,
)
from headrace.formats.json_alike import read_alike
from headrace.formats.rows import (
    Rows,
    holds_infinity,
    misses_required,
    require_precision,
    together,
)
from headrace.formats.values import RejectedValueError, cast_texts, field_of, from_json, parse_json
from headrace.ledger import Reject
from headrace.zset.decimals import wide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.formats.blocks import Text
    from headrace.types import Schema

_NEWLINE, _BRACE = b"\n{"
_OBJECT_LINE = re.compile(rb"(?m)^[ \t]*\{")
_PARSE_BYTES = 1 << 20
_FEW_BYTES = 1 << 18
"""Up to so many bytes Arrow's JSON reader is the faster one: the other checks each column apart."""

cut = last_line_end
"""Every newline ends a record: JSON strings contain newlines only as escapes."""


class JsonDecoder:
    """Decodes blocks of lines into a schema's rows."""

    def __init__(self, path: str, schema: Schema) -> None:
        self._path = path
        self._schema = schema
        self._target = schema.arrow
        self._names = frozenset(column.name.casefold() for column in schema.columns)
        self._converters = [(column, from_json(column)) for column in schema.columns]
        self._inner = sorted({n for column in schema.columns for n in _field_names(column.type)})
        self._vectorised = all(_is_vectorised(column.type) for column in schema.columns)
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema(
                [
                    (column.name, _read_type(column.type, field.type))
                    for column, field in zip(schema.columns, self._target, strict=True)
                ]
            ),
            unexpected_field_behavior="ignore",
        )

    def decode(self, block: RecordBlock) -> Decoded:
        """Return the rows of a block, and its rejects."""
        table = self._whole(block.data)
        if table is not None:
            return Decoded([table])
        spans = lines_of(block.data, block.line)
        return salvage(
            spans,
            lambda part: self._whole(block.data[part[0].start : part[-1].end]),
            lambda part, found: self._one_by_one(block.data, part, found),
        )

    def _whole(self, data: Text) -> pa.Table | None:
        if not self._vectorised:
            return None
        readers = self._alike, self._unlike
        for read in readers if len(data) > _FEW_BYTES else reversed(readers):
            try:
                table = read(data)
                if table is None:
                    continue
                require_precision(table)
            except pa.ArrowException:
                continue
            good = not misses_required(table, self._schema) and not holds_infinity(table)
            if good and not self._overlooks(data, table):
                return table
        return None

    def _overlooks(self, data: Text, table: pa.Table) -> bool:
        """Return whether a NULL may stand for a field whose name differs in case.

        Also whether a row is all NULL: its object may have none of the columns.
        """
        sparse = [n for n in table.column_names if table[n].null_count]
        if not sparse and not self._inner:
            return False
        if len(sparse) == table.num_columns and _has_empty_row(table):
            return True
        lowered = data.lower()
        for name in (*sparse, *self._inner):
            quoted = f'"{name}"'.encode()
            if not quoted.isascii() or lowered.count(quoted.lower()) != data.count(quoted):
                return True
        return False

    def _alike(self, data: Text) -> pa.Table | None:
        return read_alike(data, self._schema, _block_size(data))

    def _unlike(self, data: Text) -> pa.Table | None:
        # Arrow's parser crashes on a block whose first value is null, takes null for a row, and
        # does not check UTF-8: such data are left to the other path.
        lines = _object_lines(data) if is_utf8(data) else 0
        if lines <= 0:
            return None
        table = pj.read_json(
            pa.BufferReader(data),
            pj.ReadOptions(use_threads=False, block_size=_block_size(data)),
            self._options,
        )
        return self._with_types(table) if table.num_rows == lines else None

    def _with_types(self, table: pa.Table) -> pa.Table:
        columns = [
            found if found.type == field.type else cast_texts(found, column.type, field.type)
            for found, column, field in zip(
                table.columns, self._schema.columns, self._target, strict=True
            )
        ]
        return pa.table(columns, schema=self._target)

    def _one_by_one(self, data: Text, spans: Sequence[RecordSpan], found: Decoded) -> None:
        rows = Rows(self._target)
        for span in spans:
            raw = data[span.start : span.end]
            column: str | None
            try:
                values, wrong = self._values(object_of(raw))
            except RejectedValueError as refused:
                column, reason = None, str(refused)
            else:
                if not wrong:
                    rows.add(values)
                    continue
                column, reason = together(wrong)
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            found.rejects.append(Reject(self._path, span.line, column, reason, text))
        rows.into(found.tables)

    def _values(self, parsed: dict[str, Any]) -> tuple[list[Any], list[tuple[str, str]]]:
        """Return the values of a row, and the columns whose values were rejected, with reasons."""
        values: list[Any] = []
        wrong: list[tuple[str, str]] = []
        if self._names.isdisjoint(name.casefold() for name in parsed):
            raise RejectedValueError("none of the columns is in it")
        for column, convert in self._converters:
            try:
                value = field_of(parsed, column.name)
                if value is None and not column.nullable:
                    wrong.append((column.name, "NULL in a NOT NULL column"))
                else:
                    values.append(None if value is None else convert(value))
            except RejectedValueError as refused:
                wrong.append((column.name, str(refused)))
        return values, wrong


def _field_names(data_type: t.DataType) -> Iterator[str]:
    """Yield the names of the fields of all structs in a type."""
    match data_type:
        case t.ArrayType():
            yield from _field_names(data_type.elementType)
        case t.StructType():
            for each in data_type.fields:
                yield each.name
                yield from _field_names(each.dataType)


def _has_empty_row(table: pa.Table) -> bool:
    """Return whether all columns are NULL in some row."""
    empty = pc.is_null(table.column(0))
    for column in table.columns[1:]:
        empty = pc.and_(empty, pc.is_null(column))
    return bool(pc.any(empty).as_py())


def require_lines(source: str, beginning: bytes) -> None:
    """Refuse a JSON array, which cannot be read by line; ``source`` names it in the error.

    Raises:
        HeadraceError: UNSUPPORTED.
    """
    if beginning[after_mark(beginning).position :].lstrip().startswith(b"["):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{source} holds a JSON array, not one object per line",
            hint="Write one object per line, for example with: jq -c '.[]'.",
        )


def object_of(raw: Text) -> dict[str, Any]:
    """Return the JSON object on a line, or raise with the reason why it is not one."""
    try:
        parsed = parse_json(raw.decode())
    except UnicodeDecodeError as error:
        raise RejectedValueError("not UTF-8") from error
    if not isinstance(parsed, dict):
        raise RejectedValueError("not a JSON object")
    return parsed


def _object_lines(data: Text) -> int:
    """Return the number of lines with an object; -1 if another line is not blank."""
    characters = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero(characters == _NEWLINE) + 1
    if len(starts) and starts[-1] == len(data):
        starts = starts[:-1]
    if data.startswith(b"{") and bool(np.all(characters[starts] == _BRACE)):
        return len(starts) + 1
    filled = len(lines_of(data, 1))
    return filled if len(_OBJECT_LINE.findall(data)) == filled else -1


def _block_size(data: Text) -> int:
    """Return Arrow's block size: small for the CPU cache, but with room for the longest line."""
    return _PARSE_BYTES if len(data) > _PARSE_BYTES and _lines_fit(data) else len(data)


def _lines_fit(data: Text) -> bool:
    start = 0
    while len(data) - start > _PARSE_BYTES:
        end = data.rfind(b"\n", start, start + _PARSE_BYTES) + 1
        if end <= start:
            return False
        start = end
    return True


def _read_type(data_type: t.DataType, arrow: pa.DataType) -> pa.DataType:
    """Return the type that Arrow reads: text for what its JSON reader does not support fully."""
    is_text = isinstance(data_type, t.DateType | t.TimestampNTZType | t.TimeType)
    return pa.string() if is_text else wide(arrow)


def _is_vectorised(data_type: t.DataType, *, nested: bool = False) -> bool:
    match data_type:
        case t.MapType() | t.BinaryType() | t.VariantType():
            return False
        case t.DateType() | t.TimestampNTZType() | t.TimeType() | t.FloatType() | t.DoubleType():
            return not nested
        case t.ArrayType():
            return _is_vectorised(data_type.elementType, nested=True)
        case t.StructType():
            return all(_is_vectorised(f.dataType, nested=True) for f in data_type.fields)
    return True
