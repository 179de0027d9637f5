"""All rows of a relation as a stream of batches, of which most are views of mapped files.

A row is the sum of its copies in all runs, but nearly all rows are in one run alone: the largest
one of their range of hashes. So only the rows are added up whose hash another run has as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.serving.contents import repeated
from headrace.zset import WEIGHT, ZSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.serving.contents import Contents
    from headrace.spine.run import Run
    from headrace.zset.equality import Bools, Ints

_MOST_ADDED = 1 << 18
"""How many rows may be added up at once; of more, :meth:`Contents.parts` makes parts."""


def row_batches(contents: Contents, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all rows, each as often as its weight, in no defined order."""
    spine = contents.spine
    large, small = _divided(spine.runs)
    if not spine.distinct or spine.present or sum(run.rows for run in small) > _MOST_ADDED:
        for part in contents.parts(columns):
            yield from part.to_batches()
        return
    hashes = np.unique(
        np.concatenate([np.zeros(0, np.int64), *(h for r in small for h in r.hashes)])
    )
    shared = [np.unique(run.matches(hashes)[1]) for run in large]
    layout = contents.layout
    added = [_zset(run) for run in small]
    added += [ZSet.of(layout, run.take(rows)) for run, rows in zip(large, shared, strict=True)]
    yield from repeated(ZSet.sum_of(layout, added).consolidated()).select(columns).to_batches()
    for run, rows in zip(large, shared, strict=True):
        yield from _unshared(run, rows, columns)


def _divided(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the largest run of each range of hashes, which do not overlap, and all others."""
    large: list[Run] = []
    small: list[Run] = []
    for run in sorted(runs, key=lambda run: -run.rows):
        if run.rows:
            (small if any(_overlap(run, other) for other in large) else large).append(run)
    return large, small


def _overlap(one: Run, other: Run) -> bool:
    return bool(one.lows[0] <= other.highs[-1] and other.lows[0] <= one.highs[-1])


def _zset(run: Run) -> ZSet:
    return ZSet(run.layout, pa.Table.from_batches(list(run.batches), run.layout.schema))


def _unshared(run: Run, shared: Ints, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a run except those at some positions, which ascend."""
    bounds = np.searchsorted(shared, run.offsets)
    for index, batch in enumerate(run.batches):
        chosen = batch.select(list(columns))
        weights = batch.column(WEIGHT).to_numpy()
        without = shared[bounds[index] : bounds[index + 1]] - run.offsets[index]
        if not len(without) and bool((weights == 1).all()):
            yield chosen
            continue
        copies = weights.clip(0)
        copies[without] = 0
        if bool((copies <= 1).all()):
            yield _filtered(chosen, copies == 1)
        else:
            yield chosen.take(pa.array(np.repeat(np.arange(len(copies)), copies)))


def _filtered(batch: pa.RecordBatch, kept: Bools) -> pa.RecordBatch:
    return pc.filter(batch, pa.array(kept))
