"""Requests that run a script for many rows, encoded from columns in Redis's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

_END = b"\r\n"


@dataclass(frozen=True, slots=True)
class Arguments:
    """Encoded arguments of rows: ``each`` is the number of arguments per row."""

    each: int
    ends: Any
    """The offset in ``sent`` of the first row's arguments, then the end of each row's."""
    sent: memoryview

    @classmethod
    def of(cls, columns: Sequence[Any]) -> Arguments:
        """Encode columns of text or binary: a row's arguments are its values in each of them."""
        if not columns:
            return cls(0, None, memoryview(b""))
        pieces: list[Any] = []
        for column in columns:
            values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            values = values.cast(pa.large_binary())
            lengths = pc.binary_length(values).cast(pa.string()).cast(pa.large_binary())
            pieces += [_constant(b"$"), lengths, _constant(_END), values, _constant(_END)]
        joined = pc.binary_join_element_wise(*pieces, _constant(b""))
        _, offsets, data = joined.buffers()
        ends = np.frombuffer(offsets, np.int64)[joined.offset : joined.offset + len(joined) + 1]
        return cls(len(columns), ends, memoryview(data or b""))

    def part(self, start: int, stop: int) -> memoryview:
        """Return the encoded arguments of the rows in ``[start, stop)``."""
        if not self.each:
            return self.sent
        return self.sent[self.ends[start] : self.ends[stop]]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of a script for ranges of rows, which have keys and arguments.

    ``mark`` is the first key of each call, ``given`` are its first arguments.
    """

    script: str
    mark: str
    given: Sequence[bytes]
    keys: Arguments
    arguments: Arguments

    def part(self, start: int, stop: int) -> list[bytes | memoryview]:
        """Return the request for the rows in ``[start, stop)``."""
        rows = stop - start
        total = 4 + rows + len(self.given) + rows * self.arguments.each
        beginning = (b"EVAL", self.script.encode(), b"%d" % (1 + rows), self.mark.encode())
        return [
            b"*%d\r\n" % total + b"".join(map(_bulk, beginning)),
            self.keys.part(start, stop),
            b"".join(map(_bulk, self.given)),
            self.arguments.part(start, stop),
        ]


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(value), value)


def _constant(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())
