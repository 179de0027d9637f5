"""Databases that are ready for a test: definitions are planned once, and copied for each test.

Planning views takes most of the time of a test. So a *template* is made for each set of
definitions: a data directory in which they exist, with the programs of narrow epochs. A test opens
a copy of it, in memory where the system has a directory there. Reading a view then needs no Spark;
what does need it starts or joins the one Spark of the process.

Programs that a test was the first to need are added to its template. Templates are kept in the
user's cache directory for the next process, unless they call Python functions, or Spark was started
by somebody else, with other settings. A template belongs to one version of Headrace, Spark, Arrow
and Python, as its programs do.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError
from headrace.execution.engine.jobs.lease import SparkLease
from headrace.execution.engine.jobs.session import is_running, start_spark
from headrace.execution.engine.narrow.stored import digest_of_versions
from headrace.interfaces.database import Database
from headrace.interfaces.settings import NO_CACHE, Settings
from headrace.planning.catalog import Relation, Sink, is_ksqldb, key_of
from headrace.planning.sql import CreateTableAs, ObjectKind, quote, quote_dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from headrace.planning.functions import Function
    from headrace.planning.sql import Statement
    from headrace.planning.sql.definitions import Definition


_SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Flags of a JVM that runs each query a few times: the second compiler would not pay off."""
_MOST_KEPT: Final = 64
"""The number of templates in the cache directory."""
_RELATIONS: Final = "relations.json"
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (a directory of its own is made in it)


@dataclass(frozen=True, slots=True)
class TableShape:
    """How a table with the rows of a view is declared: its columns and key.

    A key with columns that may be NULL is left out: those of a table's key may not.
    """

    columns: tuple[tuple[str, str, bool], ...]
    """Name, type and whether it may be NULL."""
    key: tuple[str, ...]
    ksqldb: bool = False
    """Whether queries over it are read as ksqlDB's."""

    @classmethod
    def of(cls, relation: Relation) -> TableShape:
        """Return the shape of a relation."""
        columns = tuple((c.name, c.sql, c.nullable) for c in relation.schema.columns)
        may_be_null = {name for name, _, nullable in columns if nullable}
        key = key_of(relation)
        return cls(columns, () if may_be_null & set(key) else tuple(key), is_ksqldb(relation))

    def statement(self, definition: Definition) -> str:
        """Return the statement that creates a table, or a stream, in place of a view."""
        parts = [
            f"{quote(name)} {type_}{'' if nullable else ' NOT NULL'}"
            for name, type_, nullable in self.columns
        ]
        created = definition.created
        if isinstance(created, CreateTableAs) and created.kind is ObjectKind.STREAM:
            kind = "STREAM"
        else:
            kind = "TABLE"
            if self.key:
                parts.append(f"PRIMARY KEY ({', '.join(map(quote, self.key))})")
        topic = f" WITH (kafka_topic = '{definition.name}')" if self.ksqldb else ""
        return f"CREATE {kind} {quote_dotted(definition.name)} ({', '.join(parts)}){topic}"


@dataclass(frozen=True, slots=True)
class Template:
    """A data directory with definitions and no rows."""

    directory: Path

    @property
    def shapes(self) -> dict[str, TableShape]:
        """The shapes of its tables and views, by name."""
        return {
            name: TableShape(
                tuple((n, t, m) for n, t, m in given["columns"]),
                tuple(given["key"]),
                given["ksqldb"],
            )
            for name, given in self._stored().items()
        }

    def copy(self, to: Path) -> None:
        """Copy the data directory."""
        shutil.copytree(self.directory, to, ignore=shutil.ignore_patterns(_RELATIONS))

    def learn(self, used: Path) -> None:
        """Add the programs of its relations that a copy was the first to need."""
        known = {str(given["id"]) for given in self._stored().values()}
        to = self.directory / "programs"
        with suppress(OSError):  # the next test takes longer
            for file in sorted((used / "programs").iterdir()):
                if file.name.split(".")[0] in known and not (to / file.name).exists():
                    to.mkdir(exist_ok=True)
                    made = to / f"{file.name}.{os.getpid()}"
                    shutil.copyfile(file, made)
                    made.replace(to / file.name)

    def write_shapes(self, relations: Iterable[Relation]) -> None:
        """Store the shapes of relations."""
        found: dict[str, Any] = {}
        for each in relations:
            if not isinstance(each, Sink):
                shape = TableShape.of(each)
                found[each.name] = {
                    "id": each.id,
                    "columns": shape.columns,
                    "key": shape.key,
                    "ksqldb": shape.ksqldb,
                }
        text = json.dumps(found)
        (self.directory / _RELATIONS).write_text(text, encoding="utf-8")

    def _stored(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.directory / _RELATIONS).read_text(encoding="utf-8")
        )
        return found


def _settings() -> Settings:
    """Return the settings of a test's database; those of a Spark that runs already stay."""
    given: dict[str, Any] = {
        "continuous": False,
        "partitions": 1,
        "reconcile_budget": 0.0,
        "ledger": "",
        "store": "",
    }
    if not is_running():
        given |= {"master": "local[2]", "driver_memory": "1g"}
    return Settings.of(given)


