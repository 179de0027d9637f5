"""The rows that are in quarantine, by view, in a published state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.algebra.operators import ERROR, SINCE
from headrace.algebra.spine import Spine
from headrace.algebra.zset import Layout
from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import python_rows
from headrace.types import quarantine_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.algebra.spine import RunFile
    from headrace.execution.runtime.published import Published
    from headrace.planning.catalog import Relation, View
    from headrace.storage.ledger import Ledger


_SCAN_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A row of a relation on which the query of a view has failed.

    ``row`` has the columns that the view reads, by name; ``since`` is the clock of the epoch that
    quarantined it, in microseconds.
    """

    relation: Relation
    row: dict[str, Any]
    copies: int
    error: str
    since: int


def quarantined_rows(
    ledger: Ledger, directory: Path, state: Published, view: View
) -> Iterator[QuarantinedRow]:
    """Yield the quarantined rows of a view; ``directory`` is the data directory."""
    for relation, layout, files in _stored(ledger, state, view):
        spine = Spine.open(directory / "runs", Layout.of_json(json.loads(layout)), files)
        for part in spine.scan(_SCAN_ROWS):
            values = python_rows(part.table.select(part.layout.columns.names))
            for row, copies in zip(values, part.weights.tolist(), strict=True):
                error, since = row.pop(ERROR), row.pop(SINCE)
                yield QuarantinedRow(relation, row, copies, error, since)


def quarantined_count(ledger: Ledger, directory: Path, state: Published, view: View) -> int | None:
    """Return the number of quarantined rows of a view, counting copies; None if it is damaged."""
    stored = _stored(ledger, state, view)
    try:
        return sum(_copies(directory / "runs", layout, files) for _, layout, files in stored)
    except HeadraceError as error:
        if error.code is not Code.CORRUPT:
            raise
        return None


@lru_cache(maxsize=256)
def _copies(runs: Path, layout: str, files: tuple[RunFile, ...]) -> int:
    """Return the number of rows in a quarantine, cached by its runs."""
    spine = Spine.open(runs, Layout.of_json(json.loads(layout)), files)
    return sum(int(part.weights.sum()) for part in spine.scan(_SCAN_ROWS))


def _stored(
    ledger: Ledger, state: Published, view: View
) -> Iterator[tuple[Relation, str, tuple[RunFile, ...]]]:
    """Yield the non-empty quarantines of a view: relation, layout as JSON, runs."""
    if not view.quarantines:
        return
    for id_ in view.depends_on:
        arrangement = quarantine_of(view.build, id_)
        runs, record = state.spines.get(arrangement), ledger.head.arrangements.get(arrangement)
        if runs and record is not None:
            files = tuple(run.file for run in runs)
            yield state.catalog.by_id[id_], json.dumps(dict(record.layout)), files
