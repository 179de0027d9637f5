"""What tasks leave: their runs, and their reports, which Spark returns with the results of tasks.

Every call of a task that changes state leaves a note in an accumulator of Spark, even if it got no
rows. The driver compares the notes of a job with the partitions of each task, so a lost report
fails the attempt instead of being mistaken for a partition without rows. No directory is listed.
"""

from __future__ import annotations

import base64
import pickle
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from socket import gethostname
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never
from uuid import uuid4

from pyspark import TaskContext

from headrace.algebra.spine import SHARED_BYTES, PackWriter, check_run, sync_directory, write_run
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.executors import SHARED_DIRECTORY
from headrace.execution.runtime.spent import Activity, Spending
from headrace.execution.runtime.step import Report, RowsShare, Step, StepArrangement
from headrace.files import mounts
from headrace.storage.log import LogShare, open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.algebra.spine import RunFile
    from headrace.algebra.zset import ZSet
    from headrace.execution.runtime.spent import Spent


STEP = "headrace.step"
"""The local property with the step, as text."""

STAGE = "stage"
"""The name under which a whole task of Spark leaves what its time was spent on."""

STORE = "headrace.store.secret"
"""The local property that says, as JSON, which store has the files of the step's directory.

It has the directory too if tasks run on the driver's machine. It may have credentials: by its name,
Spark keeps its value out of what it logs and shows.
"""

NOTES = "headrace.notes"
"""The local property with the accumulator for the notes of tasks."""

JOB = "headrace.job"
"""The local property with the name under which the notes of a job's tasks are awaited."""


_Sent: TypeAlias = "tuple[str, str, str, Any, Any]"
"""A note as sent: the name of the job, the task, the host, and the report as JSON or None; and what
the time of the task was spent on, or None."""


@dataclass(frozen=True, slots=True)
class Note:
    """One call of a task on a host; it has no report if the task got no rows.

    ``spent`` are the milliseconds of a whole task of Spark by activity.
    """

    task: str
    host: str
    report: Report | None = None
    spent: Mapping[str, float] | None = None


