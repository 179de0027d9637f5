"""The stateful operators: pure functions from a change, and what was before, to a change."""

from headrace.operators.integrate import Integrate
from headrace.operators.join import InnerJoin
from headrace.operators.linear_aggregate import INIT, ROWS, GlobalAggregate, LinearAggregate
from headrace.operators.protocol import StatefulOperator, Step
from headrace.operators.upsert import OFFSET, Upsert

__all__ = [
    "INIT",
    "OFFSET",
    "ROWS",
    "GlobalAggregate",
    "InnerJoin",
    "Integrate",
    "LinearAggregate",
    "StatefulOperator",
    "Step",
    "Upsert",
]
