"""CSV files: RFC 4180 quoting, newlines in quotes, and NULL distinct from the empty string.

An unquoted field that equals the null text (default: empty) is NULL; a quoted field never is. A
quote inside an unquoted field is a plain character, as is text after a closing quote.

A file has one line ending: LF or CR LF; or CR alone, if the beginning of the file has no LF outside
of quotes. The other character is a plain one within a field.

Messages as CSV: each value is one record, with its fields in the order of the columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from pyspark.sql import types as t

from headrace.io.formats.blocks import (
    Decoded,
    FilePosition,
    RecordBlock,
    RecordSpan,
    Rows,
    holds_infinity,
    misses_required,
    require_precision,
    salvage,
    together,
)
from headrace.io.formats.messages import Messages, payload
from headrace.io.formats.values import RejectedValueError, cast_texts, from_text
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.io.formats.blocks import Text
    from headrace.types import Schema


_LF: Final = ord("\n")
_CR: Final = ord("\r")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The format of a CSV file. Delimiter and quote are one ASCII character each.

    ``newline`` ends records: LF, also after CR, or CR alone.
    """

    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    newline: Literal["\n", "\r"] = "\n"

    def in_file(self, beginning: bytes) -> Dialect:
        """Return the dialect with the line ending of a file that begins with these bytes."""
        lines = replace(self, newline="\n")
        if beginning.count(b"\r") == beginning.count(b"\r\n"):
            return lines
        carriage_returns = replace(self, newline="\r")
        reader, start = CsvReader(carriage_returns), 0
        while start < len(beginning):
            record = reader.record(beginning, start)
            if record.closed and b"\n" in record.outside:
                return lines
            start = record.end
        return carriage_returns


@dataclass(frozen=True, slots=True)
class Record:
    """One record as text: its fields, each with whether it was quoted, and its end.

    ``outside`` is the text of its fields that is not in quotes.
    """

    fields: tuple[tuple[bytes, bool], ...]
    outside: bytes
    end: int
    closed: bool


class CsvReader:
    """Finds records and fields in bytes; the last byte of a record is ``newline``."""

    def __init__(self, dialect: Dialect) -> None:
        self._quote = dialect.quote.encode()
        self._delimiter = dialect.delimiter.encode()
        self.newline = dialect.newline.encode()
        self._before_opening = np.frombuffer(self._delimiter + self.newline, np.uint8)
        q, d = re.escape(self._quote), re.escape(self._delimiter)
        if dialect.newline == "\r":
            plain, end = rb"[^%b\r]*+" % d, rb"\r|\Z"
        else:
            inner = rb"[^%b\r\n]*+" % d
            plain, end = rb"%b(?:\r(?!\n|\Z)%b)*+" % (inner, inner), rb"\r?\n|\r?\Z"
        self._field = re.compile(
            rb"(?:%b((?:[^%b]*+(?:%b%b)?+)*+)%b(%b)|(%b))(%b|%b)"
            % (q, q, q, q, q, plain, plain, d, end)
        )

    def record(self, data: Text, start: int) -> Record:
        """Return the record that starts at ``start``.

        If a quote is not closed, the record is its first line alone, with ``closed`` False.
        """
        fields: list[tuple[bytes, bool]] = []
        outside, closed, end = b"", True, start
        while True:
            found = self._field.match(data, end)
            if found is None:  # impossible: the pattern matches an empty field anywhere
                return Record(tuple(fields), outside, len(data), closed=False)
            quoted, after, plain, stop = found.groups()
            end = found.end()
            if quoted is None:
                closed = closed and not plain.startswith(self._quote)
                fields.append((plain, False))
                outside += plain
            else:
                text = quoted.replace(self._quote * 2, self._quote) + after
                fields.append((text, True))
                outside += after
            if stop != self._delimiter:
                return Record(tuple(fields), outside, end, closed)

    def spans(self, data: Text, first_line: int) -> list[RecordSpan]:
        """Return the records of a block."""
        spans: list[RecordSpan] = []
        start, line = 0, first_line
        while start < len(data):
            end = self.record(data, start).end
            spans.append(RecordSpan(start, end, line))
            line += data.count(self.newline, start, end)
            start = end
        return spans

    def cut(self, data: Text, at_end: bool) -> int:  # noqa: FBT001 (the shape of a cut)
        """Return the position after the last unquoted newline, or the end of the file."""
        if at_end:
            return len(data)
        quotes = self._quotes(data)
        if len(quotes) == 0:
            return data.rfind(self.newline) + 1
        if self._is_regular(data, quotes):
            end = len(data)
            while True:
                end = data.rfind(self.newline, 0, end)
                before = int(np.searchsorted(quotes, end))
                if end < 0 or before % 2 == 0:
                    return end + 1
                end = int(quotes[before - 1])
        # The last record and an unclosed quote may continue after this piece of the file.
        whole = 0
        while whole < len(data):
            record = self.record(data, whole)
            if not record.closed or record.end >= len(data):
                break
            whole = record.end
        return whole

    def is_plain(self, data: Text) -> bool:
        """Return whether every quote opens or closes a field, and none is left open."""
        quotes = self._quotes(data)
        return len(quotes) % 2 == 0 and self._is_regular(data, quotes)

    def has_foreign_newlines(self, data: Text) -> bool:
        """Whether data may have line ends outside of quotes that end no record of this file.

        Arrow ends a record at each of LF, CR and both.
        """
        if self.newline == b"\r":
            if b"\n" not in data:
                return False
            foreign = np.flatnonzero(np.frombuffer(data, np.uint8) == _LF)
        else:
            if b"\r" not in data or data.count(b"\r") == data.count(b"\r\n"):
                return False
            characters = np.frombuffer(data, np.uint8)
            returns = np.flatnonzero(characters[:-1] == _CR)
            foreign = returns[characters[returns + 1] != _LF]
        quotes = self._quotes(data)
        if len(quotes) and not self._is_regular(data, quotes):
            return True
        return bool(np.any(np.searchsorted(quotes, foreign) % 2 == 0))

    def _quotes(self, data: Text) -> np.ndarray[Any, Any]:
        if self._quote not in data:
            return np.empty(0, np.int64)
        return np.flatnonzero(np.frombuffer(data, np.uint8) == self._quote[0])

    def _is_regular(self, data: Text, quotes: np.ndarray[Any, Any]) -> bool:
        """Return whether every second quote opens a field, or continues one after its twin."""
        opening = quotes[::2]
        bytes_before = np.frombuffer(data, np.uint8)[np.maximum(opening - 1, 0)]
        opens = (opening == 0) | np.isin(bytes_before, self._before_opening)
        continues = np.zeros(len(opening), bool)
        continues[1:] = quotes[1:-1:2] == opening[1:] - 1
        return bool(np.all(opens | continues))


