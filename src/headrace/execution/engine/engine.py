"""The engine: builds the circuits and programs of the declared relations, and runs the programs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.algebra.spine import remove_packs_of
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.circuits import (
    MOST_PLANNED,
    Planned,
    Restoring,
    RunningFill,
    ViewCircuits,
    fill_program,
    part_here,
    restoring,
)
from headrace.execution.engine.conditions import (
    HASHES,
    PLACES,
    Sieve,
    Touched,
    slice_conditions,
    slice_query,
    touched,
)
from headrace.execution.engine.declared import DeclaredRelations
from headrace.execution.engine.jobs.failures import step_failure
from headrace.execution.engine.jobs.reports import in_this_process
from headrace.execution.engine.jobs.scope import jobs_of, on_demand, tagged, without_job
from headrace.execution.engine.jobs.slice_tasks import replaced
from headrace.execution.engine.known_by import KnownTimes, left_by
from headrace.execution.engine.lowering.nodes import leaf_names
from headrace.execution.engine.lowering.programs import (
    FillKey,
    KeptPrograms,
    LiveKey,
    difference_program,
    without_spark,
)
from headrace.execution.engine.narrow.nodes import MOST_FILLING, MOST_FLOWING
from headrace.execution.engine.narrow.parts import (
    StepPart,
    StepParts,
    UnplannedPartError,
    Variant,
    run_parts,
    together,
)
from headrace.execution.engine.narrow.reading import Way, ways
from headrace.execution.engine.running import Jobs
from headrace.execution.runtime.spent import Activity, Spending
from headrace.planning.catalog import Relation, Stream, Table, View
from headrace.planning.catalyst.predicates import Predicates
from headrace.planning.catalyst.scala import collect_arrow, scala_of
from headrace.planning.circuit import Circuit, Sliced, sliced
from headrace.planning.circuit.digest import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from headrace.execution.engine.jobs.lease import SparkSource
    from headrace.execution.engine.jobs.worker import LogReader
    from headrace.execution.engine.lowering.assembly import Program
    from headrace.execution.engine.narrow.stored import ProgramFiles
    from headrace.execution.runtime.fill_parts import Sizes, Takeover
    from headrace.execution.runtime.ports import Stepped, StepPlan
    from headrace.execution.runtime.step import Report, Step
    from headrace.planning.catalyst.analysed import Analysed
    from headrace.planning.catalyst.planner import Planner
    from headrace.planning.catalyst.python import Registered
    from headrace.planning.catalyst.scala import Scala
    from headrace.planning.circuit import Node
    from headrace.planning.functions import Function
    from headrace.types import ArrangementId, BuildId, RelationId


_SLICES = "slices"
"""Stands for the id of a replay in the key of a program that several slices share."""


class Engine:
    """Plans and runs steps for the declared relations. Thread-safe.

    Statements are planned one at a time; steps run while statements are planned.
    """

    def __init__(
        self,
        source: SparkSource,
        partitions: int,
        log: LogReader,
        programs: ProgramFiles | None = None,
    ) -> None:
        self.source = source
        self.partitions = partitions
        self.log = log
        self.planning = threading.RLock()
        self.declared = DeclaredRelations(source, self.planning)
        self._relations = self.declared.by_id
        self.circuits = ViewCircuits(self.declared)
        self.changes = 0
        """How often the meaning of a name has changed."""
        known = self.circuit, self._relations, self.planning
        self.known_times = KnownTimes(*known, lambda: self.changes)
        self._sliced: tuple[str, Analysed] | None = None
        """The text and the analysis of the query of the last slice's condition."""
        self._filling: dict[BuildId, RunningFill] = {}
        """The builds that are being filled, which no epoch steps yet, and the replays."""
        self.programs = KeptPrograms()
        self._jobs = Jobs(source, log, self.planning)
        self._parts = StepParts(partial(self._jobs.lowering, 1), self.planning, programs)

    @property
    def spark(self) -> SparkSession:
        """The session of Spark; see :class:`SparkSource`."""
        return self.source.session

    @property
    def jobs_wait(self) -> bool:
        """Whether a job would wait now: for Spark to start, or for an executor."""
        return not self.source.is_ready

    @property
    def planner(self) -> Planner:
        """The planner of queries over the declared relations; this waits for Spark."""
        return self.declared.planner

    @cached_property
    def _scala(self) -> Scala:
        return scala_of(self.spark)

    # -- the catalog -----------------------------------------------------------------------

    def declare(
        self, relation: Relation, *, planned: bool = True, circuit: Circuit | None = None
    ) -> None:
        """Declare a relation; declare a view after the relations that it depends on.

        A view without a ``circuit`` is planned when that is needed. One not ``planned`` has no
        circuit, so steps leave it out. A plain view that is not ``planned`` is not replaced by its
        query.
        """
        with self.planning:
            self.declared.declare(relation, planned=planned)
            if isinstance(relation, View) and planned:
                filled = self._filling.pop(relation.build, None)
                self.circuits.declare(relation, filled.circuit if filled else circuit)
                if filled is not None:
                    self._keep_part(relation, filled)
            self._changed()

    def _keep_part(self, view: View, filled: RunningFill) -> None:
        """Let narrow epochs step a view by the part that has filled it, if there is one.

        A part with constants yields them in a first step only, and another one is built.
        """
        program = self.programs.known(FillKey(view.build, view.build, here=True))
        if program is not None and program.here is not None and not program.constants:
            part = part_here(program.here, program, filled, ticks=False)
            self._parts.add(part, self._relations)

    @contextmanager
    def beside(self, tables: Iterable[Table]) -> Iterator[None]:
        """Declare some tables for the duration of a block, in which no other thread plans queries.

        Earlier plans remain valid.
        """
        with self.planning:
            for table in tables:
                self.declared.add(table)
            try:
                yield
            finally:
                for table in tables:
                    self.declared.remove(table)

    def begin_fill(self, planned: Planned) -> Circuit:
        """Begin to fill a view that is not declared yet: epochs do not step it.

        Returns its circuit, planned again if the meaning of names has changed since.
        """
        with self.planning:
            view, circuit = planned.view, planned.circuit
            if planned.changes != self.changes:
                circuit = self.circuit(view)
                if view.circuit and view.circuit != digest(circuit):
                    raise HeadraceError(
                        Code.CONFLICT,
                        "a relation of the statement was altered meanwhile",
                        hint="Run the statement again.",
                    )
            self._filling[view.build] = RunningFill(circuit, dict(self._relations))
            return circuit

    @contextmanager
    def taking_over(
        self, build: BuildId, kept: Iterable[RelationId], rows: Sizes
    ) -> Iterator[Takeover | None]:
        """Let the steps of a fill read state of other views for the duration of a block."""
        with self.planning:
            filled = self._filling[build]
            found = self.restoring(filled.circuit, kept, rows)
            self._filling[build] = replace(filled, restoring=found)
        try:
            yield None if found is None else found.takeover
        finally:
            self._filling[build] = filled

    def restoring(
        self, circuit: Circuit, kept: Iterable[RelationId], rows: Sizes
    ) -> Restoring | None:
        """Return what a circuit would take over of views that are kept; None for nothing."""
        with self.planning:
            known = self.circuits.of_those(kept, MOST_PLANNED)
            return restoring(circuit, known, self._scala, rows)

    def is_filling(self, relations: Iterable[RelationId]) -> bool:
        """Whether a build, or a slice of one, that reads one of some relations is being filled."""
        with self.planning:
            some = frozenset(relations)
            return any(not some.isdisjoint(f.circuit.reads) for f in self._filling.values())

    def begin_replay(
        self, replay: BuildId, sliced: Sliced, watch: Mapping[Node, str] = MappingProxyType({})
    ) -> None:
        """Begin to fill a slice of a declared view as if it were a build with this id.

        The rows of the nodes in ``watch`` are counted, and reported under these names.
        """
        with self.planning:
            filled = RunningFill(sliced.circuit, dict(self._relations), sliced, watch)
            self._filling[replay] = filled

    def end_replay(self, replay: BuildId) -> None:
        """Forget a replay."""
        with self.planning:
            self._filling.pop(replay, None)
            self.programs.forget(lambda key: isinstance(key, FillKey) and key.known_as == replay)

    def slice_analysed(self, view: View, where: str) -> Analysed:
        """Return the analysed query of a slice's condition; the last one is cached.

        A condition is checked first and used afterwards.
        """
        with self.planning:
            query = slice_query(view, where)
            if self._sliced is None or self._sliced[0] != query.text:
                self._sliced = query.text, self.planner.analyse(query)
            return self._sliced[1]

    def sliced(self, view: View, where: str) -> Sliced:
        """Return a slice of a view's circuit, for a condition on its columns; "" is every row.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, with the place in the condition.
        """
        with self.planning:
            circuit = self.circuit(view)
            columns = circuit.output.child.plan.attributes
            conditions = slice_conditions(self.slice_analysed, self.planner, view, where, columns)
            names = {id_: self._relations[id_].schema.stored_names for id_ in circuit.reads}
            return sliced(circuit, conditions, Predicates(self._scala), names)

    def end_fill(self, view: View) -> None:
        """Forget a view that was filled, unless it has been declared."""
        with self.planning:
            self._filling.pop(view.build, None)

    def forget(self, relation: Relation) -> None:
        """Remove a relation; remove its dependants first."""
        with self.planning:
            self.declared.forget(relation)
            self.circuits.forget(relation.id)
            self._parts.forget(relation.id)
            self._changed()

    def _changed(self) -> None:
        """Discard what was analysed with the former meaning of names."""
        self._sliced = None
        self.changes += 1

    def prepared(self, function: Function) -> Registered:
        """Return a Python function in callable form; see :meth:`Planner.prepared`."""
        with self.planning:
            return self.planner.prepared(function)

    def register(self, function: Registered) -> None:
        """Register a Python function for queries, replacing a function of the same name."""
        with self.planning:
            self._changed()
            self.planner.register(function)

    def unregister(self, name: str) -> Registered | None:
        """Remove a Python function; return it, or None if it was not registered."""
        with self.planning:
            registered = self.declared.functions.get(name)
            self._changed()
            self.planner.unregister(name)
            return registered

    def planned(self, view: View) -> Planned:
        """Return a build of a view with its circuit; see :meth:`circuit`."""
        with self.planning:
            return Planned(view, self.circuit(view), self.changes)

    def circuit(self, view: View) -> Circuit:
        """Return the circuit of a view; the query of a view that is not declared is planned.

        Raises:
            HeadraceError: ``unsupported`` if the query cannot be maintained.
        """
        with self.planning:
            if self.circuits.has(view):
                return self.circuits.of(view.id)
            return self.circuits.plan(view)

    def left_by(
        self, circuit: Circuit, stream: Stream, latest: Mapping[str, int | None]
    ) -> int | None:
        """Return the time from which a circuit keeps nothing of some events of a stream.

        See :func:`headrace.execution.engine.known_by.left_by`.
        """
        with self.planning:
            return left_by(self._scala, circuit, stream, latest)

    def touched(self, view: View, since: int) -> tuple[Touched, ...] | None:
        """Return conditions for the rows of a view changed by events from a time on.

        See :func:`headrace.execution.engine.conditions.touched`.
        """
        with self.planning:
            return touched(self._scala, self.circuit(view), view, self._relations, since)

    # -- steps -----------------------------------------------------------------------------

    def unfit(
        self, changed: frozenset[RelationId], without: frozenset[RelationId], *, few: bool
    ) -> dict[RelationId, HeadraceError]:
        """Plan the views that changes can reach; see :meth:`StepRunner.unfit`."""
        circuits = self.circuits
        unplanned = [id_ for id_ in circuits.above(changed, without) if circuits.known(id_) is None]
        if few:
            unplanned = [id_ for id_ in unplanned if self._stored(id_, changed) is None]
        if not unplanned:
            return {}
        with self.planning:
            return circuits.unfit(unplanned)

    def is_stored(self, view: View) -> bool:
        """Whether narrow epochs can reach a view without planning it; it may have been dropped."""
        return view.id in self._relations and self._stored(view.id, frozenset()) is not None

    def _stored(
        self,
        id_: RelationId,
        changed: frozenset[RelationId],
        looping: frozenset[RelationId] = frozenset(),
    ) -> StepPart | None:
        variant = Variant(ticks=id_ in changed, loops=id_ in looping)
        return self._parts.stored(self._relations[id_], variant, self._relations)

    def plan_live(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        partitions: int,
        looping: frozenset[RelationId] = frozenset(),
        given: frozenset[RelationId] = frozenset(),
        *,
        few: bool = False,
    ) -> StepPlan:
        """Return the plan of an epoch's step over the changed relations."""
        if few:
            plan = together(self._parts_of(changed, without, looping, given))
            computed = {id_ for id_ in plan.reads if isinstance(self._relations[id_], View)}
            return replace(plan, reads=plan.reads & (changed | given) - (computed - given))
        key, program = self._live(changed, without, partitions, looping, given)
        return program.needs(self._reached(key.changed, without, looping, given))

    def run_live(
        self,
        step: Step,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId] = frozenset(),
        given: frozenset[RelationId] = frozenset(),
    ) -> Stepped:
        """Run an epoch's step."""
        if step.few:
            return self._run_here(step, changed, without, looping, given)
        _, program = self._live(changed, without, step.partitions, looping, given)
        return self._jobs.run(step, program)

    def _run_here(self, step: Step, *reached: frozenset[RelationId]) -> Stepped:
        """Run a narrow step. If a stored part has to be planned, the step is run again."""
        while True:
            with Spending(Activity.PLANNING):
                parts = self._parts_of(*reached)
            try:
                given = self._tagged, self._jobs.few_rows
                with self._parts.held(parts), without_job(), on_demand(*given):
                    return run_parts(step, parts, self._relations, self.log, MOST_FLOWING)
            except UnplannedPartError as unplanned:
                self._parts.plan(unplanned.relation)

    def _tagged(self) -> AbstractContextManager[None]:
        return tagged(self.spark)

    def _parts_of(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId],
        given: frozenset[RelationId],
    ) -> list[StepPart]:
        """Return the parts of the tables that have changed, and of the views above what has."""
        relations, found = self._relations, []
        for id_ in sorted(changed):
            relation = relations[id_]
            if isinstance(relation, Table):
                found.append(self._parts.of_table(relation))
        for id_ in self.circuits.above(changed | looping | given, without | given):
            part = self._stored(id_, changed, looping)
            if part is None:
                variant = Variant(ticks=id_ in changed, loops=id_ in looping)
                part = self._parts.of_view(self._circuit_of(id_), variant, relations)
            found.append(part)
        return found

    def _circuit_of(self, id_: RelationId) -> Circuit:
        known = self.circuits.known(id_)
        if known is not None:
            return known
        with self.planning:
            return self.circuits.of(id_)

    def ways(self, view: View) -> Mapping[str, Way]:
        """Return how narrow epochs run each operator of a declared view, by the operator's name."""
        return ways(self.prepare(view).node)

    def prepare(self, view: View) -> StepPart:
        """Return the part of a declared view in narrow steps; it is built if it is not stored."""
        part = self._stored(view.id, frozenset())
        if part is None:
            with self.planning, self._jobs.few_rows():
                of = self.circuits.of(view.id)
                part = self._parts.of_view(of, Variant(), self._relations)
        return part

    def plan_fill(
        self,
        build: BuildId,
        partitions: int,
        *,
        looping: bool = False,
        ticks: bool = False,
        here: bool = False,
    ) -> StepPlan:
        """Return the plan of the steps that fill a build of a view."""
        circuit = self._filled(build)
        program = self._fill_program(build, partitions, looping=looping, ticks=ticks, here=here)
        needs, filled = program.needs([circuit]), self._filling.get(build)
        if filled is None or filled.sliced is None:
            return needs
        names = leaf_names(circuit)
        found = {names[leaf]: each for leaf, each in filled.sliced.leaves.items()}
        return replace(needs, restrictions=found)

    def run_fill(
        self, step: Step, build: BuildId, *, looping: bool = False, ticks: bool = False
    ) -> tuple[Report, ...]:
        """Run one step of filling a build, or a further round of its recursions."""
        here, partitions = step.few and not looping, step.partitions
        program = self._fill_program(build, partitions, looping=looping, ticks=ticks, here=here)
        if not step.few or (program.interpreted is None and program.here is None):
            return self._jobs.run(step, program).reports
        try:
            with without_job(), on_demand(self._tagged, self._jobs.few_rows):
                if program.here is not None:
                    part = part_here(program.here, program, self._running(build), ticks=ticks)
                    given = step, [part], part.relations, self.log
                    return run_parts(*given, MOST_FILLING, apart=True).reports
                assert program.interpreted is not None  # noqa: S101  (it was asked above)
                return program.interpreted.run(step)
        except BaseException:
            remove_packs_of(step.runs_directory, step.attempt)
            raise

    def run_difference(self, step: Step, build: BuildId) -> tuple[Report, ...]:
        """Write the difference between a replayed slice and the stored rows."""
        found = self._filling[build].sliced
        if found is None:
            raise HeadraceError(Code.INTERNAL, f"build {build} is not replayed")
        few, whole = without_spark(found, step), replace(step, partitions=1)
        with in_this_process(whole):
            reports = [
                replaced(whole, id_, found.arrangements[id_].restriction, 0) for id_ in sorted(few)
            ]
        if few >= step.arrangements.keys():
            return tuple(reports)
        with self.planning:
            ids, transplant = sorted(step.arrangements.keys() - few), self._jobs.transplant
            program = difference_program(transplant(step.partitions), step.partitions, found, ids)
        return (*reports, *self._jobs.run(step, program).reports)

    def sieve(self, step: Step, build: BuildId, quarantine: ArrangementId) -> dict[int, str]:
        """Return the hashes of rows on which expressions fail, each with what fails."""
        circuit = self._filled(build)
        guard = next(g for g in circuit.guards().values() if g.arrangement == quarantine)
        with self.planning:
            sieve = Sieve(self._jobs.transplant(step.partitions), circuit, guard, step.partitions)
            failing = sieve.failing()
        if failing is None:
            return {}
        try:
            with jobs_of(self.source.for_jobs, step):
                found = collect_arrow(sieve.transplant.frame(failing))
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error
        places = zip(found[HASHES].to_pylist(), found[PLACES].to_pylist(), strict=True)
        return {hash_: f"{sieve.places[place]} fails" for hash_, place in places}

    def _filled(self, build: BuildId) -> Circuit:
        if build in self._filling:
            return self._filling[build].circuit
        with self.planning:
            return self.circuits.of_build(build)

    def _live(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        partitions: int,
        looping: frozenset[RelationId],
        given: frozenset[RelationId],
    ) -> tuple[LiveKey, Program]:
        relations = self._relations
        with self.planning:
            key = LiveKey(changed, without, partitions, looping, given)
            plain = {id_ for id_, each in relations.items() if not isinstance(each, View)}
            key = replace(key, changed=self.programs.covering(key, plain))
            circuits = self._reached(key.changed, without, looping, given)
            read = key.changed.union(given, *(circuit.reads for circuit in circuits))

            def build() -> Program:
                lowering = self._jobs.lowering(partitions, relations)
                program = lowering.live(circuits, key.changed, looping, given)
                return self._jobs.staged(lowering, program)

            over = (*circuits, *(relations[id_] for id_ in sorted(read)))
            return key, self.programs.get(key, over, build)

    def _reached(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId],
        given: frozenset[RelationId],
    ) -> tuple[Circuit, ...]:
        """Return the circuits of the views that a step can change, inputs first.

        A step waits for statements that are planned only if it reaches a view that is not.
        """
        ids = self.circuits.above(changed | looping | given, without | given)
        return tuple(map(self._circuit_of, ids))

    def _running(self, build: BuildId) -> RunningFill:
        return self._filling.get(build) or RunningFill(self._filled(build), self._relations)

    def _fill_program(
        self, id_: BuildId, partitions: int, *, looping: bool, ticks: bool, here: bool
    ) -> Program:
        filled = self._running(id_)
        circuit = filled.circuit
        here = here and filled.sliced is None and not circuit.loops()

        def build() -> Program:
            return fill_program(
                self._jobs, filled, partitions, looping=looping, ticks=ticks, here=here
            )

        known_as = _SLICES if self._is_shared(filled) else id_
        restoring = filled.restoring is not None
        key = FillKey(known_as, circuit.build, partitions, looping, ticks, here, restoring)
        read = (filled.relations[id_] for id_ in sorted(circuit.reads))
        over = (circuit, filled.restoring, *read)
        with self.planning:
            return self.programs.get(key, over, build)

    def _is_shared(self, filled: RunningFill) -> bool:
        """Whether a slice has the program of other slices: only what leaves read differs."""
        sliced, circuit = filled.sliced, filled.circuit
        return (
            sliced is not None
            and sliced.exact
            and not filled.watch
            and self.circuits.known(circuit.view) is circuit
            and all(self._relations.get(id_) is filled.relations[id_] for id_ in circuit.reads)
        )
