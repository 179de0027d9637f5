"""Queries that DuckDB answers over the stored rows of tables and views.

Spark resolves and optimises a query; if each node, expression and type of that plan has the same
meaning in DuckDB, the plan is written as SQL for it. The user's own text never reaches DuckDB.
"""

from headrace.engine.reading.scans.refused import Refused
from headrace.engine.reading.scans.running import Scans
from headrace.engine.reading.scans.translation import DuckDbQuery, translated

__all__ = ["DuckDbQuery", "Refused", "Scans", "translated"]
