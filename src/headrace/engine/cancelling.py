"""Ending the jobs of one statement, and what Spark leaves running of them.

Spark ends a job at once, but a task only where its code looks: in the loops that it generates for a
join without an equality it never does, so the task computes on for nobody. On one machine it also
keeps its slot, and with a few of them neither a statement nor an epoch would ever run again.
Such tasks are reported as ended: the slots are free, and the processor is shared until they end.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_TAG = "headrace-statement"
_GRACE_SECONDS = 1.0
"""How long tasks that do look have to end by themselves."""
_LOCAL = "LocalSchedulerBackend"


@dataclass(frozen=True, slots=True)
class StatementJobs:
    """The jobs that the running statement's thread has started, and not those of epochs."""

    spark: SparkSession

    @contextmanager
    def tagged(self) -> Iterator[None]:
        """Take the jobs of a block on this thread for the statement's."""
        self.spark.sparkContext.addJobTag(_TAG)
        try:
            yield
        finally:
            with suppress(PySparkException, Py4JError, OSError, AttributeError):
                self.spark.sparkContext.removeJobTag(_TAG)

    def cancel(self) -> None:
        """Cancel those that run now."""
        self.spark.sparkContext.cancelJobsWithTag(_TAG)

    def cancel_all(self) -> None:
        """Cancel everything that Spark runs now."""
        self.spark.sparkContext.cancelAllJobs()

    def free_slots(self) -> None:
        """Free the slots of cancelled tasks that do not end, in a moment."""
        timer = threading.Timer(_GRACE_SECONDS, self._free_slots)
        timer.daemon = True
        timer.start()

    def _free_slots(self) -> None:
        # Spark may have been stopped meanwhile.
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            context = self.spark.sparkContext
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
