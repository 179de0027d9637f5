"""Avro records to rows: the writer's schema, read for the types of the columns.

A column takes the field of its name, in any case; a field without a column is skipped, and a column
without a field is NULL. Values follow the rule of :mod:`headrace.io.formats.fitting`: exactly or
not at all. A logical type gives its value (a decimal, a date, a time), unless the column has the
underlying type: an integer, or BINARY. ``duration`` is read as its underlying type.

Many messages are decoded by one walk over the schema (:mod:`headrace.io.formats.cursors`),
strictly: a message that ends early, or has trailing bytes, is rejected as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.io.formats.cursors import Cursors
from headrace.io.formats.fitting import fitted, list_array, offsets_of
from headrace.io.formats.libraries import library
from headrace.io.formats.messages import messages_of
from headrace.io.formats.values import RejectedValueError, place_of, type_name
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from headrace.io.formats.cursors import Rows
    from headrace.io.formats.messages import Messages
    from headrace.types import Schema


Reader: TypeAlias = Callable[[Cursors, "Rows"], pa.Array]
"""Reads a value of each of some messages, as an array of the column's type."""
Skipper: TypeAlias = Callable[[Cursors, "Rows"], None]
"""Skips a value of each of some messages."""

_TIMES: Final = {
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "time-micros": pa.time64("us"),
    "time-nanos": pa.time64("ns"),
}
_MILLISECONDS_OF_DAY: Final = 86_400_000
_DECIMAL_BYTES: Final = 32
_DECIMAL_DIGITS: Final = 76
_UUID_BYTES: Final = 16
_DEEPEST: Final = 100
"""The deepest nesting of values of one recursive type."""
_WIDTHS: Final = {"float": "<f4", "double": "<f8"}


class AvroRecords:
    """Decodes records that were written with one schema.

    ``references`` are the texts of the schemas that it names, dependencies first.

    Raises:
        RejectedValueError: if the text is not an Avro schema of a record, or has none of the
            columns.
        HeadraceError: ``invalid`` if the library for Avro is not installed.
    """

    def __init__(self, text: str, schema: Schema, references: Iterable[str] = ()) -> None:
        self._schema = schema
        types = _Types.of(text, references)
        fields = types.fields
        columns = {}
        for column in schema.columns:
            place = place_of(column.name, [field["name"] for field in fields])
            if place is not None:
                columns[place] = column
        if not columns:
            raise RejectedValueError("none of the columns is in its schema")
        self._plan = [
            (columns[place].name, types.reader(field["type"], columns[place].type))
            if place in columns
            else (None, types.skipper(field["type"]))
            for place, field in enumerate(fields)
        ]

    def decode(self, values: Sequence[bytes], start: int = 0) -> Messages:
        """Return the rows of values; each value is read from the byte ``start`` on."""
        cursors = Cursors(values, start)
        rows = cursors.rows
        found: dict[str, Any] = {}
        for column, read in self._plan:
            cursors.column = column
            of_column = read(cursors, rows)
            if column is not None:
                found[column] = of_column
        cursors.end()
        return messages_of(values, found, cursors.problems, self._schema)


