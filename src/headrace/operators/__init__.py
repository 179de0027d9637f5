"""The stateful operators: pure functions from a change, and what was before, to a change."""

from headrace.operators.aggregate_parts import Distinct, End, Extremum, Part
from headrace.operators.first_rows import FirstRows
from headrace.operators.group_aggregate import INIT, ROWS, GlobalAggregate, GroupAggregate
from headrace.operators.integrate import Integrate
from headrace.operators.join import InnerJoin
from headrace.operators.protocol import StatefulOperator, Step
from headrace.operators.upsert import OFFSET, Upsert

__all__ = [
    "INIT",
    "OFFSET",
    "ROWS",
    "Distinct",
    "End",
    "Extremum",
    "FirstRows",
    "GlobalAggregate",
    "GroupAggregate",
    "InnerJoin",
    "Integrate",
    "Part",
    "StatefulOperator",
    "Step",
    "Upsert",
]
