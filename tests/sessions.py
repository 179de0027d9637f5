"""Spark sessions of tests, in which most queries run once or a few times, over few rows."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.protocol import ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID, Py4JError

from headrace.execution.engine.jobs.session import start_spark
from headrace.interfaces.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
_METHODS = 10_000
_TOGETHER = 0.2
"""Seconds for which what Python lets go of is gathered."""


def short_session(master: str = f"local[{PARTITIONS}]", *, hours: bool = False) -> SparkSession:
    """Start Spark for a process that runs each query a few times; for ``hours``, or minutes."""
    # In minutes, what the second compiler would gain, it costs many times over: it takes as long
    # as 50 random cases, and halves what the next take. Without it, the JVM has little room for
    # code by default: it throws away what it compiled, and compiles it again.
    flags = "-XX:ReservedCodeCacheSize=240m"
    if not hours:
        flags += " -XX:TieredStopAtLevel=1"
    os.environ.setdefault("JDK_JAVA_OPTIONS", flags)
    given = {"master": master, "partitions": PARTITIONS, "driver_memory": "2g"}
    spark = start_spark(Settings.of(given).spark)
    _remember_methods(spark)
    _forget_at_once(spark)
    # For every RDD without one, Spark goes through the whole stack.
    spark.sparkContext.setLocalProperty("callSite.long", "tests")
    spark.sparkContext.setLocalProperty("callSite.short", "tests")
    return spark


def _remember_methods(spark: SparkSession) -> None:
    """Have the JVM remember all methods that this thread calls, where it remembers a hundred.

    To find one anew, it goes through all methods of a class; queries take thousands of calls.
    """
    jvm = spark.sparkContext._jvm
    engine = jvm.java.lang.Class.forName("py4j.reflection.ReflectionEngine")
    holder = engine.getDeclaredField("cacheHolder")
    holder.setAccessible(True)
    holder.get(None).set(jvm.py4j.reflection.LRUCache(_METHODS))


def _forget_at_once(spark: SparkSession) -> None:
    """Tell the JVM of all that Python let go of in one call, where py4j makes one for each."""
    client = spark.sparkContext._gateway._gateway_client
    gateway = spark.sparkContext._gateway.java_gateway_server.getGateway()
    known = gateway.getBindings().keySet()
    lines = spark.sparkContext._jvm.java.util.regex.Pattern.compile("\n")
    kept = {ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID}
    waiting = client.finalizer_deque
    enqueued = client.garbage_collect_object

    def forget(name: str, enqueue: bool = True) -> None:  # noqa: FBT001, FBT002  (as py4j's)
        if enqueue:
            enqueued(name)
            return
        time.sleep(_TOGETHER)
        names = {name}
        with suppress(IndexError):
            while waiting[-1] != SHUTDOWN_FINALIZER_WORKER:
                names.add(waiting.pop()[1])
        with suppress(Py4JError, OSError):
            known.removeAll(lines.splitAsStream("\n".join(names - kept)).toList())

    client.garbage_collect_object = forget


def batch_session(spark: SparkSession) -> SparkSession:
    """Open a session for answers by Spark batch, which shares nothing with what is maintained."""
    batch = spark.newSession()
    # Each text is computed a few times over few rows: compiling code for it costs more.
    batch.conf.set("spark.sql.codegen.wholeStage", "false")
    batch.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    # The rows of each relation are in one partition: an answer is one task, without exchanges.
    batch.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    batch.conf.set("spark.sql.shuffle.partitions", "1")
    batch.conf.set("spark.sql.execution.usePartitionEvaluator", "true")
    batch.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    return batch
