"""Reads the embedded log in Spark's workers, from memory-mapped segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.amended import superseded
from headrace.log.segments import AMENDED, WEIGHT, read_range
from headrace.types import Offset
from headrace.types.earlier import filled
from headrace.zset import EVERY_ROW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.log.share import LogShare
    from headrace.zset import Restriction
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
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, then ``__weight``, then, with ``offsets``, ``__offset``.

        A stream's log stores no weights, because its rows are insertions, except in corrections:
        their rows have weights and the offset of the event that they amend. ``columns`` have the
        names under which the log stores them, and their present types: a column that was added
        after a change was appended is NULL in it, or has the value that its field says, and one
        whose type was narrower is cast. Rows
        that do not meet the restriction are left out, after reading only its columns. If the share
        is read as corrected, superseded changes are left out too.
        """
        at = share.first
        amended = None if share.corrected is None else superseded(directory, share.corrected)
        for stored in read_range(directory, share.segments, share.first, share.end):
            whole = _completed(stored, columns)
            places = np.arange(at, at + whole.num_rows, dtype=np.int64)
            kept = _both(restriction.rows(whole), _amends_kept(whole, share.since))
            if amended is not None:
                kept = _both(kept, amended.kept(whole, at))
            at = Offset(at + whole.num_rows)
            read = [n for n in whole.schema.names if n in {WEIGHT, AMENDED, *columns.names}]
            batch = whole.select(read)
            if kept is not None:
                batch = batch.filter(pa.array(kept))
            names = batch.schema.names
            weights = (
                batch[WEIGHT] if WEIGHT in names else pa.array(np.ones(batch.num_rows, np.int64))
            )
            arrays = [widened(batch[each.name], each.type) for each in columns]
            arrays.append(weights)
            if offsets:
                found = pa.array(places if kept is None else places[kept])
                arrays.append(batch[AMENDED] if AMENDED in names else found)
            labels = [*columns.names, WEIGHT, *(["__offset"] if offsets else [])]
            yield pa.RecordBatch.from_arrays(arrays, names=labels)


def _completed(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows of a segment with the columns that they lack since these were added later."""
    known = {*rows.schema.names}
    for each in columns:
        if each.name not in known:
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
    found: Bools = pc.greater_equal(rows[AMENDED], since).to_numpy(zero_copy_only=False)
    return found


def _both(one: Bools | None, other: Bools | None) -> Bools | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