@dataclass(slots=True)
class PreparedDatabases:
    """The templates of this process, and the Spark that its tests share. Thread-safe.

    ``says`` is called with a word of what takes long: that Spark starts, and that views are
    planned.
    """

    says: Callable[[str], None] = lambda _what: None
    settings: Settings = field(default_factory=_settings)
    _root: Path = field(init=False)
    _lease: SparkLease = field(init=False)
    _templates: dict[str, Template] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _foreign: bool = field(default_factory=is_running)
    """Whether somebody else had started Spark."""
    _holds: bool = False
    """Whether a database has needed Spark."""
    _copies: int = 0

    def __post_init__(self) -> None:
        """Make a directory for databases, which is removed at the end of the process."""
        in_memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else None
        self._root = Path(tempfile.mkdtemp(prefix="headrace-tests-", dir=in_memory))
        self._lease = SparkLease(self._join)
        atexit.register(self.close)

    def template(
        self, statements: Sequence[Statement], functions: Sequence[Function] = ()
    ) -> Template:
        """Return the template of some definitions, in their order; it is made if there is none.

        Raises:
            HeadraceError: as the statements, with their places.
        """
        key = _key(statements, functions)
        with self._lock:
            found = self._templates.get(key)
            if found is None:
                found = self._templates[key] = self._found(key, statements, functions)
            return found

    def open(
        self, template: Template, clock: Callable[[], int], functions: Sequence[Function] = ()
    ) -> Database:
        """Open a copy of a template; to be closed by :meth:`end`."""
        with self._lock:
            self._copies += 1
            directory = self._root / f"test{self._copies}"
        template.copy(directory)
        return self._opened(directory, clock, functions)

    def end(self, database: Database, template: Template) -> None:
        """Close a database and remove it; its programs are added to the template."""
        self._close(database)
        template.learn(database.directory)
        shutil.rmtree(database.directory, ignore_errors=True)

    def close(self) -> None:
        """Stop Spark, if it was started here, and remove all databases."""
        atexit.unregister(self.close)
        self._lease.release()
        shutil.rmtree(self._root, ignore_errors=True)

    # -- Spark -----------------------------------------------------------------------------

    def _join(self) -> SparkSession:
        if not is_running():
            self.says("starting Spark")
        return start_spark(replace(self.settings.spark, flags=_SHORT_LIVED))

    def _start(self) -> SparkSession:
        """Start or join Spark for a database, and hold it for those that follow."""
        self._holds = True
        self._lease.begin()
        return self._join()

    def _close(self, database: Database) -> None:
        if self._holds:
            with suppress(HeadraceError):
                self._lease.session  # noqa: B018  (it is not stopped with the database)
        database.close()

    def _opened(
        self, directory: Path, clock: Callable[[], int], functions: Sequence[Function]
    ) -> Database:
        return Database(
            directory, self.settings, clock=clock, functions=functions, start=self._start
        )

    # -- templates -------------------------------------------------------------------------

    def _found(
        self, key: str, statements: Sequence[Statement], functions: Sequence[Function]
    ) -> Template:
        kept = None if functions or self._foreign else self._cache()
        if kept is not None and (kept / key / _RELATIONS).exists():
            with suppress(OSError):
                os.utime(kept / key)
            return Template(kept / key)
        made = self._made(key, statements, functions)
        if kept is None or self._foreign:
            return made
        with suppress(OSError):  # the next process makes it again
            kept.mkdir(parents=True, exist_ok=True)
            draft = kept / f"{key}.{os.getpid()}"
            shutil.copytree(made.directory, draft)
            try:
                draft.rename(kept / key)  # another process may have been first
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            _prune(kept)
            return Template(kept / key)
        return made

    def _made(
        self, key: str, statements: Sequence[Statement], functions: Sequence[Function]
    ) -> Template:
        directory = self._root / key
        database = self._opened(directory, lambda: 0, functions)
        try:
            self.says(f"planning {sum(map(_is_planned, statements))} views")
            session = database.session()
            for statement in statements:
                session.run(statement)
            template = Template(directory)
            template.write_shapes(database.parts.reader.catalog)
        except BaseException:
            self._close(database)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._close(database)
        return template

    def _cache(self) -> Path | None:
        return None if self.settings.cache == NO_CACHE else Path(self.settings.cache) / "tests"


def _is_planned(statement: Statement) -> bool:
    return "View" in type(statement).__name__ or isinstance(statement, CreateTableAs)


def _key(statements: Sequence[Statement], functions: Sequence[Function]) -> str:
    """Return a digest of all that a template depends on; it is safe as the name of a directory."""
    digest = hashlib.blake2s(digest_of_versions(), digest_size=16)
    for each in statements:
        digest.update(f"{each.span.source}\0".encode())
    for function in functions:
        digest.update(f"{function.name} {id(function)}\0".encode())
    return digest.hexdigest()


def _prune(folder: Path) -> None:
    """Remove the templates that were not used for longest, beyond some."""
    found = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
    for each in found[:-_MOST_KEPT]:
        shutil.rmtree(each, ignore_errors=True)
