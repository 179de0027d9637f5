"""A spine as columns to scan: the rows of its large runs in place, and the few others beside them.

Most rows are in one run only. Rows whose hash occurs in another run too are summed once, and masked
out of the large runs, so that a scan reads mapped files and copies nothing. The result for the
large runs is cached with them: an epoch adds small ones.

The rows of a spine in parts of bounded size, for delivery to a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.algebra.spine.pack import HIGHEST, LOWEST, Flat
from headrace.algebra.spine.run import Run
from headrace.algebra.zset import HASH, ZSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.algebra.spine.pack import Mask
    from headrace.algebra.spine.spine import Spine
    from headrace.algebra.zset.order import Ints


MOST_BESIDE = 1 << 18
"""The most rows that are summed, and cached as long as the spine."""

_SMALL = 1 << 14
"""The most rows of small runs that are summed again for each spine."""


def flat(spine: Spine) -> Flat | None:
    """Return a spine as columns, cached with the spine.

    None if too many rows would have to be summed, or the spine is a part of an arrangement.
    """
    if (spine.low, spine.high, spine.present) != (LOWEST, HIGHEST, ()) or not spine.distinct:
        return None
    if not spine.flattened:
        spine.flattened.append(_flat(spine))
    return spine.flattened[0]


def _flat(spine: Spine) -> Flat | None:
    runs = sorted((run for run in spine.runs if run.rows), key=lambda run: run.rows)
    small: list[Run] = []
    while runs and runs[0].rows + sum(run.rows for run in small) <= _SMALL:
        small.append(runs.pop(0))
    large = _large(spine, tuple(runs))
    if large is None or not small:
        return large
    rows = Run.of(large.beside)
    return _set_aside(spine, (*large.runs, (rows, None)), _hashes(small), small)


def _large(spine: Spine, runs: tuple[Run, ...]) -> Flat | None:
    """Return the sum of large runs, cached with the largest of them."""
    if not runs:
        return Flat((), ZSet.empty(spine.layout))
    kept = runs[-1].flattened
    if not kept or kept[0][0] != runs:
        common = [_common(one, other) for one, other in combinations(runs, 2)]
        hashes = np.unique(np.concatenate([np.zeros(0, np.int64), *common]))
        made = _set_aside(spine, [(run, None) for run in runs], hashes, ())
        kept[:] = [(runs, made)]
    found: Flat | None = kept[0][1]
    return found


def _set_aside(
    spine: Spine, runs: Sequence[tuple[Run, Mask]], hashes: Ints, added: Sequence[Run]
) -> Flat | None:
    """Return a sum in which rows of some hashes, and the runs ``added``, are in ``beside``."""
    aside = []
    for run, counted in runs:
        places = np.union1d(run.matches(hashes)[1], run.repeated)
        aside.append(places if counted is None else places[counted[places]])
    if sum(map(len, aside)) > MOST_BESIDE:
        return None
    parts = [run.slice(0, run.rows) for run in added]
    left: list[tuple[Run, Mask]] = []
    for (run, counted), places in zip(runs, aside, strict=True):
        if not len(places):
            left.append((run, counted))
            continue
        parts.append(ZSet(spine.layout, run.take(places)))
        mask = np.ones(run.rows, np.bool_) if counted is None else counted.copy()
        mask[places] = False
        left.append((run, mask))
    return Flat(tuple(left), ZSet.sum_of(spine.layout, parts).consolidated())


def _hashes(runs: Sequence[Run]) -> Ints:
    every = [np.zeros(0, np.int64), *(hashes for run in runs for hashes in run.hashes)]
    found: Ints = np.unique(np.concatenate(every))
    return found


def _common(one: Run, other: Run) -> Ints:
    """Return the hashes that both runs have."""
    found = [np.zeros(0, np.int64)]
    for hashes in one.hashes if one.rows < other.rows else other.hashes:
        longer = other if one.rows < other.rows else one
        found.append(hashes[longer.matches(hashes)[0]])
    return np.concatenate(found)


PART_BYTES: Final = 32 << 20
"""How many bytes a part has at most, in memory, unless it is of one hash."""


@dataclass(slots=True)
class SpineParts:
    """The rows of a spine with their weights, and the number of physical rows read so far.

    ``most`` and ``most_bytes`` limit the physical rows of a part; see :meth:`Spine.scan`.
    """

    spine: Spine
    most: int
    most_bytes: int = PART_BYTES
    read: int = 0

    @property
    def total(self) -> int:
        """The number of physical rows that are read for all parts."""
        return self.spine.rows_upper_bound

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the parts, without the hashes of their rows."""
        self.read = 0
        for part in self.spine.scan(self.most, batch_bytes=self.most_bytes):
            self.read = self.spine.rows_upto(int(part.hashes[-1]))
            yield part.table.drop_columns([HASH])
        self.read = self.total
