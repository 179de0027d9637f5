"""JSON files: one object per line; names in any case, unknown names ignored.

A missing field is NULL, but an object without any of the columns is rejected. Numbers for DECIMAL
columns are not converted to floating point.

Reads JSON lines of equal structure as CSV, in half the time of a JSON reader.

Most JSON lines files repeat one line with other values. Without escapes, quotation marks occur only
around strings. If all lines are split at quotation marks, each has the same number of pieces, so
the lines are CSV with the quotation mark as the delimiter, which Arrow splits without parsing JSON.
Each column is then checked: pieces that are not values must be equal in all lines, and an unquoted
value must be a number, a boolean or null.

If any line has another structure, all lines are left to the JSON reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.json as pj
from pyspark.sql import types as t

from headrace.algebra.zset.sums import wide
from headrace.errors import Code, HeadraceError
from headrace.io.formats.blocks import (
    Decoded,
    RecordBlock,
    RecordSpan,
    Rows,
    after_mark,
    count_of,
    holds_infinity,
    is_utf8,
    last_line_end,
    lines_of,
    misses_required,
    require_precision,
    salvage,
    together,
)
from headrace.io.formats.values import (
    RejectedValueError,
    cast_texts,
    field_of,
    from_json,
    parse_json,
)
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.io.formats.blocks import Text
    from headrace.types import Column, Schema


_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_BARE: Final = rf"{_NUMBER}|true|false|null"
_MEMBER: Final = re.compile(
    rf'"(?P<name>[^"]+)"(?P<colon> *: *)(?:"[^"]*"|(?P<bare>{_BARE}))(?P<end> *(?:,|\}}) *)'
)
_OPENING: Final = re.compile(r"\{ *")
_WHOLE: Final = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_TRUTH: Final = "true|false|null"
_BARE_OF: Final = {
    t.BooleanType: _TRUTH,
    **dict.fromkeys([*_WHOLE, t.FloatType, t.DoubleType, t.DecimalType], f"{_NUMBER}|null"),
}
_QUOTED: Final = (t.StringType, t.DateType, t.TimestampType, t.TimestampNTZType, t.TimeType)
_SPACE: Final = ord(" ")


def read_alike(data: Text, schema: Schema, parse_bytes: int) -> pa.Table | None:
    """Return the rows of lines with the structure of the first; None if that is not certain.

    Every line of ``data`` fits into ``parse_bytes``.

    Raises:
        pa.ArrowException: a line is of another kind, or a value does not fit its type.
    """
    if b"\\" in data or b"\r" in data:
        return None
    end = data.find(b"\n")
    likeness = Likeness.of((data if end < 0 else data[:end]).decode("utf-8", "replace"))
    if likeness is not None:
        likeness = likeness.spelled([column.name for column in schema.columns])
    if likeness is None or not all(likeness.suits(column) for column in schema.columns):
        return None
    pieces = likeness.cut(data, parse_bytes, [column.name for column in schema.columns])
    newlines = pieces.num_rows if data.endswith(b"\n") else pieces.num_rows - 1
    return likeness.rows(pieces, schema) if _is_text(data, newlines) else None


def _is_text(data: Text, newlines: int) -> bool:
    """Return whether data is UTF-8 whose only control characters are ``newlines`` newlines.

    Other control characters are invalid in JSON strings, and a surplus newline is a blank line.
    """
    # As a signed number, a byte of a non-ASCII character is negative.
    if count_of(data, lambda characters: characters.view(np.int8) < _SPACE) == newlines:
        return True
    return is_utf8(data) and count_of(data, lambda characters: characters < _SPACE) == newlines


@dataclass(frozen=True, slots=True)
class _Bare:
    """An unquoted value: its piece, and the text before and after it in the piece."""

    piece: int
    before: str
    after: str

    def values(self, pieces: pa.ChunkedArray, allowed: str) -> pa.ChunkedArray | None:
        """Return the values as text, NULL for null; None if one is not allowed."""
        first, last = len(self.before.encode()), -len(self.after.encode())
        values = pc.cast(pc.binary_slice(pc.cast(pieces, pa.binary()), first, last), pa.string())
        odd = pieces
        if allowed != _TRUTH:
            odd = pieces.filter(pc.invert(self._are_digits(pieces, values)))
            if len(odd) == 0:
                return values
        pattern = rf"\A{re.escape(self.before)}(?:{allowed}){re.escape(self.after)}\z"
        if not pc.all(pc.match_substring_regex(odd, pattern)).as_py():
            return None
        return pc.if_else(pc.equal(values, "null"), None, values)

    def _are_digits(self, pieces: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return which values consist of digits alone without a leading 0: most do."""
        begin, end = pc.starts_with(pieces, self.before), pc.ends_with(pieces, self.after)
        digits = pc.and_not(pc.ascii_is_decimal(values), pc.starts_with(values, "0"))
        return pc.and_(pc.and_(begin, end), digits)


