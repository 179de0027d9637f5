"""The programs that fill a build of a view, or a slice of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.narrow.parts import StepPart, Variant, node_in, part_over
from headrace.engine.narrow.reach import reach_of
from headrace.engine.narrow.reading import interpreted

if TYPE_CHECKING:
    from headrace.engine.lowering.assembly import Program
    from headrace.engine.narrow.nodes import RowsNode
    from headrace.engine.planned import RunningFill
    from headrace.engine.running import Jobs
    from headrace.types import RelationId


def fill_program(
    jobs: Jobs, filled: RunningFill, partitions: int, *, looping: bool, ticks: bool, here: bool
) -> Program:
    """Return the program of steps of a fill; see :meth:`StepRunner.plan_fill`."""
    circuit, lowering = filled.circuit, jobs.lowering(partitions, filled.relations)
    if looping:
        none: frozenset[RelationId] = frozenset()
        again = lowering.live((circuit,), none, frozenset({circuit.view}), none)
        return jobs.staged(lowering, again)
    program = lowering.stored(
        circuit, ticks=ticks, sliced=filled.sliced, watch=filled.watch, restored=filled.inputs
    )
    if here:
        node = node_in(lowering, circuit.view)
        return replace(program, here=node, reach=reach_of(node))
    if filled.sliced is None or partitions > 1:
        return jobs.staged(lowering, program)
    return replace(program, interpreted=interpreted(lowering.transplant, program.jobs))


def part_here(node: RowsNode, program: Program, filled: RunningFill, *, ticks: bool) -> StepPart:
    """Return the part that fills a view in this process."""
    circuit, needs = filled.circuit, program.needs([filled.circuit])
    read = {id_: filled.relations[id_] for id_ in circuit.reads}
    return part_over(node, circuit.view, Variant(ticks=ticks), circuit, read, needs)
