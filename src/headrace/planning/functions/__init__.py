"""Python functions that queries can call: declaration, identity, execution.

The walk of an event into a fold:

1. ``planning/dialects/functions.py`` has rewritten ``FROM balance(TABLE payments)`` to a call
   on the sorted list of a key's events, which Spark can run; ``planning/catalyst/python.py``
   reads that as one node of the plan.
2. In an epoch, ``algebra/operators/fold.py`` looks up the checkpoints of the touched keys. It
   goes on from the last one that is before all changes, with the events since, and keeps the
   new last state.
3. ``planning/functions/folds.py`` makes the events named tuples, calls the function, and
   encodes its state (``planning/functions/folds.py``).
4. Before a view is published or a function replaced, ``lifecycle/definitions/functions.py``
   compares all ways to fold a sample (decision 33).
"""

from headrace.planning.functions.folds import fold
from headrace.planning.functions.function import (
    Body,
    DeclaredFunction,
    Folded,
    Function,
    FunctionRecord,
    Kind,
    function,
)

__all__ = [
    "Body",
    "DeclaredFunction",
    "Folded",
    "Function",
    "FunctionRecord",
    "Kind",
    "fold",
    "function",
]