class _Joined:
    """Concatenates lists of notes, as an ``AccumulatorParam`` of Spark."""

    def zero(self, _value: Any) -> list[_Sent]:
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802  (PySpark's name)
        value1.extend(value2)
        return value1


@dataclass(slots=True)
class _Inbox:
    """Receives notes in the driver, by job; notes that nobody awaits are discarded."""

    awaited: dict[str, list[Note]] = field(default_factory=dict)

    def extend(self, sent: Iterable[_Sent]) -> None:
        for job, task, host, report, spent in sent:
            notes = self.awaited.get(job)
            if notes is not None:
                notes.append(Note(task, host, report and Report.of_json(report), spent))


@dataclass(frozen=True, slots=True)
class AwaitedNotes:
    """The notes of a job so far; its tasks leave them at an ``address`` under its name."""

    address: str
    job: str
    notes: list[Note] = field(default_factory=list)


class TaskReports:
    """The driver's side: receives the notes of the tasks of all steps. Thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._inbox = _Inbox()
        accumulator = spark.sparkContext.accumulator(self._inbox, _Joined())
        self.address = base64.b64encode(pickle.dumps(accumulator)).decode("ascii")
        """The value of the local property ``NOTES``."""

    @contextmanager
    def awaited(self) -> Iterator[AwaitedNotes]:
        """Yield a list to which the notes of a job are added until the block ends."""
        awaited = AwaitedNotes(self.address, uuid4().hex)
        self._inbox.awaited[awaited.job] = awaited.notes
        try:
            yield awaited
        finally:
            del self._inbox.awaited[awaited.job]


_this_thread = threading.local()


@contextmanager
def in_this_process(step: Step, *, apart: bool = False) -> Iterator[list[Report]]:
    """Let tasks that this thread calls in the block belong to a step; yield their reports.

    Their runs are in one pack. It is durable after the block, and removed if the block fails. With
    ``apart``, large runs have packs of their own, which the caller removes if the block fails.
    """
    with one_pack(step, to_read=True) as pack:
        _this_thread.step, _this_thread.reports, _this_thread.apart = step, [], apart
        try:
            yield _this_thread.reports
        finally:
            _this_thread.step, _this_thread.reports, _this_thread.apart = None, None, False
    if apart or not pack.is_empty:
        with Spending(Activity.WRITING):
            sync_directory(step.runs_directory)


@contextmanager
def one_pack(step: Step, *, to_read: bool = False) -> Iterator[PackWriter]:
    """Let the runs that this thread writes in the block be in one pack of a step.

    ``to_read``: this process reads them soon. After the block the pack is durable, except for its
    directory entry; it is removed if the block fails. In such a block of the same thread, the pack
    is that of the outer one.
    """
    outer: PackWriter | None = getattr(_this_thread, "pack", None)
    if outer is not None:
        yield outer
        return
    with PackWriter(step.runs_directory, step.attempt, to_read=to_read) as pack:
        _this_thread.pack = pack
        try:
            yield pack
        finally:
            _this_thread.pack = None
        with Spending(Activity.WRITING):
            pack.finish()


def step_of_this_thread() -> Step | None:
    """Return the step of :func:`in_this_process`, or None outside of its block and in workers."""
    return getattr(_this_thread, "step", None)


def write_run_of(step: Step, rows: ZSet) -> RunFile:
    """Write rows as a run of a step: into the pack of this thread, or one of its own."""
    with one_pack(step) as pack, Spending(Activity.WRITING):
        if getattr(_this_thread, "apart", False) and rows.table.nbytes > SHARED_BYTES:
            return write_run(step.runs_directory, rows, step.attempt)
        return pack.write(rows)


def leave_report(report: Report) -> None:
    """Leave the report of a call of a task."""
    _leave(report.operator, report)


def leave_nothing(task: str) -> None:
    """Leave a note that a task was called without anything to report."""
    _leave(task, None)


def leave_spent(spent: Spent) -> None:
    """Leave what the time of a whole task of Spark was spent on."""
    _leave(STAGE, None, spent.milliseconds())


def _leave(task: str, report: Report | None, spent: Mapping[str, float] | None = None) -> None:
    if step_of_this_thread() is not None:
        if report is not None:
            _this_thread.reports.append(report)
        return
    context = TaskContext.get()
    address = context.getLocalProperty(NOTES) if context is not None else None
    job = context.getLocalProperty(JOB) if context is not None else None
    if address is None or job is None:
        raise HeadraceError(Code.INTERNAL, "a task runs outside of a step")
    accumulator = pickle.loads(base64.b64decode(address))  # noqa: S301  (the driver made it)
    accumulator.add([(job, task, gethostname(), report and report.to_json(), spent)])


def reports_in(notes: Sequence[Note], tasks: Iterable[str], partitions: int) -> tuple[Report, ...]:
    """Return the reports among the notes of a job, by operator and partition.

    Each of the ``tasks`` must have left a note in every partition.

    Raises:
        HeadraceError: ``unavailable`` if notes of a task are missing, or it ran twice.
    """
    found = Counter(note.task for note in notes)
    for task in tasks:
        if found[task] > partitions:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f'operator "{task}" ran again in a partition, so the attempt is discarded',
                "Spark repeats tasks whose results were lost with an executor.",
            )
        if found[task] < partitions:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f'{partitions - found[task]} of {partitions} reports of operator "{task}" were'
                " lost, so the attempt is discarded",
                "Spark lost what some tasks sent to the driver.",
            )
    reports = [note.report for note in notes if note.report is not None]
    places = Counter((report.operator, report.partition) for report in reports)
    for (operator, partition), count in places.items():
        if count > 1:
            raise HeadraceError(
                Code.INTERNAL, f"{operator} reported {count} times in partition {partition}"
            )
    return tuple(sorted(reports, key=lambda report: (report.operator, report.partition)))


def require_seen(directory: Path, notes: Iterable[Note]) -> None:
    """Check that this process sees every run that tasks have reported, with all its bytes.

    Raises:
        HeadraceError: ``unavailable`` if a run file is missing or ends too early.
    """
    if mounts.mount_of(directory) is not None:  # the store has taken them
        return
    for note in notes:
        for file in note.report.runs.values() if note.report is not None else ():
            path = directory / file.pack
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                problem = "does not see it"
            except OSError as error:
                problem = f"cannot read it: {error.strerror}"
            else:
                if size >= file.end:
                    continue
                problem = f"sees {size:,} of its {file.end:,} bytes"
            raise HeadraceError(
                Code.UNAVAILABLE,
                f'run file "{file.name}" that a task wrote is not in the data directory',
                f'Host "{note.host}" wrote "{path}", and the driver {problem}.',
                SHARED_DIRECTORY,
            )


def seen_by_executor(step: Step, error: HeadraceError) -> HeadraceError:
    """Return the error of a task; damage that only its executor sees is ``unavailable``.

    If the driver does not see the damage, the files are intact: the executor sees an older state of
    the directory, or another directory.
    """
    if error.code is not Code.CORRUPT:
        return error
    try:
        _check_inputs(step)
    except HeadraceError as own:
        return own
    detail = f" {error.detail}" if error.detail else ""
    return HeadraceError(
        Code.UNAVAILABLE,
        "an executor does not see the data directory as the driver does",
        f"The executor: {error.primary}.{detail} For the driver, the file is whole.",
        SHARED_DIRECTORY,
    )


def _check_inputs(step: Step) -> None:
    """Read every byte of the files that a step reads.

    Raises:
        HeadraceError: ``corrupt`` if a file is missing or damaged.
    """
    for each in (*step.shares.values(), *step.arrangements.values()):
        match each:
            case LogShare():
                corrected = each.corrected.segments if each.corrected is not None else ()
                for segment in (*each.segments, *corrected):
                    open_segment(step.log_directory, segment.file)
            case RowsShare() | StepArrangement():
                for run in each.runs:
                    check_run(step.runs_directory, run, each.layout)
            case _:
                assert_never(each)
