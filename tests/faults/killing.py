"""Programs that are killed: how tests start them, and how they die at a stage.

To start Spark takes a program longer than all that it does until it is killed. So it may join the
Spark of the tests, where what it has begun goes on after its death, as on a cluster. With a Spark of
its own, that ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS_ALLOWED = 240.0
_PORT = "PYSPARK_GATEWAY_PORT"


def start(
    program: Path, directory: Path, batches: int, *stage: str, spark: SparkSession | None = None
) -> subprocess.Popen[str]:
    """Start a program over a directory, to die at the nth time of a stage if one is given.

    It joins ``spark``, or starts a Spark of its own.
    """
    command = [sys.executable, str(program), str(directory), str(batches), *stage]
    # It lives for seconds: what the JVM's second compiler would gain, it costs many times.
    environment = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    if spark is not None:
        gateway = spark.sparkContext._gateway
        environment[_PORT] = str(gateway.gateway_parameters.port)
        environment["PYSPARK_GATEWAY_SECRET"] = gateway.gateway_parameters.auth_token
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def joined() -> SparkSession | None:
    """Return a session of the Spark that this program is to join; None if it is to start one."""
    if _PORT not in os.environ:
        return None
    gateway = launch_gateway()
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    context = gateway.jvm.JavaSparkContext.fromSparkContext(running)
    conf = SparkConf(_jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)).newSession()


def dying(arguments: list[str], log: str | None = None) -> Callable[[str], None]:
    """Return what kills this process at a stage; ``arguments`` are its name and which time.

    A third one is the name of the only thread in which the stage counts. ``log`` is a file that is
    told of each stage, after the name of its thread.
    """
    stage, nth = (arguments[0], int(arguments[1])) if arguments else ("", 0)
    thread = arguments[2] if len(arguments) > 2 else None
    told = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    seen = 0

    def fault(reached: str) -> None:
        nonlocal seen
        name = threading.current_thread().name
        if told is not None:
            os.write(told, f"{name} {reached}\n".encode())
        met = reached == stage and thread in (None, name)
        seen += met
        if met and seen == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault
