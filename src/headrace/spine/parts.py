"""The rows of a spine in parts of bounded size, for delivery to a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.zset import HASH

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.spine.spine import Spine

PART_BYTES: Final = 32 << 20
"""How many bytes a part has at most, in memory, unless it is of one hash."""


@dataclass(slots=True)
class SpineParts:
    """The rows of a spine with their weights, and the number of physical rows read so far.

    ``most`` and ``most_bytes`` limit the physical rows of a part; see :meth:`Spine.scan`.
    """

    spine: Spine
    most: int
    most_bytes: int = PART_BYTES
    read: int = 0

    @property
    def total(self) -> int:
        """The number of physical rows that are read for all parts."""
        return self.spine.rows_upper_bound

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the parts, without the hashes of their rows."""
        self.read = 0
        for part in self.spine.scan(self.most, batch_bytes=self.most_bytes):
            self.read = self.spine.rows_upto(int(part.hashes[-1]))
            yield part.table.drop_columns([HASH])
        self.read = self.total