class CsvDecoder:
    """Decodes blocks of records into a schema's rows.

    ``fields`` gives, for each field of the file, the index of its column, or None to ignore it.
    """

    def __init__(
        self, path: str, schema: Schema, dialect: Dialect, fields: Sequence[int | None]
    ) -> None:
        self._path = path
        self._schema = schema
        self._target = schema.arrow
        self._reader = CsvReader(dialect)
        self._null = dialect.null.encode()
        self._converters = [from_text(column) for column in schema.columns]
        self._place = {column: place for place, column in enumerate(fields) if column is not None}
        self._width = len(fields)
        self._has_integers = any(pa.types.is_integer(field.type) for field in self._target)
        # If records have one field, an empty line is a record with an empty field.
        self._parse = pcsv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote,
            newlines_in_values=True,
            ignore_empty_lines=self._width > 1,
        )
        self._convert = pcsv.ConvertOptions(
            include_columns=[str(place) for place in self._place.values()],
            column_types={
                str(place): _read_type(schema.columns[column].type, self._target.field(column).type)
                for column, place in self._place.items()
            },
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[dialect.null],
            true_values=["true", "TRUE", "True"],
            false_values=["false", "FALSE", "False"],
        )
        self._names = [str(place) for place in range(self._width)]

    def decode(self, block: RecordBlock) -> Decoded:
        """Return the rows of a block, and its rejects."""
        if self._reader.is_plain(block.data):
            table = self._whole(block.data)
            if table is not None:
                return Decoded([table])
        spans = self._reader.spans(block.data, block.line)
        return salvage(
            spans,
            lambda part: self._if_closed(block.data[part[0].start : part[-1].end]),
            lambda part, found: self._one_by_one(block.data, part, found),
        )

    def _if_closed(self, data: Text) -> pa.Table | None:
        """Decode with Arrow unless a quote is left open, which Arrow would read to the end."""
        if self._reader.is_plain(data):
            return self._whole(data)
        start = 0
        while start < len(data):
            record = self._reader.record(data, start)
            if not record.closed:
                return None
            start = record.end
        return self._whole(data)

    def _whole(self, data: Text) -> pa.Table | None:
        # Arrow reads 0x10 as an integer.
        if not self._place or (self._has_integers and (b"0x" in data or b"0X" in data)):
            return None
        if self._reader.has_foreign_newlines(data):
            return None
        try:
            read = pcsv.read_csv(
                pa.BufferReader(data),
                pcsv.ReadOptions(
                    use_threads=False, block_size=len(data) + 1, column_names=self._names
                ),
                self._parse,
                self._convert,
            )
            table = self._with_types(read)
            require_precision(table)
        except pa.ArrowException:
            return None
        if misses_required(table, self._schema) or holds_infinity(table):
            return None
        return table

    def _with_types(self, read: pa.Table) -> pa.Table:
        columns = []
        for index, field in enumerate(self._target):
            if index not in self._place:
                columns.append(pa.nulls(read.num_rows, field.type))
                continue
            column = read.column(str(self._place[index]))
            columns.append(_of_texts(column, self._schema.columns[index].type, field.type))
        return pa.table(columns, schema=self._target)

    def _one_by_one(self, data: Text, spans: Sequence[RecordSpan], found: Decoded) -> None:
        rows = Rows(self._target)
        for span in spans:
            record = self._reader.record(data, span.start)
            if self._width > 1 and record.fields == ((b"", False),):
                continue
            try:
                rows.add(self._values(record))
            except _RefusedField as refused:
                raw = data[span.start : span.end].decode("utf-8", "replace").rstrip("\r\n")
                reject = Reject(self._path, span.line, refused.column, refused.reason, raw)
                found.rejects.append(reject)
        rows.into(found.tables)

    def _values(self, record: Record) -> list[Any]:
        if not record.closed:
            raise _RefusedField(None, "a quote is never closed")
        if len(record.fields) != self._width:
            raise _RefusedField(None, f"{len(record.fields)} fields instead of {self._width}")
        values: list[Any] = []
        wrong: list[tuple[str, str]] = []
        for index, (column, convert) in enumerate(
            zip(self._schema.columns, self._converters, strict=True)
        ):
            place = self._place.get(index)
            text, quoted = (b"", False) if place is None else record.fields[place]
            if place is None or (not quoted and text == self._null):
                if not column.nullable:
                    wrong.append((column.name, "NULL in a NOT NULL column"))
                values.append(None)
                continue
            try:
                is_binary = isinstance(column.type, t.BinaryType)
                values.append(text if is_binary else convert(text.decode()))
            except UnicodeDecodeError:
                wrong.append((column.name, "not UTF-8"))
            except RejectedValueError as refused:
                wrong.append((column.name, str(refused)))
        if wrong:
            raise _RefusedField(*together(wrong))
        return values


