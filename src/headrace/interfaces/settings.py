"""Settings: the only reader of the environment.

Every setting is a keyword of :func:`headrace.connect`, and an environment variable
``HEADRACE_<NAME>`` gives its default.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

from headrace.errors import Code, HeadraceError, unknown
from headrace.execution.engine.jobs.heap import LEAST_HEAP, heap_bytes
from headrace.execution.runtime.settings import OnDifference, RuntimeSettings
from headrace.files import StoreAddress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.execution.engine.jobs.lease import SparkSettings
    from headrace.files import Place
    from headrace.files.mounts import Mounted
    from headrace.storage.ledger import PostgresAddress


_PREFIX = "HEADRACE_"
NO_CACHE = "none"
AUTOMATIC = "automatic"
_WORDS = {"repair": (AUTOMATIC, "manual"), "on_difference": tuple(OnDifference)}
"""The allowed values of settings with a fixed set of words."""
_RANGES: dict[str, tuple[int, int | None]] = {
    "partitions": (1, 1024),
    "epoch_rows": (1, None),
    "gather_ms": (0, 60_000),
    "wide_steps": (1, None),
    "fill_rows": (1, None),
    "reuse_rows": (0, None),
    "attempts": (1, 100),
    "recursion_rows": (1, None),
    "reconcile_budget": (0, 1),
}
"""The least and the greatest value of numeric settings with a limited range."""
_SECRET = frozenset({"ledger"})
"""The settings whose values are never shown: they may have a password."""
_POSTGRES = ("postgresql://", "postgres://")
_NEARLY = 0.8
"""The least similarity, up to 1, at which a name counts as a mistyped setting."""
URL = "HEADRACE_URL"
LEDGER = "HEADRACE_LEDGER"
TOKEN = "HEADRACE_TOKEN"  # noqa: S105  (the name of a variable)
_DECIMAL = re.compile(r"\d+(\.\d*)?|\.\d+")
_URL = re.compile(r"\w+:")
_NO_SETTING = ("HEADRACE_HISTORY", URL, TOKEN)


class GivenSettings(TypedDict, total=False):
    """Settings as keywords of :func:`headrace.connect`; see :class:`Settings` for each."""

    master: str
    partitions: int
    driver_memory: str
    executor_memory: str
    executor_cores: int
    cores: int
    executor_archive: str
    cache: str
    continuous: bool
    epoch_rows: int
    small_rows: int
    gather_ms: int
    wide_steps: int
    fill_rows: int
    reuse_rows: int
    history_epochs: int
    keep_former: str
    attempts: int
    recursion_rows: int
    repair: str
    reconcile_budget: float
    on_difference: str
    ledger: str
    ledger_schema: str
    ledger_password_file: str
    sink_roots: str
    store: str
    store_cache: str
    executor_cache: str
    openlineage: str
    openlineage_namespace: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a user may choose."""

    master: str = ""
    """The Spark master; by default, this machine with one thread per partition."""
    partitions: int = 0
    """Partitions of the hash space, processed in parallel; by default, one per core, at most 8."""
    driver_memory: str = "2g"
    """The heap of the driver's JVM."""
    executor_memory: str = ""
    """The heap of each executor; by default Spark's, 1g. Without effect on a local master."""
    executor_cores: int = 0
    """How many tasks an executor runs at once; by default (0), as many as its worker has cores.
    Without effect on a local master."""
    cores: int = 0
    """How many cores of a standalone cluster this database takes; by default (0), one more than
    partitions. Without effect on a local master."""
    executor_archive: str = ""
    """The archive of the Python environment of executors, made by ``headrace cluster pack``: a file
    here, or a URL that Spark reads; by default, their machines have the environment. Without effect
    on a local master."""
    cache: str = ""
    """The directory of the JVM's class archive, which makes the next start faster, and of the
    caches of databases in object stores; by default, in the user's cache directory. ``none``: no
    archive, and caches of stores among temporary files."""
    continuous: bool = True
    """Make epochs in the background as changes arrive; otherwise when a statement waits for one."""
    epoch_rows: int = 1_000_000
    """The approximate number of changes that one epoch reads; a statement is never split."""
    small_rows: int = 100_000
    """The maximum number of changes for which an epoch runs in this process, not as Spark jobs."""
    gather_ms: int = 100
    """The longest time for which changes gather after a small epoch, in milliseconds."""
    wide_steps: int = 2
    """The maximum number of steps that run beside epochs, each of one connected set of views."""
    fill_rows: int = 1_000_000
    """The maximum number of rows that one part of a backfill reads."""
    reuse_rows: int = 100_000
    """The least number of rows for which a backfill looks for state of other views to read."""
    history_epochs: int = 256
    """The number of past epochs at which tables and views can be read."""
    keep_former: str = ""
    """How long what served before SWAP VIEW is kept for ROLLBACK VIEW, such as ``1 day``; by
    default, until it is dropped."""
    attempts: int = 3
    """The number of attempts at a step."""
    recursion_rows: int = 4_000_000
    """The maximum number of rows that recursions may change in one epoch, over all rounds."""
    repair: str = AUTOMATIC
    """When dirty slices of views are recomputed: ``automatic``, in the background (if epochs are
    made there), or ``manual``, when REPAIR asks for it."""
    reconcile_budget: float = 0.02
    """The share of one processor for comparing samples of views with their queries in the
    background, while ``continuous``; 0 compares none."""
    on_difference: str = "repair"
    """The reaction to rows that reconciliation finds to differ: ``repair``, ``quarantine`` (the
    view stops until it is repaired) or ``report``."""
    ledger: str = field(default="", repr=False)
    """The URL of a PostgreSQL database that holds the ledger, such as
    ``postgresql://user@host/database``; by default, it is a SQLite file in the data directory."""
    ledger_schema: str = ""
    """The schema of the ledger's tables in PostgreSQL, created if it does not exist; by default,
    the first one of the role's ``search_path``."""
    ledger_password_file: str = ""
    """A file with the password of the ledger's role; by default, that of ``ledger``, or what
    PostgreSQL's clients find: ``PGPASSWORD``, ``~/.pgpass``."""
    sink_roots: str = ""
    """Directories, with ``:`` between them, outside of the data directory, below which sinks of
    files, Delta, Iceberg and warehouses may write; their ``path`` is absolute then."""
    store: str = ""
    """The URL of an object store that has the files of the database: ``s3://bucket/prefix``,
    ``gs://`` or ``az://``. The data directory is its cache then: all but the ledger may be lost."""
    store_cache: str = "20g"
    """The size of the cache of an object store on each machine, approximately."""
    executor_cache: str = ""
    """The directory for the cache of an object store on the machines of executors; by default, each
    has one among Spark's local directories, which Spark deletes at the end."""
    openlineage: str = ""
    """Where events of OpenLineage on views and sinks are sent: a URL of HTTP, such as
    ``http://marquez:5000``; a file, to which they are appended; or ``client``: as the configuration
    of OpenLineage's client says. By default, none are sent."""
    openlineage_namespace: str = "headrace"
    """The namespace of this database's jobs and datasets in events of OpenLineage."""
    chosen: frozenset[str] = field(default=frozenset(), kw_only=True)
    """The names of the settings that were given explicitly. Not a setting itself."""

    @classmethod
    def of(cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
        """Return the given settings, completed from the environment, then from the defaults."""
        found = os.environ if environment is None else environment
        kinds = get_type_hints(cls)
        names = setting_names()
        for name in given:
            if name not in names:
                raise unknown("setting", name, names, f"There are: {', '.join(names)}.")
        _refuse_mistyped(found, names)
        values: dict[str, Any] = {}
        for name in names:
            variable = _PREFIX + name.upper()
            if name in given:
                values[name] = _checked(name, given[name], kinds[name])
                _require_sense(f'setting "{name}"', name, values[name])
            elif variable in found:
                values[name] = _parsed(variable, found[variable], kinds[name])
                _require_sense(variable, name, values[name])
        return cls(**values, chosen=frozenset(values)).completed(found)

    def completed(self, environment: Mapping[str, str]) -> Settings:
        """Return the settings with the defaults that depend on machine and user filled in."""
        cores = min(8, os.cpu_count() or 1)
        partitions = self.partitions or cores
        # One slot more than a fill or a large query uses, so that small epochs run beside it.
        master = self.master or f"local[{partitions + 1}]"
        cache = self.cache or str(_caches(environment) / "headrace")
        return replace(self, partitions=partitions, master=master, cache=cache)

    @property
    def sink_directories(self) -> tuple[Path, ...]:
        """The directories of ``sink_roots``."""
        return tuple(Path(each) for each in self.sink_roots.split(os.pathsep) if each)

    def in_store(self, url: str) -> tuple[Path, Settings]:
        """Return the directory that is this machine's cache of a database in an object store.

        The settings with it have the store. The directory is created; it may be lost at any time.

        Raises:
            HeadraceError: ``invalid`` if the URL is not that of a store, if the settings name
                another one or no ledger, or if the directory cannot be created.
        """
        address = StoreAddress.of(url)
        if self.store and StoreAddress.of(self.store).url != address.url:
            raise HeadraceError(
                Code.INVALID,
                f'setting "store" cannot be "{self.store}"',
                f'The database is in "{url}".',
                "Leave the setting out.",
            )
        if not self.ledger:
            raise HeadraceError(
                Code.INVALID,
                f'a database in "{url}" needs a ledger in PostgreSQL',
                "The store keeps its files, and the ledger says which of them belong to it.",
                f"Give the setting ledger, or {LEDGER}: postgresql://user@host/database.",
            )
        caches = Path(self.cache if self.cache != NO_CACHE else tempfile.gettempdir())
        from headrace.files.mounts import Mounted  # noqa: PLC0415  (as below)

        directory = Mounted.place(address, caches)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeadraceError(
                Code.INVALID,
                f'directory "{directory}" cannot be created',
                f"It would be the cache of the store: {error.strerror}.",
                "Give the setting cache another directory.",
            ) from error
        return directory, replace(self, store=url)

    def in_branch(self, target: str | Path, name: str) -> tuple[Path, Settings]:
        """Return the data directory of a branch of the database at a path or URL, and its settings.

        In a directory, a branch has its ledger and its files there; in an object store, its ledger
        is in a schema of its own. Events of lineage on its relations would be taken for those on
        its parent's: none are sent.

        Raises:
            HeadraceError: ``invalid`` if there is no such branch; as :meth:`in_store`.
        """
        from headrace.storage.ledger import data_directory, existing_branch, require_ledger  # noqa: PLC0415

        apart = replace(self, store="", openlineage="")
        if not StoreAddress.is_store(str(target)):
            place = existing_branch(data_directory(target), name)
            return place, replace(apart, ledger="", ledger_schema="")
        directory, chosen = apart.in_store(StoreAddress.branch_url(str(target), name.lower()))
        address = chosen.ledger_address
        if address is None:
            raise HeadraceError(Code.INTERNAL, "a store has no ledger")
        require_ledger(address.of_branch(name.lower()), f'branch "{name}"')
        return directory, replace(chosen, ledger_schema=address.of_branch(name.lower()).schema)

    def mounted(self, store: str) -> Mounted | None:
        """Return how the data directory is the cache of a store; None without a URL."""
        if not store:
            return None
        address = self.store_address(store)
        most_bytes = (heap_bytes(self.store_cache) or 0) // 2
        from headrace.files.mounts import Mounted  # noqa: PLC0415  (commands start without Arrow)

        return Mounted(address, most_bytes, self.executor_cache)

    @staticmethod
    def store_address(url: str) -> StoreAddress:
        """Return the address of an object store, with what the environment says of it."""
        return StoreAddress.of(url).completed(os.environ)

    @property
    def ledger_address(self) -> PostgresAddress | None:
        """Where the ledger is in PostgreSQL; None if it is in the data directory.

        Raises:
            HeadraceError: ``invalid`` for a URL that PostgreSQL's client cannot read, or if the
                client is not installed.
        """
        if not self.ledger:
            return None
        from headrace.storage.ledger import PostgresAddress  # noqa: PLC0415  (clients need none)

        file = Path(self.ledger_password_file) if self.ledger_password_file else None
        return PostgresAddress.of(self.ledger, self.ledger_schema, file)

    @property
    def spark(self) -> SparkSettings:
        """The settings of the Spark session."""
        from headrace.execution.engine.jobs.lease import SparkSettings  # noqa: PLC0415  (clients need none)

        cache = None if self.cache == NO_CACHE else Path(self.cache)
        return SparkSettings(
            self.master,
            self.partitions,
            self.driver_memory,
            cache,
            executor_memory=self.executor_memory,
            executor_cores=self.executor_cores,
            cores=self.cores or self.partitions + 1,
            executor_archive=_absolute(self.executor_archive),
        )

    @property
    def runtime(self) -> RuntimeSettings:
        """The settings of the runtime."""
        return RuntimeSettings(
            epoch_rows=self.epoch_rows,
            small_rows=self.small_rows,
            gather_ms=self.gather_ms,
            wide_steps=self.wide_steps,
            fill_rows=self.fill_rows,
            reuse_rows=self.reuse_rows,
            history_epochs=self.history_epochs,
            attempts=self.attempts,
            recursion_rows=self.recursion_rows,
            keep_former=_seconds(self.keep_former),
        )


def setting_names() -> list[str]:
    """Return the names of all settings."""
    return [each.name for each in fields(Settings) if not each.kw_only]


def variable(name: str) -> str | None:
    """Return an environment variable that a statement names; None if it is not set."""
    return os.environ.get(name)


def backup_place(url: str) -> Place:
    """Return the place of backups at a URL or path, with what the environment says of a store.

    Raises:
        HeadraceError: ``invalid`` for a URL that names no place.
    """
    from headrace.lifecycle.copies.repository import place_at  # noqa: PLC0415  (clients need none)

    return place_at(url, os.environ)


def _absolute(path: str) -> str:
    """Return a path as an absolute one; a URL, or no path, as it is."""
    return str(Path(path).absolute()) if path and not _URL.match(path) else path


def _caches(environment: Mapping[str, str]) -> Path:
    """Return the user's cache directory according to the XDG Base Directory Specification."""
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir())


