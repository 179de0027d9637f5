"""The changes of a relation in a range of epochs, as rows that a query can read.

Each row has the columns of the relation, then those of :data:`CHANGE_COLUMNS`: the operation as in
push queries, how many copies were added or removed, and the epoch. The rows are written as runs
that are read as contents are, so a query over many changes needs as little memory as one over a
large table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.serving.operations import CHANGE_COLUMNS, OPERATION, with_operations
from headrace.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.serving.contents import History
    from headrace.spine import PackWriter, RunFile
    from headrace.types import Epoch

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
