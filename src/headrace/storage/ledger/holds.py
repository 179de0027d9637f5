"""What this process has read of the ledger and still uses: files that it names are not deleted."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from weakref import WeakSet


class ReadHold:
    """Lives as long as something that this process has read of the ledger is in use.

    Copies, and what other processes are given, hold nothing.
    """

    __slots__ = ("__weakref__",)

    def __deepcopy__(self, _known: object) -> None:
        """Return nothing."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become nothing in another process."""
        return type(None), ()


@dataclass(slots=True)
class Holds:
    """What this process has read of the ledger that names segments, and still uses. Thread-safe."""

    _alive: WeakSet[ReadHold] = field(default_factory=WeakSet)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new(self) -> ReadHold:
        """Return one for segments that are read now."""
        hold = ReadHold()
        with self._lock:
            self._alive.add(hold)
        return hold

    def alive(self) -> WeakSet[ReadHold]:
        """Return those in use now; it is empty once none of them is any more."""
        with self._lock:
            return self._alive.copy()
