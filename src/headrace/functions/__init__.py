"""Python functions that queries can call: declaration, identity, execution."""

from headrace.functions.fold import fold
from headrace.functions.function import (
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
