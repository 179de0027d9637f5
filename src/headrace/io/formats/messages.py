"""Decodes messages of one row each: JSON objects, or text and bytes unchanged.

Values of messages as lines: one object for a block of values instead of one for each.

Going through a million small objects that have left the processor's cache, as joining, copying and
freeing them do, takes longer than decoding them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.formats.blocks import FilePosition, RecordBlock, together
from headrace.io.formats.json_lines import JsonDecoder
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from headrace.types import Schema


class LineValues(Sequence[bytes]):
    """Values that have no line feed within, in order; ``add`` appends some."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._ends: list[int] = []
        """The number of values up to the end of each block."""
        self.bytes = 0
        """The size of all values, with the line feeds between them."""

    def add(self, values: Sequence[bytes | None]) -> bool:
        """Append values; return False, and append none, if one is absent or has a line feed."""
        if not values:
            return True
        try:
            block = b"\n".join(values)  # type: ignore[arg-type]
        except TypeError:
            return False
        if block.count(b"\n") != len(values) - 1:
            return False
        self._append(block, len(values))
        return True

    def extend(self, other: LineValues) -> None:
        """Append the values of others."""
        before = 0
        for block, end in zip(other._blocks, other._ends, strict=True):
            self._append(block, end - before)
            before = end

    def _append(self, block: bytes, count: int) -> None:
        self._blocks.append(block)
        self._ends.append(len(self) + count)
        self.bytes += len(block) + 1

    @property
    def data(self) -> bytes:
        """All values, with a line feed between any two."""
        return b"\n".join(self._blocks)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            yield from block.split(b"\n")

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return list(self)[at]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        number = bisect_right(self._ends, at)
        begins = self._ends[number - 1] if number else 0
        return self._blocks[number].split(b"\n")[at - begins]


_SHOWN = 4096
"""How many bytes of a refused value are kept."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The rows decoded from some messages, in order, and the rejected messages.

    ``kept`` has the message index of each row. The ``line`` of a reject is its message index.
    """

    rows: pa.Table
    kept: NDArray[np.int64]
    rejects: tuple[Reject, ...]


class MessageDecoder(Protocol):
    """Decodes the values of messages into rows of a schema."""

    def decode(self, values: Sequence[bytes]) -> Messages:
        """Return the rows of values; a value that does not fit is a reject."""
        ...


class JsonMessages:
    """Decodes JSON objects, one per message, by the rules for lines of a JSON file."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._decoder = JsonDecoder("", schema)

    def decode(self, values: Sequence[bytes]) -> Messages:
        """Return the rows of values; one that is not an object, or does not fit, is a reject."""
        if isinstance(values, LineValues):
            data = values.data
        else:
            data = b"\n".join(values)
            if data.count(b"\n") >= max(1, len(values)):
                # No string of JSON has a line feed within, so a value may be put on one line.
                data = b"\n".join([value.replace(b"\n", b" ") for value in values])
        decoded = self._decoder.decode(RecordBlock(data, 0, FilePosition(), len(data)))
        if not decoded.rejects and sum(each.num_rows for each in decoded.tables) == len(values):
            rows = pa.concat_tables([self._schema.arrow.empty_table(), *decoded.tables])
            return Messages(rows, np.arange(len(values)), ())
        empty = [at for at, value in enumerate(values) if not value or value.isspace()]
        rejects = [Reject("", at, None, "an empty value", "") for at in empty]
        rejects += decoded.rejects
        kept = np.ones(len(values), bool)
        kept[[reject.line for reject in rejects]] = False
        rows = pa.concat_tables([self._schema.arrow.empty_table(), *decoded.tables])
        return Messages(rows, np.flatnonzero(kept), tuple(sorted(rejects, key=lambda r: r.line)))


class PlainMessages:
    """Decodes a value as the only column of a row: text, or bytes unchanged."""

    def __init__(self, schema: Schema) -> None:
        if len(schema.columns) != 1 or not isinstance(
            schema.columns[0].type, t.StringType | t.BinaryType
        ):
            raise HeadraceError(
                Code.INVALID,
                "messages without a format are one column of type STRING or BINARY",
                hint="Declare one such column, or use format = 'json'.",
            )
        self._arrow = schema.arrow
        self._text = isinstance(schema.columns[0].type, t.StringType)

    def decode(self, values: Sequence[bytes]) -> Messages:
        """Return values as rows; for a text column, invalid UTF-8 is a reject."""
        kept, rejects, found = [], [], []
        for at, value in enumerate(values):
            try:
                found.append(value.decode() if self._text else value)
            except UnicodeDecodeError:
                found_wrong = Reject("", at, self._arrow.names[0], "not UTF-8", payload(value))
                rejects.append(found_wrong)
                continue
            kept.append(at)
        rows = pa.table([pa.array(found, self._arrow.types[0])], schema=self._arrow)
        return Messages(rows, np.array(kept, np.int64), tuple(rejects))


def shown(value: bytes) -> str:
    """Return the beginning of a rejected binary value, in hexadecimal."""
    return "\\x" + value[:_SHOWN].hex()


def payload(message: bytes | None) -> str:
    """Return the stored beginning of a rejected message."""
    return (message or b"")[:_SHOWN].decode("utf-8", "replace")


def messages_of(
    values: Sequence[bytes],
    columns: Mapping[str, pa.Array],
    problems: Mapping[int, Mapping[str | None, str]],
    schema: Schema,
) -> Messages:
    """Return the messages of a binary format from the decoded columns.

    ``columns`` are values by column name, missing columns are NULL; ``problems`` maps the index of
    a message to its reasons for rejection, by column.
    """
    found = {row: dict(reasons) for row, reasons in problems.items()}
    arrays = [
        columns.get(column.name, pa.nulls(len(values), arrow.type))
        for column, arrow in zip(schema.columns, schema.arrow, strict=True)
    ]
    for column, array in zip(schema.columns, arrays, strict=True):
        if not column.nullable and array.null_count:
            for row in pc.indices_nonzero(array.is_null()).to_pylist():
                found.setdefault(row, {column.name: "NULL in a NOT NULL column"})
    kept = np.ones(len(values), bool)
    kept[list(found)] = False
    rejects = []
    for row in sorted(found):
        column_name, reason = _one_of(found[row])
        rejects.append(Reject("", row, column_name, reason, shown(values[row])))
    rows = pa.table(arrays, schema=schema.arrow)
    if found:
        rows = rows.filter(pa.array(kept))
    return Messages(rows, np.flatnonzero(kept), tuple(rejects))


def _one_of(reasons: Mapping[str | None, str]) -> tuple[str | None, str]:
    """Combine the rejected columns, and their reasons, into one of each."""
    if None in reasons:
        return None, reasons[None]
    return together([(column or "", reason) for column, reason in reasons.items()])


def decoder_of(name: str, schema: Schema) -> MessageDecoder:
    """Return the decoder of a message format, for rows of a schema.

    Raises:
        HeadraceError: ``unsupported`` for an unknown format; ``invalid`` if the columns do not
            suit it.
    """
    match name.lower():
        case "json":
            return JsonMessages(schema)
        case "raw" | "string" | "kafka":
            return PlainMessages(schema)
    raise HeadraceError(
        Code.UNSUPPORTED,
        f"messages of format '{name}' cannot be read",
        hint="There are: json, avro, protobuf, csv, raw, string.",
    )
