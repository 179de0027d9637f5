"""Checks the declared keys of views before a commit: in steps, fills and replays.

A view whose key follows from its query is not checked.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, shortened
from headrace.operators import Violation, violation
from headrace.spine import Spine
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from headrace.catalog import View
    from headrace.runtime.step import Report, StepArrangement
    from headrace.spine import RunFile
    from headrace.types import ArrangementId
    from headrace.zset import Layout

_ROWS = 100_000
_MOST_CHARACTERS = 300
"""The number of characters of a row that a message shows."""


def require_keys(
    views: Iterable[View],
    directory: Path,
    before: Mapping[ArrangementId, StepArrangement],
    reports: Sequence[Report],
) -> None:
    """Raise if what a step wrote breaks the declared key of a view.

    ``before`` has the contents of the views before the step.

    Raises:
        HeadraceError: ``invalid``, with both rows of a key.
    """
    for view in views:
        if not view.checks_key:
            continue
        id_ = rows_of(view.id)
        delta = [report.runs[id_] for report in reports if id_ in report.runs]
        if delta:
            stood = before[id_]
            _require_key(view, directory, stood.layout, stood.runs, delta)


def require_key_of_all(
    view: View, directory: Path, layout: Layout, contents: Sequence[RunFile]
) -> None:
    """Raise if the contents of a view break its declared key; see :func:`require_keys`."""
    if view.checks_key:
        _require_key(view, directory, layout, (), contents)


def _require_key(
    view: View,
    directory: Path,
    layout: Layout,
    before: Sequence[RunFile],
    delta: Sequence[RunFile],
) -> None:
    contents = Spine.open(directory, layout, before)
    for part in Spine.open(directory, layout, delta).scan(_ROWS):
        found = violation(contents, part)
        if found is not None:
            raise _broken(view, found)


def _broken(view: View, found: Violation) -> HeadraceError:
    key, rows = ", ".join(view.key), [shortened(_text(row), _MOST_CHARACTERS) for row in found.rows]
    if len(rows) == 1:
        return HeadraceError(
            Code.INVALID,
            f'a row of view "{view.name}" has NULL in its PRIMARY KEY ({key})',
            detail=f"The row is {rows[0]}.",
            hint="Leave such rows out with WHERE ... IS NOT NULL, or declare another key.",
        )
    values = ", ".join(_text(value) for value in found.key)
    return HeadraceError(
        Code.INVALID,
        f'two rows of view "{view.name}" have the PRIMARY KEY ({key}) = ({values})',
        detail=f"The rows are {rows[0]} and {rows[1]}.",
        hint="Correct the rows that the view reads, have its query choose one row of each key, or"
        " declare another key.",
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
