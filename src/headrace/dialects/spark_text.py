"""Rewrites a query to plain Spark SQL: forms of other dialects, and versions of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.double_quotes import with_names_unquoted
from headrace.dialects.system_time import with_versions
from headrace.dialects.translate import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalog import Relation
    from headrace.errors import Span
    from headrace.sql.rewritten import Rewritten


def spark_text(query: Span, relations: Mapping[str, Relation]) -> Rewritten:
    """Return the query for Spark; ``relations`` are by their dotted names.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at the place in the query as written.
    """
    named = with_names_unquoted(query)
    with named.mapping_errors():
        first = translated(named.span, relations).after(named)
    with first.mapping_errors():
        return with_versions(first.span, relations).after(first)
