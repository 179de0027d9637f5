"""The stateful operators: pure functions of input deltas and state that return an output delta."""

from headrace.algebra.operators.aggregate_parts import (
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
from headrace.algebra.operators.compared import BOUND, VALUE, Compared
from headrace.algebra.operators.contents import OFFSET, Integrate, Upsert, Violation, violation
from headrace.algebra.operators.first_rows import FirstRows
from headrace.algebra.operators.fold import FOLDED, Fold, FoldFunction
from headrace.algebra.operators.group_aggregate import GlobalAggregate, GroupAggregate
from headrace.algebra.operators.joins import MATCHES, InnerJoin, Matches, OuterJoin, SemiJoin
from headrace.algebra.operators.near_rows import (
    BEFORE,
    ORDERS,
    REACHED,
    SLICE,
    FrameReach,
    NearRows,
    sums_of,
)
from headrace.algebra.operators.pairs import FLAG, Emits, Pairs, RangePairs, Within, counts_layout
from headrace.algebra.operators.protocol import (
    PRESENT,
    ROW,
    VERSION,
    RowKind,
    StatefulOperator,
    StepResult,
)
from headrace.algebra.operators.quantiles import Quantile, QuantileColumn, Quantiles
from headrace.algebra.operators.quarantine import (
    ERROR,
    REFUSED,
    SINCE,
    Quarantine,
    arrived_in,
    held_back,
)
from headrace.algebra.operators.recursion import Recursion
from headrace.algebra.operators.sessions import SessionAggregate
from headrace.algebra.operators.temporal import CLOCK, Temporal
from headrace.algebra.operators.touched import SESSION, TouchedGroups, TouchedSessions

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
