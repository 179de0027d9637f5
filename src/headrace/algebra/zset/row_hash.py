"""Spark's ``xxhash64`` without Spark: of one row, to look up a key, and of columns of many rows.

The columns of a row are hashed in order, each with the hash so far as the seed, which begins at 42;
a NULL leaves it unchanged. Integers of up to 32 bits are hashed as 4 bytes, longer ones as 8, and
so are dates, times and decimals of up to 18 digits, which are integers. Texts are hashed as their
bytes, longer decimals as the bytes of their integer. -0.0 is hashed as 0.0, and every NaN as one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.algebra.zset.order import bit_width, is_text, valid, words
from headrace.algebra.zset.sums import decimal_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.algebra.zset.order import Ints


if TYPE_CHECKING:
    _Hashes = npt.NDArray[np.uint64]

_SEED: Final = 42
_PRIMES: Final = tuple(
    map(
        np.uint64,
        (
            0x9E3779B185EBCA87,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
        ),
    )
)
_LONG_DECIMAL: Final = 19
"""The fewest digits of a decimal that is hashed as bytes."""
_SHORT_BITS: Final = 32
_WORD: Final = 64
_STRIPE: Final = 32
"""From this length on, bytes are hashed in four lanes."""
_ALONE: Final = 32
"""Up to so many numbers are hashed one by one."""
_MANY: Final = 256
"""The fewest values that are hashed together; half as many for each length among them."""


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


def hashes_of(columns: Sequence[pa.Array], rows: int, seed: int = _SEED) -> Ints:
    """Return the signed 64-bit hash of each of ``rows`` rows; without columns, it is the seed.

    The columns have any type but maps; texts are compared by their bytes.
    """
    found = np.full(rows, seed, np.int64).view(np.uint64)
    for column in columns:
        found = _continued(column, found)
    return found.view(np.int64)


def _bytes(value: object, type_: pa.DataType) -> bytes:
    if isinstance(value, str):
        return value.encode()
    assert isinstance(value, int)  # noqa: S101  (bool is an int)
    return struct.pack("<q" if pa.types.is_int64(type_) else "<i", value)


def _continued(column: pa.Array, seeds: _Hashes) -> _Hashes:
    """Return the hashes of values, each with its own seed, and the seed itself for a NULL."""
    kind = column.type
    if len(column) == 0 or pa.types.is_null(kind):
        return seeds
    if pa.types.is_struct(kind):
        for field in column.flatten():  # fields of a NULL struct are NULL
            seeds = _continued(field, seeds)
        return seeds
    if pa.types.is_list(kind):
        return _of_lists(column, seeds)
    if column.null_count:
        present = np.flatnonzero(valid(column))
        hashed = seeds.copy()
        hashed[present] = _of_values(column.drop_null(), seeds[present])
        return hashed
    return _of_values(column, seeds)


def _of_values(column: pa.Array, seeds: _Hashes) -> _Hashes:
    kind = column.type
    if len(column) == 0:
        return seeds
    if is_text(kind):
        return _of_texts(column, seeds)
    if pa.types.is_decimal(kind):
        low, high = decimal_words(column).T
        if kind.precision < _LONG_DECIMAL:
            return _of_longs(low, seeds)
        return _of_long_decimals(low, high, seeds)
    if pa.types.is_floating(kind):
        given = column.to_numpy() + column.type.to_pandas_dtype()(0)  # -0.0 becomes 0.0
        given[np.isnan(given)] = np.nan
        column = pa.array(given)
    given = words(column, bit_width(column.type))
    if column.type.bit_width > _SHORT_BITS:
        return _of_longs(given.astype(np.int64, copy=False), seeds)
    return _of_ints(given.astype(np.int32, copy=False), seeds)


def _of_few(given: npt.NDArray[np.signedinteger], seeds: _Hashes) -> _Hashes:
    """Return the hashes of a few numbers as those of their bytes."""
    data, size = given.tobytes(), given.itemsize
    return _of_bytes([data[at : at + size] for at in range(0, len(data), size)], seeds)


def _of_lists(column: pa.ListArray, seeds: _Hashes) -> _Hashes:
    """Return the hashes of lists: of all first elements, then of all second ones, and so on."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    starts, elements, hashed = column.offsets.to_numpy(), column.values, seeds.copy()
    for position in range(int(lengths.max())):
        rows = np.flatnonzero(lengths > position)
        taken = elements.take(pa.array(starts[rows] + position))
        hashed[rows] = _continued(taken, hashed[rows])
    return hashed


