"""Small files that this process has written, until the transaction that names them stores them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.driver_statement import DriverStatement

if TYPE_CHECKING:
    from collections.abc import Iterable

_TABLE: Final = schema.small_files
_folder: sa.BindParameter[str] = sa.bindparam("its_folder", type_=sa.Text())
_name: sa.BindParameter[str] = sa.bindparam("its_name", type_=sa.Text())
_body: sa.BindParameter[bytes] = sa.bindparam("its_body", type_=sa.LargeBinary())
_ITS: Final = (_TABLE.c.folder == _folder) & (_TABLE.c.name == _name)
# A transaction whose end was in doubt may have stored it already.
_INSERT: Final = DriverStatement(
    _TABLE.insert().from_select(
        ["folder", "name", "body"], sa.select(_folder, _name, _body).where(~sa.exists().where(_ITS))
    )
)

FileKey: TypeAlias = "tuple[str, str]"
"""A folder of the data directory, and the name of a file in it, which is never reused."""


class SmallFile(NamedTuple):
    """A file of a folder of the data directory, and its bytes."""

    folder: str
    name: str
    body: bytes

    @property
    def key(self) -> FileKey:
        """What identifies the file."""
        return self.folder, self.name


class WrittenFiles:
    """The small files that this process has written and no transaction has named. Thread-safe."""

    def __init__(self) -> None:
        self._files: dict[FileKey, SmallFile] = {}
        self._lock = threading.Lock()

    def add(self, file: SmallFile) -> None:
        """Let the transaction that names a file store it."""
        with self._lock:
            self._files[file.key] = file

    def remove(self, keys: Iterable[FileKey]) -> None:
        """Let no transaction store some files."""
        with self._lock:
            for key in keys:
                self._files.pop(key, None)

    def all(self) -> tuple[SmallFile, ...]:
        """Return the files."""
        with self._lock:
            return tuple(self._files.values())

    def get(self, key: FileKey) -> SmallFile | None:
        """Return a file; None if it is not among them."""
        return self._files.get(key)

    def store(self, connection: sa.Connection, named: Iterable[FileKey]) -> None:
        """Store those among the files that a write transaction names."""
        files = [file for key in named if (file := self._files.get(key)) is not None]
        rows = [{"its_folder": f.folder, "its_name": f.name, "its_body": f.body} for f in files]
        if rows:
            _INSERT.run(connection, *rows)
