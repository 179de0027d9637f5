"""Row order: that of ``ORDER BY`` in Spark SQL, vectorised, for every Arrow type.

Columns become *sort keys*: arrays of int64, the most significant one first, whose lexicographic
order is that of the values. Keys can be compared only with keys made in the same call.

Integers, dates, timestamps and intervals are ordered by number, booleans false first, decimals by
value, text and binary by unsigned bytes. -0.0 equals 0.0, and NaN is above all other floats.
Structs are ordered by field and arrays by element, a prefix first; a NULL inside them is below
everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.zset.equality import bit_width, is_text, same, valid, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from headrace.zset.equality import Bools, Ints

    SortedBy: TypeAlias = tuple[pa.Array, Callable[[pa.Array], list[Ints]]]
    """A column, and the function that makes its sort keys."""

_WORD = 64
_SIGN = np.int64(-(2**63))
_MAGNITUDE = np.int64(2**63 - 1)
_ORDERED = 64
"""From this mean length of ascending stretches on, a merge sort is faster than a vectorised one."""
_KEY_BYTES = 8
_NOTHING = np.zeros(1, np.uint8)


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One column of an order: ``ORDER BY name [DESC] NULLS FIRST | LAST``."""

    name: str
    descending: bool = False
    nulls_first: bool = True


def orderable(kind: pa.DataType) -> bool:
    """Whether SQL orders values of a type: all types except maps and types that contain maps."""
    if pa.types.is_map(kind):
        return False
    return all(orderable(kind.field(i).type) for i in range(kind.num_fields))


def order_keys(values: pa.Array, by: OrderBy) -> list[Ints]:
    """Return sort keys for the given order.

    Values that are equal in that order have equal keys, as -0.0 and 0.0 do.
    """
    keys = _keys(values, exact=False)
    if by.descending:
        keys = [~key for key in keys]
    return _with_nulls(values, keys, nulls_first=by.nulls_first)


def exact_keys(values: pa.Array) -> list[Ints]:
    """Return sort keys that are equal only where two values are the same, floats by their bits.

    The order depends only on the values, so equal bags of rows are sorted alike. Maps are allowed.
    """
    return _with_nulls(values, _keys(values, exact=True), nulls_first=True)


