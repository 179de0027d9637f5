"""The context of a step: the local properties of its Spark jobs, and the conversion of errors.

Cancel the jobs of one statement, and free the slots of tasks that do not end.

Spark ends a job at once, but a task only where its code checks for it. The loops that Spark
generates for a join without an equality do not check, so such a task keeps running. On a local
master it also keeps its slot; a few such tasks would block all statements and epochs. They are
reported to Spark as ended: their slots become free, and they use the processor until they end.

What a step that runs in this process needs of the JVM, entered before its first call to it.
"""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.executors import is_local, with_executors
from headrace.execution.engine.jobs.failures import DEFECTS, step_failure
from headrace.execution.engine.jobs.reports import JOB, NOTES, STEP, STORE
from headrace.execution.runtime.beside import lane
from headrace.execution.runtime.cancelling import running_statement
from headrace.files.mounts import Mounted, upload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from headrace.execution.engine.jobs.lease import SparkSource
    from headrace.execution.engine.jobs.reports import AwaitedNotes
    from headrace.execution.runtime.step import Step


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


_CALL_SITES = ("callSite.short", "callSite.long")
"""The properties with the name of the place in a program that creates RDDs.

If they are not set, Spark searches the stack of the JVM's thread for every RDD that it creates,
with a regular expression per frame: a quarter of the time in which small plans become jobs.
"""

_POOL = "spark.scheduler.pool"
"""The property with the name of the pool of a job: pools take turns, the jobs of one do not."""


@contextmanager
def jobs_of(spark: SparkSession, step: Step, notes: AwaitedNotes | None = None) -> Iterator[None]:
    """Assign all jobs that this thread starts in the block to a step.

    ``notes`` are those that are awaited, for jobs whose tasks report.

    Raises:
        HeadraceError: if a job fails in Spark.
    """
    context = spark.sparkContext
    properties = {STEP: step.sent(), **dict.fromkeys(_CALL_SITES, step.attempt)}
    mounted = Mounted.of(step.directory)
    if mounted is not None:
        here = str(step.directory) if is_local(context) else None
        if here is None:
            upload(step.directory)
        properties[STORE] = json.dumps({"mounted": mounted.to_json(), "directory": here})
    if (pool := lane()) is not None:
        properties[_POOL] = pool
    if notes is not None:
        properties |= {NOTES: notes.address, JOB: notes.job}
    for name, value in properties.items():
        context.setLocalProperty(name, value)
    try:
        with tagged(spark), with_executors(context):
            yield
    except (PySparkException, Py4JError) as error:
        raise step_failure(error) from error
    finally:
        for name in properties:
            context.setLocalProperty(name, None)


@contextmanager
def without_job() -> Iterator[None]:
    """Convert errors in the block, which runs in this process, as those of a job.

    Raises:
        HeadraceError: if an expression or an operator fails.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise step_failure(error) from error
    except DEFECTS as error:
        kind = type(error).__name__
        raise HeadraceError(Code.INTERNAL, f"an operator failed: {kind}: {error}") from error


_this_thread = threading.local()


@contextmanager
def on_demand(*contexts: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Let :func:`needs_spark` enter some contexts, until the block ends.

    Entering them is several calls to the JVM, and most narrow steps make no other.
    """
    with ExitStack() as stack:
        _this_thread.waiting = contexts, stack
        try:
            yield
        finally:
            _this_thread.waiting = None


def needs_spark() -> None:
    """Enter the contexts of :func:`on_demand` on this thread, unless they are entered."""
    waiting = getattr(_this_thread, "waiting", None)
    if waiting is not None:
        _this_thread.waiting = None
        contexts, stack = waiting
        for each in contexts:
            stack.enter_context(each())
