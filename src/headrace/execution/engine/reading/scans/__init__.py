"""Queries that DuckDB answers over the rows of streams, tables and views.

A query is a tree of small values: that of the plan which Spark has resolved and optimised, or of
a plain query, which is resolved without it. If each node, expression and type has the same meaning
in DuckDB, the tree is written as SQL for it. The user's own text never reaches DuckDB.
"""

from headrace.execution.engine.reading.scans.expressions import Refused
from headrace.execution.engine.reading.scans.running import DuckDbQuery, Scans, translated

__all__ = ["DuckDbQuery", "Refused", "Scans", "translated"]