class _Types:
    """The types of one schema, by name, and readers of their values."""

    def __init__(self, record: dict[str, Any], named: dict[str, Any]) -> None:
        self._record = record
        self._named = named
        self._skippers: dict[str, Skipper] = {}

    @classmethod
    def of(cls, text: str, references: Iterable[str]) -> _Types:
        avro = library("fastavro.schema", "library for Avro", "avro")
        named: dict[str, Any] = {}
        try:
            for each in references:
                avro.parse_schema(json.loads(each), named)
            parsed = avro.parse_schema(json.loads(text), named)
        except (ValueError, avro.SchemaParseException, avro.UnknownType) as error:
            raise RejectedValueError(f"its schema is not one of Avro: {error}") from error
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RejectedValueError("its schema is not one of Avro") from error
        if not isinstance(parsed, dict) or parsed["type"] not in ("record", "error"):
            raise RejectedValueError("its schema is not of a record")
        return cls(parsed, named)

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The fields of the record."""
        return list(self._record["fields"])

    def _plain(self, avro: Any) -> tuple[str, dict[str, Any]]:
        """Return a type's name, ``union`` of a list, and its attributes."""
        if isinstance(avro, list):
            return "union", {"branches": avro}
        if isinstance(avro, dict):
            if isinstance(avro["type"], dict | list):
                return self._plain(avro["type"])
            if avro["type"] in self._named:
                return self._plain(self._named[avro["type"]])
            return avro["type"], avro
        if avro in self._named:
            return self._plain(self._named[avro])
        return avro, {}

    # -- values that a column takes ----------------------------------------------------------

    def reader(self, avro: Any, wanted: t.DataType) -> Reader:
        """Return a function that reads values of an Avro type as values of a column's type."""
        kind, attributes = self._plain(avro)
        match kind, wanted:
            case "union", _:
                return self._union(attributes["branches"], wanted)
            case (("record" | "error"), t.StructType()):
                return self._struct(attributes["fields"], wanted)
            case "array", t.ArrayType():
                return self._list(attributes["items"], wanted)
            case "map", t.MapType():
                return self._map(attributes["values"], wanted)
            case (("record" | "error" | "array" | "map"), _):
                return self._unfit(kind, avro, wanted)
        return _fitting(_scalars(kind, attributes, wanted), wanted)

    def _unfit(self, kind: str, avro: Any, wanted: t.DataType) -> Reader:
        """Return a reader that rejects every value."""
        skip, arrow = self.skipper(avro), to_arrow(wanted)
        article = "an" if kind[0] in "ae" else "a"
        reason = f"{article} Avro {kind} is not of type {type_name(wanted)}"

        def read(cursors: Cursors, rows: Rows) -> pa.Array:
            skip(cursors, rows)
            for row in rows.tolist():
                cursors.refused(row, reason)
            return pa.nulls(len(rows), arrow)

        return read

    def _union(self, branches: list[Any], wanted: t.DataType) -> Reader:
        readers = [
            None if self._plain(branch)[0] == "null" else self.reader(branch, wanted)
            for branch in branches
        ]
        arrow = to_arrow(wanted)

        def read(cursors: Cursors, rows: Rows) -> pa.Array:
            chosen = _branches(cursors, rows, len(readers))
            parts: list[pa.Array] = []
            places = np.full(len(rows), -1, np.int64)
            start = 0
            for branch, reader in enumerate(readers):
                at = np.flatnonzero(chosen == branch)
                if reader is None or not len(at):
                    continue
                parts.append(reader(cursors, rows[at]))
                places[at] = np.arange(start, start + len(at))
                start += len(at)
            if not parts:
                return pa.nulls(len(rows), arrow)
            if len(parts) == 1 and start == len(rows):
                return parts[0]
            return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))

        return read

    def _struct(self, fields: list[dict[str, Any]], wanted: t.StructType) -> Reader:
        names = [field["name"] for field in fields]
        places = {place_of(field.name, names): at for at, field in enumerate(wanted.fields)}
        steps: list[tuple[int | None, Reader | Skipper]] = [
            (places[place], self.reader(field["type"], wanted.fields[places[place]].dataType))
            if place in places
            else (None, self.skipper(field["type"]))
            for place, field in enumerate(fields)
        ]
        arrow = to_arrow(wanted)

        def read(cursors: Cursors, rows: Rows) -> pa.Array:
            parts = [pa.nulls(len(rows), field.type) for field in arrow]
            for at, step in steps:
                values = step(cursors, rows)
                if at is not None:
                    parts[at] = values
            if not parts:
                return pa.nulls(len(rows), arrow)
            return pa.StructArray.from_arrays(parts, fields=list(arrow))

        return read

    def _list(self, items: Any, wanted: t.ArrayType) -> Reader:
        reader, arrow = self.reader(items, wanted.elementType), to_arrow(wanted)

        def read(cursors: Cursors, rows: Rows) -> pa.Array:
            lengths, (found,) = _collected(cursors, rows, [reader], [arrow.value_type])
            return list_array(offsets_of(lengths), _no_nulls(rows), [found], arrow)

        return read

    def _map(self, values: Any, wanted: t.MapType) -> Reader:
        keys = _fitting(_scalars("string", {}, wanted.keyType), wanted.keyType)
        reader, arrow = self.reader(values, wanted.valueType), to_arrow(wanted)

        def read(cursors: Cursors, rows: Rows) -> pa.Array:
            types = [arrow.key_type, arrow.item_type]
            lengths, parts = _collected(cursors, rows, [keys, reader], types)
            owners = np.repeat(np.arange(len(rows)), lengths)
            pairs = pa.table({"owner": owners, "key": parts[0]})
            counted = pairs.group_by(["owner", "key"]).aggregate([([], "count_all")])
            twice = counted.filter(pc.greater(counted["count_all"], 1))
            for owner in pc.unique(twice["owner"]).to_pylist():
                cursors.refused(int(rows[owner]), "a key is given twice")
            if parts[0].null_count:  # those rows are rejected, and a map's keys are never NULL
                lengths, parts = np.zeros_like(lengths), [part.slice(0, 0) for part in parts]
            return list_array(offsets_of(lengths), _no_nulls(rows), parts, arrow)

        return read

    # -- values that no column takes ---------------------------------------------------------

    def skipper(self, avro: Any) -> Skipper:
        """Return a function that skips values of a type, which may be recursive."""
        kind, attributes = self._plain(avro)
        name = attributes.get("name")
        if name is None:
            return self._skipper(kind, attributes)
        if name not in self._skippers:
            self._skippers[name] = lambda cursors, rows: _deeper(made, cursors, rows)
            made = self._skippers[name] = self._skipper(kind, attributes)
        return self._skippers[name]

    def _skipper(self, kind: str, attributes: dict[str, Any]) -> Skipper:
        match kind:
            case "union":
                return self._skipped_union(attributes["branches"])
            case "record" | "error":
                parts = [self.skipper(field["type"]) for field in attributes["fields"]]
                return lambda cursors, rows: _each(parts, cursors, rows)
            case "array":
                items = [self.skipper(attributes["items"])]
                return lambda cursors, rows: _skip_blocks(cursors, rows, items)
            case "map":
                pair = [self.skipper("string"), self.skipper(attributes["values"])]
                return lambda cursors, rows: _skip_blocks(cursors, rows, pair)
            case "fixed":
                return lambda cursors, rows: cursors.skip(rows, attributes["size"])
            case "float" | "double":
                width = np.dtype(_WIDTHS[kind]).itemsize
                return lambda cursors, rows: cursors.skip(rows, width)
            case "bytes" | "string":
                return lambda cursors, rows: cursors.skip(rows, cursors.zigzags(rows))
            case "null":
                return lambda _cursors, _rows: None
            case "boolean":
                return lambda cursors, rows: cursors.skip(rows, 1)
        return lambda cursors, rows: _ignore(cursors.zigzags(rows))

    def _skipped_union(self, branches: list[Any]) -> Skipper:
        skippers = [self.skipper(branch) for branch in branches]

        def skip(cursors: Cursors, rows: Rows) -> None:
            chosen = _branches(cursors, rows, len(skippers))
            for branch, skipper in enumerate(skippers):
                at = rows[chosen == branch]
                if len(at):
                    skipper(cursors, at)

        return skip


