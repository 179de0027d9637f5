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
    Shared,
    Source,
    Stateful,
    Stateless,
    Sum,
    Temporal,
    inputs,
    kept,
    rows_of,
    shared,
)
from headrace.circuit.differentiate import differentiate
from headrace.circuit.sharing import Stored

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
    "Shared",
    "Source",
    "Stateful",
    "Stateless",
    "Stored",
    "Sum",
    "Temporal",
    "differentiate",
    "inputs",
    "kept",
    "rows_of",
    "shared",
]
