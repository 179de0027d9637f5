"""Checks that a Spark application has executors, and that they can work for a database.

Every executor must be able to import the package with the interpreter that Spark starts there, in
the driver's versions of it and of what computes rows, and must share files with the driver: in the
data directory, or in an object store.
On a local master, only the interpreter of a session given by the user is checked.

Where the driver and the executors exchange files: a directory that they share, or a store.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.lease import is_local_master
from headrace.files import DirectoryPlace, ObjectStore, StorePlace
from headrace.files.mounts import Mounted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from headrace.files import Place


SHARED_DIRECTORY = (
    "Put the data directory on storage that the driver and all executors see under the same path,"
    " with the same contents; or keep the files of the database in an object store (setting store)."
)
REACHED_STORE = (
    "Executors read and write the store themselves: let them reach its address, and install"
    ' "headrace[objects]" for their interpreter. They get the credentials of the driver.'
)

DRIVER = "driver"
"""The name of the text that the driver leaves for executors."""


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """Where one process leaves short texts, by name, that others read.

    ``prefix`` begins the names of its files in the directory or, if that is a cache, in the store.
    """

    directory: Path
    mounted: Mounted | None
    prefix: str
    _files: Place

    @classmethod
    def at(cls, directory: Path, mounted: Mounted | None, prefix: str) -> MeetingPlace:
        """Return a place; nothing is read or written."""
        files: Place = DirectoryPlace(directory)
        if mounted is not None:
            files = StorePlace(ObjectStore.at(mounted.store))
        return cls(directory, mounted, prefix, files)

    @property
    def name(self) -> str:
        """What it is, for messages."""
        if self.mounted is not None:
            return f'object store "{self._files.url}"'
        return f'data directory "{self.directory}"'

    @property
    def hint(self) -> str:
        """What to do where two processes do not meet."""
        return SHARED_DIRECTORY if self.mounted is None else REACHED_STORE

    def leave(self, name: str, text: str) -> None:
        """Leave a text.

        Raises:
            HeadraceError: if it cannot be written.
        """
        self._files.put(self.prefix + name, [text.encode("ascii")])

    def read(self, name: str) -> str:
        """Return a text.

        Raises:
            FileNotFoundError: there is none.
            HeadraceError: if it cannot be read.
        """
        return b"".join(self._files.pieces(self.prefix + name)).decode("ascii")

    def clear(self, names: Iterable[str]) -> None:
        """Delete texts; those that do not exist are no failure."""
        self._files.delete([self.prefix + name for name in names])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value from which :meth:`of_json` makes it in another process."""
        mounted = None if self.mounted is None else self.mounted.to_json()
        return {"directory": str(self.directory), "mounted": mounted, "prefix": self.prefix}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> MeetingPlace:
        """Return the place that :meth:`to_json` describes."""
        mounted = None if value["mounted"] is None else Mounted.of_json(value["mounted"])
        return cls.at(Path(value["directory"]), mounted, value["prefix"])


def place_for(directory: Path) -> MeetingPlace:
    """Return a new place where the driver and the executors of a data directory can meet."""
    mounted = Mounted.of(directory)
    folder = "attempts" if mounted is None else "probes"
    return MeetingPlace.at(directory, mounted, f"{folder}/probe-{uuid4().hex}-")


def exchange(place: MeetingPlace, name: str, expected: str) -> str | None:
    """Read what the driver has left and leave the same; return what is wrong, None if nothing."""
    try:
        found = place.read(DRIVER)
        place.leave(name, expected)
    except HeadraceError as error:
        return f"{error.primary}: {error.detail or ''}".rstrip(": .")
    except FileNotFoundError as error:
        return f"{error.strerror or error}: {error.filename or name}"
    return None if found == expected else "reads another file"


EXECUTOR_SECONDS: Final = 30.0
"""The time that Spark has to grant the first executor, or another one after the last was lost."""

_POLL_SECONDS: Final = 1.0

_INTERPRETER = "PYSPARK_PYTHON"
_DEFAULT = "python3"
_TASK: Final = re.compile(
    r"\bLost task \S+ (?:in stage .*?)?\((?P<host>\S+) executor (?P<id>\w+)\)"
)
_NO_PROGRAM: Final = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
_OTHER_PYTHON: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH\] Python in worker has different version: (?P<there>[\d.]+)"
    r" than that in driver: (?P<own>[\d.]+)"
)
_CAUSE: Final = re.compile(r"(?:ModuleNotFound|Import)Error: [^\n]+")
_SAME: Final = ("headrace", "pyspark", "pyarrow")
"""The packages whose version is that of the driver: what runs in executors, speaks with Spark, and
computes rows, which are equal wherever an epoch runs."""