def _each(parts: Sequence[Skipper], cursors: Cursors, rows: Rows) -> None:
    for part in parts:
        part(cursors, rows)


def _deeper(inner: Skipper, cursors: Cursors, rows: Rows) -> None:
    """Skip a value nested within one of its own type."""
    if cursors.depth >= _DEEPEST:
        cursors.damaged(rows, "it is nested too deeply")
        return
    cursors.depth += 1
    inner(cursors, rows)
    cursors.depth -= 1


def _ignore(_values: NDArray[Any]) -> None:
    """Discard the values."""


def _no_nulls(rows: Rows) -> pa.Array:
    return pa.array(np.zeros(len(rows), bool))


def _branches(cursors: Cursors, rows: Rows, count: int) -> NDArray[np.int64]:
    """Read the union branch of each message; -1 for damaged messages."""
    chosen = cursors.zigzags(rows)
    cursors.damaged(rows[(chosen < 0) | (chosen >= count)], "a union has no such branch")
    return np.where(cursors.broken[rows], -1, chosen)


def _block(cursors: Cursors, rows: Rows) -> NDArray[np.int64]:
    """Read the number of items in the next block of an array or map; 0 is the end."""
    counts = cursors.zigzags(rows)
    sized = rows[counts < 0]
    if len(sized):
        cursors.zigzags(sized)  # the block's size in bytes
    counts = np.abs(counts)
    # An item has at least one byte, which bounds the number of items of a damaged message.
    many = (counts > cursors.left(rows)) | (counts < 0)
    cursors.damaged(rows[many], "an array has more items than bytes")
    return np.where(cursors.broken[rows], 0, counts)


def _skip_blocks(cursors: Cursors, rows: Rows, parts: Sequence[Skipper]) -> None:
    _blocks(cursors, rows, lambda active: _each(parts, cursors, rows[active]))


def _blocks(cursors: Cursors, rows: Rows, read: Callable[[NDArray[np.int64]], None]) -> None:
    """Read item by item, each item of all messages that have that many.

    ``read`` is called with the indexes into ``rows`` of these messages.
    """
    left = _block(cursors, rows)
    active = np.flatnonzero(left)
    while len(active):
        read(active)
        left[active] -= 1
        ended = active[left[active] == 0]
        if len(ended):
            left[ended] = _block(cursors, rows[ended])
        active = active[(left[active] > 0) & ~cursors.broken[rows[active]]]


