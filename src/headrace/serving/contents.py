"""Contents of tables and views, read from their spines: snapshots, lookups by key, and deltas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.runtime.shares import run_file
from headrace.serving.keys import can_hash, spark_hash
from headrace.spine import Spine
from headrace.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.ledger import Ledger
    from headrace.types import ArrangementId, Epoch

_SCAN_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Contents:
    """Reads the contents of one arrangement."""

    ledger: Ledger
    directory: Path
    id: ArrangementId
    layout: Layout

    def whole(self, epoch: Epoch) -> pa.Table:
        """Return the snapshot at an epoch, each row as often as its weight, in no defined order."""
        parts = [repeated(part) for part in self._spine(epoch).scan(_SCAN_ROWS)]
        schema = self.layout.columns
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def can_look_up(self) -> bool:
        """Whether :meth:`by_key` can be used for this arrangement."""
        return bool(self.layout.key) and all(can_hash(type_) for type_ in self._key_types())

    def by_key(self, key: Sequence[object], epoch: Epoch) -> pa.Table:
        """Return the rows with this key, without a scan; see :meth:`can_look_up`."""
        types = self._key_types()
        hashes = np.array([spark_hash(key, types)], np.int64)
        values = [pa.array([v], type=t) for v, t in zip(key, types, strict=True)]
        _, rows = self._spine(epoch).lookup(hashes, values)
        return repeated(rows)

    def with_keys(self, keys: pa.Table, epoch: Epoch) -> pa.Table:
        """Return the rows that have one of the keys, whose columns are those of the layout's key.

        Without a scan where :meth:`can_look_up`.
        """
        if not keys.num_rows:
            return self.layout.columns.empty_table()
        wanted = key_values(keys, self.layout.key)
        if self.can_look_up():
            types = self._key_types()
            asked = keys.select(list(self.layout.key))
            hashes = np.array([spark_hash(key, types) for key in wanted], np.int64)
            arrays = [column.combine_chunks() for column in asked.columns]
            _, rows = self._spine(epoch).lookup(hashes, arrays)
            return repeated(rows)
        known = set(wanted)
        rows = self.whole(epoch)
        found = [key in known for key in key_values(rows, self.layout.key)]
        return rows.filter(pa.array(found, pa.bool_()))

    def changes(self, after: Epoch, upto: Epoch) -> Iterator[tuple[Epoch, ZSet]]:
        """Yield the consolidated delta of each epoch in ``(after, upto]``, except empty ones."""
        by_epoch: dict[Epoch, list[ZSet]] = {}
        for run in self.ledger.delta_runs(self.id, after, upto):
            spine = Spine.open(self.directory / "runs", self.layout, [run_file(run)])
            by_epoch.setdefault(run.added, []).extend(spine.scan(_SCAN_ROWS))
        for epoch in sorted(by_epoch):
            yield epoch, ZSet.sum_of(self.layout, by_epoch[epoch]).consolidated()

    def _spine(self, epoch: Epoch) -> Spine:
        runs = [run_file(run) for run in self.ledger.spine(self.id, epoch)]
        return Spine.open(self.directory / "runs", self.layout, runs)

    def _key_types(self) -> list[pa.DataType]:
        return [self.layout.columns.field(name).type for name in self.layout.key]


def key_values(rows: pa.Table, key: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the keys of rows, as values that are equal where the keys are."""
    columns = [
        [repr(value) for value in rows[name].to_pylist()]
        if pa.types.is_nested(rows[name].type)
        else rows[name].to_pylist()
        for name in key
    ]
    return list(zip(*columns, strict=True))


def repeated(rows: ZSet) -> pa.Table:
    """Return the rows without their weights, each row as often as its weight."""
    table = rows.table.drop_columns([HASH, WEIGHT])
    weights = rows.weights
    if (weights == 1).all():
        return table
    return table.take(pa.array(np.repeat(np.arange(rows.rows), weights.clip(0))))
