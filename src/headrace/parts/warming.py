"""Keeps the cache of a store full while another process has the database open."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.spine import mounts

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.ledger import Ledger
    from headrace.spine.mounts import Mounted
    from headrace.types import Epoch

_PROGRAMS_SECONDS: Final = 30.0


@dataclass(slots=True)
class Warming:
    """Fetches what each epoch adds to a store: who takes over then reads from its own disk.

    A database without a store has nothing to be fetched. It stops in the middle once ``closed``.
    """

    directory: Path
    closed: threading.Event = field(default_factory=threading.Event)
    _listed: float = -_PROGRAMS_SECONDS

    def look(self, ledger: Ledger, mounted: Mounted | None) -> Epoch:
        """Fetch what is missing; return the epoch up to which the files are here."""
        epoch = ledger.epochs.last()
        if mounted is None:
            return epoch
        names = ledger.files.known().by_folder
        if time.monotonic() - self._listed >= _PROGRAMS_SECONDS:
            self._listed = time.monotonic()
            names["programs"] = frozenset(mounts.files_in(self.directory / "programs"))
        for folder, each in names.items():
            self._fetch(self.directory / folder, each, mounted.most_bytes)
        return epoch

    def _fetch(self, place: Path, names: frozenset[str], most_bytes: int) -> None:
        """Fetch the files that are missing, as far as the cache has room for all."""
        here = {each.name: each.stat().st_size for each in place.iterdir()}
        room = most_bytes - sum(here.values())
        for name in names - here.keys():
            if self.closed.is_set() or room <= 0:
                break
            if mounts.fetch(str(place / name)):
                with suppress(FileNotFoundError):
                    room -= (place / name).stat().st_size
