"""Starting Spark in this process, with the settings that epochs need."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import threading
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.engine.jobs.heap import heap_bytes
from headrace.engine.jobs.java import ClassArchive, find_java
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import Popen

    import pyarrow as pa

_SPARED = 0.2
"""The part of its heap that a JVM may not count when it reports the size."""

_FLAGS = ("-XX:+UseParallelGC", "-Xss4m")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The user's settings for Spark.

    ``partitions`` is the number of slices of every arrangement. ``cache`` is the directory of files
    that make the next start faster; ``flags`` are further options of the driver's JVM.
    ``executor_memory`` is the heap of an executor, ``executor_cores`` how many tasks it runs at
    once, and ``cores`` how many all executors run; with "" and 0, Spark decides.
    """

    master: str
    partitions: int
    driver_memory: str
    cache: Path | None = None
    flags: tuple[str, ...] = ()
    executor_memory: str = ""
    executor_cores: int = 0
    cores: int = 0

    @property
    def of_executors(self) -> dict[str, str]:
        """Spark's properties of executors; empty for a local master."""
        found = {
            "spark.executor.memory": self.executor_memory,
            "spark.executor.cores": str(self.executor_cores or ""),
            "spark.cores.max": str(self.cores or ""),
            "spark.executor.extraJavaOptions": shlex.join(_FLAGS),
        }
        return {name: value for name, value in found.items() if value}


def start_spark(settings: SparkSettings, scratch: Path | None = None) -> SparkSession:
    """Start Spark, or use the session that already runs in this process.

    ``scratch`` is the directory of shuffle files, by default the machine's temporary directory.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = find_java()
    if java.home is not None:
        os.environ["JAVA_HOME"] = str(java.home)
    archive = ClassArchive.of(java, settings.cache) if settings.cache is not None else None
    try:
        spark = _started(settings, scratch, archive.options() if archive is not None else ())
    except HeadraceError:
        if archive is None or not archive.there:
            raise
        spark = _started(settings, scratch, ())
        archive.discard()  # the archive was the cause
    _start_workers(spark)
    return spark


@dataclass(frozen=True, slots=True)
class SparkLease:
    """The use of Spark by one database.

    The databases of a process share one Spark. If a database has started it, the last one to
    release its lease stops it; a Spark that the program has started itself is never stopped.
    """

    session: SparkSession
    started: bool
    """Whether a database has started this Spark."""

    @classmethod
    def of(cls, given: SparkSession | None, settings: SparkSettings) -> SparkLease:
        """Use the given session, or the Spark that runs in this process, or start Spark."""
        if given is not None:
            return cls(given, started=False)
        with _LEASES.lock:
            before = SparkContext._active_spark_context  # noqa: SLF001
            session = start_spark(settings)
            application = session.sparkContext.applicationId
            if before is None:
                _LEASES.application, _LEASES.count = application, 0
            started = _LEASES.application == application
            _LEASES.count += started
            return cls(session, started)

    def release(self) -> None:
        """End the use; call it once."""
        if not self.started:
            return
        with _LEASES.lock:
            _LEASES.count -= 1
            if _LEASES.count == 0:
                self.session.stop()


@dataclass(slots=True)
class _Leases:
    """The number of leases, in this process, of a Spark that a database has started."""

    application: str | None = None
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_LEASES = _Leases()


def jvm_of(spark: SparkSession) -> Popen[bytes]:
    """Return the process of the JVM that this process has started for Spark."""
    found: Popen[bytes] = spark.sparkContext._gateway.proc  # noqa: SLF001
    return found


def warn_of_running(
    spark: SparkSession | None, settings: SparkSettings, chosen: frozenset[str]
) -> None:
    """Warn of settings that differ from those with which Spark, or its JVM, has been started."""
    running = spark.sparkContext if spark else SparkContext._active_spark_context  # noqa: SLF001
    ignored = []
    if running is not None and "master" in chosen and running.master != settings.master:
        ignored.append(("master", settings.master, running.master))
    gateway = SparkContext._gateway  # noqa: SLF001  (the only access to its JVM)
    if gateway is not None and "driver_memory" in chosen:
        has = int(gateway.jvm.java.lang.Runtime.getRuntime().maxMemory())
        wanted = heap_bytes(settings.driver_memory) or 0
        if abs(has - wanted) > wanted * _SPARED:
            ignored.append(("driver_memory", settings.driver_memory, f"{has >> 20}m"))
    for name, given, there in ignored:
        warnings.warn(
            f"{name}={given!r} has no effect: Spark runs in this process already, with {there}",
            stacklevel=4,
        )


def _started(settings: SparkSettings, scratch: Path | None, flags: tuple[str, ...]) -> SparkSession:
    builder = (
        SparkSession.builder.appName("headrace")
        .master(settings.master)
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.structuredLogging.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.daemon.module", "headrace.engine.jobs.daemon")
        .config("spark.sql.adaptive.enabled", "false")
        # Every epoch runs the same generated classes: they remain cached, and compiled.
        .config("spark.sql.codegen.cache.maxEntries", "10000")
        .config("spark.sql.shuffle.partitions", str(settings.partitions))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.legacy.allowHashOnMapType", "true")
        .config("spark.sql.timeType.enabled", "true")
        # A union that keeps its inputs' partitions computes where each of them would best run,
        # through the whole plan below: this doubles with every union above another.
        .config("spark.sql.unionOutputPartitioning", "false")
        # The unit of retry is the epoch: a task that failed has left files behind.
        .config("spark.task.maxFailures", "1")
        .config("spark.stage.maxConsecutiveAttempts", "1")
        .config("spark.speculation", "false")
        .config("spark.cleaner.periodicGC.interval", "5min")
        .config("spark.driver.extraJavaOptions", shlex.join((*_FLAGS, *settings.flags, *flags)))
        .config("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "headrace-warehouse"))
    )
    for name, value in settings.of_executors.items():
        builder = builder.config(name, value)
    if scratch is not None:
        builder = builder.config("spark.local.dir", str(scratch))
    with _quiet():
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    return spark


def _start_workers(spark: SparkSession) -> None:
    """Start the daemon of Python workers in the background: it takes a second or two."""

    def start() -> None:
        # If Spark is stopped meanwhile, the context is None: an AttributeError.
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            spark.range(1, numPartitions=1).mapInArrow(_unchanged, "id BIGINT").collect()

    threading.Thread(target=start, name="headrace-workers", daemon=True).start()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@contextmanager
def _quiet() -> Iterator[None]:
    """Redirect the JVM's standard error, now and later, to a file.

    The JVM and Spark's workers inherit the file's descriptor; then this process restores its own.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile(prefix="headrace-spark-") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception as error:
            log.seek(0)
            tail = log.read()[-2000:].decode(errors="replace").strip()
            raise HeadraceError(
                Code.UNAVAILABLE,
                "Spark could not be started",
                detail=f"{error}\n{tail}",
                hint="Check the Java installation, or the Spark master that is set.",
            ) from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
