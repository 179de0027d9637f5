"""Deltas as changelogs: a retraction and an insertion of one key are an update.

The changes of a relation in a range of epochs, as rows that a query can read.

Each row has the columns of the relation, then those of :data:`CHANGE_COLUMNS`: the operation as in
push queries, how many copies were added or removed, and the epoch. The rows are written as runs
that are read as contents are, so a query over many changes needs as little memory as one over a
large table.

Pairs the changes of each key: the row before, and the row after.

Subscriptions to a view: its snapshot, then its deltas, by whole epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet, row_codes
from headrace.algebra.zset.zset import column, numbers, take
from headrace.execution.serving.values import python_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.algebra.spine import PackWriter, RunFile
    from headrace.execution.serving.contents import History
    from headrace.types import Epoch


OPERATIONS = {"+I": "INSERT", "-U": "UPDATE_BEFORE", "+U": "UPDATE_AFTER", "-D": "DELETE"}
"""The signs of the operations of a changelog, and their names."""

OPERATION = "__op"
"""The column with the sign of the operation."""

CHANGE_COLUMNS: Final = ("headrace_op", "headrace_weight", "headrace_epoch")
"""The columns of a table of changes besides those of the view: operation, weight and epoch."""


def with_operations(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows of an epoch's delta, ordered, with their weights and ``__op``.

    The retracted rows of a key precede its inserted rows. Without a unique key there are no
    updates, and all retracted rows precede all inserted ones.
    """
    weights = numbers(changes, WEIGHT)
    retracted, inserted = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    rows = np.concatenate([retracted, inserted])
    gone = np.arange(len(rows)) < len(retracted)
    codes = row_codes([column(changes, name) for name in key], changes.num_rows)
    _, first, group = np.unique(codes[rows], return_index=True, return_inverse=True)
    order = np.argsort(first[group], kind="stable")
    both = np.bincount(group, gone) * np.bincount(group, ~gone) > 0
    update = both[group] if key else np.zeros(len(rows), bool)
    signs = np.where(gone, np.where(update, "-U", "-D"), np.where(update, "+U", "+I"))
    operations = pa.array(signs[order], pa.string())
    return take(changes, rows[order]).append_column(OPERATION, operations)


