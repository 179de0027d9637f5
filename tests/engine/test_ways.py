"""What leaves this process in a narrow epoch is said of the operator that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headrace.algebra.operators import Integrate, StatefulOperator, TouchedGroups
from headrace.algebra.zset import WEIGHT, Layout
from headrace.execution.engine.jobs.worker import Chain, OperatorTask
from headrace.execution.engine.narrow.nodes import Cut, Filtered, JobNode, Projected, Range, Task
from headrace.execution.engine.narrow.reading import Way, ways
from headrace.planning.catalyst.transplant import Mapped

if TYPE_CHECKING:
    from headrace.execution.engine.narrow.evaluated import ComputedColumns
    from headrace.execution.engine.narrow.nodes import RowsNode

WEIGHTS = pa.schema([pa.field(WEIGHT, pa.int64())])
LAYOUT = Layout(("x",), pa.schema([pa.field("x", pa.int64())]), WEIGHTS)
SCHEMA = LAYOUT.columns


@dataclass(frozen=True, eq=False)
class Columns:
    """Expressions, of which Catalyst evaluates some classes."""

    crossed: tuple[str, ...] = ()

    @property
    def catalyst(self) -> Columns:
        return self

    def classes(self) -> tuple[str, ...]:
        return self.crossed


def columns(*classes: str) -> ComputedColumns:
    return cast("ComputedColumns", Columns(classes))


def operator(name: str, operator: StatefulOperator) -> OperatorTask:
    return OperatorTask(name, operator, (), ((),), ())


def task(child: RowsNode, of: Any) -> Task:
    return Task(child, (), Mapped(of, cast("Any", None)), SCHEMA)


def job(below: RowsNode, why: str) -> JobNode:
    none = cast("Any", None)
    return JobNode(none, none, {(0, 0): Cut(below, (), none)}, none, SCHEMA, why)


def test_an_expression_is_of_what_gets_it_and_a_job_of_the_groups_that_it_recomputes() -> None:
    read = Filtered(Projected(Range(1), (0,), columns("SoundEx", "Like")), columns("Like"))
    groups = task(read, operator("1/groups1", TouchedGroups(LAYOUT)))
    rows = task(job(groups, "Window"), operator("1/rows", Integrate(LAYOUT)))
    found = ways(rows)
    assert found == {"1/groups1": Way(("Like", "SoundEx"), ("Window",)), "1/rows": Way()}
    assert found["1/rows"].words() == "in this process"
    assert found["1/groups1"].words() == (
        "in this process, with a crossing to the JVM for Like and SoundEx"
        " and a Spark job for Window"
    )


def test_a_job_between_others_is_of_the_operator_above_and_the_first_of_two_gets_the_rows() -> None:
    first, second = (operator(f"1/{name}", Integrate(LAYOUT)) for name in ("join1", "rows"))
    both = task(job(Range(1), "Generator"), Chain(first, ("x",), second))
    found = ways(Projected(both, (0,), columns("SoundEx")))  # above all operators: of the last one
    assert found == {"1/join1": Way((), ("Generator",)), "1/rows": Way(("SoundEx",))}
