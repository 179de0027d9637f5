"""The published state as a process sees it that only reads the ledger, which another one writes."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from headrace.catalog import Catalog, relation_of_json
from headrace.errors import HeadraceError
from headrace.ledger import STORE_SETTING, Ledger, Mode
from headrace.parts.access import Access
from headrace.runtime.published import published_at, stored_layouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.ledger import PostgresAddress
    from headrace.parts.access import AccessToken
    from headrace.runtime.published import Published
    from headrace.spine.mounts import Mounted
    from headrace.types import Offset, RelationId

_log: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 1.0
"""The longest interval between looks at the ends of logs and at access tokens."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A published state, with the ends of logs and the access tokens at that time."""

    published: Published
    ends: Mapping[RelationId, Offset]
    tokens: Mapping[str, AccessToken]


def observed(ledger: Ledger, before: Observed | None = None) -> Observed:
    """Return the last state that a ledger has; what did not change is taken from the one before."""
    head = ledger.head
    while True:
        records = ledger.relations.existing()
        again = ledger.head
        if again.epoch == head.epoch:  # the relations are those of this epoch
            break
        head = again
    catalog = Catalog.of(relation_of_json(dict(record.definition)) for record in records)
    known = None if before is None else before.published
    if known is not None and known.catalog == catalog:
        catalog = known.catalog
    layouts = stored_layouts(head, (each.id for each in catalog))
    state = published_at(head, catalog, layouts, known)
    return Observed(state, dict(head.ends), Access(ledger).tokens)


@dataclass(slots=True)
class Observer:
    """Follows a ledger on a thread of its own, and passes on each state. A context manager.

    ``directory`` is this machine's cache of the database's store, by ``mounted``; without a store,
    the data directory. ``seen_at`` is when the ledger last answered, in seconds of the monotonic
    clock; it is 0.0 before the first state.
    """

    directory: Path
    where: Path | PostgresAddress
    mounted: Callable[[str], Mounted | None]
    take: Callable[[Observed], None]
    seen_at: float = 0.0
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="headrace-observer", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        said = ""
        while not self._closed.is_set():
            try:
                with Ledger.open(self.where, Mode.READ) as ledger:
                    said = ""
                    self._follow(ledger)
            except HeadraceError as error:
                if error.primary != said:
                    _log.warning("the ledger is not followed: %s", error.primary)
                said = error.primary
                self._closed.wait(_WAIT_SECONDS)

    def _follow(self, ledger: Ledger) -> None:
        mounted = self.mounted(ledger.settings.get(STORE_SETTING) or "")
        if mounted is not None:
            mounted.mount(self.directory)
        found = None
        while not self._closed.is_set():
            found = observed(ledger, found)
            self.take(found)
            self.seen_at = time.monotonic()
            ledger.waking.wait(found.published.epoch, _WAIT_SECONDS)