_Found: TypeAlias = "tuple[str, str, str, dict[str, str], str | None]"
"""The result of a probe: executor, host, interpreter, version by package, and a problem."""


def choose_interpreter(context: SparkContext) -> None:
    """Make tasks of a local master run in this interpreter, unless the user has chosen another.

    Spark records the interpreter when its context starts. A context started by the user without a
    choice would use the first ``python3`` of the path.
    """
    if is_local(context) and context.pythonExec == _DEFAULT:
        context.pythonExec = sys.executable


def is_local(context: SparkContext) -> bool:
    """Whether tasks run in the driver's own JVM."""
    return is_local_master(str(context.master))


def require_executors(spark: SparkSession, directory: Path) -> None:
    """Check that every executor can import the package, and reads and writes the same files.

    Raises:
        HeadraceError: ``unavailable``: no executor was granted, or one cannot import the package,
            has another version of it, of Python, PySpark or Arrow, has another data directory, or
            does not reach the store.
    """
    context = spark.sparkContext
    if is_local(context) and context.pythonExec == sys.executable:
        return
    if not is_local(context):
        await_executor(context)
    expected, found = uuid4().hex, list[_Found]()
    place = place_for(directory.resolve())
    try:
        place.leave(DRIVER, expected)
        found = _probed(context, _probe(own_versions(), place.to_json(), expected))
        for each in found:
            _require_fit(place, expected, each, _install(context))
    finally:
        with suppress(HeadraceError):
            place.clear([DRIVER, *(name for name, *_ in found)])


def await_executor(context: SparkContext, seconds: float = EXECUTOR_SECONDS) -> None:
    """Wait until an executor is registered.

    Raises: HeadraceError: ``unavailable`` if no executor is registered in time.
    """
    deadline = time.monotonic() + seconds
    while not executors(context):
        if time.monotonic() > deadline:
            raise no_executor(context, seconds)
        time.sleep(0.1)


@contextmanager
def with_executors(context: SparkContext, seconds: float = EXECUTOR_SECONDS) -> Iterator[None]:
    """Cancel the jobs that this thread starts in the block while Spark has no executor for them.

    Raises: HeadraceError: ``unavailable`` if there was no executor for so long.
    """
    if is_local(context):
        yield
        return
    tag, ended, lost = f"headrace-{uuid4().hex}", threading.Event(), threading.Event()

    def watch() -> None:
        since = time.monotonic()
        while not ended.wait(_POLL_SECONDS):
            # A master that has stopped ends the jobs itself.
            with suppress(HeadraceError, PySparkException, Py4JError, OSError, AttributeError):
                if executors(context):
                    since = time.monotonic()
                elif time.monotonic() - since > seconds:
                    lost.set()
                    context.cancelJobsWithTag(tag)

    context.addJobTag(tag)
    threading.Thread(target=watch, name="headrace-executors", daemon=True).start()
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if lost.is_set():
            raise no_executor(context, seconds) from error
        raise
    finally:
        ended.set()
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            context.removeJobTag(tag)


def has_executors(spark: SparkSession) -> bool:
    """Whether Spark has an executor, or needs none."""
    context = spark.sparkContext
    try:
        return is_local(context) or executors(context) > 0
    except HeadraceError:
        return False


def executors(context: SparkContext) -> int:
    """Return the number of registered executors."""
    try:
        backend: Any = context._jsc.sc().schedulerBackend()  # noqa: SLF001
        return int(backend.getExecutorIds().size())
    except (Py4JError, AttributeError) as error:
        raise HeadraceError(
            Code.UNAVAILABLE,
            "Spark has stopped",
            f'The application lost master "{context.master}".',
            "Open the database again once the master answers.",
        ) from error


def no_executor(context: SparkContext, seconds: float) -> HeadraceError:
    """Return the error of an application that has no executor."""
    conf = context.getConf()
    memory = conf.get("spark.executor.memory", "1g")
    cores = conf.get("spark.executor.cores", "") or "any number of"
    return HeadraceError(
        Code.UNAVAILABLE,
        f'Spark master "{context.master}" has granted no executor for {seconds:.0f} seconds',
        f"Application {context.applicationId} asks for executors with {memory} of memory and"
        f" {cores} cores.",
        "Check in Spark's console that workers are registered with the master and have that much"
        " free. Other applications may hold all cores: limit them, or this database, by the setting"
        " cores; lower executor_memory or executor_cores to fit a worker.",
    )


def _probed(context: SparkContext, probe: Callable[[Iterable[int]], Iterator[_Found]]) -> list[Any]:
    tasks = max(context.defaultParallelism, 1)
    try:
        return list(context.parallelize(range(tasks), tasks).mapPartitions(probe).collect())
    except (PySparkException, Py4JError) as error:
        raise _not_run(context, str(error)) from error


