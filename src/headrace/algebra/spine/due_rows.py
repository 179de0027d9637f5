"""Find the rows of a spine that are due in a range of times, without reading the others.

The layout's order begins with an int64 column that is never NULL: the time at which a row is due.
Every run sorts the rows of one hash by that column, so the rows due in a range of times are one
stretch of each block, found by binary search. Rows that were due earlier are not read again, even
if runs that are not merged yet still contain them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.algebra.zset import ZSet
from headrace.algebra.zset.zset import numbers

if TYPE_CHECKING:
    from headrace.algebra.spine.run import Run
    from headrace.algebra.spine.spine import Spine
    from headrace.algebra.zset.order import Ints


_FIRST_ROWS = 32
"""How many rows of each block are read first when looking for the earliest due row."""

_LAST_TIME = 2**63 - 1


def due_rows(spine: Spine, after: int, upto: int) -> ZSet:
    """Return the rows due in ``(after, upto]``, consolidated.

    O(b r log n + d) for b hashes, r runs and d rows found.
    """
    name = spine.layout.order[0].name
    found = []
    for run in spine.runs:
        for block in _due_blocks(spine, run, name, after, upto):
            first = _position(run, name, block, after)
            last = _position(run, name, (first, block[1]), upto)
            if last > first:
                found.append(run.slice(first, last))
    rows = ZSet.sum_of(spine.layout, found)
    spine.reads.rows += rows.rows
    return rows if len(found) == 1 else rows.consolidated()


def earliest_due(spine: Spine, after: int) -> int | None:
    """Return the least time above ``after`` at which a row is due, or None if no row is.

    Each run knows the first time in it after the last one that was asked for, so asking again as
    time passes reads only the rows that are due first. It reads more only if all of those were
    retracted.
    """
    name = spine.layout.order[0].name
    every = [_first_time(spine, run, name, after) for run in spine.runs]
    found = [time for time in every if time is not None]
    first = min(found, default=None)
    # What a single run has is not retracted: all weights in a run differ from zero.
    if first is None or found.count(first) == 1 or due_rows(spine, after, first).rows:
        return first
    return _earliest_left(spine, name, first)


def _first_time(spine: Spine, run: Run, name: str, after: int) -> int | None:
    """Return the least time above ``after`` in a run, retracted or not; None if there is none."""
    within = spine.low, spine.high
    for known, since, time in run.first_due:
        if known == within and since <= after and (time is None or after < time):
            return time
    found = []
    for block in _blocks(spine, run):
        first = _position(run, name, block, after)
        if first < block[1]:
            found.append(_time_at(run, name, first))
    time = min(found, default=None)
    # Replaced as a whole: several threads may do it at once.
    run.first_due[:] = [(within, after, time)]
    return time


def _time_at(run: Run, name: str, row: int) -> int:
    index = int(np.searchsorted(run.offsets, row, "right")) - 1
    times: Ints = run.batches[index].column(name).to_numpy()
    return int(times[row - int(run.offsets[index])])


def _earliest_left(spine: Spine, name: str, after: int) -> int | None:
    """Return the answer of :func:`earliest_due` where many rows may have been retracted.

    Reads the first rows of each block, and twice as many as long as those do not settle it.
    """
    starts = [
        (run, _position(run, name, block, after), block[1])
        for run in spine.runs
        for block in _blocks(spine, run)
    ]
    blocks = [(run, first, stop) for run, first, stop in starts if first < stop]
    most = _FIRST_ROWS
    while blocks:
        certain, parts = _LAST_TIME, []
        for run, first, stop in blocks:
            part = run.slice(first, min(stop, first + most))
            parts.append(part)
            if first + most < stop:
                # The next, unread row may be due at the same time.
                certain = min(certain, int(numbers(part.table, name)[-1]) - 1)
        rows = ZSet.sum_of(spine.layout, parts).consolidated()
        spine.reads.rows += rows.rows
        times = numbers(rows.table, name)
        if len(times) and times.min() <= certain:
            return int(times.min())
        if certain == _LAST_TIME:
            return None
        most *= 2
    return None


def _due_blocks(spine: Spine, run: Run, name: str, after: int, upto: int) -> list[tuple[int, int]]:
    """Return the blocks that may have rows due in ``(after, upto]``."""
    blocks = _blocks(spine, run)
    if len(run.batches) != 1:
        return blocks
    bounds = np.array(blocks, np.int64).reshape(-1, 2)
    times: Ints = run.batches[0].column(name).to_numpy()
    near = (times[bounds[:, 0]] <= upto) & (times[bounds[:, 1] - 1] > after)
    return [blocks[i] for i in near.nonzero()[0].tolist()]


def _blocks(spine: Spine, run: Run) -> list[tuple[int, int]]:
    """Return the start and stop position of each hash of a run, within the spine's range."""
    if not run.due_blocks:
        blocks, start = [], 0
        while start < run.rows:
            stop = run.position(run.hash_at(start), "right")
            blocks.append((start, stop))
            start = stop
        # Appended as a whole: several threads may do it at once.
        run.due_blocks.append(blocks)
    low, high = run.position(spine.low, "left"), run.position(spine.high, "right")
    return [block for block in run.due_blocks[0] if low <= block[0] and block[1] <= high]


def _position(run: Run, name: str, block: tuple[int, int], upto: int) -> int:
    """Return the position after the last row of a block that is due at or before a time."""
    start, stop = block
    index = int(np.searchsorted(run.offsets, start, "right")) - 1
    while start < stop:
        offset, end = int(run.offsets[index]), int(run.offsets[index + 1])
        end = min(stop, end)
        times: Ints = run.batches[index].column(name).to_numpy()
        within = int(np.searchsorted(times[start - offset : end - offset], upto, "right"))
        if start + within < end:
            return start + within
        start, index = end, index + 1
    return stop
