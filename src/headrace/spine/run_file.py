"""Where a run is: a range of a pack, as the ledger names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Place: TypeAlias = "tuple[str, int]"
"""What identifies a run: the name of its pack, and its position there in bytes."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """The ledger's description of a run: the range of a pack that has it.

    The name of a ``pack`` is never reused. The run begins at ``position`` in it and has ``bytes``;
    ``checksum`` is the XXH3 of these (64 bits, in hexadecimal). ``low`` and ``high`` are the least
    and the greatest hash. Only without rows, ``low > high``.
    """

    pack: str
    position: int
    rows: int
    bytes: int
    checksum: str
    low: int
    high: int

    @property
    def place(self) -> Place:
        """What identifies the run."""
        return self.pack, self.position

    @property
    def name(self) -> str:
        """The run's name in messages: that of its pack, and its position there."""
        return f"{self.pack}@{self.position}"

    @property
    def end(self) -> int:
        """The position in the pack after the run's last byte."""
        return self.position + self.bytes

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        return {
            "pack": self.pack,
            "position": self.position,
            "rows": self.rows,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "low": self.low,
            "high": self.high,
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> RunFile:
        """Return the run file that :meth:`to_json` wrote."""
        return cls(**value)
