"""An open ledger: its parts, and the commit of an epoch, which changes all of them.

Opens the ledger of a data directory for writing; they belong to each other, one to one.

A ledger in SQLite is in the directory. For one in PostgreSQL the directory has a file that names
the ledger, and the ledger names the directory: by ids, since a directory may be moved and a
database be reached by another name.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.algebra.spine import sync_directory
from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.files.directories import (
    LEDGER,
    LEDGER_ELSEWHERE,
    DirectoryLock,
    prepare_directory,
    refuses,
    require_restored,
)
from headrace.storage.ledger import schema
from headrace.storage.ledger.builds import (
    Builds,
    DeliveryRecords,
    Relations,
    Spans,
    builds,
    frontiers,
)
from headrace.storage.ledger.commit import Epochs, commit_epoch, committed, last_epoch
from headrace.storage.ledger.copies import copy_ledger, create_ledger
from headrace.storage.ledger.dirty import DirtySlices, FoundEvidence, entries, reread
from headrace.storage.ledger.files import NamedFiles, SmallFiles, naming
from headrace.storage.ledger.heads import Head
from headrace.storage.ledger.loads import Loads, Producers, Rejects
from headrace.storage.ledger.log import Logs, ends, starts
from headrace.storage.ledger.log_merges import LogMerges
from headrace.storage.ledger.modes import MissingLedgerError, Mode
from headrace.storage.ledger.settings import STORE_SETTING, Ids, StoredSettings
from headrace.storage.ledger.soundness import violations
from headrace.storage.ledger.spines import Spines, arrangements, spines
from headrace.storage.ledger.sqlite import orphan_in
from headrace.storage.ledger.store import Store
from headrace.storage.ledger.transactions import Transactions, WriteTransaction
from headrace.storage.ledger.waking import Waking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import sqlalchemy as sa

    from headrace.files.directories import Waits
    from headrace.storage.ledger.postgres_address import PostgresAddress
    from headrace.storage.ledger.records import EpochCommit, Fence
    from headrace.storage.ledger.writers import LedgerWriter
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


_ID: Final = "id"


@dataclass(frozen=True, slots=True)
class _Marker:
    """What a directory says of its ledger elsewhere: both ids, and where the ledger was."""

    ledger: str
    directory: str
    place: str

    @classmethod
    def read(cls, directory: Path) -> _Marker | None:
        """Return that of a directory; None if it has none."""
        file = directory / LEDGER_ELSEWHERE
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise HeadraceError(
                Code.CORRUPT,
                f'file "{file}" cannot be read',
                f"It names the ledger that the directory belongs to: {error}.",
                f"Restore it from a backup. {BACKUPS}",
            ) from error

    def known(self, directory: Path) -> dict[str, str]:
        """Return what the ledger says of the directory."""
        path, host = str(directory.resolve()), socket.gethostname()
        return {_ID: self.directory, "path": path, "host": host}

    def write(self, directory: Path) -> None:
        """Store it in a directory, durably."""
        file = directory / LEDGER_ELSEWHERE
        draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            with draft.open("w", encoding="utf-8") as opened:
                json.dump(asdict(self), opened)
                opened.flush()
                os.fsync(opened.fileno())
            draft.replace(file)
            sync_directory(directory)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise HeadraceError(
                Code.UNAVAILABLE, f'file "{file}" could not be written', f"{error}."
            ) from error


def open_ledger(
    directory: Path,
    address: PostgresAddress | None = None,
    *,
    fault: Callable[[str], None] = uninterrupted,
    waits: Waits = refuses,
    clock: Callable[[], float] = time.time,
) -> Ledger:
    """Open the ledger of a data directory as its only writer; create what is missing.

    Without ``address``, it is a SQLite file in the directory. Closing the ledger lets others in.
    ``clock`` returns the time of appends and commits, in Unix seconds.
    While another process writes, ``waits`` is asked about every second whether to wait for its end.

    Raises:
        HeadraceError: CONFLICT if another process writes; INVALID if directory and ledger belong to
            others, or cannot be created; as :meth:`Ledger.open` and :meth:`Ledger.acquire`.
    """
    prepare_directory(directory)
    if address is None:
        return _in_directory(directory, fault, waits, clock)
    return _elsewhere(directory, address, fault, waits, clock)


def restore_ledger(
    copy: Path, directory: Path | None, address: PostgresAddress | None = None, *, store: str = ""
) -> None:
    """Make a copy, which may be moved, the ledger of a directory that has no other one.

    With ``address``, it is written there in one transaction. ``store`` is the URL of the object
    store that has the files; there is no ``directory`` then. All else has to be in place.

    Raises:
        HeadraceError: CONFLICT if the ledger exists; as :meth:`Ledger.open`.
    """
    if address is None:
        if directory is None:
            raise HeadraceError(Code.INTERNAL, "a ledger without a directory has no address")
        with copy.open("rb") as written:
            os.fsync(written.fileno())
        copy.replace(directory / LEDGER)
        sync_directory(directory)
        return
    with Ledger.open(copy) as opened:  # which migrates it
        identity = opened.settings.identity
    values: dict[str, Any] = {STORE_SETTING: store} if store else {}
    if directory is not None:
        marker = _Marker(identity, uuid.uuid4().hex, address.place)
        marker.write(directory)
        values[schema.DIRECTORY_KEY] = marker.known(directory)
    create_ledger(address, copy, values)


def require_ledger(address: PostgresAddress, what: str) -> None:
    """Refuse a ledger in PostgreSQL that does not exist, before it would be created.

    Raises:
        HeadraceError: INVALID if it does not exist; as :meth:`Ledger.open`.
    """
    try:
        Ledger.open(address, Mode.READ).close()
    except MissingLedgerError as error:
        raise HeadraceError(
            Code.INVALID, f"{what} does not exist", hint="SHOW BRANCHES lists those that do."
        ) from error


def ledger_to_read(directory: Path, address: PostgresAddress | None = None) -> Ledger:
    """Open the ledger of a data directory for reading, beside any process that writes to it.

    Raises:
        HeadraceError: INVALID if there is none, or directory and ledger belong to others, or the
            directory is not restored completely; as :meth:`Ledger.open`.
    """
    require_restored(directory)
    marker = _Marker.read(directory)
    if address is None:
        if marker is not None:
            raise _belongs_elsewhere(directory, marker.place, str(directory / LEDGER))
        return Ledger.open(directory / LEDGER, Mode.READ)
    ledger = Ledger.open(address, Mode.READ)
    try:
        _require_pair(directory, ledger, marker, ledger.settings.get(schema.DIRECTORY_KEY))
    except BaseException:
        ledger.close()
        raise
    return ledger


def is_restored(directory: Path | None, address: PostgresAddress | None, store: str) -> bool:
    """Whether a ledger that was restored is complete: it is in its database, for this target.

    Raises:
        HeadraceError: CONFLICT if the ledger exists, for another target; as :meth:`Ledger.open`.
    """
    if address is None:
        return directory is not None and (directory / LEDGER).exists()
    try:
        ledger = Ledger.open(address, Mode.READ)
    except MissingLedgerError:
        return False
    with ledger:
        marker = None if directory is None else _Marker.read(directory)
        known = ledger.settings.get(schema.DIRECTORY_KEY)
        in_store = bool(store) and ledger.settings.get(STORE_SETTING) == store
        if in_store or (marker is not None and known and known[_ID] == marker.directory):
            return True
        raise HeadraceError(
            Code.CONFLICT,
            f'ledger "{ledger.place}" exists already',
            "It is that of another database, or of another directory.",
            "Name another database, or another schema with the setting ledger_schema.",
        )


def _in_directory(
    directory: Path,
    fault: Callable[[str], None],
    waits: Waits,
    clock: Callable[[], float],
) -> Ledger:
    marker = _Marker.read(directory)
    if marker is not None:
        raise _belongs_elsewhere(directory, marker.place, str(directory / LEDGER))
    lock = DirectoryLock(directory, waits)
    try:
        ledger = Ledger.open(directory / LEDGER, clock=clock, fault=fault)
    except BaseException:
        lock.release()
        raise
    ledger.when_closed(lock.release)
    try:
        ledger.acquire()
    except BaseException:
        ledger.close()
        raise
    return ledger


def _elsewhere(
    directory: Path,
    address: PostgresAddress,
    fault: Callable[[str], None],
    waits: Waits,
    clock: Callable[[], float],
) -> Ledger:
    if (directory / LEDGER).exists():
        raise _belongs_elsewhere(directory, str(directory / LEDGER), address.place)
    marker = _Marker.read(directory)
    if marker is None and (orphan := orphan_in(directory)) is not None:
        raise HeadraceError(
            Code.CORRUPT,
            f'data directory "{directory}" names no ledger',
            f'It contains data of a missing ledger, such as "{orphan}".',
            f"Restore it from a backup, or start with an empty directory. {BACKUPS}",
        )
    try:
        ledger = Ledger.open(address, clock=clock, fault=fault, create=marker is None)
    except MissingLedgerError as error:
        known = "" if marker is None else marker.place
        raise _belongs_elsewhere(directory, known, address.place) from error
    try:
        known = ledger.settings.get(schema.DIRECTORY_KEY)
        _require_pair(directory, ledger, marker, known)
        ledger.acquire(waits)
        # Another process may have had it until now.
        marker, known = _Marker.read(directory), ledger.settings.get(schema.DIRECTORY_KEY)
        _require_pair(directory, ledger, marker, known)
        _pair(directory, ledger, marker, known)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _require_pair(
    directory: Path, ledger: Ledger, marker: _Marker | None, known: Mapping[str, Any] | None
) -> None:
    """Refuse a directory and a ledger that do not belong together."""
    if marker is not None and marker.ledger != ledger.settings.identity:
        raise _belongs_elsewhere(directory, marker.place, ledger.place)
    if ledger.settings.get(STORE_SETTING):
        return  # the directory is a cache, which every machine has one of
    if marker is None and known is None and ledger.head.epoch > 0:
        known = {_ID: None, "path": "another directory", "host": ""}
    if known is not None and (marker is None or known[_ID] != marker.directory):
        host = f' on host "{known["host"]}"' if known["host"] else ""
        raise HeadraceError(
            Code.INVALID,
            f'ledger "{ledger.place}" belongs to another data directory than "{directory}"',
            f'It belongs to "{known["path"]}"{host}.',
            "Give that directory, or the ledger of this one; several databases in one PostgreSQL"
            " database have a ledger_schema each.",
        )


def _pair(
    directory: Path, ledger: Ledger, marker: _Marker | None, known: Mapping[str, Any] | None
) -> None:
    """Write the names of a directory and its ledger into each other, first into the directory."""
    if marker is None:
        marker = _Marker(ledger.settings.identity, uuid.uuid4().hex, ledger.place)
        marker.write(directory)
    wanted = marker.known(directory)
    if known != wanted:
        ledger.settings.set(schema.DIRECTORY_KEY, wanted)


def _belongs_elsewhere(directory: Path, known: str, given: str) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'data directory "{directory}" belongs to another ledger',
        f'Its ledger is "{known}", and not "{given}".',
        "Correct the setting ledger, or give another directory. Without the setting, the ledger is"
        f" {LEDGER} in the directory.",
    )
