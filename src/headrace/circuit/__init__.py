"""Incremental programs of views: what is kept, and how a change of the inputs becomes one of it."""

from headrace.circuit.accumulators import Accumulator, Accumulators, Kind
from headrace.circuit.circuit import (
    Aggregate,
    Circuit,
    Constant,
    First,
    Join,
    Match,
    Node,
    Output,
    Recompute,
    Source,
    Stateful,
    Stateless,
    Sum,
    Temporal,
    inputs,
)
from headrace.circuit.differentiate import differentiate, rows_of

__all__ = [
    "Accumulator",
    "Accumulators",
    "Aggregate",
    "Circuit",
    "Constant",
    "First",
    "Join",
    "Kind",
    "Match",
    "Node",
    "Output",
    "Recompute",
    "Source",
    "Stateful",
    "Stateless",
    "Sum",
    "Temporal",
    "differentiate",
    "inputs",
    "rows_of",
]
