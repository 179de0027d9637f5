"""What the record of an epoch says in words: where its time went, and what fanned out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.parts.naming import shown_name
from headrace.runtime.spent import TASKS, Activity
from headrace.runtime.work import FanOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.catalog import Catalog, Relation

ACTIVITIES: Final = tuple(activity.value for activity in Activity)
"""The counters with the milliseconds of an epoch's activities."""

COUNTERS: Final = (
    "changes",
    "jobs",
    "operators",
    "rows_in",
    "rows_out",
    "rows_read",
    "bytes_written",
    "files",
)
"""The epoch counters that are shown."""

_LEAST: Final = 0.05
"""Milliseconds below which an activity is not worth a word."""


def spent_words(counters: Mapping[str, Any]) -> str | None:
    """Return what an epoch spent time on, the most first; None where that was not measured.

    Jobs have in parentheses what their tasks did.
    """
    within = _words(counters.get(TASKS, {}), "")
    return _words(counters, f" (its tasks: {within})" if within else "")


def _words(counters: Mapping[str, Any], of_jobs: str) -> str | None:
    found = [(counters[each.value], each) for each in Activity if each.value in counters]
    shown = sorted((pair for pair in found if pair[0] >= _LEAST), key=lambda pair: -pair[0])
    if not found:
        return None
    texts = (
        f"{each.name.lower()} {ms:,.1f} ms{of_jobs if each is Activity.JOBS else ''}"
        for ms, each in shown
    )
    return ", ".join(texts)


def fan_out_words(
    counters: Mapping[str, Any], catalog: Catalog, sees: Callable[[str], bool]
) -> str | None:
    """Return the operator with the most rows of an epoch, and its rows per change.

    None if no operator had any, and if its view is not there any more or may not be shown.
    """
    relation = fanned_out(counters, catalog, sees)
    if relation is None:
        return None
    found = FanOut(**counters["fans_out"])
    _, _, operator = found.operator.partition("/")
    name = shown_name(relation, catalog)
    rows = per_change(found.rows, found.changes)
    return f"{name}: {operator} {rows} {'row' if rows == '1' else 'rows'} per change"


def fanned_out(
    counters: Mapping[str, Any], catalog: Catalog, sees: Callable[[str], bool]
) -> Relation | None:
    """Return the view or table of the operator that :func:`fan_out_words` describes."""
    found = counters.get("fans_out")
    relation = None if found is None else catalog.by_id.get(found["relation"])
    return None if relation is None or not sees(relation.name) else relation


def per_change(rows: int, changes: int) -> str:
    """Return rows per change with at most three digits, such as 1, 12.4 or 3,100."""
    found = rows / changes
    return f"{found:,.0f}" if found >= 100 or found == round(found) else f"{found:.3g}"  # noqa: PLR2004
