"""Upsert topics: the last message of each key counts, as in a compacted topic of Kafka.

A message with a value inserts or replaces the row of its key; one without a value, a *tombstone*,
deletes it: it is decoded to a row of weight -1, which :mod:`headrace.algebra.operators.contents`
removes. The primary key is in the key of the message; the value may repeat its columns, which must
then be equal. Order is that of a partition, so all messages of a key must be in one.

Messages as changes of rows: the interface between message sources and message formats.

A plain format has one row per message. In an upsert format, a message replaces the row of its key,
and one without a value deletes it. Formats of captured changes have the rows before and after.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.algebra.zset import row_codes
from headrace.errors import Code, HeadraceError
from headrace.io.formats.blocks import together
from headrace.io.formats.messages import JsonMessages, LineValues, payload
from headrace.io.formats.values import (
    RejectedValueError,
    field_of,
    from_json,
    from_text,
    parse_json,
    type_name,
)
from headrace.storage.ledger import Reject
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.io.formats.messages import MessageDecoder
    from headrace.types import Column


@dataclass(frozen=True, slots=True)
class DecodedChanges:
    """The changes decoded from some messages, in order, and the rejected messages.

    ``rows`` have ``weights``, and ``unchanged`` cells; before each row index in ``emptied``, all
    rows of the table are deleted: as in :class:`headrace.execution.runtime.ports.Part`.
    ``messages`` has the message index of each row. The ``line`` of a reject is its message index.
    """

    rows: pa.Table
    weights: NDArray[np.int64]
    messages: NDArray[np.int64]
    rejects: tuple[Reject, ...] = ()
    unchanged: Mapping[str, pa.BooleanArray] = field(default_factory=dict)
    emptied: tuple[int, ...] = ()


class ChangeDecoder(Protocol):
    """Decodes the keys and values of messages into changes of rows.

    Keys may be given as absent if it is not one that ``reads_keys``.
    """

    @property
    def reads_keys(self) -> bool:
        """Whether changes depend on the keys of messages."""
        ...

    @property
    def reads_lines(self) -> bool:
        """Whether values are best given as :class:`headrace.io.formats.messages.LineValues`."""
        ...

    def changes(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> DecodedChanges:
        """Return the changes of messages, given as keys and values; both may be absent."""
        ...

    def transaction(self, value: bytes) -> str | None:
        """Return the source transaction that may continue after a message; None if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Appended:
    """Decodes each message as an inserted row; a message without a value is a reject."""

    decoder: MessageDecoder
    reads_keys: ClassVar[bool] = False

    @property
    def reads_lines(self) -> bool:
        """Whether the decoder joins values to lines of JSON."""
        return isinstance(self.decoder, JsonMessages)

    def changes(
        self,
        keys: Sequence[bytes | None],  # noqa: ARG002 - the rows are in the values
        values: Sequence[bytes | None],
    ) -> DecodedChanges:
        """Return a row for each value that fits."""
        return appended(self.decoder, values, "a message without a value")

    def transaction(self, value: bytes) -> str | None:  # noqa: ARG002 - no format says it
        """Return None: messages are independent of each other."""
        return None


def appended(
    decoder: MessageDecoder, values: Sequence[bytes | None], without: str | None
) -> DecodedChanges:
    """Return a row for each value; messages without one are rejects with the reason, or skipped."""
    present = np.arange(len(values))
    given: Sequence[bytes] = (
        values
        if isinstance(values, LineValues)
        else [value for value in values if value is not None]
    )
    if len(given) < len(values):
        present = np.array([at for at, value in enumerate(values) if value is not None], np.int64)
    decoded = decoder.decode(given)
    rejects = [
        Reject(r.file, int(present[r.line]), r.column, r.reason, r.raw) for r in decoded.rejects
    ]
    if without is not None and len(given) < len(values):
        absent = (at for at, value in enumerate(values) if value is None)
        rejects += [Reject("", at, None, without, "") for at in absent]
    messages = present[decoded.kept]
    return DecodedChanges(decoded.rows, np.ones(len(messages), np.int64), messages, tuple(rejects))


class KeyFormat(StrEnum):
    """The formats of keys: JSON, text, or the bytes of Kafka's own serializers."""

    JSON = "json"
    STRING = "string"
    RAW = "raw"
    KAFKA = "kafka"


_BYTES: Final[dict[type[t.DataType], str]] = {
    t.ByteType: ">b",
    t.ShortType: ">h",
    t.IntegerType: ">i",
    t.LongType: ">q",
    t.FloatType: ">f",
    t.DoubleType: ">d",
    t.BooleanType: ">?",
}
"""The forms of Kafka's serializers, and of Flink's ``raw``: the first byte first."""


