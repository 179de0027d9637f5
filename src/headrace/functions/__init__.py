"""Python functions that queries call: what they are, what identifies them, how they are run."""

from headrace.functions.function import Function, FunctionRecord, Kind, function

__all__ = ["Function", "FunctionRecord", "Kind", "function"]
