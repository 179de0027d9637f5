"""Follows a ledger that another process writes."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from headrace.errors import HeadraceError
from headrace.ledger import STORE_SETTING, Ledger, Mode
from headrace.spine.mounts import wait_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.ledger import PostgresAddress
    from headrace.spine.mounts import Mounted
    from headrace.types import Epoch

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
