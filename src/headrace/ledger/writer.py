"""A ledger's transactions: only the process that took over last may write, one change at a time."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import heads, schema
from headrace.ledger.records import Fence
from headrace.ledger.store import Mode, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.ledger.heads import Head


def _uninterrupted(_stage: str) -> None:
    """Do nothing: the fault hook outside of tests."""


_LOCK_FENCE = sa.select(schema.fence.c.token).with_for_update()


@dataclass(slots=True)
class Change:
    """A write transaction, and the head once it is committed."""

    connection: sa.Connection
    head: Head


class Writer:
    """Opens a ledger, and its transactions; knows the newest state. Thread-safe."""

    def __init__(
        self, store: Store, clock: Callable[[], float], fault: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._fault = fault
        self._lock = threading.Lock()
        self._fence: Fence | None = None
        self._head: Head | None = None

    @classmethod
    def open(
        cls,
        where: str | Path,
        mode: Mode = Mode.WRITE,
        *,
        clock: Callable[[], float] = time.time,
        fault: Callable[[str], None] = _uninterrupted,
    ) -> Self:
        """Open and check the ledger at a SQLite file or a database URL.

        In WRITE mode it is created if it does not exist. ``fault`` is called with the name of each
        point at which a test may crash.

        Raises:
            HeadraceError: INVALID, UNSUPPORTED, CORRUPT or UNAVAILABLE; see :class:`Store`.
        """
        return cls(Store.open(where, mode, clock()), clock, fault)

    def close(self) -> None:
        """Close every connection to the database."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def head(self) -> Head:
        """The newest state, as a value that does not change; of the last write of this process."""
        head = self._head
        if head is not None:
            return head
        if self._fence is None:
            return self._loaded()
        with self._lock:
            if self._head is None:
                self._head = self._loaded()
            return self._head

    def _loaded(self) -> Head:
        with self._store.reading() as connection:
            return heads.load(connection)

    @contextmanager
    def _writing(self) -> Iterator[Change]:
        """Open a write transaction; raise CONFLICT if another process has taken over."""
        with self._lock:
            if self._head is None:
                self._head = self._loaded()
            try:
                with self._store.writing() as connection:
                    self._require_fence(connection)
                    change = Change(connection, self._head)
                    yield change
                    self._fault("before commit")
            except BaseException:
                self._head = None  # whether it was committed may not be known
                raise
            self._head = change.head
        self._fault("after commit")

    def _require_fence(self, connection: sa.Connection) -> None:
        """Lock the fence; refuse a change if another process has taken over."""
        newest = connection.execute(_LOCK_FENCE).scalar_one()
        if newest == self._fence:
            return
        if self._fence is None:
            raise HeadraceError(
                Code.INTERNAL, "ledger was written to before it was acquired for writing"
            )
        raise HeadraceError(
            Code.CONFLICT,
            "another process took over the data directory",
            f"This process holds fence {self._fence}; the newest is {newest}. Nothing was written.",
            "Close this one, or open it again to take over.",
        )

    def acquire(self) -> Fence:
        """Become the only writer: changes by earlier writers fail from now on."""
        with self._lock, self._store.writing() as connection:
            token = schema.fence.c.token
            connection.execute(schema.fence.update().values(token=token + 1))
            fence = Fence(connection.execute(sa.select(token)).scalar_one())
        self._fence, self._head = fence, None
        return fence
