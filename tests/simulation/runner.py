"""The steps of ``runtime/pure.py`` in plain Python: over a handful of rows, Arrow takes ten times as long.

Logs are read, and runs are opened and written, by the real code. The rows of a run are decoded once
in each process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import xxhash

from headrace.algebra.spine import HIGHEST, LOWEST, PackWriter, ranges, sync_directory
from headrace.algebra.spine.open_runs import open_all
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.execution.runtime.ports import LEAF, Stepped
from headrace.execution.runtime.step import Report, RowsShare, Step
from headrace.planning.catalog import View
from headrace.storage.log import EmbeddedLog
from headrace.types import ArrangementId, BuildId, RelationId, rows_of
from runtime.pure import BIGINT, COUNTS, GROUPS, QUERIES, ROW, TABLE, Made, PureRunner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.algebra.spine import RunFile

Rows = Counter[tuple[int, ...]]
"""Rows with their weights, each the values of the identity columns of a layout."""


@dataclass(slots=True)
class _Decoded:
    """The rows of runs that were decoded, by the object in memory that has them."""

    runs: dict[int, tuple[object, list[tuple[int, tuple[int, ...], int]]]] = field(
        default_factory=dict
    )


_decoded: Final = _Decoded()


def forget_rows() -> None:
    """Decode all runs again."""
    _decoded.runs.clear()


@cache
def hash_of(value: int) -> int:
    """Return the hash of a BIGINT, as Spark hashes it."""
    found = xxhash.xxh64_intdigest(value.to_bytes(8, "little", signed=True), 42)
    return found - (1 << 64) if found >> 63 else found


def rows_in(
    directory: Path,
    layout: Layout,
    files: Iterable[RunFile],
    low: int = LOWEST,
    high: int = HIGHEST,
) -> Rows:
    """Return the sum of runs within a range of hashes."""
    total: Rows = Counter()
    for run in open_all(directory, files, layout):
        known = _decoded.runs.get(id(run))
        if known is None:
            rows = []
            for batch in run.batches:
                names = (HASH, *layout.columns.names, WEIGHT)
                columns = [batch.column(name).to_pylist() for name in names]
                rows += [(h, tuple(v), w) for h, *v, w in zip(*columns, strict=True)]
            known = _decoded.runs[id(run)] = (run, rows)
        for hash_, values, weight in known[1]:
            if low <= hash_ <= high:
                total[values] += weight
    return Counter({values: weight for values, weight in total.items() if weight})


def zset(layout: Layout, rows: Rows) -> ZSet:
    """Return rows as a consolidated Z-set; a layout's key is its first column."""
    ordered = sorted((hash_of(v[0]), v, w) for v, w in rows.items() if w)
    columns = [[each[0] for each in ordered]]
    columns += [[v[at] for _, v, _ in ordered] for at in range(len(layout.columns.names))]
    columns.append([each[2] for each in ordered])
    arrays = [pa.array(values, BIGINT) for values in columns]
    return ZSet(layout, pa.Table.from_arrays(arrays, schema=layout.schema))