def _not_run(context: SparkContext, text: str) -> HeadraceError:
    """Return the error of executors that cannot run a Python task."""
    task, program, cause = (each.search(text) for each in (_TASK, _NO_PROGRAM, _CAUSE))
    where = f'executor {task["id"]} on host "{task["host"]}"' if task else "an executor"
    interpreter = str(context.pythonExec)
    other = _OTHER_PYTHON.search(text)
    if other is not None:
        what = f"Python has version {other['there']} for {where}, and {other['own']} for the driver"
    elif program is not None:
        what = f'interpreter "{program["program"]}" does not exist for {where}'
    elif "headrace.execution.engine.jobs.daemon" in text or (
        cause is not None and "headrace" in cause[0]
    ):
        what = f'package headrace cannot be imported by "{interpreter}" for {where}'
    else:
        what = f'interpreter "{interpreter}" cannot run tasks for {where}'
    return HeadraceError(
        Code.UNAVAILABLE,
        what,
        None if cause is None else f"{cause[0].rstrip('.')}.",
        _install(context),
    )


def _require_fit(place: MeetingPlace, expected: str, found: _Found, hint: str) -> None:
    """Check what a task found on its executor; ``hint`` is what to do if versions differ.

    Raises:
        HeadraceError: ``unavailable`` if the executor cannot work for the database.
    """
    name, host, interpreter, there, problem = found
    where = f'executor {name.rpartition("-")[0]} on host "{host}"'
    if "headrace" not in there:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f'package headrace cannot be imported by "{interpreter}" for {where}',
            f"{problem}.",
            hint,
        )
    for package, own in own_versions().items():
        if there.get(package) != own:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"package {package} has version {there.get(package, 'none')} for {where}, and {own}"
                " for the driver",
                hint=hint,
            )
    if problem is None:
        try:
            problem = None if place.read(name) == expected else "differs"
        except (FileNotFoundError, HeadraceError):
            problem = "the driver does not see a file that it has written"
    if problem is not None:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f"{place.name} of the driver is not that of {where}",
            f"A file that one writes is not seen by the other: {problem}.",
            place.hint,
        )


@cache
def own_versions() -> dict[str, str]:
    """Return the versions here, by package, of what executors must have in the same version."""
    found = {package: version(package) for package in _SAME}
    return found | {"headrace": f"{found['headrace']} ({_digesting()()})"}


def _digesting() -> Callable[[], str]:
    """Return a function, pickled by value, that returns a digest of the installed package.

    Its version alone does not say which code it has.
    """

    def digest() -> str:
        from hashlib import sha256  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        spec, hashed = find_spec("headrace"), sha256()
        if spec is None or spec.origin is None:
            return "none"
        package = Path(spec.origin).parent
        for file in sorted(package.rglob("*.py")):
            hashed.update(f"{file.relative_to(package)}".encode())
            hashed.update(file.read_bytes())
        return hashed.hexdigest()[:12]

    return digest


def _install(context: SparkContext) -> str:
    """Return what to do if the interpreter of executors, or what is installed for it, is wrong."""
    needed = f"headrace {version('headrace')}"
    if context.pythonExec.startswith("."):
        return (
            f'Pack the archive by "headrace cluster pack" in an environment with {needed} and the'
            " other packages of the driver. Its Python is a link: the same one must be installed in"
            f' "{sys.base_prefix}" on every worker.'
        )
    return (
        f"Install {needed} for one interpreter at the same path on the driver and on every worker,"
        f" and set {_INTERPRETER} to that path before Spark starts; or give executors an archive of"
        ' the environment, by "headrace cluster pack" and the setting executor_archive.'
    )


def _probe(
    own: dict[str, str], place: dict[str, Any], expected: str
) -> Callable[[Iterable[int]], Iterator[_Found]]:
    """Return a probing task, pickled by value: executors may be unable to import this package."""
    digest = _digesting()

    def probe(numbers: Iterable[int]) -> Iterator[_Found]:
        import os  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415
        from importlib.metadata import version  # noqa: PLC0415

        (number,) = numbers
        executor = os.environ.get("SPARK_EXECUTOR_ID", "")
        name = f"{executor or 'executor'}-{number}"
        found, problem = {}, None
        for package in own:
            try:
                found[package] = version(package)
                if package == "headrace":
                    found[package] += f" ({digest()})"
            except Exception as error:  # noqa: BLE001  (it is reported)
                problem = problem or f"{type(error).__name__}: {error}"
        if found == own:
            problem = exchange(MeetingPlace.of_json(place), name, expected)
        yield name, socket.gethostname(), sys.executable, found, problem

    return probe