class _RefusedField(Exception):  # noqa: N818 (a verdict, not a failure)
    def __init__(self, column: str | None, reason: str) -> None:
        super().__init__(column, reason)
        self.column = column
        self.reason = reason


def _read_type(data_type: t.DataType, arrow: pa.DataType) -> pa.DataType:
    """Return the type that Arrow reads; times, with or without zones, and decimals are texts."""
    times = t.TimestampType | t.TimestampNTZType | t.TimeType
    return pa.string() if isinstance(data_type, times | t.DecimalType) else arrow


def _of_texts(
    column: pa.ChunkedArray, data_type: t.DataType, target: pa.DataType
) -> pa.ChunkedArray:
    if column.type == target:
        return column
    if isinstance(data_type, t.DecimalType):
        column = pc.ascii_trim_whitespace(column)
    if isinstance(data_type, t.TimeType | t.DecimalType):
        return cast_texts(column, data_type, target)
    return _moments(column, target)


def _moments(texts: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    try:
        return pc.cast(pc.cast(texts, pa.timestamp("us")), target)
    except pa.ArrowInvalid:
        if target.tz is None:
            raise
        return pc.cast(texts, target)


class CsvMessages:
    """Decodes messages of one CSV record each, by the rules for CSV files."""

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self._schema = schema
        self._reader = CsvReader(dialect)
        self._decoder = CsvDecoder("", schema, dialect, range(len(schema.columns)))
        self._quote = dialect.quote.encode()

    def decode(self, values: Sequence[bytes]) -> Messages:
        """Return the rows of values; one that is not one record, or does not fit, is a reject."""
        lines = [value.rstrip(b"\r\n") for value in values]
        reasons = {at: reason for at, line in enumerate(lines) if (reason := self._wrong(line))}
        whole = [at for at in range(len(lines)) if at not in reasons]
        data = b"\n".join([*(lines[at] for at in whole), b""])
        decoded = self._decoder.decode(RecordBlock(data, 0, FilePosition(), len(data)))
        kept = np.ones(len(values), bool)
        kept[list(reasons)] = False
        rejects = [Reject("", at, None, why, payload(values[at])) for at, why in reasons.items()]
        line_of = self._lines([lines[at] for at in whole])
        for reject in decoded.rejects:
            at = whole[line_of[reject.line]]
            kept[at] = False
            rejects.append(Reject("", at, reject.column, reject.reason, reject.raw))
        rows = pa.concat_tables([self._schema.arrow.empty_table(), *decoded.tables])
        ordered = tuple(sorted(rejects, key=lambda each: each.line))
        return Messages(rows, np.flatnonzero(kept), ordered)

    def _lines(self, lines: Sequence[bytes]) -> dict[int, int]:
        """Return the index of each record by the line of their text that it begins at."""
        found, line = {}, 0
        for at, record in enumerate(lines):
            found[line] = at
            line += record.count(b"\n") + 1
        return found

    def _wrong(self, line: bytes) -> str | None:
        """Return why a value is not a single record, or None."""
        if not line:
            return "an empty value"
        if self._quote not in line:
            return "more than one record" if b"\n" in line else None
        record = self._reader.record(line, 0)
        if not record.closed:
            return "a quote is never closed"
        return "more than one record" if record.end < len(line) else None
