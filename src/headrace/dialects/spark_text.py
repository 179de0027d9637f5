"""Rewrites a query to plain Spark SQL: SQL functions, folds, dialects, versions of tables."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.dialects.double_quotes import with_names_unquoted
from headrace.dialects.folds import with_folds
from headrace.dialects.macros import with_macros
from headrace.dialects.system_time import with_versions
from headrace.dialects.translate import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalog import Relation
    from headrace.errors import Span
    from headrace.functions import Folded
    from headrace.sql.rewritten import Rewritten


_NONE: Mapping[str, Folded] = MappingProxyType({})


def spark_text(
    query: Span,
    relations: Mapping[str, Relation],
    folds: Mapping[str, Folded] = _NONE,
    *,
    once: bool = False,
) -> Rewritten:
    """Return the query for Spark; ``relations`` are by their dotted names, ``folds`` by their own.

    ``once``: it is evaluated once, and not maintained as a view.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at the place in the query as written.
    """
    named = with_names_unquoted(query)
    with named.mapping_errors():
        expanded = with_macros(named.span, relations).after(named)
    with expanded.mapping_errors():
        called = with_folds(expanded.span, folds).after(expanded)
    with called.mapping_errors():
        first = translated(called.span, relations, once=once).after(called)
    with first.mapping_errors():
        return with_versions(first.span, relations).after(first)
