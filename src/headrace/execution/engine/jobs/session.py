"""Starting Spark in this process, with the settings that epochs need.

The sessions in which steps run: Spark's optimizer without the rules that break programs.

The queries were optimised when they were planned. The operators of a program write files, so each
must run exactly once: rules that push a projection or a filter below an exchange would make the two
uses of a shared exchange differ, and Spark would run the operators below it twice.

Whether the Spark that this process has started has ended, and forgetting it then.

A JVM that is ready for Spark while a process waits to take a database over.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import tempfile
import threading
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.heap import heap_bytes
from headrace.execution.engine.jobs.java import ClassArchive, find_java
from headrace.execution.engine.jobs.lease import ARCHIVE_NAME
from headrace.planning.catalyst.rewrites import optional_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from socketserver import BaseServer
    from subprocess import Popen
    from typing import IO, Any

    import pyarrow as pa

    from headrace.execution.engine.jobs.lease import SparkSettings


_EXCLUDED = "spark.sql.optimizer.excludedRules"
_EVALUATORS = "spark.sql.execution.usePartitionEvaluator"


def bare_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application in which no optional optimizer rule runs."""
    session = spark.newSession()
    session.conf.set(_EXCLUDED, ",".join(sorted(optional_rules(session))))
    session.conf.set(_EVALUATORS, "true")
    return session


def for_few_rows(bare: SparkSession) -> SparkSession:
    """Return a session like ``bare`` in which Spark generates less code for each plan.

    Spark can fuse the operators of a stage into one generated class, and generate one for each
    projection and condition. That makes rows cheaper but first runs more expensive, and most steps
    with few rows are first runs.
    """
    session = bare.newSession()
    for name in (_EXCLUDED, _EVALUATORS):
        session.conf.set(name, bare.conf.get(name))
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def for_parcels(bare: SparkSession) -> SparkSession:
    """Return a session like ``bare`` for few rows that are large: Python gets them one by one."""
    session = for_few_rows(bare)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    return session


ARCHIVED_PYTHON = f"./{ARCHIVE_NAME}/bin/python"
"""The interpreter of an archive, seen from the directory in which an executor runs."""
_USUAL = """SELECT k, count(*) AS n, sum(v) AS v, max(t) AS t FROM VALUES (1, 2, 'a'), (1, 3, 'b')
AS given (k, v, t) JOIN VALUES (1, true) AS other (k, b) USING (k) WHERE b AND v > 0 GROUP BY k"""
"""A query whose parsing, planning and running loads what most views need."""
_STARTING = threading.Lock()
"""Held while Spark starts in this process."""
_SPARED = 0.2
"""The part of its heap that a JVM may not count when it reports the size."""


def start_spark(settings: SparkSettings, scratch: Path | None = None) -> SparkSession:
    """Start Spark, or use the session that already runs in this process.

    ``scratch`` is the directory of shuffle files, by default the machine's temporary directory.
    """
    with _STARTING:
        joins = is_running()
        spark = _with_archive(settings, scratch)
    if settings.archive:
        context = spark.sparkContext
        if context.getConf().get("spark.archives") == settings.archive:
            context.pythonExec = ARCHIVED_PYTHON
    if not joins:
        _start_workers(spark)
    return spark


def is_running() -> bool:
    """Whether this process has a running Spark."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001  (pyspark has no other)


def warm_up(settings: SparkSettings) -> None:
    """Start the JVM of this process, and load and compile there what planning needs.

    A Spark that starts afterwards, with its own master, is ready within a second or two. It does
    nothing if there is a JVM.

    Raises:
        HeadraceError: ``unavailable`` if Spark cannot be started.
    """
    with _STARTING:
        if SparkContext._gateway is not None:  # noqa: SLF001
            return
        spark = _with_archive(replace(settings, master="local[1]"), None)
        try:
            spark.sql(_USUAL).toArrow()
        finally:
            spark.stop()


def jvm_of(spark: SparkSession) -> Popen[bytes]:
    """Return the process of the JVM that this process has started for Spark."""
    found: Popen[bytes] = spark.sparkContext._gateway.proc  # noqa: SLF001
    return found


def forget_jvm() -> None:
    """Forget a JVM of this process that has ended: the next start begins another one."""
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001


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


def _with_archive(settings: SparkSettings, scratch: Path | None) -> SparkSession:
    """Start Spark in a JVM that has its classes from an archive, if that works."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = find_java()
    if java.home is not None:
        os.environ["JAVA_HOME"] = str(java.home)
    archive = ClassArchive.of(java, settings.cache) if settings.cache is not None else None
    try:
        return _started(settings, scratch, archive.options() if archive is not None else ())
    except HeadraceError:
        if archive is None or not archive.there:
            raise
        spark = _started(settings, scratch, ())
        archive.discard()  # the archive was the cause
        return spark


