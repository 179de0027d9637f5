"""Step views over changes that are not in the log, to find out their cost and effect."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.rounds import arranged_for
from headrace.execution.runtime.stages import RunStep
from headrace.execution.runtime.step import Clock, Step, arranged
from headrace.files import mounts
from headrace.planning.catalog import logged
from headrace.planning.circuit import output_of
from headrace.storage.ledger import OffsetRange, Segment
from headrace.storage.log import LogShare, write_segment
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.step import Report
    from headrace.planning.catalog import Stream, Table
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Tried:
    """The effect of a change on a view: rows that its operators read, and rows that change."""

    touched: int
    changed: int


def tried(
    loop: EpochLoop, relation: Stream | Table, rows: pa.Table, without: frozenset[RelationId]
) -> Mapping[RelationId, Tried]:
    """Return what an epoch that reads some changes of a relation would do, by view.

    The step is run, and what it wrote is removed. Views that lag, that have stopped, and those in
    ``without`` are left out.

    Raises:
        HeadraceError: if the query of a view fails on the changes.
    """
    with loop.lock:
        left_out = loop.left_out() | without
        file = write_segment(loop.directory / "log", logged(relation).in_log(rows))
        attempt = Attempt(loop.runs)
        try:
            first = loop.ledger.head.log_end(relation.id)
            end = Offset(first + rows.num_rows)
            segment = Segment(relation.id, OffsetRange(first, end), file, time.time())
            share = LogShare((segment,), first, end)
            previous, clock = loop.ledger.head.epoch, loop.ledger.epochs.clock()
            changed = frozenset([relation.id])
            width = loop.widths.of_shares(changed, [share])
            few, partitions = width.few, loop.partitions_of(width)
            needs = loop.runner.plan_live(changed, left_out, partitions, few=few)
            before = arranged(loop.ledger, needs.arrangements, previous)
            before |= arranged_for(needs.loops, {})
            step = Step(
                uuid4().hex,
                loop.directory,
                partitions,
                {id_: share for id_ in needs.reads if id_ == relation.id},
                before,
                clock=Clock(clock, clock),
                few=few,
            )
            stage = RunStep(step, changed, left_out, needs.loops, previous, width=width)
            loop.run_step(stage, attempt)
            return _by_view(loop, attempt.reports)
        finally:
            attempt.abandon()
            mounts.discard(loop.directory / "log", [file.name])


def _by_view(loop: EpochLoop, reports: list[Report]) -> dict[RelationId, Tried]:
    found: dict[RelationId, Tried] = {}
    for view in loop.catalog.views_in_order():
        mine = [
            r for r in reports if r.operator.partition("/")[0] in {str(view.id), str(view.build)}
        ]
        if mine:
            own = [r for r in mine if r.operator == output_of(view.build)]
            found[view.id] = Tried(
                sum(r.rows_in + r.rows_read for r in mine), sum(r.rows_out for r in own)
            )
    return found
