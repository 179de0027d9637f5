"""Digests of bytes, each computed once for equal values."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType

from headrace.planning.catalyst.allowed import is_plain_text
from headrace.planning.catalyst.scala import items
from headrace.planning.catalyst.vectors.reader import int_argument, known_type, require
from headrace.planning.catalyst.vectors.vector import Bytes, present

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_SHA: Final = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def digested(value: Value, name: str) -> Value:
    """Return the digests of binary values, as hexadecimal text."""
    found = value.dictionary_encode()
    made = [hashlib.new(name, each).hexdigest() for each in found.dictionary.to_pylist()]
    return pa.array(made, pa.string()).take(found.indices)


def checksums(value: Value) -> Value:
    """Return the CRC-32 of binary values, as BIGINT."""
    found = value.dictionary_encode()
    made = [zlib.crc32(each) for each in found.dictionary.to_pylist()]
    return pa.array(made, pa.int64()).take(found.indices)


def in_hexadecimal(value: Value) -> Value:
    """Return the bytes of texts or binary values, each as two digits."""
    given = Bytes.of(value)
    digits = np.stack([_HEX[given.data >> np.uint8(4)], _HEX[given.data & np.uint8(15)]], axis=1)
    found = Bytes(digits.reshape(-1), 2 * given.starts, 2 * given.lengths)
    return found.texts(present(value), pa.string())


def _bytes(reader: ExpressionReader, handle: Any) -> Vector:
    """Return an argument of type BINARY."""
    of = known_type(handle)
    require(handle, when=isinstance(of, BinaryType), of=of)
    return reader.vector(handle)


def _digested(name: str) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        return reader.call(digested, pa.string(), _bytes(reader, handle.child()), name=name)

    return read


def _sha(reader: ExpressionReader, handle: Any) -> Vector:
    given, bits = items(handle.children())
    name = _SHA.get(int_argument(handle, bits))
    require(handle, when=name is not None)
    return reader.call(digested, pa.string(), _bytes(reader, given), name=name)


def _checksums(reader: ExpressionReader, handle: Any) -> Vector:
    return reader.call(checksums, pa.int64(), _bytes(reader, handle.child()))


def _in_hexadecimal(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle.child())
    require(handle, when=isinstance(of, BinaryType) or is_plain_text(of), of=of)
    return reader.call(in_hexadecimal, pa.string(), reader.vector(handle.child()))


KNOWN: Final[Mapping[str, Known]] = {
    "Crc32": _checksums,
    "Hex": _in_hexadecimal,
    "Md5": _digested("md5"),
    "Sha1": _digested("sha1"),
    "Sha2": _sha,
}
