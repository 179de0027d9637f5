"""The rows that views have in quarantine, in a published state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.circuit import quarantine_of
from headrace.operators import ERROR, SINCE
from headrace.spine import Spine
from headrace.zset import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.catalog import Relation, View
    from headrace.ledger import Ledger
    from headrace.runtime.published import Published

_SCAN_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A row of a relation on which the query of a view has failed.

    ``row`` has the columns that the view reads, by name; ``since`` is the clock of the epoch, in
    microseconds.
    """

    relation: Relation
    row: dict[str, Any]
    copies: int
    error: str
    since: int


def quarantined_rows(
    ledger: Ledger, directory: Path, state: Published, view: View
) -> Iterator[QuarantinedRow]:
    """Yield the rows that a view has in quarantine; ``directory`` is that of the data."""
    for relation, spine in _opened(ledger, directory, state, view):
        for part in spine.scan(_SCAN_ROWS):
            values = part.table.select(part.layout.columns.names).to_pylist()
            for row, copies in zip(values, part.weights.tolist(), strict=True):
                error, since = row.pop(ERROR), row.pop(SINCE)
                yield QuarantinedRow(relation, row, copies, error, since)


def quarantined_count(ledger: Ledger, directory: Path, state: Published, view: View) -> int:
    """Return how many rows a view has in quarantine, each copy counted."""
    spines = (spine for _, spine in _opened(ledger, directory, state, view))
    return sum(int(part.weights.sum()) for spine in spines for part in spine.scan(_SCAN_ROWS))


def _opened(
    ledger: Ledger, directory: Path, state: Published, view: View
) -> Iterator[tuple[Relation, Spine]]:
    """Yield the quarantines of a view that have had rows, each with its relation."""
    if not view.quarantines:
        return
    for id_ in view.depends_on:
        arrangement = quarantine_of(view.build, id_)
        runs, record = state.spines.get(arrangement), ledger.head.arrangements.get(arrangement)
        if runs and record is not None:
            layout = Layout.of_json(dict(record.layout))
            files = [run.file for run in runs]
            yield state.catalog.by_id[id_], Spine.open(directory / "runs", layout, files)
