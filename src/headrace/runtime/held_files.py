"""Files that compaction does not delete though no readable epoch needs them.

Backups copy them, or branches in the store of the database read them.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.ledger import Files
from headrace.objects.bundles import unit_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, eq=False)
class Hold:
    """What one backup or branch holds: every file until it is narrowed (:meth:`narrow`)."""

    files: Files | None = None

    def narrow(self, files: Files) -> None:
        """Hold only these files."""
        self.files = files


@dataclass(slots=True)
class HeldFiles:
    """The holds of one database. Thread-safe.

    Garbage stays garbage. So a file that is garbage before a hold begins is not needed by what is
    copied afterwards, and one that becomes garbage later is not deleted before the hold ends.
    """

    _holds: list[Hold] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        """Hold files while a block runs."""
        hold = self.keep(None)
        try:
            yield hold
        finally:
            self.let_go(hold)

    def keep(self, files: Files | None) -> Hold:
        """Hold files until :meth:`let_go`; None: all."""
        hold = Hold(files)
        with self._lock:
            self._holds.append(hold)
        return hold

    def let_go(self, hold: Hold) -> None:
        """End a hold."""
        with self._lock:
            self._holds.remove(hold)

    def without(self, garbage: Files) -> Files:
        """Return the garbage that nobody holds; it has to be known before this is called."""
        with self._lock:
            held = [hold.files for hold in self._holds]
        left = garbage
        for files in held:
            if files is None:
                return Files()
            left = Files(_without(left.packs, files.packs), _without(left.segments, files.segments))
        return left


def _without(garbage: frozenset[str], held: frozenset[str]) -> frozenset[str]:
    """Return the files that are not deleted together with any that is held."""
    units = {unit_of(name) for name in held}
    return frozenset(name for name in garbage if unit_of(name) not in units)