def _checked(name: str, value: Any, kind: type) -> Any:
    natural = not isinstance(value, bool) and isinstance(value, int) and value >= 0
    if kind is float and natural:
        return float(value)
    if natural if kind is int else isinstance(value, kind):
        return value
    shown = f"of type {type(value).__name__}" if name in _SECRET else repr(value)
    raise HeadraceError(
        Code.INVALID, f'setting "{name}" cannot be {shown}', hint=f"Give {_kind(kind)}."
    )


def _refuse_mistyped(environment: Mapping[str, str], names: list[str]) -> None:
    """Refuse a variable whose name is similar, but not equal, to that of a setting."""
    known = {_PREFIX + name.upper() for name in names} | {*_NO_SETTING}
    for variable in environment:
        if not variable.startswith(_PREFIX) or variable in known:
            continue
        close = get_close_matches(variable.removeprefix(_PREFIX).lower(), names, 1, _NEARLY)
        if close:
            raise HeadraceError(
                Code.INVALID,
                f'environment variable "{variable}" is not a setting',
                hint=f'Did you mean "{_PREFIX}{close[0].upper()}"?',
            )


def _seconds(text: str) -> int | None:
    """Return a length of time in seconds; None if the text is empty, or not a length of time."""
    if not text:
        return None
    from headrace.interfaces.statements.defining.stream_options import seconds_in  # noqa: PLC0415  (slow to import)

    return seconds_in(text)


