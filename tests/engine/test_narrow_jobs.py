"""The order of a narrow step: parts run as far as they go, then the jobs of all of them at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.errors import PySparkException

from headrace.execution.engine.narrow import parts
from headrace.execution.engine.narrow.nodes import Concatenated, JobNode, NoDeltas, StepRun
from headrace.execution.engine.narrow.parts import DueJob, StepPart, Variant
from headrace.execution.runtime.ports import StepPlan
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    from headrace.execution.engine.narrow.nodes import RowsNode

SCHEMA = pa.schema([("x", pa.int64())])
ROWS = pa.table({"x": [1]}, schema=SCHEMA)


@dataclass
class Known:
    """The deltas of a step in which everything has changed."""

    step: Any = None
    added: list[RelationId] = field(default_factory=list)

    def has_rows(self, _relations: Iterable[RelationId]) -> bool:
        return True

    def add(self, relation: RelationId, _rows: pa.Table) -> None:
        self.added.append(relation)


@dataclass(frozen=True, slots=True, eq=False)
class Alone(JobNode):
    """A node whose own job finds a row."""

    def computed(self, run: StepRun) -> pa.Table:
        run.jobs += 1
        return ROWS

    def filled(self, _run: StepRun) -> None:
        """There is nothing below it."""


def job() -> JobNode:
    nothing = cast("Any", None)
    return Alone(nothing, nothing, {}, nothing, SCHEMA, "a test")


def part(
    relation: int, reads: int, node: RowsNode, *jobs: tuple[JobNode, set[JobNode]]
) -> StepPart:
    needs = StepPlan(frozenset({RelationId(reads)}), {}, frozenset(), {}, ())
    given = tuple((each, frozenset(below)) for each, below in jobs)
    ticks = Variant(ticks=True)  # it may change although none of its inputs does
    return StepPart(RelationId(relation), ticks, None, {}, node, (), needs, given)


def test_jobs_that_wait_for_no_other_are_due_together() -> None:
    first, second, above = job(), job(), job()
    deltas = Known()
    left: Sequence[tuple[StepPart, StepRun]] = [
        (part(1, 0, first, (first, set())), StepRun(NoDeltas())),
        (part(2, 1, Concatenated((above,)), (above, set())), StepRun(NoDeltas())),
        (part(3, 0, second, (second, set()), (above, {second})), StepRun(NoDeltas())),
        (part(4, 0, Concatenated(())), StepRun(NoDeltas(), found={})),
    ]
    left[3][1].found[left[3][0].node] = ROWS
    seen: list[tuple[list[JobNode], list[RelationId]]] = []
    while left:
        due: list[DueJob]
        left, due = parts._advanced(left, cast("Any", deltas))
        seen.append(([each.node for each in due], list(deltas.added)))
        for each in due:
            each.run.put(each.node, ROWS)
    assert seen == [
        ([first, second], [4]),
        ([above, above], [4, 1]),
        ([], [4, 1, 2, 3]),
    ]


def test_each_node_gets_its_rows_of_one_job_or_of_its_own_if_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = job(), job()
    columns = {"which": [1, 0, 1], "x0_0": [None, 7, None], "x1_0": [8, None, 9]}
    monkeypatch.setattr(parts, "_union", lambda *_: pa.table(columns))
    runs = [StepRun(NoDeltas()), StepRun(NoDeltas())]
    due = [DueJob(first, runs[0]), DueJob(second, runs[1])]
    parts.run_jobs(due)
    assert [run.jobs for run in runs] == [1, 0]
    assert first.rows(runs[0]).to_pydict() == {"x": [7]}
    assert second.rows(runs[1]).to_pydict() == {"x": [8, 9]}

    def fails(*_: object) -> pa.Table:
        raise PySparkException("several at once")

    monkeypatch.setattr(parts, "_union", fails)
    runs = [StepRun(NoDeltas()), StepRun(NoDeltas())]
    parts.run_jobs([DueJob(first, runs[0]), DueJob(second, runs[1])])
    assert [run.jobs for run in runs] == [2, 1]
    assert first.rows(runs[0]) == second.rows(runs[1]) == ROWS
    parts.run_jobs([DueJob(first, alone := StepRun(NoDeltas()))])
    assert alone.jobs == 1
