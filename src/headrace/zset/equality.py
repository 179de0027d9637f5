"""Row equality: exact, and vectorised for every Arrow type that Spark produces.

Two values are the same where SQL's ``IS NOT DISTINCT FROM`` is true, with one difference: floats
are compared by their bits. So NULL equals NULL, NaN equals NaN, and -0.0 differs from 0.0.
Structs are compared by field, lists by length and element, maps as lists of entries in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

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