class Keys:
    """Decodes keys of messages to the columns of a primary key.

    Raises:
        HeadraceError: ``invalid`` if the format cannot represent these columns.
    """

    def __init__(self, columns: Sequence[Column], form: KeyFormat) -> None:
        self._columns = columns
        if form is KeyFormat.JSON:
            self._read = _json_keys(columns)
        else:
            if len(columns) != 1:
                names = ", ".join(column.name for column in columns)
                raise HeadraceError(
                    Code.INVALID,
                    f"a key of format '{form}' is one column, not {names}",
                    hint="Use key.format = 'json' for several.",
                )
            self._read = _single_keys(columns[0], form)

    def decode(self, keys: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
        """Return the columns of keys, NULL where rejected; the rejected ones with their reasons."""
        found: list[list[Any]] = []
        refused: dict[int, tuple[str, str]] = {}
        names = ", ".join(column.name for column in self._columns)
        for at, key in enumerate(keys):
            try:
                found.append(self._values(key))
            except RejectedValueError as reason:
                refused[at] = (names, str(reason))
                found.append([None] * len(self._columns))
        schema = Schema(tuple(self._columns)).arrow
        columns = [
            pa.array([values[i] for values in found], field.type) for i, field in enumerate(schema)
        ]
        return pa.table(columns, schema=schema), refused

    def _values(self, key: bytes | None) -> list[Any]:
        if key is None:
            raise RejectedValueError("the message has no key")
        values = self._read(key)
        if None in values:
            raise RejectedValueError("NULL in the primary key")
        return values


def _json_keys(columns: Sequence[Column]) -> Callable[[bytes], list[Any]]:
    converters = [(column.name, from_json(column)) for column in columns]

    def read(key: bytes) -> list[Any]:
        try:
            found = parse_json(key.decode())
        except UnicodeDecodeError as error:
            raise RejectedValueError("the key of the message is not UTF-8") from error
        except RejectedValueError as refused:
            raise RejectedValueError(f"the key of the message is {refused}") from refused
        if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
            found = found["payload"]
        if not isinstance(found, dict):
            if len(converters) > 1:
                raise RejectedValueError("the key of the message is not a JSON object")
            found = {converters[0][0]: found}
        values = [(field_of(found, name), convert) for name, convert in converters]
        return [None if value is None else convert(value) for value, convert in values]

    return read


def _single_keys(column: Column, form: KeyFormat) -> Callable[[bytes], list[Any]]:
    if isinstance(column.type, t.StringType) or form is KeyFormat.STRING:
        convert = from_text(column)

        def read_text(key: bytes) -> list[Any]:
            try:
                return [convert(key.decode())]
            except UnicodeDecodeError as error:
                raise RejectedValueError("the key of the message is not UTF-8") from error

        return read_text
    if isinstance(column.type, t.BinaryType):
        return lambda key: [key]
    layout = _BYTES.get(type(column.type))
    if layout is None:
        raise HeadraceError(
            Code.INVALID,
            f"a key of format '{form}' cannot be of type {type_name(column.type)}",
            hint="Use key.format = 'json' or 'string'.",
        )

    def read(key: bytes) -> list[Any]:
        if len(key) != struct.calcsize(layout):
            raise RejectedValueError(f"{len(key)} bytes are not a {type_name(column.type)}")
        return list(struct.unpack(layout, key))

    return read


@dataclass(frozen=True, slots=True)
class Upserts:
    """Decodes upsert messages; a :class:`headrace.io.formats.upserts.ChangeDecoder`.

    ``value`` decodes values to rows of ``schema``, in which the key's columns may be NULL, or
    absent if only the message keys have them. Without ``keys``, the key's columns are in the
    values, and a message without a value is a reject.
    """

    schema: Schema
    key: tuple[str, ...]
    value: MessageDecoder
    keys: Keys | None
    reads_lines: ClassVar[bool] = False

    @property
    def reads_keys(self) -> bool:
        """Whether keys have columns."""
        return self.keys is not None

    def changes(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> DecodedChanges:
        """Return an insertion or deletion by key for each message."""
        if self.keys is None:
            return appended(
                self.value, values, "a message without a value, in a table without a key.format"
            )
        found = appended(self.value, values, None)
        decoded, refused = self.keys.decode(keys)
        of_rows = decoded.take(pa.array(found.messages))
        rows, differing = self._keyed(found.rows, of_rows)
        places = found.messages
        rejects = {r.line: r for r in found.rejects}
        for at, (columns, reason) in refused.items():
            rejects.setdefault(at, Reject("", at, columns, reason, payload(values[at])))
        for row, columns in differing.items():
            at = int(places[row])
            reason = "the key of the message and its value differ in these columns"
            rejects.setdefault(at, Reject("", at, columns, reason, payload(values[at])))
        gone = np.array([i for i, v in enumerate(values) if v is None], np.int64)
        deletions = _with_nulls(decoded.take(pa.array(gone, pa.int64())), self.schema)
        messages = np.concatenate([places, gone])
        weights = np.concatenate([np.ones(len(places)), -np.ones(len(gone))]).astype(np.int64)
        good = ~np.isin(messages, np.fromiter(rejects, np.int64, len(rejects)))
        order = np.argsort(messages, kind="stable")
        order = order[good[order]]
        return DecodedChanges(
            pa.concat_tables([rows, deletions]).take(pa.array(order)),
            weights[order],
            messages[order],
            tuple(rejects[at] for at in sorted(rejects)),
        )

    def transaction(self, value: bytes) -> str | None:  # noqa: ARG002 - no format says it
        """Return None: messages are independent of each other."""
        return None

    def _keyed(self, rows: pa.Table, keys: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """Return rows with the columns of their keys, and the contradicting columns, by row."""
        wrong: dict[int, list[tuple[str, str]]] = {}
        columns = []
        for each in self.schema.arrow:
            if each.name not in self.key:
                columns.append(rows[each.name])
                continue
            columns.append(keys[each.name])
            if each.name in rows.column_names:
                given, of_key = _array(rows[each.name]), _array(keys[each.name])
                codes = row_codes([pa.concat_arrays([given, of_key])], 2 * len(given))
                other = codes[: len(given)] != codes[len(given) :]
                other &= given.is_valid().to_numpy(zero_copy_only=False)
                for row in np.flatnonzero(other).tolist():
                    wrong.setdefault(row, []).append((each.name, ""))
        table = pa.table(columns, schema=self.schema.arrow)
        return table, {row: together(each)[0] for row, each in wrong.items()}


def _with_nulls(keys: pa.Table, schema: Schema) -> pa.Table:
    columns = [
        keys[each.name] if each.name in keys.column_names else pa.nulls(keys.num_rows, each.type)
        for each in schema.arrow
    ]
    return pa.table(columns, schema=schema.arrow)


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
