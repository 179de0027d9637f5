"""What a swap of a view and its candidate would change: rows by kind and column, with examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.parts.swapping import same_contents
from headrace.runtime.attempt import Attempt
from headrace.runtime.sink_differences import SinkDifference
from headrace.serving.pairs import paired
from headrace.serving.python_values import python_rows
from headrace.spine import Spine, differences
from headrace.types import rows_of
from headrace.zset import WEIGHT, row_codes
from headrace.zset.zset import column, numbers, take

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.catalog import View
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.published import Published
    from headrace.zset import Layout

_PART_ROWS: Final = 100_000
_EXAMPLES: Final = 3


@dataclass(slots=True)
class CandidateDifference:
    """Rows that a swap would add, remove and change. Examples are rows as dictionaries.

    Columns that are ``new``, or are ``dropped``, are not compared; nor are those of another type,
    which are both.

    ``columns`` counts the changed rows by the column that differs; ``of_column`` has examples of
    them, each the row before and the row after. Without a key, no row is changed.
    """

    new: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    added: int = 0
    gone: int = 0
    changed: int = 0
    columns: Counter[str] = field(default_factory=Counter)
    of_added: list[dict[str, object]] = field(default_factory=list)
    of_gone: list[dict[str, object]] = field(default_factory=list)
    of_column: dict[str, list[tuple[dict[str, object], dict[str, object]]]] = field(
        default_factory=dict
    )

    def count(self, changes: pa.Table, key: Sequence[str]) -> None:
        """Count changes, with their weights, which have all changes of their keys."""
        weights = np.abs(numbers(changes, WEIGHT))
        before, after = paired(changes, key)
        self.added += int(weights[after[before < 0]].sum())
        self.gone += int(weights[before[after < 0]].sum())
        rows = changes.drop_columns([WEIGHT])
        alone = (after[before < 0], self.of_added), (before[after < 0], self.of_gone)
        for places, examples in alone:
            examples.extend(python_rows(take(rows, places[: _EXAMPLES - len(examples)])))
        both = (before >= 0) & (after >= 0)
        self.changed += int(both.sum())
        self._columns(rows, key, before[both], after[both])

    def _columns(
        self,
        rows: pa.Table,
        key: Sequence[str],
        before: NDArray[np.int64],
        after: NDArray[np.int64],
    ) -> None:
        for name in rows.column_names:
            if name in key or not len(before):
                continue
            codes = row_codes([column(rows, name)], rows.num_rows)
            differs = codes[before] != codes[after]
            self.columns[name] += int(differs.sum())
            examples = self.of_column.setdefault(name, [])
            more = _EXAMPLES - len(examples)
            olds = python_rows(take(rows, before[differs][:more]))
            news = python_rows(take(rows, after[differs][:more]))
            examples += zip(olds, news, strict=True)


def candidate_difference(loop: EpochLoop, view: View, candidate: View) -> CandidateDifference:
    """Compare the contents of a view and its candidate in one published state, in bounded memory.

    Both are maintained in every epoch. What is written meanwhile is removed.
    """
    state = loop.published.current
    if same_contents(state, view, candidate):
        return _of_alike(loop, state, view, candidate)
    layouts = state.layout(view), state.layout(candidate)
    before, after = ({field.name: field.type for field in each.columns} for each in layouts)
    common = [name for name, type_ in after.items() if before.get(name) == type_]
    found = CandidateDifference(
        tuple(name for name in after if name not in common),
        tuple(name for name in before if name not in common),
    )
    key = view.key if view.key == candidate.key and {*view.key} <= {*common} else ()
    columns = pa.schema([pa.field(name, after[name]) for name in common])
    own, others = (
        _rows(loop, state, each, layout, [*common, WEIGHT])
        for each, layout in zip((view, candidate), layouts, strict=True)
    )
    with SinkDifference.of(loop.directory, columns, key, others, map(_repeated, own)) as difference:
        for part in difference.spine.scan(_PART_ROWS):
            found.count(part.table.select([*common, WEIGHT]), key)
    return found


def _of_alike(
    loop: EpochLoop, state: Published, view: View, candidate: View
) -> CandidateDifference:
    """Compare contents that are stored alike."""
    found, layout = CandidateDifference(), state.layout(view)
    own, others = ([run.file for run in state.runs(each)] for each in (view, candidate))
    attempt = Attempt(loop.runs)
    try:
        files = differences(attempt.directory, layout, own, others, loop.partitions)
        attempt.put(rows_of(view.id), files)
        for part in Spine.open(attempt.directory, layout, files).scan(_PART_ROWS):
            found.count(part.table.select([*layout.columns.names, WEIGHT]), view.key)
    finally:
        attempt.abandon()
    return found


def _rows(
    loop: EpochLoop, state: Published, view: View, layout: Layout, names: list[str]
) -> Iterator[pa.Table]:
    """Yield some columns of a view's rows."""
    spine = Spine.open(loop.runs, layout, [run.file for run in state.runs(view)])
    for part in spine.scan(_PART_ROWS):
        yield part.table.select(names)


def _repeated(rows: pa.Table) -> pa.Table:
    """Return rows as often as their weights say, without these."""
    weights = numbers(rows, WEIGHT)
    return take(rows.drop_columns([WEIGHT]), np.repeat(np.arange(rows.num_rows), weights))