def coarse_keys(values: pa.Array) -> Ints:
    """Return one number per value that depends on the value alone and preserves the order.

    A greater value never has a smaller number. Different values have different numbers, with two
    exceptions: decimals beyond 64 bits of one sign share a number, and text and binary are
    numbered by their first 8 bytes. The number of a NULL is unspecified.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return coarse_keys(values.storage)
    if pa.types.is_floating(kind):
        return _float_key(pc.fill_null(values, 0.0), exact=False)
    if is_text(kind):
        return _first_bytes(values)
    width = bit_width(kind)
    if width <= _WORD or not len(values):
        return _number_keys(values)[0]
    bits = words(values, width)
    low, high = bits[:, 0], bits[:, -1]
    ends = np.where(high < 0, _SIGN, _MAGNITUDE)
    return np.asarray(np.where(high == low >> np.int64(_WORD - 1), low, ends))


def ordered(blocks: Ints, keys: list[Ints]) -> tuple[Ints, Ints]:
    """Sort by block, then by keys; return the order, and a number for each row in that order.

    ``blocks`` ascends and is not negative. Numbers start at 0 and ascend by one; they are equal
    exactly where rows agree in block and keys, and the order of such rows is unspecified.
    """
    keys = _folded(blocks, keys)
    order = in_order(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])
    fresh = np.zeros(len(blocks), np.bool_)
    for key in keys:
        sorted_key = key[order]
        fresh[1:] |= sorted_key[1:] != sorted_key[:-1]
    return order, np.cumsum(fresh)


def refined(rows: Ints, starts: Bools, columns: Iterable[SortedBy]) -> tuple[Ints, Bools]:
    """Sort the rows of each block by columns; return the rows, and the starts of the finer blocks.

    ``rows`` are positions in the columns, and ``starts`` marks the first row of each block. Rows
    of one returned block agree in all columns. A column is read only where the columns before it
    leave blocks of several rows, and sorted by only if it differs within one of these.
    """
    rows, starts = rows.copy(), starts.copy()
    for column, keys in columns:
        alone = starts.copy()
        alone[:-1] &= starts[1:]
        together = (~alone).nonzero()[0]
        if len(together) == 0:
            break
        taken = rows[together]
        values, first = column.take(pa.array(taken)), starts[together]
        if (first[1:] | same(values[1:], values[:-1])).all():
            continue
        within, codes = ordered(np.cumsum(first), keys(values))
        rows[together] = taken[within]
        starts[together[1:]] |= codes[1:] != codes[:-1]
    return rows, starts


def in_order(values: Ints) -> Ints:
    """Return an order by value, with the sort algorithm that suits how sorted the values are."""
    descents = int(np.count_nonzero(values[1:] < values[:-1]))
    few = descents * _ORDERED < len(values)
    return np.argsort(values, kind="stable" if few else None)


def _folded(blocks: Ints, keys: list[Ints]) -> list[Ints]:
    """Return fewer keys of the same order: combine adjacent keys that fit one 64-bit word."""
    folded = [blocks]
    if len(blocks) == 0:
        return folded
    numbers = int(blocks[-1]) + 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        count = high - low + 1
        if numbers * count < 2**63:
            folded[-1] = folded[-1] * count + (key - low)
            numbers *= count
        else:
            folded.append(key - low if count < 2**63 else key)
            numbers = count
    return folded


def _with_nulls(values: pa.Array, keys: list[Ints], *, nulls_first: bool) -> list[Ints]:
    """Return the keys with NULL before or after everything else, whatever its keys are."""
    if values.null_count == 0:
        return keys
    is_valid: Bools = valid(values)
    last = is_valid if nulls_first else ~is_valid
    return [last.astype(np.int64), *(np.where(is_valid, key, np.int64(0)) for key in keys)]


def _keys(values: pa.Array, *, exact: bool) -> list[Ints]:
    """Return ascending sort keys of the values that are not NULL.

    If ``exact``, floats with different bits have different keys.
    """
    kind = values.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_dictionary(kind):
        return _keys(values.dictionary_decode(), exact=exact)
    if isinstance(values, pa.ExtensionArray):
        return _keys(values.storage, exact=exact)
    if pa.types.is_floating(kind):
        return [_float_key(values, exact=exact)]
    if pa.types.is_struct(kind):
        return [key for child in values.flatten() for key in _field_keys(child, exact=exact)]
    if pa.types.is_map(kind):
        entries = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return [_list_key(values.cast(pa.large_list(entries)), exact=exact)]
    if pa.types.is_nested(kind):
        return [_list_key(values, exact=exact)]
    if is_text(kind) or pa.types.is_fixed_size_binary(kind):
        return [_text_key(values)]
    return _number_keys(values)


def _number_keys(values: pa.Array) -> list[Ints]:
    width = bit_width(values.type)
    bits = words(values, width) if len(values) else np.zeros((0, max(1, width // _WORD)), np.int64)
    if width <= _WORD:
        return [bits.reshape(-1).astype(np.int64)]
    low, high = bits[:, 0], bits[:, -1]
    # If the high word of every decimal only extends the sign of the low one, the low one suffices.
    if np.array_equal(high, low >> np.int64(_WORD - 1)):
        return [low]
    return [high, low ^ _SIGN]


def _float_key(values: pa.Array, *, exact: bool) -> Ints:
    """Return the bits of floats, changed so that they compare as integers."""
    if exact:
        bits = _number_keys(values)[0]
    else:
        floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        # Adding zero turns -0.0 into 0.0.
        bits = np.where(np.isnan(floats), np.nan, floats + 0.0).view(np.int64)
    return np.asarray(np.where(bits < 0, bits ^ _MAGNITUDE, bits))


def _text_key(values: pa.Array) -> Ints:
    """Return the rank of each text among the distinct texts; Arrow compares unsigned bytes."""
    encoded = values.dictionary_encode()
    ranks = np.empty(len(encoded.dictionary), np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
    indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return np.asarray(ranks[indices]) if len(ranks) else np.zeros(len(values), np.int64)


def _first_bytes(values: pa.Array) -> Ints:
    """Return the first 8 bytes of each text as a number; numbers compare like unsigned bytes."""
    texts = pc.fill_null(values.cast(pa.large_binary()), b"")
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    buffer = texts.buffers()[2]
    stored = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else _NOTHING
    numbers = np.zeros(len(texts), np.uint64)
    for place in range(_KEY_BYTES):
        at = offsets[:-1] + place
        within = at < offsets[1:]
        byte = stored[np.minimum(at, len(stored) - 1)]
        numbers = (numbers << np.uint64(_KEY_BYTES)) | np.where(within, byte, np.uint8(0))
    return np.asarray(numbers.view(np.int64) ^ _SIGN)


def _field_keys(values: pa.Array, *, exact: bool) -> list[Ints]:
    return _with_nulls(values, _keys(values, exact=exact), nulls_first=True)


def _list_key(values: pa.Array, *, exact: bool) -> Ints:
    """Rank lists: concatenate the ranks of their elements as big-endian bytes, rank these texts."""
    elements = values.flatten()
    keys = _field_keys(elements, exact=exact)
    within, codes = ordered(np.zeros(len(elements), np.int64), keys)
    numbers = np.empty(len(elements), ">i8")
    numbers[within] = codes
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    texts = pa.Array.from_buffers(
        pa.large_binary(),
        len(values),
        [None, pa.py_buffer(offsets * _KEY_BYTES), pa.py_buffer(numbers)],
    )
    return _text_key(texts)
