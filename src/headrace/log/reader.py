"""Reads the embedded log, in Spark's workers and in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.amended import superseded
from headrace.log.bounds import read_bounds
from headrace.log.large import AMENDED, WEIGHT
from headrace.log.segments import blocks
from headrace.types.earlier import filled
from headrace.zset import EVERY_ROW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.log.amended import Superseded
    from headrace.log.segments import LogBlock
    from headrace.log.share import LogShare
    from headrace.types import Offset
    from headrace.zset import Bounds, Restriction
    from headrace.zset.equality import Bools


@dataclass(frozen=True, slots=True)
class EmbeddedLog:
    """Reads changes of a relation's log; see :class:`headrace.engine.jobs.worker.LogReader`."""

    def read(
        self,
        directory: Path,
        share: LogShare,
        columns: pa.Schema,
        *,
        offsets: bool,
        restriction: Restriction = EVERY_ROW,
        newest_first: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, then ``__weight``, then, with ``offsets``, ``__offset``.

        A stream's log stores no weights, because its rows are insertions, except where there are
        corrections: their rows have weights and the offset of the event that they amend.
        ``columns`` have the names under which the log stores them, and their present types: a
        column that was added after a change was appended is NULL in it, or has the value that its
        field says, and one whose type was narrower is cast. Rows that do not meet the restriction
        are left out. If the share is read as corrected, superseded changes are left out too.

        Of large segments, only the row groups with such rows are read, and only the columns: first
        those of the restriction, and the others if any row meets it. With ``newest_first``, the
        last block of rows comes first; within each, rows are in order.
        """
        amended = None if share.corrected is None else superseded(directory, share.corrected)
        read = _Read(columns, restriction, share.since, amended, offsets=offsets)
        parts = list(share.contiguous())
        for part in reversed(parts) if newest_first else parts:
            for block in blocks(
                directory, part.segments, part.first, part.end, newest_first=newest_first
            ):
                rows = read.of(block)
                if rows is not None:
                    yield rows


@dataclass(frozen=True, slots=True)
class _Read:
    """What is read of each block of a log."""

    columns: pa.Schema
    restriction: Restriction
    since: Offset
    amended: Superseded | None
    offsets: bool

    def of(self, block: LogBlock) -> pa.RecordBatch | None:
        """Return the rows of a block; None if it is not read, since none meets the restriction."""
        if not self.restriction.may_hold(self._bounds(block)):
            return None
        stored = block.schema.names
        tested = {test.column for test in self.restriction.tests}
        early = [n for n in stored if n in tested or n == AMENDED or (n == WEIGHT and self.amended)]
        late = [n for n in stored if n not in early and (n == WEIGHT or n in self.columns.names)]
        known = block.read(early) if tested or not late else block.read([*early, *late])
        kept = self._kept(block, known)
        if kept is not None and not kept.any():
            return None
        if tested and late:
            rest = block.read(late)
            arrays = {**_arrays(known), **_arrays(rest)}
        else:
            arrays = _arrays(known)
        if kept is not None:
            chosen = pa.array(kept)
            arrays = {name: values.filter(chosen) for name, values in arrays.items()}
        return self._named(block, arrays, kept)

    def _bounds(self, block: LogBlock) -> dict[str, Bounds]:
        names = {test.column for test in self.restriction.tests}
        return read_bounds({n: b for n, b in block.bounds.items() if n in names}, block.schema)

    def _kept(self, block: LogBlock, known: pa.RecordBatch) -> Bools | None:
        """Return a mask of the rows of a block to keep; None if all are."""
        tested = {test.column for test in self.restriction.tests}
        kept = None
        if tested:
            kept = self.restriction.rows(_completed(known, self.columns, tested))
        kept = _both(kept, _amends_kept(known, self.since))
        if self.amended is not None:
            kept = _both(kept, self.amended.kept(known, block.first))
        return kept

    def _named(
        self, block: LogBlock, arrays: dict[str, pa.Array], kept: Bools | None
    ) -> pa.RecordBatch:
        """Return the kept rows of a block as they are asked for, from their stored columns."""
        count = block.rows if kept is None else int(kept.sum())
        found = [
            widened(arrays[each.name], each.type) if each.name in arrays else filled(each, count)
            for each in self.columns
        ]
        found.append(arrays[WEIGHT] if WEIGHT in arrays else pa.array(np.ones(count, np.int64)))
        if self.offsets:
            places = np.arange(block.first, block.end, dtype=np.int64)
            own = pa.array(places if kept is None else places[kept])
            found.append(pc.coalesce(arrays[AMENDED], own) if AMENDED in arrays else own)
        labels = [*self.columns.names, WEIGHT, *(["__offset"] if self.offsets else [])]
        return pa.RecordBatch.from_arrays(found, names=labels)


def _arrays(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _completed(rows: pa.RecordBatch, columns: pa.Schema, among: set[str]) -> pa.RecordBatch:
    """Return rows with those ``among`` the columns that they lack since these were added later."""
    known = {*rows.schema.names}
    for each in columns:
        if each.name in among and each.name not in known:
            rows = rows.append_column(each.name, filled(each, rows.num_rows))
    return rows


def widened(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values of a column as its present type, which may be wider than when they were."""
    same = values.type == type_ or pa.types.is_nested(type_)
    return values if same else values.cast(type_)


def _amends_kept(rows: pa.RecordBatch, since: Offset) -> Bools | None:
    """Return a mask of the changes whose events are retained; None if all are."""
    if not since or AMENDED not in rows.schema.names:
        return None
    retained = pc.fill_null(pc.greater_equal(rows[AMENDED], since), fill_value=True)
    found: Bools = retained.to_numpy(zero_copy_only=False)
    return found


def _both(one: Bools | None, other: Bools | None) -> Bools | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
