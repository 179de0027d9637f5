"""Rows to Avro records, each column encoded at once, with a schema derived from the columns.

The bytes of a value are concatenated from columns of bytes: the union branch, a length, a body. A
list concatenates the adjacent bytes of its items.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.types import is_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


if TYPE_CHECKING:
    Encode = Callable[[pa.Array], pa.Array]
    """Encodes values that are not NULL as binary."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARINT_BYTES: Final = 10
_DECIMAL_BYTES: Final = 16

AVRO_TYPES: Final = {
    "BOOLEAN": "`boolean`",
    "TINYINT, SMALLINT, INT": "`int`",
    "BIGINT": "`long`",
    "FLOAT": "`float`",
    "DOUBLE": "`double`",
    "DECIMAL": "`bytes` of logical type `decimal`",
    "STRING": "`string`",
    "BINARY": "`bytes`",
    "DATE": "`int` of logical type `date`",
    "TIME": "`long` of logical type `time-micros`",
    "TIMESTAMP": "`long` of logical type `timestamp-micros`",
    "TIMESTAMP_NTZ": "`long` of logical type `local-timestamp-micros`",
    "ARRAY, MAP, STRUCT": "`array`, `map` of STRING keys, `record`",
}
"""The Avro type of each type of column; every field is a union of it with `null`."""


class AvroEncoder:
    """Encodes tables of one schema as Avro records.

    ``text`` is the Avro schema, of a record named ``name``. Every field is nullable with the
    default null, so columns may be added later.

    Raises:
        HeadraceError: ``unsupported`` for a column whose name or type Avro does not have.
    """

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self._names = schema.names
        fields, self._encoders = [], []
        for column in schema:
            described, encode = _field(column, (name, column.name))
            fields.append(described)
            self._encoders.append(encode)
        self.text = json.dumps({"type": "record", "name": name, "fields": fields})

    def encode(self, rows: pa.Table, before: bytes = b"") -> pa.BinaryArray:
        """Return the record of each row, with the prefix ``before``."""
        pieces = [
            encode(_array(rows[name]))
            for name, encode in zip(self._names, self._encoders, strict=True)
        ]
        if not rows.num_rows:
            return pa.array([], pa.binary())
        return _joined(pa.scalar(before, pa.binary()), *pieces)


