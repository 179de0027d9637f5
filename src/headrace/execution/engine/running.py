"""Running programs as Spark jobs: the sessions that they run in, and the reports of their tasks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.algebra.spine import remove_packs_of, sync_directory
from headrace.errors import HeadraceError
from headrace.execution.engine.jobs.executors import is_local
from headrace.execution.engine.jobs.reports import (
    Note,
    TaskReports,
    reports_in,
    require_seen,
    seen_by_executor,
)
from headrace.execution.engine.jobs.scope import jobs_of
from headrace.execution.engine.jobs.session import bare_session, for_few_rows, for_parcels
from headrace.execution.engine.lowering.assembly import Assembly
from headrace.execution.engine.lowering.programs import Lowering
from headrace.execution.engine.wide.nodes import IN_DOUBT
from headrace.execution.engine.wide.stages import Staged
from headrace.execution.runtime.ports import Stepped
from headrace.execution.runtime.spent import Activity, Spending, spent_in_tasks
from headrace.planning.catalyst.scala import scala_of
from headrace.planning.catalyst.transplant import Transplant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from headrace.execution.engine.jobs.lease import SparkSource
    from headrace.execution.engine.jobs.worker import LogReader
    from headrace.execution.engine.lowering.assembly import Program
    from headrace.execution.runtime.step import Report, Step
    from headrace.planning.catalog import Relation
    from headrace.types import RelationId


@dataclass
class Jobs:
    """Lowers circuits for the sessions of one application, and runs programs there."""

    source: SparkSource
    log: LogReader
    planning: threading.RLock
    _made: TaskReports | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def _reports(self) -> TaskReports:
        session = self.source.session
        with self._lock:
            self._made = self._made or TaskReports(session)
            return self._made

    @cached_property
    def _session(self) -> SparkSession:
        return bare_session(self.source.session)

    @cached_property
    def _session_of_stages(self) -> SparkSession:
        return for_parcels(self._session)

    @cached_property
    def _session_for_few(self) -> SparkSession:
        return for_few_rows(self._session)

    def few_rows(self) -> AbstractContextManager[None]:
        """Let Catalyst, on this thread, be that of the session of programs over few rows."""
        return scala_of(self.source.session).active(self._session_for_few)

    def lowering(self, partitions: int, relations: Mapping[RelationId, Relation]) -> Lowering:
        """Return a new lowering of circuits over some relations."""
        return Lowering(Assembly(self.transplant(partitions), partitions, relations, self.log))

    def staged(self, lowering: Lowering, program: Program) -> Program:
        """Return a program that steps of many rows run in stages, where that is possible."""
        of = lowering.assembly
        staged = Staged(of.transplant, program.jobs, of.partitions, self.planning)
        return replace(program, staged=staged)

    def transplant(self, partitions: int) -> Transplant:
        """Return what builds plans for steps of so many partitions; one has few rows."""
        session = self._session_for_few if partitions == 1 else self._session
        return Transplant(session, scala_of(self.source.session))

    def run(self, step: Step, program: Program) -> Stepped:
        """Run the jobs of a program; the runs that they write are durable when this returns.

        They run in stages, if the program can. If a value is in doubt there, Spark runs the whole
        step as another attempt.

        Raises:
            HeadraceError: if a job fails; what it has written is removed.
        """
        staged, begun = program.staged, list[Any]()
        with Spending(Activity.PLANNING):
            plans = None if staged is None or step.few else staged.plans()
        if staged is not None and plans is not None:
            transplant = Transplant(self._session_of_stages, scala_of(self.source.session))
            try:
                reports = self._run(step, program, transplant, plans, begun)
                return Stepped(reports, len(begun))
            except HeadraceError as error:
                if error.primary != IN_DOUBT:
                    raise
            staged.doubted()
            step = replace(step, attempt=f"{step.attempt}.spark")
        transplant = self.transplant(step.partitions)
        return Stepped(self._run(step, program, transplant, program.jobs, begun), len(begun))

    def _run(
        self,
        step: Step,
        program: Program,
        transplant: Transplant,
        jobs: Sequence[Any],
        begun: list[Any],
    ) -> tuple[Report, ...]:
        """Run some jobs; they are added to those that have ``begun``."""
        notes: list[Note] = []
        try:
            for job in jobs:
                begun.append(job)
                if notes:
                    step = step.after([note.report for note in notes if note.report is not None])
                with self._reports.awaited() as left:
                    with Spending(Activity.JOBS), jobs_of(self.source.for_jobs, step, left):
                        transplant.run(job)
                    notes += left.notes
            reports = reports_in(notes, program.reporting, step.partitions)
            require_seen(step.runs_directory, notes)
        except HeadraceError as error:
            remove_packs_of(step.runs_directory, step.attempt)
            if is_local(self.source.session.sparkContext):
                raise
            raise seen_by_executor(step, error) from error
        except BaseException:
            remove_packs_of(step.runs_directory, step.attempt)
            raise
        spent_in_tasks(note.spent for note in notes if note.spent is not None)
        with Spending(Activity.WRITING):
            sync_directory(step.runs_directory)
        return reports
