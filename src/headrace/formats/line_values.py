"""Values of messages as lines: one object for a block of values instead of one for each.

Going through a million small objects that have left the processor's cache, as joining, copying and
freeing them do, takes longer than decoding them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload


class LineValues(Sequence[bytes]):
    """Values that have no line feed within, in order; ``add`` appends some."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._ends: list[int] = []
        """The number of values up to the end of each block."""
        self.bytes = 0
        """The size of all values, with the line feeds between them."""

    def add(self, values: Sequence[bytes | None]) -> bool:
        """Append values; return False, and append none, if one is absent or has a line feed."""
        if not values:
            return True
        try:
            block = b"\n".join(values)  # type: ignore[arg-type]
        except TypeError:
            return False
        if block.count(b"\n") != len(values) - 1:
            return False
        self._append(block, len(values))
        return True

    def extend(self, other: LineValues) -> None:
        """Append the values of others."""
        before = 0
        for block, end in zip(other._blocks, other._ends, strict=True):
            self._append(block, end - before)
            before = end

    def _append(self, block: bytes, count: int) -> None:
        self._blocks.append(block)
        self._ends.append(len(self) + count)
        self.bytes += len(block) + 1

    @property
    def data(self) -> bytes:
        """All values, with a line feed between any two."""
        return b"\n".join(self._blocks)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            yield from block.split(b"\n")

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return list(self)[at]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        number = bisect_right(self._ends, at)
        begins = self._ends[number - 1] if number else 0
        return self._blocks[number].split(b"\n")[at - begins]
