"""An open ledger: its parts, and the commit of an epoch, which changes all of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from headrace.directories.lock import refuses
from headrace.ledger.builds import Builds, builds, frontiers
from headrace.ledger.commit import commit_epoch, last_epoch
from headrace.ledger.copies import copy_ledger
from headrace.ledger.deliveries import DeliveryRecords
from headrace.ledger.dirty import DirtySlices, entries, reread
from headrace.ledger.epochs import Epochs, committed
from headrace.ledger.evidence import FoundEvidence
from headrace.ledger.files import NamedFiles
from headrace.ledger.heads import Head
from headrace.ledger.ids import Ids
from headrace.ledger.loads import Loads, Producers
from headrace.ledger.log import Logs, ends, starts
from headrace.ledger.log_merges import LogMerges
from headrace.ledger.modes import Mode
from headrace.ledger.rejects import Rejects
from headrace.ledger.relations import Relations
from headrace.ledger.settings import StoredSettings
from headrace.ledger.small_files import SmallFiles, naming
from headrace.ledger.soundness import violations
from headrace.ledger.spans import Spans
from headrace.ledger.spines import Spines, arrangements, spines
from headrace.ledger.store import Store
from headrace.ledger.transactions import Transactions, WriteTransaction
from headrace.ledger.waking import Waking

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import sqlalchemy as sa

    from headrace.directories.lock import Waits
    from headrace.errors import HeadraceError
    from headrace.ledger.postgres_address import PostgresAddress
    from headrace.ledger.records import EpochCommit, Fence
    from headrace.ledger.writers import LedgerWriter
    from headrace.types import Epoch


def uninterrupted(_stage: str) -> None:
    """Do nothing: the fault hook outside of tests."""


class Ledger:
    """The transactional record of epochs.

    Every change is one transaction. Writes are serialized; reads never wait and see one consistent
    state. Only the process that last called :meth:`acquire` can write: changes by any other
    process fail as a whole with CONFLICT. That process has the newest state in memory, as
    :attr:`head`, and reads it without a transaction. Thread-safe.

    Each method of a part is one transaction, or reads the head.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._closing: list[Callable[[], None]] = []
        self.epochs = Epochs(transactions)
        self.relations = Relations(transactions)
        self.builds = Builds(transactions)
        self.log = Logs(transactions)
        self.log_merges = LogMerges(transactions)
        self.loads = Loads(transactions)
        self.producers = Producers(transactions)
        self.rejects = Rejects(transactions)
        self.spans = Spans(transactions)
        self.spines = Spines(transactions)
        self.files = NamedFiles(transactions)
        self.small_files = SmallFiles(transactions)
        self.dirty = DirtySlices(transactions)
        self.evidence = FoundEvidence(transactions)
        self.deliveries = DeliveryRecords(transactions)
        self.settings = StoredSettings(transactions)
        self.ids = Ids(transactions)
        self.waking = Waking(transactions)

    @classmethod
    def open(
        cls,
        where: str | Path | PostgresAddress,
        mode: Mode = Mode.WRITE,
        *,
        clock: Callable[[], float] = time.time,
        fault: Callable[[str], None] = uninterrupted,
        create: bool = True,
    ) -> Self:
        """Open and check the ledger at a SQLite file or a database URL.

        In WRITE mode it is created if it does not exist, unless ``create`` is false. ``fault`` is
        called with the name of each point at which a test may crash.

        Raises:
            HeadraceError: INVALID, UNSUPPORTED, CORRUPT or UNAVAILABLE; see :class:`Store`.
        """
        store = Store.open(where, mode, clock(), create=create)
        return cls(Transactions(store, _head, clock, fault))

    def when_closed(self, done: Callable[[], None]) -> None:
        """Call something when this ledger is closed."""
        self._closing.append(done)

    def close(self) -> None:
        """Close every connection to the database, which lets another process write."""
        self._transactions.store.close()
        self.waking.close()
        while self._closing:
            self._closing.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def copy_to(self, file: Path) -> None:
        """Copy the ledger as of one moment to a new SQLite file, wherever it is.

        The copy belongs to no data directory and no store. It is not synced.

        Raises:
            HeadraceError: UNAVAILABLE if it cannot be read or written.
        """
        copy_ledger(self._transactions.store, file)

    def remove(self) -> None:
        """Remove all tables from the database, and their schema if it has nothing else."""
        self._transactions.store.remove()

    def violations(self) -> dict[str, str]:
        """Return what should always hold of the ledger and does not: names, and descriptions."""
        with self._transactions.reading() as connection:
            return violations(connection)

    def acquire(self, waits: Waits = refuses) -> Fence:
        """Become the only writer: changes by earlier writers fail from now on.

        A writer of a ledger in PostgreSQL that is alive is not replaced: ``waits`` is asked about
        every second, with the error that names it, whether to wait for its end.

        Raises:
            HeadraceError: that error, if ``waits`` returns false: CONFLICT; UNAVAILABLE if the
                database does not answer; UNSUPPORTED for a pool of transactions before it.
        """
        return self._transactions.acquire(waits)

    @property
    def writer(self) -> LedgerWriter | None:
        """Who acquired the ledger last, alive or not; None in SQLite."""
        return self._transactions.writer()

    @property
    def place(self) -> str:
        """The file, or the server, database and schema, for messages: without a password."""
        return self._transactions.store.place

    @property
    def trouble(self) -> HeadraceError | None:
        """Why the database does not answer at present; None if it does."""
        return self._transactions.store.availability.error

    @property
    def overtaken(self) -> HeadraceError | None:
        """Why nothing can be changed any more; None if no other process is known to write."""
        return self._transactions.overtaken

    def require_newest(self) -> None:
        """Check that no other process has taken over.

        Raises:
            HeadraceError: CONFLICT if one has; UNAVAILABLE if the database does not answer.
        """
        with self._transactions.reading() as connection:
            self._transactions.require_newest(connection)

    @property
    def head(self) -> Head:
        """The newest state, as a value that does not change; of the last write of this process."""
        return self._transactions.head

    def commit(self, change: EpochCommit) -> Epoch:
        """Commit an epoch atomically, and return it.

        Raises:
            HeadraceError: CONFLICT if it does not follow the last epoch, or another process took
                over; INTERNAL if it violates an invariant.
        """
        now, fault = self._transactions.clock, self._transactions.fault

        def commit(writing: WriteTransaction) -> Epoch:
            at = commit_epoch(writing, change, now(), fault)
            writing.head = writing.head.after_commit(change, at)
            if change.dirtied:
                reread(writing)
            self._transactions.notify(writing.connection)
            return change.epoch

        return self._transactions.write(commit, naming(change.runs, change.merges))

    def make_small(self, oldest: Epoch) -> None:
        """Forget epochs before the oldest one that is named, and give back unused space.

        What takes long: nothing should be written meanwhile.
        """
        while self.epochs.forget(oldest):
            pass
        self._transactions.make_small()


def _head(connection: sa.Connection) -> Head:
    """Read the head from the database."""
    epoch = last_epoch(connection)
    committed_at, clock = committed(connection, epoch)
    live = {record.id: record for record in arrangements(connection)}
    return Head(
        epoch,
        committed_at,
        clock,
        starts(connection),
        ends(connection),
        frontiers(connection),
        {build.id: build for build in builds(connection)},
        entries(connection),
        live,
        spines(connection, live, epoch),
        spines(connection, live, None),
    )
