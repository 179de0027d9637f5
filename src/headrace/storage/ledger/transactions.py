"""A ledger's transactions: only the process that took over last may write, one change at a time."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.files.directories import Waits, refuses
from headrace.storage.ledger import schema
from headrace.storage.ledger.driver_statement import WrittenFiles
from headrace.storage.ledger.records import Fence
from headrace.storage.ledger.store import TRIES, UnacknowledgedError
from headrace.storage.ledger.writers import LedgerWriter, LockedFence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager

    from headrace.storage.ledger.driver_statement import FileKey
    from headrace.storage.ledger.heads import Head
    from headrace.storage.ledger.postgres import CommitListener
    from headrace.storage.ledger.store import Store


T = TypeVar("T")


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

    A server may be lost while it commits. So each write stores its number, and the next transaction
    that locks the fence sees whether the write before was committed; see :meth:`writing`.
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
        self.written_files = WrittenFiles()
        self.overtaken: HeadraceError | None = None
        """The error of all changes since another process was found to have taken over."""
        self._load = load
        self._lock = threading.Lock()
        self._identity: str | None = None
        self._fence: Fence | None = None
        self._writer: LedgerWriter | None = None
        self._head: Head | None = None
        self._stale = True
        """Whether the head may be older than the last write of this process."""
        self._written = 0
        """The number of the last write that is known to be committed."""
        self._unsure: int | None = None
        """The number of a later write that may be committed."""

    @property
    def head(self) -> Head:
        """The newest state, as a value that does not change; of the last write of this process.

        While the database does not answer, it may be that of the write before.
        """
        head = self._head
        if head is not None and not self._stale:
            return head
        if self._fence is None:
            return self._loaded()
        if head is not None and self.store.availability.error is not None:
            return head
        with self._lock:
            if self._head is None or self._stale:
                try:
                    self._head = self._loaded()
                    self._stale = self._unsure is not None
                except HeadraceError as error:
                    if self._head is None or error.code is not Code.UNAVAILABLE:
                        raise
            return self._head

    def _loaded(self) -> Head:
        with self.reading() as connection:
            return self._load(connection)

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Open a read transaction: it sees one consistent state of the ledger."""
        return self.store.reading()

    def write(self, change: Callable[[WriteTransaction], T], naming: Collection[FileKey] = ()) -> T:
        """Make a change in a write transaction; again, if that was lost and changed nothing.

        The small files that it is ``naming`` are stored with it, or by nobody.

        Raises:
            HeadraceError: as :meth:`writing`, and as the change.
        """
        try:
            for left in reversed(range(TRIES)):
                try:
                    with self.writing(naming) as writing:
                        return change(writing)
                except HeadraceError as error:
                    if not left or self._unsure is not None or not self.store.may_retry(error):
                        raise
        finally:
            self.written_files.remove(naming)
        raise AssertionError

    @contextmanager
    def writing(self, naming: Collection[FileKey] = ()) -> Iterator[WriteTransaction]:
        """Open a write transaction. An error means that nothing was written, unless it says so.

        It stores the small files that it is ``naming``.

        Raises:
            HeadraceError: CONFLICT if another process has taken over, or the database has lost
                writes; UNAVAILABLE if it does not answer.
        """
        with self._lock:
            number = self._written if self._unsure is None else self._unsure
            number += 1
            try:
                with self.store.writing() as connection:
                    fence = self._require_fence(connection, number)
                    if self._head is None or self._stale:
                        self._head = self._load(connection)
                    writing = WriteTransaction(connection, self._head, fence)
                    yield writing
                    self.written_files.store(connection, naming)
                    self.fault("before commit")
                    self._unsure = number
            except UnacknowledgedError as lost:
                self._stale = True
                self._require_committed(number, lost)
            except BaseException:
                self._stale = True
                raise
            self._head, self._stale = writing.head, False
            self._written, self._unsure = number, None
        self.fault("after commit")

    def make_small(self) -> None:
        """Give unused space of the database back; no other change is made meanwhile."""
        with self._lock:
            self.store.make_small()

    def _require_committed(self, number: int, lost: UnacknowledgedError) -> None:
        """Raise an error unless a write was committed whose acknowledgement was lost."""
        try:
            with self.store.writing() as connection:
                # Locking the fence waits for the end of a transaction that its server goes on with.
                self._require_fence(connection, None)
        except (HeadraceError, UnacknowledgedError) as error:
            raise _in_doubt(lost.failure) from error
        if self._written != number:
            raise lost.failure from lost

    def _require_fence(self, connection: sa.Connection, number: int | None) -> Fence:
        """Lock the fence, and return it; refuse a change if another process has taken over.

        Find whether a write that was in doubt was committed. Store the number of this one.
        """
        if self._fence is None:
            raise HeadraceError(
                Code.INTERNAL, "ledger was written to before it was acquired for writing"
            )
        found = self.store.database.lock_fence(connection, number)
        if not self._is_own(found):
            raise self._taken_over(found.token)
        written = self._written if found.written is None else found.written
        if written not in (self._written, self._unsure):
            raise _lost_writes(self.store.place)
        self._stale = self._stale or self._unsure is not None
        self._written, self._unsure = written, None
        return self._fence

    def _is_own(self, found: LockedFence) -> bool:
        # A database that was restored, or a standby that lacked the newest, may repeat a token.
        same = found.writer is None or self._writer is None or found.writer == self._writer.id
        return found.token == self._fence and same

    def acquire(self, waits: Waits = refuses) -> Fence:
        """Become the only writer: changes by earlier writers fail from now on.

        Raises:
            HeadraceError: CONFLICT if the writer so far is alive and its database knows it, and
                ``waits`` returns false; UNAVAILABLE if the database does not answer.
        """
        store, token = self.store, schema.fence.c.token
        store.require_writing()
        identity = str(self._meta(schema.IDENTITY_KEY))
        store.database.hold(identity, waits, self.writer, store.availability, self._look_around)
        writer = LedgerWriter.this(self.clock())
        with self._lock:
            try:
                with store.writing() as connection:
                    connection.execute(schema.fence.update().values(token=token + 1))
                    fence = Fence(connection.execute(sa.select(token)).scalar_one())
                    store.database.take(connection, writer)
            except UnacknowledgedError as lost:
                raise lost.failure from lost
            self._fence, self._writer, self._head, self._stale = fence, writer, None, True
            self._written, self._unsure = 0, None
        return fence

    def notify(self, connection: sa.Connection) -> None:
        """Wake those who wait for epochs, once a transaction is committed."""
        self.store.database.notify(connection, self._channel())

    def listener(self) -> CommitListener | None:
        """Return what is woken by commits; None if there is none at present."""
        return self.store.database.listener(self._channel())

    def _channel(self) -> str:
        if self._identity is None:
            self._identity = str(self._meta(schema.IDENTITY_KEY))
        return f"headrace_{self._identity}"

    def require_newest(self, connection: sa.Connection) -> None:
        """Raise CONFLICT if another process has taken over from this one."""
        newest = connection.execute(sa.select(schema.fence.c.token)).scalar_one()
        if self._fence is not None and newest != self._fence:
            raise self._taken_over(newest)

    def _look_around(self) -> None:
        """Note if another process has taken over, though this one writes nothing."""
        with suppress(HeadraceError), self.reading() as connection:
            self.require_newest(connection)

    def _taken_over(self, newest: int) -> HeadraceError:
        self.overtaken = HeadraceError(
            Code.CONFLICT,
            "another process took over the data directory",
            f"This process holds fence {self._fence}; the newest is {newest}. Nothing was written.",
            "Close this one, or open it again to take over.",
        )
        return self.overtaken

    def writer(self) -> LedgerWriter | None:
        """Return who acquired the ledger last; None if its database does not keep that."""
        found = self._meta(schema.WRITER_KEY)
        return None if found is None else LedgerWriter.of_json(found)

    def _meta(self, key: str) -> Any:
        query = sa.select(schema.meta.c.value).where(schema.meta.c.key == key)
        with self.reading() as connection:
            return connection.execute(query).scalar()


def _in_doubt(failure: HeadraceError) -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        failure.primary,
        f"{failure.detail} Whether the change was written is not known.",
        "Look whether it was, before trying again.",
    )


def _lost_writes(place: str) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        f'ledger "{place}" has lost writes',
        "It was restored, or is on a standby server that lacked the last changes when it took over."
        " Nothing was written.",
        "Open the database again: it goes on from what the ledger has.",
    )