def _require_sense(what: str, name: str, value: Any) -> None:
    """Refuse a value that has the right type but is out of range."""
    if name == "driver_memory" or (name == "executor_memory" and value):
        require_heap(what, value)
    if name == "store_cache":
        require_heap(what, value)
    if name == "store" and value:
        StoreAddress.of(value)
    if name == "keep_former" and value and _seconds(value) is None:
        hint = 'Give a duration such as "1 day".'
        raise HeadraceError(Code.INVALID, f'{what} cannot be "{value}"', hint=hint)
    if name == "sink_roots":
        relative = [each for each in value.split(os.pathsep) if each and not each.startswith("/")]
        if relative:
            hint = f"Give absolute paths, with {os.pathsep} between them."
            raise HeadraceError(Code.INVALID, f'{what} cannot be "{relative[0]}"', hint=hint)
    if name == "ledger" and value and not value.startswith(_POSTGRES):
        raise HeadraceError(
            Code.INVALID,
            f"{what} is not a URL of PostgreSQL",
            hint='Write "postgresql://user@host/database"; without it, the ledger is a SQLite file'
            " in the data directory.",
        )
    if name == "executor_archive" and value and not _URL.match(value) and not Path(value).is_file():
        hint = 'Give a file made by "headrace cluster pack", or its URL.'
        raise HeadraceError(Code.INVALID, f'{what} cannot be "{value}"', "No such file.", hint)
    if name in {"ledger_password_file", "executor_cache"} and value and value[0] != "/":
        hint = "Give an absolute path."
        raise HeadraceError(Code.INVALID, f'{what} cannot be "{value}"', hint=hint)
    if value not in _WORDS.get(name, (value,)):
        allowed = " or ".join(f'"{word}"' for word in _WORDS[name])
        raise HeadraceError(Code.INVALID, f'{what} cannot be "{value}"', hint=f"Give {allowed}.")
    if name not in _RANGES:
        return
    least, most = _RANGES[name]
    if not value >= least or (most is not None and value > most):
        some = f"{least} or more" if most is None else f"a number from {least} to {most}"
        raise HeadraceError(Code.INVALID, f"{what} cannot be {value}", hint=f"Give {some}.")


def require_heap(what: str, value: str) -> None:
    """Refuse a text that is not the size of a heap, or too small a size.

    Raises:
        HeadraceError: ``invalid``.
    """
    if (heap_bytes(value) or 0) < LEAST_HEAP:
        raise HeadraceError(
            Code.INVALID,
            f'{what} cannot be "{value}"',
            hint=f'Give {LEAST_HEAP >> 20}m or more, such as "2g".',
        )


def _parsed(variable: str, text: str, kind: type) -> Any:
    if kind is bool and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    if kind is int and text.isdigit():
        return int(text)
    if kind is float and _DECIMAL.fullmatch(text):
        return float(text)
    if kind is str:
        return text
    raise HeadraceError(Code.INVALID, f'{variable} cannot be "{text}"', hint=f"Give {_kind(kind)}.")


def _kind(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]