def record_name(text: str) -> str:
    """Return a valid Avro name that resembles a text."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return found if _NAME.fullmatch(found) else f"_{found}"


def _field(column: pa.Field, path: Sequence[str]) -> tuple[dict[str, Any], Encode]:
    """Return a nullable field of a record, and its encoder; ``path`` names the enclosing fields."""
    if not _NAME.fullmatch(column.name):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'column "{column.name}" cannot be a field of an Avro record',
            "A name of Avro has letters, digits and underscores, and begins with no digit.",
            "Give it another name in the view, by AS.",
        )
    described, encode = _nullable(column.type, path)
    return {"name": column.name, "type": described, "default": None}, encode


def _nullable(kind: pa.DataType, path: Sequence[str]) -> tuple[list[Any], Encode]:
    described, encode = _of_type(kind, path)

    def with_branch(array: pa.Array) -> pa.Array:
        if not array.null_count:
            return _joined(pa.scalar(b"\x02"), encode(array))
        valid = array.is_valid()
        places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
        present = _joined(pa.scalar(b"\x02"), encode(array.filter(valid)))
        of_rows = present.take(pc.if_else(valid, places, pa.scalar(None, pa.int64())))
        return pc.fill_null(of_rows, b"\x00")

    return ["null", described], with_branch


def _of_type(kind: pa.DataType, path: Sequence[str]) -> tuple[Any, Encode]:
    """Return the Avro type of an Arrow type, and its encoder."""
    is_ = pa.types
    if is_.is_boolean(kind):
        return "boolean", lambda array: _fixed(array.cast(pa.uint8()), "u1")
    if is_.is_int64(kind):
        return "long", _varints
    if is_.is_integer(kind):
        return "int", lambda array: _varints(array.cast(pa.int64()))
    if is_.is_float32(kind):
        return "float", lambda array: _fixed(array, "<f4")
    if is_.is_float64(kind):
        return "double", lambda array: _fixed(array, "<f8")
    if is_.is_decimal128(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}, lambda array: _with_length(_unscaled(array))
    if is_.is_string(kind) or is_.is_large_string(kind):
        return "string", lambda array: _with_length(array.cast(pa.binary()))
    if is_.is_binary(kind) or is_.is_large_binary(kind):
        return "bytes", lambda array: _with_length(array.cast(pa.binary()))
    if is_.is_date32(kind):
        logical = {"type": "int", "logicalType": "date"}
        return logical, lambda array: _varints(array.cast(pa.int32()).cast(pa.int64()))
    if is_.is_time64(kind):
        return _microseconds("time-micros", pa.time64("us"))
    if is_.is_timestamp(kind):
        name = "local-timestamp-micros" if kind.tz is None else "timestamp-micros"
        return _microseconds(name, pa.timestamp("us", kind.tz))
    if is_.is_struct(kind) and not is_variant(kind):
        return _struct(kind, path)
    if is_.is_list(kind):
        return _list(kind, path)
    if is_.is_map(kind) and is_.is_string(kind.key_type):
        return _map(kind, path)
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'column "{path[1]}" of type {"VARIANT" if is_variant(kind) else kind} cannot'
        " be written as Avro",
        hint="Use format = 'json'; or CAST it to STRING in the view.",
    )


def _microseconds(name: str, micros: pa.DataType) -> tuple[Any, Encode]:
    logical = {"type": "long", "logicalType": name}
    return logical, lambda array: _varints(array.cast(micros).cast(pa.int64()))


def _struct(kind: pa.StructType, path: Sequence[str]) -> tuple[Any, Encode]:
    fields = [_field(field, (*path, field.name)) for field in kind]

    def encode(array: pa.StructArray) -> pa.Array:
        children = array.flatten()
        pieces = [of(child) for (_, of), child in zip(fields, children, strict=True)]
        return _joined(pa.array([b""] * len(array), pa.binary()), *pieces)

    name = record_name("_".join(path))
    return {"type": "record", "name": name, "fields": [each for each, _ in fields]}, encode


def _list(kind: pa.ListType, path: Sequence[str]) -> tuple[Any, Encode]:
    items, of_items = _nullable(kind.value_type, (*path, "item"))
    return {"type": "array", "items": items}, lambda array: _block(array, of_items(array.flatten()))


def _map(kind: pa.MapType, path: Sequence[str]) -> tuple[Any, Encode]:
    values, of_values = _nullable(kind.item_type, (*path, "value"))

    def encode(array: pa.MapArray) -> pa.Array:
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        keys = array.keys.slice(first, last - first).cast(pa.binary())
        entries = _joined(_with_length(keys), of_values(array.items.slice(first, last - first)))
        return _block(array, entries)

    return {"type": "map", "values": values}, encode


def _block(array: pa.Array, items: pa.Array) -> pa.Array:
    """Return arrays or maps as one block: the number of items, the items, and the end."""
    starts = array.offsets.to_numpy().astype(np.int64)
    starts -= starts[0]
    at = _offsets(items)[starts]
    _, _, data = items.buffers()
    bodies = _binary(at, pa.py_buffer(b"") if data is None else data)
    counts = np.diff(starts)
    heads = pc.if_else(pa.array(counts == 0), pa.scalar(b""), _varints(pa.array(counts)))
    return _joined(heads, bodies, pa.scalar(b"\x00"))


# -- columns of bytes -----------------------------------------------------------------------


def _joined(*pieces: Any) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, pa.scalar(b""))


def _with_length(array: pa.Array) -> pa.Array:
    return _joined(_varints(pc.binary_length(array).cast(pa.int64())), array)


def _fixed(array: pa.Array, kind: str) -> pa.Array:
    """Return the bytes of fixed-width numbers."""
    values = array.to_numpy(zero_copy_only=False).astype(kind)
    width = values.dtype.itemsize
    return _binary(np.arange(len(values) + 1) * width, pa.py_buffer(values.tobytes()))


def _varints(array: pa.Array) -> pa.Array:
    """Return 64-bit integers in Avro's encoding: zigzag, seven bits a byte, the lowest first."""
    values = array.to_numpy(zero_copy_only=False).astype(np.int64)
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    table = np.zeros((len(rest), _VARINT_BYTES), np.uint8)
    taken = np.zeros((len(rest), _VARINT_BYTES), bool)
    for at in range(_VARINT_BYTES):
        taken[:, at] = True if at == 0 else rest > 0
        table[:, at] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        table[:, at] |= np.where(rest > 0, 0x80, 0).astype(np.uint8)
    return _selected(table, taken)


def _unscaled(array: pa.Array) -> pa.Array:
    """Return the unscaled values of decimals in the fewest bytes, two's complement, big-endian."""
    stored = pa.concat_arrays([array])  # without an offset
    raw = np.frombuffer(stored.buffers()[1], np.uint8)
    first = stored.offset * _DECIMAL_BYTES
    count = len(stored) * _DECIMAL_BYTES
    table = raw[first : first + count].reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    negative = table[:, :1] >> 7
    filler = np.where(negative, 0xFF, 0).astype(np.uint8)
    spare = (table[:, :-1] == filler) & ((table[:, 1:] >> 7) == negative)
    leading = np.logical_and.accumulate(spare, axis=1)
    taken = np.ones(table.shape, bool)
    taken[:, :-1] = ~leading
    return _selected(table, taken)


def _selected(table: NDArray[np.uint8], taken: NDArray[np.bool_]) -> pa.Array:
    """Return, for each row of a byte matrix, the bytes where ``taken`` is true."""
    offsets = np.concatenate([[0], np.cumsum(taken.sum(axis=1))])
    return _binary(offsets, pa.py_buffer(table[taken].tobytes()))


def _binary(offsets: NDArray[np.int64], data: pa.Buffer) -> pa.Array:
    at = pa.py_buffer(offsets.astype(np.int32).tobytes())
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, at, data])


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    found = np.frombuffer(array.buffers()[1], np.int32)
    return found[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _array(column: Any) -> pa.Array:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(found, pa.ChunkedArray):
        return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
    return found
