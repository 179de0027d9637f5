"""Row order: that of ``ORDER BY`` in Spark SQL, vectorised, for every Arrow type.

Columns become *sort keys*: arrays of int64, the most significant one first, whose lexicographic
order is that of the values. Keys can be compared only with keys made in the same call.

Integers, dates, timestamps and intervals are ordered by number, booleans false first, decimals by
value, text and binary by unsigned bytes. -0.0 equals 0.0, and NaN is above all other floats.
Structs are ordered by field and arrays by element, a prefix first; a NULL inside them is below
everything.

Row equality: exact, and vectorised for every Arrow type that Spark produces.

Two values are the same where SQL's ``IS NOT DISTINCT FROM`` is true, with one difference: floats
are compared by their bits. So NULL equals NULL, NaN equals NaN, and -0.0 differs from 0.0.
Structs are compared by field, lists by length and element, maps as lists of entries in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_WORDS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_NUMPY = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_WIDTHS: dict[int, int] = {
    kind.id: kind.bit_width
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.timestamp("us"), pa.duration("us"), pa.month_day_nano_interval()),
        *(pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
    )
} | {pa.bool_().id: 8}
_TEXTS = frozenset(
    kind.id for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
)
_CODE_BYTES = 8


def same(left: pa.Array, right: pa.Array) -> Bools:
    """Return for each position whether two arrays of one type and length have the same value."""
    if len(left) == 0 or pa.types.is_null(left.type):
        return np.ones(len(left), np.bool_)
    width = bit_width(left.type)
    if width:
        agree = words(left, width) == words(right, width)
        agree = agree if agree.ndim == 1 else agree.all(axis=1)
    elif is_text(left.type):
        equal = pc.equal(left, right)
        if equal.null_count:
            equal = pc.fill_null(equal, fill_value=False)
        agree = equal.to_numpy(zero_copy_only=False)
    elif pa.types.is_struct(left.type):
        agree = np.ones(len(left), np.bool_)
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            agree &= same(one, other)
    else:
        both, _ = _codes(pa.concat_arrays([left, right]))
        return np.asarray(both[: len(left)] == both[len(left) :])
    if left.null_count == 0 and right.null_count == 0:
        return np.asarray(agree)
    left_valid, right_valid = valid(left), valid(right)
    return np.asarray(np.where(left_valid & right_valid, agree, left_valid == right_valid))


def same_pairs(
    left: Sequence[pa.Array], lefts: Ints | None, right: Sequence[pa.Array], rights: Ints
) -> Bools:
    """Return for each pair of a position in ``left`` and one in ``right`` whether columns agree.

    Without columns, all do. Without ``lefts``, these are the positions of all rows. A column is
    read only at the pairs that agree in all columns before it, and in place if its width is fixed.
    """
    agree = np.ones(len(rights), np.bool_)
    pairs: Ints | None = None
    columns = list(zip(left, right, strict=True))
    if len(columns) > 1:
        # Those that are compared fastest first: others are read only where these agree.
        columns.sort(key=lambda both: not bit_width(both[0].type))
    for one, other in columns:
        if len(rights) == 0:
            break
        found = _same_values(one, lefts, other, rights)
        if found.all():
            continue
        agree[~found if pairs is None else pairs[~found]] = False
        pairs = found.nonzero()[0] if pairs is None else pairs[found]
        lefts = pairs if lefts is None else lefts[found]
        rights = rights[found]
    return agree


def _same_values(left: pa.Array, lefts: Ints | None, right: pa.Array, rights: Ints) -> Bools:
    """Return for each pair of a position in ``left`` and one in ``right`` whether values agree."""
    width = bit_width(left.type)
    if pa.types.is_struct(left.type) and not isinstance(left, pa.ExtensionArray):
        agree = np.ones(len(rights), np.bool_)
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            agree &= _same_values(one, lefts, other, rights)
        return _or_both_null(agree, left, lefts, right, rights)
    if not width:
        left = left if lefts is None else left.take(pa.array(lefts))
        return same(left, right.take(pa.array(rights)))
    at = slice(None) if lefts is None else lefts
    one = words(left, width)
    other = one if right is left else words(right, width)
    if one.ndim == 1:
        agree = one[at] == other[rights]
    else:
        agree = one[at, 0] == other[rights, 0]
        for word in range(1, one.shape[1]):
            agree &= one[at, word] == other[rights, word]
    return _or_both_null(agree, left, lefts, right, rights)


def _or_both_null(
    agree: Bools, left: pa.Array, lefts: Ints | None, right: pa.Array, rights: Ints
) -> Bools:
    """Return for each pair whether both values are NULL or, if neither is, whether they agree."""
    if left.null_count == 0 and right.null_count == 0:
        return np.asarray(agree)
    left_valid = valid(left) if lefts is None else valid(left)[lefts]
    right_valid = valid(right)[rights]
    return np.asarray(np.where(left_valid & right_valid, agree, left_valid == right_valid))


def row_codes(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return one number per row; two numbers are equal exactly where the rows are the same."""
    codes, bound = np.zeros(rows, np.int64), 1
    for column in columns:
        codes, bound = _paired(codes, bound, *_codes(column))
    return codes


