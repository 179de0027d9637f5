"""Cancel the jobs of one statement, and free the slots of tasks that do not end.

Spark ends a job at once, but a task only where its code checks for it. The loops that Spark
generates for a join without an equality do not check, so such a task keeps running. On a local
master it also keeps its slot; a few such tasks would block all statements and epochs. They are
reported to Spark as ended: their slots become free, and they use the processor until they end.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.runtime.cancelling import running_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from headrace.engine.jobs.lease import SparkSource

_GRACE_SECONDS = 1.0
"""The time that tasks have to notice a cancellation and end."""
_LOCAL = "LocalSchedulerBackend"


@contextmanager
def tagged(spark: SparkSession) -> Iterator[None]:
    """Tag the jobs that this thread starts in the block with the tag of its statement, if any."""
    statement = running_statement()
    if statement is None:
        yield
        return
    spark.sparkContext.addJobTag(statement.tag)
    try:
        yield
    finally:
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            spark.sparkContext.removeJobTag(statement.tag)


@dataclass(frozen=True, slots=True)
class StatementJobs:
    """The jobs started by one client's statements; see :func:`tagged`."""

    source: SparkSource
    tag: str

    def cancel(self) -> None:
        """Cancel the statement's running jobs; those of a Spark that has ended have ended too."""
        if self.source.running is not None:
            with suppress(PySparkException, Py4JError, OSError, AttributeError):
                self.source.running.sparkContext.cancelJobsWithTag(self.tag)

    def free_slots(self) -> None:
        """Free the slots of cancelled tasks that have not ended after a grace period."""
        if self.source.running is None:
            return
        timer = threading.Timer(_GRACE_SECONDS, self._free_slots)
        timer.daemon = True
        timer.start()

    def _free_slots(self) -> None:
        # Spark may have stopped in the meantime.
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            context = self.source.session.sparkContext
            scheduler: Any = context._jsc.sc().taskScheduler()  # noqa: SLF001
            backend: Any = context._jsc.sc().schedulerBackend()  # noqa: SLF001
            if backend.getClass().getSimpleName() != _LOCAL:
                return
            jvm: Any = context._jvm  # noqa: SLF001
            killed = getattr(jvm, "org.apache.spark.TaskState").withName("KILLED")
            nothing = jvm.java.nio.ByteBuffer.allocate(0)
            tasks = scheduler.taskIdToTaskSetManager()
            for task in list(tasks.keySet()):
                owner = tasks.get(task)
                if owner is not None and owner.isZombie():
                    backend.statusUpdate(task, killed, nothing)


def tasks_left(spark: SparkSession) -> bool:
    """Whether any task of Spark runs: on a local master, including tasks of ended jobs."""
    scheduler: Any = spark.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001
    return not scheduler.taskIdToTaskSetManager().isEmpty()