def by_key(changes: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the new row of each key, and the keys to delete.

    ``changes`` has all changes of each of its keys, which are unique, with ``__weight``. The rows
    have all columns but the weight; the deleted keys have the key's columns.
    """
    weights = numbers(changes, WEIGHT)
    codes = row_codes([column(changes, name) for name in key], changes.num_rows)
    inserted = np.flatnonzero(weights > 0)
    gone = np.flatnonzero((weights < 0) & ~np.isin(codes, codes[inserted]))
    return (
        take(changes, inserted).drop_columns([WEIGHT]),
        take(changes.select(list(key)), gone),
    )


PART_ROWS: Final = 1 << 18
"""The most changes that are held in memory, unless more rows have the same hash."""


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The changes that a relation's history has; those of one ``key`` are updates.

    ``part_rows`` is how many are held in memory.
    """

    history: History
    key: tuple[str, ...]
    part_rows: int = PART_ROWS

    @property
    def layout(self) -> Layout:
        """The layout of the rows; the weight of each is 1."""
        before = self.history.layout
        types = (pa.string(), pa.int64(), pa.int64())
        added = [pa.field(*pair) for pair in zip(CHANGE_COLUMNS, types, strict=True)]
        weights = pa.schema([pa.field(WEIGHT, pa.int64())])
        return Layout(before.key, pa.schema([*before.columns, *added]), weights)

    def write(self, after: Epoch, upto: Epoch, pack: PackWriter) -> list[RunFile]:
        """Write the changes of the epochs in ``(after, upto]``, and return their runs.

        The caller has epoch ``after`` kept.

        Raises:
            HeadraceError: INVALID if ``after`` is older than the oldest readable epoch.
        """
        layout, rows = self.layout, 0
        runs: list[RunFile] = []
        small: list[ZSet] = []
        for epoch, delta in self.history.deltas(after, upto):
            parts = (self._rows(layout, epoch, part) for part in delta.scan(self.part_rows))
            count = delta.rows_upper_bound
            if count > self.part_rows:
                run = pack.write_parts(layout, parts)
                runs += [] if run is None else [run]
                continue
            if rows + count > self.part_rows:
                runs += _written(layout, small, pack)
                small, rows = [], 0
            small += parts
            rows += count
        return runs + _written(layout, small, pack)

    def _rows(self, layout: Layout, epoch: Epoch, part: ZSet) -> ZSet:
        """Return a part of an epoch's delta, with all changes of each of its keys, as rows."""
        found = with_operations(part.table, self.key)
        count = found.num_rows
        columns = [
            found[HASH],
            *(found[name] for name in part.layout.columns.names),
            found[OPERATION],
            found[WEIGHT],
            pa.array(np.full(count, epoch, np.int64)),
            pa.array(np.ones(count, np.int64)),
        ]
        return ZSet(layout, pa.Table.from_arrays(columns, schema=layout.schema)).consolidated()


def _written(layout: Layout, parts: list[ZSet], pack: PackWriter) -> list[RunFile]:
    rows = ZSet.sum_of(layout, parts).consolidated()
    return [pack.write(rows)] if rows.rows else []


def paired(changes: pa.Table, key: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each change, the indexes of the row before and of the row after; -1 for none.

    ``changes`` are rows with ``__weight``, with all changes of each of their keys, which are
    unique. Without a key no row is paired, and deletions come first.
    """
    weights = numbers(changes, WEIGHT)
    gone, added = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    if not key:
        return (
            np.concatenate([gone, np.full(len(added), -1)]),
            np.concatenate([np.full(len(gone), -1), added]),
        )
    codes = row_codes([column(changes, name) for name in key], changes.num_rows)
    _, among_gone, among_added = np.intersect1d(codes[gone], codes[added], return_indices=True)
    before = np.full(len(added), -1)
    before[among_added] = gone[among_gone]
    alone = np.delete(gone, among_gone)
    return (
        np.concatenate([alone, before]),
        np.concatenate([np.full(len(alone), -1), added]),
    )


class Change(NamedTuple):
    """A row that was added or removed in one epoch.

    ``operation`` is ``+I``, ``-U``, ``+U`` or ``-D``; ``weight`` is the number of copies added
    (positive) or removed (negative).
    """

    epoch: Epoch
    operation: str
    weight: int
    row: dict[str, Any]

    @property
    def word(self) -> str:
        """The name of the operation: INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE."""
        return OPERATIONS[self.operation]


@dataclass(slots=True)
class Follower:
    """Reads the changelog of one arrangement as changes, in order, from an epoch on.

    ``at`` is the last delivered epoch: a later follower can start from there. None: the snapshot
    has not been delivered yet. Changes of one ``key`` are updates.
    """

    history: History
    key: tuple[str, ...]
    last_epoch: Callable[[], Epoch]
    at: Epoch | None = None
    _pending: list[Change] = field(default_factory=list)

    def poll(self) -> list[Change] | None:
        """Return the changes since the last call; None if there are no new epochs."""
        last = self.last_epoch()
        if self.at is None:
            self.at = last
            return [Change(last, "+I", 1, row) for row in python_rows(self.history.whole(last))]
        if last <= self.at:
            return None
        changes = [
            change
            for epoch, rows in self.history.changes(self.at, last)
            for change in self._operations(epoch, rows)
        ]
        self.at = last
        return changes

    def _operations(self, epoch: Epoch, rows: ZSet) -> Iterator[Change]:
        changes = with_operations(rows.table, self.key)
        operations, weights = changes[OPERATION].to_pylist(), changes[WEIGHT].to_pylist()
        plain = python_rows(changes.select(self.history.layout.columns.names))
        for operation, weight, row in zip(operations, weights, plain, strict=True):
            yield Change(epoch, operation, weight, row)
