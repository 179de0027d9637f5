"""States that another process publishes: its ledger is followed, and a cache kept full.

The published state as a process sees it that only reads the ledger, which another one writes.

Follows a ledger that another process writes.

Keeps the cache of a store full while another process has the database open.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from headrace.errors import HeadraceError
from headrace.execution.runtime.published import published_at, stored_layouts
from headrace.files import mounts
from headrace.files.mounts import wait_in
from headrace.lifecycle.states.access import Access
from headrace.planning.catalog import Catalog, relation_of_json
from headrace.storage.ledger import STORE_SETTING, Ledger, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.execution.runtime.published import Published
    from headrace.files.mounts import Mounted
    from headrace.lifecycle.states.access import AccessToken
    from headrace.storage.ledger import PostgresAddress
    from headrace.types import Epoch, Offset, RelationId


@dataclass(frozen=True, slots=True)
class Observed:
    """A published state, with the ends of logs and the access tokens at that time."""

    published: Published
    ends: Mapping[RelationId, Offset]
    tokens: Mapping[str, AccessToken]


def observed(ledger: Ledger, before: Observed | None = None) -> Observed:
    """Return the last state that a ledger has; what did not change is taken from the one before."""
    while True:
        epoch = ledger.epochs.last()
        records, head = ledger.relations.existing(), ledger.head
        if head.epoch == epoch:  # the relations are those of this epoch
            break
    catalog = Catalog.of(relation_of_json(dict(record.definition)) for record in records)
    known = None if before is None else before.published
    if known is not None and known.catalog == catalog:
        catalog = known.catalog
    layouts = stored_layouts(head, (each.id for each in catalog))
    state = published_at(head, catalog, layouts, known)
    return Observed(state, dict(head.ends), Access(ledger).tokens)


_log: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 1.0
"""The longest interval between looks, since not all that changes is an epoch."""


@dataclass(slots=True)
class LedgerFollower:
    """Looks at a ledger on a thread of its own: at each epoch, and at least every second.

    ``look`` is given the ledger and how ``directory`` is the cache of the database's store, if it
    is; it returns the epoch that it has seen. ``mounted`` returns that for the store's URL. While
    the ledger or the store does not answer, it is tried again. A context manager; nothing happens
    before :meth:`begin`.
    """

    directory: Path
    where: Path | PostgresAddress
    mounted: Callable[[str], Mounted | None]
    look: Callable[[Ledger, Mounted | None], Epoch]
    closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start, if that has not been done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headrace-ledger", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        said = ""
        while not self.closed.is_set():
            try:
                with Ledger.open(self.where, Mode.READ) as ledger:
                    said = ""
                    self._follow(ledger)
            except HeadraceError as error:
                if error.primary != said:
                    _log.warning("the ledger is not followed: %s", error.primary)
                said = error.primary
                self.closed.wait(_WAIT_SECONDS)

    def _follow(self, ledger: Ledger) -> None:
        mounted = self.mounted(ledger.settings.get(STORE_SETTING) or "")
        if mounted is not None:
            mounted.mount(self.directory)
            wait_in(self.directory, ledger.small_files)
        while not self.closed.is_set():
            ledger.waking.wait(self.look(ledger, mounted), _WAIT_SECONDS)


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