@dataclass(frozen=True, slots=True)
class Likeness:
    """The common structure of lines: their pieces between quotation marks.

    ``quoted`` and ``bare`` have the piece of the value of each name. All other pieces are equal.
    """

    pieces: tuple[str, ...]
    quoted: Mapping[str, int]
    bare: Mapping[str, _Bare]

    @classmethod
    def of(cls, line: str) -> Likeness | None:
        """Return the structure of a line without escapes; None if it is not a flat JSON object."""
        quoted: dict[str, int] = {}
        bare: dict[str, _Bare] = {}
        found = _OPENING.match(line)
        piece = 0
        while found is not None and (found := _MEMBER.match(line, found.end())) is not None:
            name = found["name"]
            if name in quoted or name in bare:
                return None
            if found["bare"] is None:
                quoted[name] = piece + 3
                piece += 4
            else:
                bare[name] = _Bare(piece + 2, found["colon"], found["end"])
                piece += 2
            if "}" in found["end"]:
                whole = found.end() == len(line)
                return cls(tuple(line.split('"')), quoted, bare) if whole else None
        return None

    def spelled(self, names: Sequence[str]) -> Likeness:
        """Return the structure with ``names`` for the names that differ only in case."""
        given = [*self.quoted, *self.bare]
        folded = [name.casefold() for name in given]
        known = {name.casefold(): name for name in names if name not in given}
        meant = {n: known[f] for n, f in zip(given, folded, strict=True) if f in known}
        if not meant or len(set(folded)) < len(folded):
            return self
        quoted = {meant.get(name, name): piece for name, piece in self.quoted.items()}
        bare = {meant.get(name, name): value for name, value in self.bare.items()}
        return replace(self, quoted=quoted, bare=bare)

    def suits(self, column: Column) -> bool:
        """Return whether the column's values are quoted as its type requires, or missing."""
        if column.name in self.quoted:
            return isinstance(column.type, _QUOTED)
        return column.name not in self.bare or type(column.type) in _BARE_OF

    def cut(self, data: Text, parse_bytes: int, names: Sequence[str]) -> pa.Table:
        """Return the pieces that prove the common structure, and those with values of ``names``.

        A column is called by its number. Arrow refuses a piece that is not as long as it must be.
        """
        values = {*self.quoted.values(), *(bare.piece for bare in self.bare.values())}
        unread = {piece for name, piece in self.quoted.items() if name not in names}
        numbers = [str(i) for i in range(len(self.pieces))]
        return pv.read_csv(
            pa.BufferReader(data),
            pv.ReadOptions(use_threads=False, block_size=parse_bytes, column_names=numbers),
            pv.ParseOptions(delimiter='"', quote_char=False, escape_char=False),
            pv.ConvertOptions(
                check_utf8=False,
                column_types={
                    number: pa.string() if i in values else pa.binary(len(self.pieces[i].encode()))
                    for i, number in enumerate(numbers)
                },
                include_columns=[number for i, number in enumerate(numbers) if i not in unread],
                null_values=[],
                strings_can_be_null=False,
            ),
        )

    def rows(self, pieces: pa.Table, schema: Schema) -> pa.Table | None:
        """Return the rows; None if the lines have other structures, or one is not JSON."""
        for number, column in zip(pieces.column_names, pieces.columns, strict=True):
            fixed = pa.types.is_fixed_size_binary(column.type)
            if fixed and not _are_all(column, self.pieces[int(number)].encode()):
                return None
        types = {column.name: column.type for column in schema.columns}
        texts = {name: pieces[str(piece)] for name, piece in self.quoted.items() if name in types}
        for name, bare in self.bare.items():
            values = bare.values(
                pieces[str(bare.piece)], _BARE_OF.get(type(types.get(name)), _BARE)
            )
            if values is None:
                return None
            texts[name] = values
        return pa.table(
            [
                cast_texts(texts[field.name], types[field.name], field.type)
                if field.name in texts
                else pa.nulls(pieces.num_rows, field.type)
                for field in schema.arrow
            ],
            schema=schema.arrow,
        )


def _are_all(column: pa.ChunkedArray, piece: bytes) -> bool:
    """Return whether all values of a column, which have the length of ``piece``, equal it."""
    longest = max(len(chunk) for chunk in column.chunks)
    same = pa.FixedSizeBinaryArray.from_buffers(
        column.type, longest, [None, pa.py_buffer(piece * longest)]
    )
    return all(chunk.equals(same[: len(chunk)]) for chunk in column.chunks)


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
