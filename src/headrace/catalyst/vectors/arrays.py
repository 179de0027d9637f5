"""Arrow columns as integers and bytes of NumPy, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.catalyst.vectors.vector import DoubtError
from headrace.zset.equality import bit_width, valid, words

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.catalyst.vectors.vector import Value
    from headrace.zset.equality import Bools, Ints


def present(*given: Value) -> Bools | None:
    """Return for each row whether no value is NULL; None if no value is."""
    found: Bools | None = None
    for each in given:
        if isinstance(each, pa.Scalar):
            if not each.is_valid:
                raise DoubtError
        elif each.null_count:
            found = valid(each) if found is None else found & valid(each)
    return found


def integers(value: Value) -> Ints:
    """Return the values of a fixed-width type of up to 64 bits as integers; 0 for NULL."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, 1)
    if not len(value):
        return np.zeros(0, np.int64)
    found = words(value, bit_width(value.type)).astype(np.int64, copy=False)
    return np.where(valid(value), found, 0) if value.null_count else found


def floats(value: Value) -> npt.NDArray[np.floating]:
    """Return the values of a type of floating-point numbers; 0 for NULL."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, 1)
    found: npt.NDArray[np.floating] = value.to_numpy(zero_copy_only=False)
    return np.where(valid(value), found, found.dtype.type(0)) if value.null_count else found


def made(found: npt.NDArray[np.generic], type_: pa.DataType, shown: Bools | None) -> pa.Array:
    """Return integers, floats or booleans as a column of a type of their width."""
    column = pa.array(found, mask=None if shown is None else ~shown)
    return column if column.type == type_ else column.view(type_)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Texts or binary values as ranges of ``data``: where each starts, and its length in bytes.

    That of a NULL is empty.
    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, value: pa.Array) -> Bytes:
        """Return the bytes of a column: ``data`` has no others."""
        _, offsets, data = value.buffers()
        if not len(value) or data is None:
            none = np.zeros(len(value), np.int64)
            return cls(np.zeros(0, np.uint8), none, none)
        ends = np.frombuffer(offsets, np.int32)[value.offset : value.offset + len(value) + 1]
        ends = ends.astype(np.int64)
        given = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        lengths = np.diff(ends)
        if value.null_count:
            lengths = np.where(valid(value), lengths, 0)
        return cls(given, ends[:-1] - ends[0], lengths)

    def part(self, starts: Ints, lengths: Ints) -> Bytes:
        """Return ranges that begin at some bytes of these ranges."""
        return Bytes(self.data, self.starts + starts, lengths)

    def texts(self, shown: Bools | None, type_: pa.DataType) -> pa.Array:
        """Return the ranges as a column of texts or binary values."""
        ends = np.zeros(len(self.starts) + 1, np.int64)
        np.cumsum(self.lengths, out=ends[1:])
        if ends[-1] >= 1 << 31:
            raise DoubtError
        places = np.arange(ends[-1]) + np.repeat(self.starts - ends[:-1], self.lengths)
        buffers = [
            None if shown is None else pa.array(shown).buffers()[1],
            pa.py_buffer(ends.astype(np.int32)),
            pa.py_buffer(self.data[places]),
        ]
        return pa.Array.from_buffers(type_, len(self.starts), buffers)

    def characters(self) -> Ints:
        """Return the number of characters of each text in UTF-8."""
        counts = np.append(0, np.cumsum(self._begins()))
        return np.asarray(counts[self.starts + self.lengths] - counts[self.starts])

    def byte_of(self, character: Ints) -> Ints:
        """Return the byte of each text that a character begins at, or its end."""
        begins = self._begins()
        places = np.append(np.flatnonzero(begins), len(self.data))
        before = np.append(0, np.cumsum(begins))[self.starts]
        found = places[np.minimum(before + character, len(places) - 1)] - self.starts
        return np.minimum(found, self.lengths)

    def _begins(self) -> Bools:
        """Return whether a character begins at each byte."""
        return np.asarray((self.data & np.uint8(0xC0)) != np.uint8(0x80))

    def layouts(self) -> tuple[Ints, list[bytes]]:
        """Return the different values with each digit written as 0, and which one each row has."""
        rows = len(self.starts)
        ends = pa.py_buffer(np.append(self.starts, len(self.data)).astype(np.int32))
        shown = [None, ends, pa.py_buffer(_WITHOUT_DIGITS[self.data])]
        found = pa.Array.from_buffers(pa.binary(), rows, shown).dictionary_encode()
        return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()

    def number(self, rows: Ints, start: int, end: int) -> Ints:
        """Return the number whose digits, 18 at most, stand at the same place of some rows."""
        found = np.zeros(len(rows), np.int64)
        for place in range(start, end):
            found = found * 10 + (self.data[self.starts[rows] + place] - np.uint8(ord("0")))
        return found


_WITHOUT_DIGITS: Final = np.arange(256, dtype=np.uint8)
_WITHOUT_DIGITS[ord("0") : ord("9") + 1] = ord("0")


def column_of(value: Value) -> pa.Array:
    """Return a value as a column; a constant as one row."""
    return pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value
