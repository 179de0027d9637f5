"""A ledger's transactions: only the process that took over last may write, one change at a time."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import schema
from headrace.ledger.driver_statement import DriverStatement
from headrace.ledger.records import Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from headrace.ledger.heads import Head
    from headrace.ledger.store import Store

_LOCK_FENCE = DriverStatement(sa.select(schema.fence.c.token).with_for_update())


@dataclass(slots=True)
class WriteTransaction:
    """A write transaction, and the head once it is committed."""

    connection: sa.Connection
    head: Head
    fence: Fence


class Transactions:
    """The transactions of one open ledger, and its newest state. Thread-safe.

    ``load`` reads the head in a transaction. ``clock`` returns Unix seconds. ``fault`` is called
    with the name of each point at which a test may crash.
    """

    def __init__(
        self,
        store: Store,
        load: Callable[[sa.Connection], Head],
        clock: Callable[[], float],
        fault: Callable[[str], None],
    ) -> None:
        self.store = store
        self.clock = clock
        self.fault = fault
        self._load = load
        self._lock = threading.Lock()
        self._fence: Fence | None = None
        self._head: Head | None = None

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
        with self.reading() as connection:
            return self._load(connection)

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Open a read transaction: it sees one consistent state of the ledger."""
        return self.store.reading()

    @contextmanager
    def writing(self) -> Iterator[WriteTransaction]:
        """Open a write transaction; raise CONFLICT if another process has taken over."""
        with self._lock:
            if self._head is None:
                self._head = self._loaded()
            try:
                with self.store.writing() as connection:
                    fence = self._require_fence(connection)
                    writing = WriteTransaction(connection, self._head, fence)
                    yield writing
                    self.fault("before commit")
            except BaseException:
                self._head = None  # whether it was committed may not be known
                raise
            self._head = writing.head
        self.fault("after commit")

    def _require_fence(self, connection: sa.Connection) -> Fence:
        """Lock the fence, and return it; refuse a change if another process has taken over."""
        ((newest,),) = _LOCK_FENCE.rows(connection)
        if self._fence is None:
            raise HeadraceError(
                Code.INTERNAL, "ledger was written to before it was acquired for writing"
            )
        if newest == self._fence:
            return self._fence
        raise HeadraceError(
            Code.CONFLICT,
            "another process took over the data directory",
            f"This process holds fence {self._fence}; the newest is {newest}. Nothing was written.",
            "Close this one, or open it again to take over.",
        )

    def acquire(self) -> Fence:
        """Become the only writer: changes by earlier writers fail from now on."""
        with self._lock, self.store.writing() as connection:
            token = schema.fence.c.token
            connection.execute(schema.fence.update().values(token=token + 1))
            fence = Fence(connection.execute(sa.select(token)).scalar_one())
        self._fence, self._head = fence, None
        return fence
