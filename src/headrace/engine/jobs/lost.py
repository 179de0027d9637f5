"""Whether the Spark that this process has started has ended, and forgetting it then."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from headrace.engine.jobs.session import forget_jvm, jvm_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from subprocess import Popen

    from pyspark.sql import SparkSession

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
