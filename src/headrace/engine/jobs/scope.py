"""The context of a step: the local properties of its Spark jobs, and the conversion of errors."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.engine.jobs.cancelling import tagged
from headrace.engine.jobs.executors import is_local, with_executors
from headrace.engine.jobs.failures import DEFECTS, step_failure
from headrace.engine.jobs.reports import JOB, NOTES, STEP, STORE
from headrace.errors import Code, HeadraceError
from headrace.runtime.beside import lane
from headrace.spine.mounts import Mounted, upload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from headrace.engine.jobs.reports import AwaitedNotes
    from headrace.runtime.step import Step

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
