"""Keeps the cache of a store full while another process has the database open."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from headrace.errors import HeadraceError
from headrace.ledger import NO_EPOCH, STORE_SETTING, Ledger, Mode
from headrace.spine import mounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.ledger import PostgresAddress
    from headrace.spine.mounts import Mounted

_log: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 1.0
_PROGRAMS_SECONDS: Final = 30.0
_FOLDERS: Final = ("runs", "log")


@dataclass(slots=True)
class Warming:
    """Fetches what each epoch adds to a store, on a thread of its own, until it is closed.

    Who takes over then reads from its own disk. ``address`` is that of the ledger; if it is in the
    directory, nothing is to be fetched. ``mounted`` returns how the directory is the cache of the
    store at a URL. A context manager; nothing happens before :meth:`begin`.
    """

    directory: Path
    address: PostgresAddress | None
    mounted: Callable[[str], Mounted | None]
    fetched: int = 0
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start, if that has not been done: another process has the database open."""
        if self._thread is None and self.address is not None:
            self._thread = threading.Thread(
                target=self._run, args=(self.address,), name="headrace-warming", daemon=True
            )
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, address: PostgresAddress) -> None:
        while not self._closed.is_set():
            try:
                with Ledger.open(address, Mode.READ) as ledger:
                    self._follow(ledger)
            except HeadraceError as error:  # the ledger or the store does not answer
                _log.info("the cache is not kept full: %s", error.primary)
                self._closed.wait(_WAIT_SECONDS)
            else:
                return

    def _follow(self, ledger: Ledger) -> None:
        mounted = self.mounted(ledger.settings.get(STORE_SETTING) or "")
        if mounted is None:
            return
        mounted.mount(self.directory)
        seen, listed = NO_EPOCH, -_PROGRAMS_SECONDS
        while not self._closed.is_set():
            known = ledger.files.known()
            names = dict(zip(_FOLDERS, (known.packs, known.segments), strict=True))
            if time.monotonic() - listed >= _PROGRAMS_SECONDS:
                listed = time.monotonic()
                names["programs"] = frozenset(mounts.files_in(self.directory / "programs"))
            for folder, each in names.items():
                self._fetch(self.directory / folder, each, mounted.most_bytes)
            seen = ledger.waking.wait(seen, _WAIT_SECONDS)

    def _fetch(self, place: Path, names: frozenset[str], most_bytes: int) -> None:
        """Fetch the files that are missing, as far as the cache has room for all."""
        here = {each.name: each.stat().st_size for each in place.iterdir()}
        room = most_bytes - sum(here.values())
        for name in names - here.keys():
            if self._closed.is_set() or room <= 0:
                break
            if mounts.fetch(str(place / name)):
                self.fetched += 1
                with suppress(FileNotFoundError):
                    room -= (place / name).stat().st_size