def _collected(
    cursors: Cursors, rows: Rows, readers: Sequence[Reader], types: Sequence[pa.DataType]
) -> tuple[NDArray[np.int64], list[pa.Array]]:
    """Return the number of items of each message, and all items, ordered by message."""
    owners: list[NDArray[np.int64]] = []
    found: list[list[pa.Array]] = [[] for _ in readers]

    def read(active: NDArray[np.int64]) -> None:
        owners.append(active)
        for reader, into in zip(readers, found, strict=True):
            into.append(reader(cursors, rows[active]))

    _blocks(cursors, rows, read)
    if not owners:
        return np.zeros(len(rows), np.int64), [pa.nulls(0, each) for each in types]
    owner = np.concatenate(owners)
    order = pa.array(np.argsort(owner, kind="stable"))
    lengths = np.bincount(owner, minlength=len(rows))
    return lengths, [pa.concat_arrays(part).take(order) for part in found]


def _fitting(read: Reader, wanted: t.DataType) -> Reader:
    """Return a reader that converts values to a column's type, or rejects them."""

    def converted(cursors: Cursors, rows: Rows) -> pa.Array:
        result = fitted(read(cursors, rows), wanted)
        for place, reason in result.refused.items():
            cursors.refused(int(rows[place]), str(reason))
        return result.values

    return converted


def _scalars(kind: str, attributes: dict[str, Any], wanted: t.DataType) -> Reader:
    """Return a reader of scalar values, in the type that they were written with."""
    logical = attributes.get("logicalType")
    match kind:
        case "null":
            return lambda _cursors, rows: pa.nulls(len(rows))
        case "boolean":
            return _booleans
        case "int" | "long":
            return _integers(None if isinstance(wanted, t.IntegralType) else logical)
        case "float" | "double":
            return lambda cursors, rows: pa.array(cursors.numbers(rows, _WIDTHS[kind]))
        case "enum":
            return _enum(attributes["symbols"])
        case "string":
            return lambda cursors, rows: cursors.texts(rows, cursors.zigzags(rows))
    size = attributes.get("size")
    if logical == "decimal" and not isinstance(wanted, t.BinaryType):
        return _decimals(size, attributes.get("scale", 0))
    if size is None:
        return lambda cursors, rows: cursors.binary(rows, cursors.zigzags(rows))
    if logical == "uuid" and size == _UUID_BYTES and isinstance(wanted, t.StringType):
        return lambda cursors, rows: _uuids(cursors.binary(rows, size))
    return lambda cursors, rows: cursors.binary(rows, size)


def _booleans(cursors: Cursors, rows: Rows) -> pa.Array:
    found = cursors.octets(rows)
    cursors.damaged(rows[found > 1], "a boolean is neither true nor false")
    return pa.array(found == 1)


def _integers(logical: str | None) -> Reader:
    def read(cursors: Cursors, rows: Rows) -> pa.Array:
        numbers = cursors.zigzags(rows)
        if logical == "date":
            return _dates(cursors, rows, numbers)
        if logical == "time-millis":
            clipped = np.clip(numbers, -1, _MILLISECONDS_OF_DAY).astype(np.int32)
            return pa.array(clipped).view(pa.time32("ms"))
        found = pa.array(numbers)
        return found.view(_TIMES[logical]) if logical in _TIMES else found

    return read


def _dates(cursors: Cursors, rows: Rows, days: NDArray[np.int64]) -> pa.Array:
    """Return days since 1970 as dates."""
    small = days.astype(np.int32)
    for row in rows[small != days].tolist():
        cursors.refused(row, "a date is out of range")
    return pa.array(small).view(pa.date32())


def _enum(symbols: Sequence[str]) -> Reader:
    names = pa.array(symbols, pa.string())

    def read(cursors: Cursors, rows: Rows) -> pa.Array:
        found = cursors.zigzags(rows)
        wrong = (found < 0) | (found >= len(symbols))
        cursors.damaged(rows[wrong], "an enum has no such symbol")
        return names.take(pa.array(np.where(wrong, 0, found)))

    return read


def _decimals(size: int | None, scale: int) -> Reader:
    def read(cursors: Cursors, rows: Rows) -> pa.Array:
        lengths = cursors.zigzags(rows) if size is None else size
        digits = cursors.integers(rows, lengths, _DECIMAL_BYTES)
        type_ = pa.decimal256(_DECIMAL_DIGITS, scale)
        return pa.Array.from_buffers(type_, len(rows), [None, pa.py_buffer(digits)])

    return read


def _uuids(values: pa.Array) -> pa.Array:
    whole = (value if len(value) == _UUID_BYTES else bytes(16) for value in values.to_pylist())
    return pa.array([str(UUID(bytes=value)) for value in whole], pa.string())