def _of_texts(column: pa.Array, seeds: _Hashes) -> _Hashes:
    """Return the hashes of texts or binary values without NULL."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if large or len(column) < _MANY:
        return _of_bytes(column.cast(pa.binary()).to_pylist(), seeds)
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends)
    return _of_ranges(np.frombuffer(data or b"", np.uint8), starts, lengths, seeds)


def _of_long_decimals(low: Ints, high: Ints, seeds: _Hashes) -> _Hashes:
    """Return the hashes of integers of 128 bits: of their fewest bytes, the highest first."""
    sign = high >> np.int64(_WORD - 1)
    below, above = (low ^ sign).view(np.uint64), (high ^ sign).view(np.uint64)
    lengths = np.ones(len(low), np.int64)
    for bits in range(7, 2 * _WORD - 1, 8):
        if bits < _WORD:
            lengths += (above > 0) | (below >= np.uint64(1 << bits))
        else:
            lengths += above >= np.uint64(1 << (bits - _WORD))
    whole = np.stack([high, low], axis=1).byteswap()
    starts = 16 * np.arange(1, len(low) + 1) - lengths
    return _of_ranges(whole.reshape(-1).view(np.uint8), starts, lengths, seeds)


def _of_ranges(
    data: npt.NDArray[np.uint8],
    starts: Ints,
    lengths: npt.NDArray[np.integer],
    seeds: _Hashes,
) -> _Hashes:
    """Return the hashes of ranges of bytes: of all those of one length together, if there are many.

    Those of more than 31 bytes are hashed one by one.
    """
    different = np.flatnonzero(np.bincount(np.minimum(lengths, _STRIPE)))
    if len(lengths) < _MANY // 2 * len(different):
        return _one_by_one(data, starts, lengths, seeds)
    if len(different) == 1 and different[0] < _STRIPE:
        return _of_length(data, starts, int(different[0]), seeds)
    found = np.empty(len(starts), np.uint64)
    for length in different.tolist():
        if length == _STRIPE:
            rows = np.flatnonzero(lengths >= length)
            found[rows] = _one_by_one(data, starts[rows], lengths[rows], seeds[rows])
        else:
            rows = np.flatnonzero(lengths == length)
            found[rows] = _of_length(data, starts[rows], length, seeds[rows])
    return found


def _one_by_one(
    data: npt.NDArray[np.uint8],
    starts: Ints,
    lengths: npt.NDArray[np.integer],
    seeds: _Hashes,
) -> _Hashes:
    view, ends = memoryview(data.data), starts + lengths
    given = zip(starts.tolist(), ends.tolist(), strict=True)
    return _of_bytes([view[start:end] for start, end in given], seeds)


def _of_bytes(given: Sequence[bytes | memoryview], seeds: _Hashes) -> _Hashes:
    hashed = map(xxhash.xxh64_intdigest, given, seeds.tolist())
    return np.fromiter(hashed, np.uint64, len(given))


def _of_length(data: npt.NDArray[np.uint8], starts: Ints, length: int, seeds: _Hashes) -> _Hashes:
    """Return the hashes of ranges of one length, which is below 32."""
    first, second, third, fourth, fifth = _PRIMES
    found, at = seeds + (fifth + np.uint64(length)), 0
    while at + 8 <= length:
        word = _rotated(_words_at(data, starts + at, 8) * second, 31) * first
        found = _rotated(found ^ word, 27) * first + fourth
        at += 8
    if at + 4 <= length:
        found = _rotated(found ^ (_words_at(data, starts + at, 4) * first), 23) * second + third
        at += 4
    for place in range(at, length):
        byte = data[starts + place].astype(np.uint64)
        found = _rotated(found ^ (byte * fifth), 11) * first
    return _mixed(found)


def _words_at(data: npt.NDArray[np.uint8], starts: Ints, size: int) -> _Hashes:
    """Return the little-endian integers of 4 or 8 bytes that begin at some places."""
    every: npt.NDArray[np.uint64] = np.ndarray(
        (len(data) - size + 1,), f"<u{size}", data, strides=(1,)
    )
    return every[starts].astype(np.uint64, copy=False)


def _of_longs(given: Ints, seeds: _Hashes) -> _Hashes:
    if len(given) <= _ALONE:
        return _of_few(given, seeds)
    first, second, _, fourth, fifth = _PRIMES
    word = _rotated(given.view(np.uint64) * second, 31) * first
    return _mixed(_rotated((seeds + fifth + np.uint64(8)) ^ word, 27) * first + fourth)


def _of_ints(given: npt.NDArray[np.int32], seeds: _Hashes) -> _Hashes:
    if len(given) <= _ALONE:
        return _of_few(given, seeds)
    first, second, third, _, fifth = _PRIMES
    word = given.view(np.uint32).astype(np.uint64) * first
    return _mixed(_rotated((seeds + fifth + np.uint64(4)) ^ word, 23) * second + third)


def _rotated(given: _Hashes, bits: int) -> _Hashes:
    return (given << np.uint64(bits)) | (given >> np.uint64(64 - bits))


def _mixed(given: _Hashes) -> _Hashes:
    _, second, third, _, _ = _PRIMES
    given ^= given >> np.uint64(33)
    given *= second
    given ^= given >> np.uint64(29)
    given *= third
    given ^= given >> np.uint64(32)
    return given