def _paired(first: Ints, first_bound: int, second: Ints, second_bound: int) -> tuple[Ints, int]:
    """Return one number per pair of numbers, and a bound above all of them.

    Each bound is above every number of its numbering.
    """
    if second_bound == 1:
        return first, first_bound
    if first_bound == 1:
        return second, second_bound
    if first_bound * second_bound >= 2**63:
        # Both are dense after this, so at most (rows + 1)**2 pairs remain, which fit.
        first, first_bound = _dense(pa.array(first))
        second, second_bound = _dense(pa.array(second))
    return first * second_bound + second, first_bound * second_bound


def _dense(array: pa.Array) -> tuple[Ints, int]:
    """Number the values from 1; NULL is 0."""
    encoded = pc.dictionary_encode(array)
    indices = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return indices.astype(np.int64) + 1, len(encoded.dictionary) + 1


def _codes(array: pa.Array) -> tuple[Ints, int]:
    """Return one number per value, 0 for NULL, and a bound above all numbers."""
    kind = array.type
    if len(array) == 0 or pa.types.is_null(kind):
        return np.zeros(len(array), np.int64), 1
    if pa.types.is_dictionary(kind):
        return _codes(array.dictionary_decode())
    if isinstance(array, pa.ExtensionArray):
        return _codes(array.storage)
    if pa.types.is_struct(kind):
        return _struct_codes(array)
    if pa.types.is_map(kind):
        entries = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return _list_codes(array.cast(pa.large_list(entries)))
    if pa.types.is_nested(kind):
        return _list_codes(array)
    if is_text(kind) or pa.types.is_fixed_size_binary(kind):
        return _dense(array)
    return _dense(_as_words(array))


def _struct_codes(array: pa.StructArray) -> tuple[Ints, int]:
    codes, bound = np.zeros(len(array), np.int64), 1
    for child in array.flatten():
        codes, bound = _paired(codes, bound, *_codes(child))
    if array.null_count == 0:
        return codes + 1, bound + 1
    return np.where(valid(array), codes + 1, 0), bound + 1


def _list_codes(array: pa.Array) -> tuple[Ints, int]:
    """Number lists: concatenate the numbers of their elements as bytes, and number these texts."""
    elements, _ = _codes(array.flatten())
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    texts = pa.Array.from_buffers(
        pa.large_binary(),
        len(array),
        [None, pa.py_buffer(offsets * _CODE_BYTES), pa.py_buffer(np.ascontiguousarray(elements))],
    )
    codes, bound = _dense(texts)
    return (codes if array.null_count == 0 else np.where(valid(array), codes, 0)), bound


def bit_width(kind: pa.DataType) -> int:
    """Return the width of a fixed-width value, or 0 for any other type; a bool counts as a byte."""
    return _WIDTHS.get(kind.id, 0)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is a string or binary type of variable length."""
    return kind.id in _TEXTS


def _as_words(array: pa.Array) -> pa.Array:
    """View the bits of a fixed-width array as integers or fixed-size binary, without a copy."""
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int8())
    width = bit_width(array.type)
    word = _WORDS[width] if width in _WORDS else pa.binary(width // 8)
    return pa.Array.from_buffers(
        word, len(array), array.buffers(), null_count=array.null_count, offset=array.offset
    )


def words(array: pa.Array, width: int) -> npt.NDArray[np.signedinteger]:
    """Return the bits of a fixed-width array as integers; values above 64 bits become rows.

    The bits at a NULL are unspecified.
    """
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    data = np.frombuffer(array.buffers()[1], _NUMPY[min(width, 64)])
    data = data if width <= 64 else data.reshape(-1, width // 64)  # noqa: PLR2004
    return data[array.offset : array.offset + len(array)]


def valid(array: pa.Array) -> Bools:
    """Return for each position whether its value is not NULL."""
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


if TYPE_CHECKING:
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
