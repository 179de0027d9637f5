"""Small files of the database that an object store does not have yet: the ledger keeps them.

A PUT costs tens of milliseconds and money, so a small pack or segment is stored by the transaction
that names it, and uploaded later together with others. Until then, whoever can read the ledger can
read the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.written_files import FileKey, SmallFile
from headrace.spine.mounts import PACKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.ledger.records import Merge, NewRun
    from headrace.ledger.transactions import Transactions, WriteTransaction

_TABLE: Final = schema.small_files
_BATCH: Final = 1_000

_folder: sa.BindParameter[str] = sa.bindparam("its_folder", type_=sa.Text())
_name: sa.BindParameter[str] = sa.bindparam("its_name", type_=sa.Text())
_ITS: Final = (_TABLE.c.folder == _folder) & (_TABLE.c.name == _name)
_BODY: Final = sa.select(_TABLE.c.body).where(_ITS)


class SmallFiles:
    """The small files that the ledger keeps, and those that it is about to. Thread-safe."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self.written = transactions.written_files

    def body(self, folder: str, name: str) -> bytes | None:
        """Return the bytes of a file; None if the ledger does not keep it (any longer).

        Raises:
            HeadraceError: UNAVAILABLE if the database does not answer.
        """
        written = self.written.get((folder, name))
        if written is not None:
            return written.body

        def query(connection: sa.Connection) -> bytes | None:
            its = {"its_folder": folder, "its_name": name}
            return connection.execute(_BODY, its).scalar()

        return self._transactions.store.read(query)

    def names(self) -> dict[FileKey, int]:
        """Return the folders and names of the files that transactions have stored, and sizes."""
        query = sa.select(_TABLE.c.folder, _TABLE.c.name, sa.func.length(_TABLE.c.body))
        with self._transactions.reading() as connection:
            return {(row[0], row[1]): row[2] for row in connection.execute(query)}

    def read(self, keys: Iterable[FileKey]) -> list[SmallFile]:
        """Return those of some files that transactions have stored."""
        files = []
        with self._transactions.reading() as connection:
            for folder, name in keys:
                its = {"its_folder": folder, "its_name": name}
                body = connection.execute(_BODY, its).scalar()
                if body is not None:
                    files.append(SmallFile(folder, name, body))
        return files

    def forget(self, keys: Iterable[FileKey]) -> None:
        """Keep some files no longer: the store has them, or nobody needs them.

        Raises:
            HeadraceError: CONFLICT if another process has taken over.
        """
        gone = list(keys)

        def change(writing: WriteTransaction) -> None:
            forget(writing.connection, gone)

        if gone:
            self._transactions.write(change)


def naming(runs: Iterable[NewRun], merges: Iterable[Merge]) -> frozenset[FileKey]:
    """Return the packs that a commit names."""
    outputs = (merge.output for merge in merges if merge.output is not None)
    return frozenset((PACKS, run.file.pack) for run in (*runs, *outputs))


def forget(connection: sa.Connection, keys: Iterable[FileKey]) -> None:
    """Remove small files in a write transaction."""
    by_folder: dict[str, list[str]] = {}
    for folder, name in keys:
        by_folder.setdefault(folder, []).append(name)
    for folder, names in by_folder.items():
        for start in range(0, len(names), _BATCH):
            among = _TABLE.c.name.in_(names[start : start + _BATCH])
            connection.execute(_TABLE.delete().where(_TABLE.c.folder == folder, among))
