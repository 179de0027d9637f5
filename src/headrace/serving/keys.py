"""Spark's ``xxhash64`` in Python, so that a key can be looked up without a Spark job.

The columns of a row are hashed in order, each with the hash so far as the seed, which begins at 42;
a NULL leaves it unchanged. Integers of up to 32 bits are hashed as 4 bytes, longer ones as 8.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEED = 42


def can_hash(type_: pa.DataType) -> bool:
    """Whether :func:`spark_hash` supports values of the type."""
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean)
    return any(is_kind(type_) for is_kind in kinds)


def spark_hash(values: Sequence[object], types: Sequence[pa.DataType]) -> int:
    """Return the signed 64-bit hash of one row of values; see :func:`can_hash` for the types."""
    seed = _SEED
    for value, type_ in zip(values, types, strict=True):
        if value is None:
            continue
        seed = xxhash.xxh64_intdigest(_bytes(value, type_), seed)
    return seed - (1 << 64) if seed >> 63 else seed


def _bytes(value: object, type_: pa.DataType) -> bytes:
    if isinstance(value, str):
        return value.encode()
    assert isinstance(value, int)  # noqa: S101  (bool is an int)
    return struct.pack("<q" if pa.types.is_int64(type_) else "<i", value)