def _started(settings: SparkSettings, scratch: Path | None, flags: tuple[str, ...]) -> SparkSession:
    chosen = {
        "spark.app.name": "headrace",
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.structuredLogging.enabled": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "headrace.execution.engine.jobs.daemon",
        "spark.sql.adaptive.enabled": "false",
        # Every epoch runs the same generated classes: they remain cached, and compiled.
        "spark.sql.codegen.cache.maxEntries": "10000",
        "spark.sql.shuffle.partitions": str(settings.partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.legacy.allowHashOnMapType": "true",
        "spark.sql.timeType.enabled": "true",
        # A union that keeps its inputs' partitions computes where each of them would best run,
        # through the whole plan below: this doubles with every union above another.
        "spark.sql.unionOutputPartitioning": "false",
        # A job of a narrow step does not wait for all tasks of a wide one.
        "spark.scheduler.mode": "FAIR",
        # The unit of retry is the epoch: a task that failed has left files behind.
        "spark.task.maxFailures": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.speculation": "false",
        "spark.cleaner.periodicGC.interval": "5min",
        "spark.driver.extraJavaOptions": shlex.join((*settings.driver_flags, *flags)),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "headrace-warehouse"),
        **settings.of_executors,
    }
    if scratch is not None:
        chosen["spark.local.dir"] = str(scratch)
    with tempfile.TemporaryFile(prefix="headrace-spark-") as log:
        try:
            _launch(chosen, log)
            builder = SparkSession.builder
            for name, value in chosen.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("OFF")
            _quiet_at_the_end(spark.sparkContext._accumulatorServer)  # noqa: SLF001
        except Exception as error:
            gateway = SparkContext._gateway  # noqa: SLF001
            if gateway is not None and gateway.proc.poll() is not None:
                forget_jvm()
            log.seek(0)
            tail = log.read()[-2000:].decode(errors="replace").strip()
            raise HeadraceError(
                Code.UNAVAILABLE,
                "Spark could not be started",
                detail=f"{error}\n{tail}",
                hint="Check the Java installation, or the Spark master that is set.",
            ) from error
    return spark


def _launch(chosen: Mapping[str, str], log: IO[bytes]) -> None:
    """Start the JVM of this process, if it has none: its standard error, now and later, is a file.

    Spark's workers inherit that.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001
        return
    conf = SparkConf(loadDefaults=False)
    for name, value in chosen.items():
        conf.set(name, value)
    gateway = launch_gateway(conf, {"stderr": log})
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def _quiet_at_the_end(updates: BaseServer) -> None:
    """Print no error of PySpark's own connections when the JVM ends.

    Whoever ends a service ends all its processes at once, the JVM with the server. If it ends
    otherwise, what needs it says so.
    """
    shown = updates.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            shown(request, client_address)

    updates.handle_error = handle_error  # type: ignore[method-assign]
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # whoever called is given the error


def _start_workers(spark: SparkSession) -> None:
    """Start the daemon of Python workers in the background: it takes a second or two."""

    def start() -> None:
        # If Spark is stopped meanwhile, the context is None: an AttributeError.
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            spark.range(1, numPartitions=1).mapInArrow(_unchanged, "id BIGINT").collect()

    threading.Thread(target=start, name="headrace-workers", daemon=True).start()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


_UNREACHABLE: Final = (Py4JError, OSError, HeadraceError)


def why_ended(spark: SparkSession) -> str | None:
    """Return why the Spark of a session has ended; None if it has not, as far as is known."""
    jvm = jvm_of(spark)
    code = jvm.poll()
    if code is not None:
        return f"Its JVM {_ending(code)}."
    try:
        context = spark.sparkContext._jsc  # noqa: SLF001
        stopped = context is None or context.sc().isStopped()
    except _UNREACHABLE:  # the next look says more
        return None
    if not stopped:
        return None
    if spark.sparkContext.master.startswith("local"):
        return "It stopped by itself, and its JVM runs."
    return "It stopped, as it does when no master of its cluster answers."


def forget(spark: SparkSession) -> None:
    """Let this process start another Spark: end what is left of one that has ended."""
    jvm: Popen[bytes] = jvm_of(spark)
    jvm.kill()
    jvm.wait()
    with suppress(*_UNREACHABLE):
        spark.sparkContext.stop()
    with suppress(*_UNREACHABLE):
        spark.sparkContext._gateway.shutdown()  # noqa: SLF001
    forget_jvm()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was killed by {signal.Signals(-code).name}"


_log: Final = logging.getLogger(__name__)


_AFTER_SECONDS: Final = 10.0
"""A process that has just taken over, perhaps on the same machine, has the processors first."""


@contextmanager
def warm_while_waiting(
    waits: Callable[[HeadraceError], bool], settings: SparkSettings
) -> Iterator[Callable[[HeadraceError], bool]]:
    """Yield ``waits`` for a block, in which Spark is warmed up, in the background.

    That begins some seconds after ``waits`` was True for the first time.
    """
    begun, over = threading.Event(), threading.Event()

    def wait(error: HeadraceError) -> bool:
        if not waits(error):
            return False
        if not begun.is_set():
            begun.set()
            threading.Thread(
                target=_warm, args=(settings, over), name="headrace-spark-warm", daemon=True
            ).start()
        return True

    try:
        yield wait
    finally:
        over.set()


def _warm(settings: SparkSettings, over: threading.Event) -> None:
    if over.wait(_AFTER_SECONDS):
        return
    try:
        warm_up(settings)
    except HeadraceError as error:
        _log.warning("%s: taking over will fail likewise: %s", error.primary, error.detail)
