"""The threads that keep a database moving: one makes epochs, one compacts.

A pump makes an epoch as soon as something has arrived, so epochs are short when little arrives
and larger when much does. After a large one it lets changes gather for as long as that one took:
every epoch has a price of its own, and a load pays it half as often. An idle database does no
work: the threads wait to be woken, or for the time at which a row of a view over the clock comes
or goes.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.runtime.compaction import Compaction
    from headrace.runtime.epoch import EpochLoop
    from headrace.types import Epoch

_RETRY_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 60.0
"""Clocks are set: how far off a time is has to be looked at again."""

_COMPACT_EVERY = 8
"""Epochs between two passes of compaction."""


@dataclass(slots=True)
class Pump:
    """Runs the epochs of one loop in the background until it is closed.

    ``error`` is what the last epoch failed with; the pump tries again until it succeeds.
    """

    loop: EpochLoop
    compaction: Compaction
    error: HeadraceError | None = None
    _arrived: threading.Event = field(default_factory=threading.Event)
    _due: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _compacted: int = 0

    def start(self) -> None:
        """Start both threads."""
        for name, work in (("epochs", self._make_epochs), ("compaction", self._compact)):
            thread = threading.Thread(target=work, name=f"headrace-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self.wake()

    @property
    def running(self) -> bool:
        """Whether epochs are made in the background."""
        return bool(self._threads)

    def wake(self) -> None:
        """Tell the pump that something has arrived."""
        self._arrived.set()

    def close(self) -> None:
        """Stop after the epoch at hand."""
        self._closed.set()
        self._arrived.set()
        self._due.set()
        for thread in self._threads:
            thread.join()

    def made(self, epoch: Epoch) -> None:
        """Take note of an epoch, whoever made it: enough of them make a compaction due."""
        if epoch - self._compacted >= _COMPACT_EVERY:
            self._compacted = epoch
            if self._threads:
                self._due.set()
            else:
                self.compaction.run()

    def _make_epochs(self) -> None:
        while not self._closed.is_set():
            self._arrived.wait(self._patience())
            self._arrived.clear()
            try:
                while not self._closed.is_set():
                    epoch = self.loop.advance()
                    if epoch is None:
                        break
                    self.made(epoch)
                    self._gather()
                self.error = None
            except HeadraceError as error:
                self.error = error
                self._closed.wait(_RETRY_SECONDS)
                self._arrived.set()

    def _gather(self) -> None:
        """After a large epoch, wait for as long as it took, or until a full one has arrived.

        Whoever waits for an epoch makes it, and is not held up.
        """
        settings, last = self.loop.settings, self.loop.ledger.epochs(1)[0].counters
        if last.get("changes", 0) <= settings.small_rows:
            return
        until = time.monotonic() + last["seconds"]
        while self.loop.pending() < settings.epoch_rows and not self._closed.is_set():
            self._arrived.clear()
            if not self._arrived.wait(max(0.0, until - time.monotonic())):
                return

    def _patience(self) -> float | None:
        """Return for how many seconds nothing is to be done unless something arrives."""
        try:
            seconds = self.loop.seconds_until_due()
        except HeadraceError as error:
            self.error = error
            return _RETRY_SECONDS
        return None if seconds is None else min(seconds, _LONGEST_WAIT_SECONDS)

    def _compact(self) -> None:
        while not self._closed.is_set():
            self._due.wait()
            self._due.clear()
            if self._closed.is_set():
                return
            try:
                while self.compaction.run() and not self._closed.is_set():
                    pass
            except HeadraceError as error:
                self.error = error
