"""Statements of every append and every epoch: compiled once, and executed by the driver itself.

SQLAlchemy takes ten times as long to execute a small statement as SQLite does, for what these
statements do not need: a cache of compiled texts, events, results with names and types.

Small files that this process has written, until the transaction that names them stores them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from headrace.storage.ledger import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.elements import ClauseElement


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement as one driver takes it, and its parameters in order.

    ``known`` has the values that the statement itself gives; ``made`` returns the driver's values
    of some parameters.
    """

    sql: str
    names: tuple[str, ...]
    known: Mapping[str, Any]
    made: Mapping[str, Callable[[Any], Any]]
    positional: bool

    @classmethod
    def of(cls, statement: ClauseElement, dialect: sa.Dialect) -> _Text:
        compiled = cast("SQLCompiler", statement.compile(dialect=dialect))
        makers = {
            name: parameter.type.dialect_impl(dialect).bind_processor(dialect)
            for parameter, name in compiled.bind_names.items()
        }
        return cls(
            str(compiled),
            tuple(compiled.positiontup or compiled.bind_names.values()),
            compiled.params,
            {name: make for name, make in makers.items() if make is not None},
            compiled.positional,
        )

    def values(self, given: Mapping[str, Any]) -> tuple[Any, ...] | dict[str, Any]:
        """Return the values of parameters as the driver takes them."""
        found = {**self.known, **given}
        for name, make in self.made.items():
            if name in given:
                found[name] = make(found[name])
        if self.positional:
            return tuple([found[name] for name in self.names])
        return {name: found[name] for name in self.names}


@dataclass(frozen=True, slots=True, eq=False)
class DriverStatement:
    """A statement of SQLAlchemy's Core, without lists of values as for ``IN``.

    An INSERT without values sets all columns; those that a row lacks become NULL. Rows have the
    values that the driver returns.
    """

    statement: ClauseElement
    _texts: dict[str, _Text] = field(default_factory=dict, init=False, repr=False)

    def rows(self, connection: sa.Connection, **values: Any) -> list[tuple[Any, ...]]:
        """Execute a query with values of its parameters; return its rows."""
        text = self._text(connection)
        cursor: Any = connection.connection.cursor()
        try:
            cursor.execute(text.sql, text.values(values))
            found: list[tuple[Any, ...]] = cursor.fetchall()
        except connection.dialect.loaded_dbapi.Error as error:
            raise _of_driver(connection, text, error) from error
        finally:
            cursor.close()
        return found

    def run(self, connection: sa.Connection, *rows: Mapping[str, Any]) -> int:
        """Execute a change once for each row of values; return the number of rows changed."""
        text = self._text(connection)
        cursor: Any = connection.connection.cursor()
        try:
            if len(rows) == 1:
                cursor.execute(text.sql, text.values(rows[0]))
            elif rows:
                cursor.executemany(text.sql, [text.values(row) for row in rows])
            changed: int = cursor.rowcount
        except connection.dialect.loaded_dbapi.Error as error:
            raise _of_driver(connection, text, error) from error
        finally:
            cursor.close()
        return changed

    def _text(self, connection: sa.Connection) -> _Text:
        dialect = connection.dialect
        text = self._texts.get(dialect.name)
        if text is None:
            text = self._texts[dialect.name] = _Text.of(self.statement, dialect)
        return text


def _of_driver(connection: sa.Connection, text: _Text, error: Exception) -> DBAPIError:
    """Return an error of the driver as SQLAlchemy raises it."""
    driver = connection.dialect.loaded_dbapi
    return cast("DBAPIError", DBAPIError.instance(text.sql, None, error, driver.Error))


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
