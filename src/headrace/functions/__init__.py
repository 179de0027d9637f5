"""Python functions that queries can call: declaration, identity, execution."""

from headrace.functions.function import Function, FunctionRecord, Kind, function

__all__ = ["Function", "FunctionRecord", "Kind", "function"]
