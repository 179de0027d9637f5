"""Narrow steps: programs in this process, composed of a part for each view and each table.

A part computes the delta of one relation from the deltas of the relations that it reads. It is
built when a step first reaches the relation, and kept until the relation or one of its inputs is
declared again: a step over any set of changed relations is composed of the same parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.engine.jobs.reports import in_this_process
from headrace.engine.lowering.assembly import ShareScan
from headrace.engine.narrow.deltas import Deltas
from headrace.engine.narrow.nodes import DeltaLeaf, StepRun
from headrace.engine.narrow.reading import node_of
from headrace.runtime.ports import Stepped, StepPlan

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.catalog import Relation, Table
    from headrace.circuit import Circuit
    from headrace.engine.jobs.worker import LogReader
    from headrace.engine.lowering.programs import Lowering
    from headrace.engine.narrow.nodes import RowsNode
    from headrace.runtime.step import Step
    from headrace.types import ArrangementId, RelationId
    from headrace.zset import Layout


@dataclass(frozen=True, slots=True)
class Variant:
    """How a view takes part in a step: whether time passes, and whether its recursions go on."""

    ticks: bool = False
    loops: bool = False

    @property
    def runs_without_changes(self) -> bool:
        """Whether the view may change although none of its inputs does."""
        return self.ticks or self.loops


@dataclass(frozen=True, slots=True)
class StepPart:
    """The program of one relation: ``node`` yields its delta.

    ``circuit`` is that of a view; ``relations`` are its inputs when the part was built.
    """

    relation: RelationId
    variant: Variant
    circuit: Circuit | None
    relations: Mapping[RelationId, Relation]
    node: RowsNode
    leaves: tuple[DeltaLeaf, ...]
    needs: StepPlan

    def is_idle(self, deltas: Deltas) -> bool:
        """Whether nothing can change: no input has changed, and time does not matter."""
        if self.variant.runs_without_changes or deltas.step.initialise & self.needs.globals:
            return False
        return not deltas.has_rows(self.needs.reads)


@dataclass(slots=True)
class StepParts:
    """The parts that have been built; ``planning`` is held while one is built.

    ``lowering`` returns a new lowering for one partition, over these relations.
    """

    lowering: Callable[[Mapping[RelationId, Relation]], Lowering]
    planning: threading.RLock
    _known: dict[tuple[RelationId, Variant], StepPart] = field(default_factory=dict)

    def of_view(
        self, circuit: Circuit, variant: Variant, relations: Mapping[RelationId, Relation]
    ) -> StepPart:
        """Return the part of a view."""
        key = circuit.view, variant
        known = self._known.get(key)
        if known is not None and known.circuit is circuit and _same(known.relations, relations):
            return known
        with self.planning:
            lowering = self.lowering(relations)
            program = lowering.alone(circuit, ticks=variant.ticks, loops=variant.loops)
            own = {id_: relations[id_] for id_ in circuit.reads}
            part = _part(lowering, circuit.view, variant, circuit, own, program.needs([circuit]))
            self._known[key] = part
            return part

    def of_table(self, table: Table) -> StepPart:
        """Return the part that keeps the rows of a table."""
        key = table.id, Variant()
        known = self._known.get(key)
        if known is not None and known.relations[table.id] is table:
            return known
        with self.planning:
            relations = {table.id: table}
            lowering = self.lowering(relations)
            program = lowering.rows_of(table)
            part = _part(lowering, table.id, Variant(), None, relations, program.needs([]))
            self._known[key] = part
            return part

    def forget(self, relation: RelationId) -> None:
        """Forget the parts of a relation."""
        for key in [key for key in self._known if key[0] == relation]:
            del self._known[key]


def _same(known: Mapping[RelationId, Relation], relations: Mapping[RelationId, Relation]) -> bool:
    return all(relations.get(id_) is relation for id_, relation in known.items())


def _part(
    lowering: Lowering,
    relation: RelationId,
    variant: Variant,
    circuit: Circuit | None,
    relations: Mapping[RelationId, Relation],
    needs: StepPlan,
) -> StepPart:
    node = node_of(lowering.transplant, lowering.assembly.frames[relation].plan)
    leaves = tuple(each for each in _nodes(node, set()) if isinstance(each, DeltaLeaf))
    return StepPart(relation, variant, circuit, relations, node, leaves, needs)


def _nodes(node: RowsNode, seen: set[RowsNode]) -> Iterable[RowsNode]:
    if node not in seen:
        seen.add(node)
        for below in node.below:
            yield from _nodes(below, seen)
        yield node


def together(parts: Sequence[StepPart]) -> StepPlan:
    """Return what a step of some parts needs."""
    needs = [part.needs for part in parts]
    arrangements: dict[ArrangementId, Layout] = {}
    shared: dict[ArrangementId, RelationId] = {}
    for each in needs:
        arrangements.update(each.arrangements)
        shared.update(each.shared)
    return StepPlan(
        frozenset().union(*(each.reads for each in needs)),
        arrangements,
        frozenset().union(*(each.globals for each in needs)),
        shared,
        tuple(loop for each in needs for loop in each.loops),
        guards=frozenset().union(*(each.guards for each in needs)),
    )


def scans(parts: Iterable[StepPart]) -> dict[RelationId, ShareScan]:
    """Return the columns that some parts read of each relation."""
    columns: dict[RelationId, dict[str, None]] = {}
    places: set[RelationId] = set()
    for part in parts:
        for leaf in part.leaves:
            columns.setdefault(leaf.relation, {}).update(dict.fromkeys(leaf.columns))
            if leaf.offsets:
                places.add(leaf.relation)
    return {id_: ShareScan(tuple(names), id_ in places) for id_, names in columns.items()}


def run_parts(
    step: Step,
    parts: Sequence[StepPart],
    relations: Mapping[RelationId, Relation],
    log: LogReader,
    most: int,
) -> Stepped:
    """Run parts in this process, each after those that it reads.

    Raises:
        MoreRowsError: a share or a delta has more than ``most`` rows.
        Py4JError: an expression fails on a row.
    """
    jobs = 0
    with in_this_process(step) as reports:
        deltas = Deltas(step, log, relations, scans(parts), most)
        for part in parts:
            if not part.is_idle(deltas):
                run = StepRun(deltas, most)
                deltas.add(part.relation, part.node.rows(run))
                jobs += run.jobs
    return Stepped(tuple(reports), jobs)
