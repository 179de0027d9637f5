"""The stateful operators: pure functions of input deltas and state that return an output delta."""

from headrace.operators.aggregate_parts import (
    INIT,
    ROWS,
    Distinct,
    End,
    Extremum,
    FloatSum,
    Part,
    Picked,
    SignedExtremum,
    ValuePart,
)
from headrace.operators.compared import BOUND, VALUE, Compared
from headrace.operators.emits import FLAG, Emits
from headrace.operators.first_rows import FirstRows
from headrace.operators.fold import FOLDED, Fold, FoldFunction
from headrace.operators.group_aggregate import GlobalAggregate, GroupAggregate
from headrace.operators.integrate import Integrate
from headrace.operators.join import InnerJoin
from headrace.operators.matches import MATCHES, Matches
from headrace.operators.near_rows import (
    BEFORE,
    ORDERS,
    REACHED,
    SLICE,
    FrameReach,
    NearRows,
    sums_of,
)
from headrace.operators.outer_join import OuterJoin
from headrace.operators.pairs import Pairs, RangePairs, Within
from headrace.operators.presence import counts_layout
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.operators.quantiles import Quantile, QuantileColumn, Quantiles
from headrace.operators.quarantine import ERROR, REFUSED, SINCE, Quarantine, arrived_in, held_back
from headrace.operators.recursion import Recursion
from headrace.operators.row_kinds import PRESENT, ROW, VERSION, RowKind
from headrace.operators.semi_join import SemiJoin
from headrace.operators.session_aggregate import SessionAggregate
from headrace.operators.temporal import CLOCK, Temporal
from headrace.operators.touched_groups import TouchedGroups
from headrace.operators.touched_sessions import SESSION, TouchedSessions
from headrace.operators.unique_key import Violation, violation
from headrace.operators.upsert import OFFSET, Upsert

__all__ = [
    "BEFORE",
    "BOUND",
    "CLOCK",
    "ERROR",
    "FLAG",
    "FOLDED",
    "INIT",
    "MATCHES",
    "OFFSET",
    "ORDERS",
    "PRESENT",
    "REACHED",
    "REFUSED",
    "ROW",
    "ROWS",
    "SESSION",
    "SINCE",
    "SLICE",
    "VALUE",
    "VERSION",
    "Compared",
    "Distinct",
    "Emits",
    "End",
    "Extremum",
    "FirstRows",
    "FloatSum",
    "Fold",
    "FoldFunction",
    "FrameReach",
    "GlobalAggregate",
    "GroupAggregate",
    "InnerJoin",
    "Integrate",
    "Matches",
    "NearRows",
    "OuterJoin",
    "Pairs",
    "Part",
    "Picked",
    "Quantile",
    "QuantileColumn",
    "Quantiles",
    "Quarantine",
    "RangePairs",
    "Recursion",
    "RowKind",
    "SemiJoin",
    "SessionAggregate",
    "SignedExtremum",
    "StatefulOperator",
    "StepResult",
    "Temporal",
    "TouchedGroups",
    "TouchedSessions",
    "Upsert",
    "ValuePart",
    "Violation",
    "Within",
    "arrived_in",
    "counts_layout",
    "held_back",
    "sums_of",
    "violation",
]