class PlainRunner(PureRunner):
    """Steps tables and views as ``PureRunner`` does; no view quarantines rows."""

    def run_live(
        self,
        step: Step,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId] = frozenset(),
        given: frozenset[RelationId] = frozenset(),
    ) -> Stepped:
        """Step the table over its changes, and the views over the deltas of what they read."""
        del looping
        deltas: dict[RelationId, Rows] = {}
        for id_ in given:
            share = step.shares[id_]
            assert isinstance(share, RowsShare)
            deltas[id_] = rows_in(step.runs_directory, share.layout, share.runs)
        with Made.of(step) as made:
            for id_ in changed:
                deltas[id_] = self._upserted(step, id_, made)
            views = [each for each in self.relations.values() if isinstance(each, View)]
            for view in sorted(views, key=lambda each: each.id):
                (below,) = view.depends_on
                if below in deltas and view.id not in without | given:
                    deltas[view.id] = self._counted(step, view, deltas[below], made)
        return Stepped(tuple(made.reports), 0 if step.few else 1)

    def run_fill(
        self, step: Step, build: BuildId, *, looping: bool = False, ticks: bool = False
    ) -> tuple[Report, ...]:
        """Step a view over a part of the rows of what it reads."""
        del looping, ticks
        filled = self.filling[build]
        with Made.of(step) as made:
            for share in step.shares.values():
                assert isinstance(share, RowsShare)
                delta = rows_in(
                    step.runs_directory, share.layout, share.runs, share.low, share.high
                )
                if build in self.slices:
                    whole = len(delta)
                    delta = _among(delta, self.slices[build])
                    counts = whole, len(delta), len(delta)
                    made.reports.append(Report(f"{LEAF}1", 0, {}, *counts, 0.0))
                self._counted(step, filled, delta, made)
        return tuple(made.reports)

    def run_difference(self, step: Step, build: BuildId) -> tuple[Report, ...]:
        """Write by what the groups of a slice differ from what is stored."""
        directory, reports = step.runs_directory, list[Report]()
        with PackWriter(directory, step.attempt) as pack:
            for id_, stored in step.arrangements.items():
                now = rows_in(directory, stored.layout, step.recomputed[id_])
                now.subtract(rows_in(directory, stored.layout, stored.runs))
                groups = self.slices[build]
                change = Counter({v: w for v, w in now.items() if w and v[0] in groups})
                if change:
                    written = {id_: pack.write(zset(stored.layout, change))}
                    reports.append(Report(str(id_), 0, written, 0, len(change), 0, 0.0))
            pack.finish()
        sync_directory(directory)
        return tuple(reports)

    def _upserted(self, step: Step, id_: RelationId, made: Made) -> Rows:
        """Return the delta of the table, and write it."""
        share, stored = step.shares[id_], step.arrangements[rows_of(id_)]
        stands = rows_in(step.runs_directory, TABLE, stored.runs)
        assert set(stands.values()) <= {1}, "a key has one row"
        before = dict(stands.keys())
        after = dict(before)
        batches = EmbeddedLog().read(step.log_directory, share, ROW, offsets=True)  # type: ignore[arg-type]
        for batch in batches:
            for key, group, weight in zip(
                *(batch.column(name).to_pylist() for name in ("k", "g", WEIGHT)), strict=True
            ):
                after.pop(key, None)
                if weight > 0:
                    after[key] = group
        delta = Counter(after.items())
        delta.subtract(Counter(before.items()))
        return _written(step, rows_of(id_), TABLE, delta, share.rows, made)

    def _counted(self, step: Step, view: View, delta: Rows, made: Made) -> Rows:
        """Return the delta of a view over the delta of what it reads, and write it."""
        first = QUERIES.get(view.query, 0)
        change: Rows = Counter()
        for values, weight in delta.items():
            if values[1] >= first:
                change[values[1:]] += weight
        groups = ArrangementId(f"{view.build}/groups")
        before = rows_in(step.runs_directory, GROUPS, step.arrangements[groups].runs)
        counts: Rows = Counter()
        for group, weight in change.items():
            n = before.get(group, 0)
            if n:
                counts[*group, n] -= 1
            if n + weight:
                counts[*group, n + weight] += 1
        _written(step, groups, GROUPS, change, len(delta), made)
        return _written(step, rows_of(view.id), COUNTS, counts, len(change), made)


def _written(
    step: Step, id_: ArrangementId, layout: Layout, rows: Rows, read: int, made: Made
) -> Rows:
    """Write a delta in each partition, and report it; return it without rows of no weight."""
    found = Counter({values: weight for values, weight in rows.items() if weight})
    for partition, (low, high) in enumerate(ranges(step.partitions)):
        own = Counter({v: w for v, w in found.items() if low <= hash_of(v[0]) <= high})
        if own:
            written = {id_: made.pack.write(zset(layout, own))}
            made.reports.append(Report(str(id_), partition, written, read, len(own), 0, 0.0))
    return found


def _among(rows: Rows, groups: frozenset[int]) -> Rows:
    """Return the rows whose last column is among groups: the one that a view counts by."""
    return Counter({values: weight for values, weight in rows.items() if values[-1] in groups})
