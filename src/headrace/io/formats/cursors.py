"""Decodes many encoded values together: a position in each, all advanced by one NumPy operation.

A decoder over cursors visits a schema once for a whole batch of messages, instead of once per
message. A damaged message is rejected with the reason and reads as zeros from then on, so that it
cannot delay or change the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


if TYPE_CHECKING:
    Rows: TypeAlias = NDArray[np.int64]
    """The numbers of messages, ascending, each once."""

_MARGIN: Final = 32
"""Zeros before and after the data, so that any fixed width can be read at any position."""
_INLINE: Final = 12
"""The bytes of a value that Arrow keeps in its view."""
_LONGEST_VARINT: Final = 10
_MORE: Final = 0x80


class Cursors:
    """Positions in the bytes of messages; each reading method advances those of its ``rows``.

    ``start`` is the first position in each message. ``problems`` maps the index of a message to its
    reasons for rejection, by column; None is the whole message.
    """

    def __init__(self, values: Sequence[bytes], start: int = 0) -> None:
        margin = bytes(_MARGIN)
        self._joined = b"".join([margin, *values, margin])
        self._data = np.frombuffer(self._joined, np.uint8)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self._ends = _MARGIN + np.cumsum(lengths)
        self._at = self._ends - lengths + start
        self._nowhere = len(self._joined) - _MARGIN
        self.broken = np.zeros(len(values), bool)
        self.problems: dict[int, dict[str | None, str]] = {}
        self.depth = 0
        """The current nesting of values of one recursive type."""
        self.column: str | None = None
        """The column being read, to which problems are attributed."""

    @property
    def rows(self) -> Rows:
        """All messages."""
        return np.arange(len(self._at))

    def left(self, rows: Rows) -> Rows:
        """Return the number of unread bytes of messages."""
        return self._ends[rows] - self._at[rows]

    def end(self) -> None:
        """Reject messages with trailing bytes."""
        self.damaged(np.flatnonzero(self._at != self._ends), "bytes are left after its end")

    def damaged(self, rows: Rows, reason: str) -> None:
        """Reject messages for a reason, unless they are rejected already."""
        found = rows[~self.broken[rows]]
        for row in found.tolist():
            self.problems[row] = {None: reason}
        self.broken[rows] = True
        self._at[rows] = self._ends[rows] = self._nowhere

    def refused(self, row: int, reason: str) -> None:
        """Record that a value of a message does not fit its column."""
        if not self.broken[row]:
            self.problems.setdefault(row, {}).setdefault(self.column, reason)

    # -- numbers ---------------------------------------------------------------------------

    def octets(self, rows: Rows) -> NDArray[np.uint8]:
        """Read one byte."""
        starts = self._skipped(rows, 1)
        return self._data[starts]

    def varints(self, rows: Rows) -> NDArray[np.uint64]:
        """Read integers of up to 64 bits, seven bits a byte, the lowest first."""
        at = self._at[rows]
        octet = self._data[at]
        found: NDArray[np.uint64] = (octet & 0x7F).astype(np.uint64)
        at += 1
        more = np.flatnonzero(octet & _MORE)
        for place in range(1, _LONGEST_VARINT):
            if not len(more):
                break
            octet = self._data[at[more]]
            found[more] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            at[more] += 1
            wide = (octet > 1) & (place == _LONGEST_VARINT - 1)
            self.damaged(rows[more[wide]], "a number has more than 64 bits")
            more = more[((octet & _MORE) != 0) & ~wide]
        self._move(rows, at)
        return found

    def zigzags(self, rows: Rows) -> NDArray[np.int64]:
        """Read signed integers: varints whose lowest bit is the sign."""
        found = self.varints(rows)
        return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64)

    def numbers(self, rows: Rows, kind: str) -> NDArray[Any]:
        """Read numbers of a NumPy type of fixed width, such as ``<f8``."""
        width = np.dtype(kind).itemsize
        found = self._windows(self._skipped(rows, width), width)
        return np.ascontiguousarray(found).view(kind)[:, 0]

    # -- bytes -----------------------------------------------------------------------------

    def binary(self, rows: Rows, lengths: NDArray[np.int64] | int) -> pa.Array:
        """Read bytes of the given lengths."""
        starts = self._skipped(rows, lengths)
        return self._binary(starts, self._lengths(rows, lengths))

    def texts(self, rows: Rows, lengths: NDArray[np.int64]) -> pa.Array:
        """Read UTF-8 text of the given byte lengths; a message with invalid UTF-8 is rejected."""
        starts = self._skipped(rows, lengths)
        lengths = self._lengths(rows, lengths)
        try:
            return pc.cast(self._binary(starts, lengths), pa.string())
        except pa.ArrowInvalid:
            wrong = np.array(
                [
                    not _is_utf8(self._joined[start : start + length])
                    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
                ]
            )
        self.damaged(rows[wrong], "a text is not UTF-8")
        return pc.cast(self._binary(starts, np.where(wrong, 0, lengths)), pa.string())

    def integers(
        self, rows: Rows, lengths: NDArray[np.int64] | int, width: int
    ) -> NDArray[np.uint8]:
        """Read big-endian two's complement numbers as little-endian ones of ``width`` bytes.

        A message with a longer number is rejected.
        """
        lengths = np.broadcast_to(np.asarray(lengths, np.int64), rows.shape)
        starts = self._skipped(rows, lengths)
        lengths = self._lengths(rows, lengths)
        self.damaged(rows[lengths > width], f"a number has more than {width} bytes")
        lengths = np.where(self.broken[rows], 0, lengths)
        # A number ends at the end of its window; the bytes before it are sign extension.
        found = np.array(self._windows(np.where(lengths, starts + lengths, _MARGIN) - width, width))
        sign = np.where(lengths, (self._data[starts] >> 7) * np.uint8(0xFF), 0).astype(np.uint8)
        before = np.arange(width) < (width - lengths)[:, None]
        return np.ascontiguousarray(np.where(before, sign[:, None], found)[:, ::-1])

    def skip(self, rows: Rows, lengths: NDArray[np.int64] | int) -> None:
        """Skip bytes."""
        self._skipped(rows, lengths)

    def _skipped(self, rows: Rows, lengths: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Advance by the lengths; return the positions before."""
        starts = self._at[rows]
        if not isinstance(lengths, int):
            self.damaged(rows[lengths < 0], "a length is negative")
            lengths = np.where(lengths > self.left(rows), self.left(rows) + 1, lengths)
        self._move(rows, starts + lengths)
        starts[self.broken[rows]] = self._nowhere
        return starts

    def _lengths(self, rows: Rows, lengths: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the lengths, with 0 for damaged messages."""
        return np.where(self.broken[rows], 0, lengths)

    def _move(self, rows: Rows, at: NDArray[np.int64]) -> None:
        over = at > self._ends[rows]
        self._at[rows] = at
        over |= self.broken[rows]
        if over.any():
            self.damaged(rows[over], "it ends too early")

    def _windows(self, starts: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        """Return ``width`` bytes from each position on."""
        return np.lib.stride_tricks.sliding_window_view(self._data, width)[starts]

    def _binary(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.Array:
        """Return the bytes at positions: long values share the data, short ones are copied."""
        views = np.zeros((len(starts), 4), np.int32)
        views[:, 0] = lengths
        short = np.array(self._windows(starts, _INLINE))
        short[np.arange(_INLINE) >= lengths[:, None]] = 0
        views[:, 1:] = short.view(np.int32).reshape(len(starts), 3)
        long = lengths > _INLINE
        views[long, 2] = 0
        views[long, 3] = starts[long]
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self._joined)]
        found = pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)
        return pc.cast(found, pa.binary())


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
