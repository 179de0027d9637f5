"""Opens the ledger of a data directory for writing; they belong to each other, one to one.

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
from typing import TYPE_CHECKING, Any, Final

from headrace.directories.lock import DirectoryLock, refuses
from headrace.directories.paths import (
    LEDGER,
    LEDGER_ELSEWHERE,
    prepare_directory,
    require_restored,
)
from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.ledger import schema
from headrace.ledger.copies import create_ledger
from headrace.ledger.ledger import Ledger, uninterrupted
from headrace.ledger.modes import MissingLedgerError, Mode
from headrace.ledger.settings import STORE_SETTING
from headrace.ledger.sqlite import orphan_in
from headrace.spine import sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.directories.lock import Waits
    from headrace.ledger.postgres_address import PostgresAddress

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
