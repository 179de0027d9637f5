"""Explains a row through all views below it, down to the rows of tables and streams.

The source rows in a view below are explained in turn, selected by their key, or by all of their
columns if no key is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.lifecycle.history.amending import is_among, is_literal
from headrace.planning.catalog import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.execution.runtime.fill import Progress
    from headrace.lifecycle.history.row_sources import Explained, RowSources


MOST_STEPS: Final = 100
"""The most slices of views that are explained."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of some rows of a view, or the error that prevented it."""

    view: View
    where: str
    found: Explained | HeadraceError


def explained_deep(
    sources: RowSources, view: View, where: str, progress: Progress
) -> Iterator[Explanation]:
    """Yield the explanation of rows of a view, then of their source rows in the views below.

    Raises:
        HeadraceError: as :meth:`RowSources.explain` raises for the rows of the view itself.
    """
    first = Explanation(view, where, sources.explain(view, where, progress))
    yield first
    pending, seen = [first], {(view.id, where)}
    while pending:
        for below, condition in _below(pending.pop(0)):
            if (below.id, condition) in seen or len(seen) == MOST_STEPS:
                continue
            seen.add((below.id, condition))
            try:
                step = Explanation(below, condition, sources.explain(below, condition, progress))
                pending.append(step)
            except HeadraceError as error:
                step = Explanation(below, condition, error)
            yield step


def _below(step: Explanation) -> Iterator[tuple[View, str]]:
    """Yield the views that contain source rows, each with a condition that selects these rows."""
    if isinstance(step.found, HeadraceError):
        return
    for source in step.found.sources:
        rows = [row for row, _ in source.first]
        if isinstance(source.relation, View) and rows:
            yield source.relation, _condition(source.relation, rows)


def _condition(view: View, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a condition that the given rows of a view meet, and few others do."""
    key = view.key if view.key and set(view.key) <= rows[0].keys() else tuple(rows[0])
    types = {name: view.schema.arrow.field(name).type for name in key}
    names = [name for name in key if is_literal(types[name])]

    def among(chosen: Sequence[Mapping[str, Any]]) -> str:
        parts = [is_among(n, pa.array([row[n] for row in chosen], types[n])) for n in names]
        return " AND ".join(parts) or "true"

    if len(rows) == 1 or len(names) <= 1:
        return among(rows)
    each = dict.fromkeys(f"({among([row])})" for row in rows)
    return f"{among(rows)} AND ({' OR '.join(each)})" if len(each) > 1 else among(rows)
