"""How long a thread that computes in Python keeps others from going on.

Python lets a thread compute for 5 ms before another that has waited for a disk, a socket or the JVM
goes on. Landing a part or answering a request waits a dozen times, and epochs compute in Python, so
beside them each of these took several times as long.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Final

_SECONDS: Final = 0.0005


@dataclass(slots=True)
class QuickSwitching:
    """Makes this process's threads take turns quickly while anybody asks for it. Thread-safe."""

    _changing: threading.Lock = field(default_factory=threading.Lock)
    _holders: int = 0
    _before: float = 0.0

    def begin(self) -> None:
        """Ask for it, until :meth:`end` has been called as often."""
        with self._changing:
            if self._holders == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _SECONDS))
            self._holders += 1

    def end(self) -> None:
        """Ask for it no longer; the interval is what it was before if nobody else does."""
        with self._changing:
            self._holders -= 1
            if self._holders == 0:
                sys.setswitchinterval(self._before)


QUICK_SWITCHING: Final = QuickSwitching()
"""That of this process: the interval is Python's own setting."""
