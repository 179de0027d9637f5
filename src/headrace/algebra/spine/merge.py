"""Compaction: choose runs to merge, and merge them. It never changes what a spine contains.

Size-tiered, as in O'Neil et al., "The log-structured merge-tree" (1996), in the variant that
rewrites least: a run of n rows is in tier ``floor(log_fanout n)``, and a tier that has ``fanout``
runs is merged as a whole. So a spine of n rows has at most ``(fanout - 1) * (1 + log_fanout n)``
runs if no merge is due, and a row that survives is rewritten about once per tier.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from headrace.algebra.spine.pack import (
    HIGHEST,
    LOWEST,
    partition_of,
    ranges,
    remove_packs,
    write_parts,
)
from headrace.algebra.spine.spine import Spine

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence
    from pathlib import Path

    from headrace.algebra.spine.pack import PackWriter
    from headrace.algebra.spine.run import RunFile
    from headrace.algebra.zset import Layout, ZSet


MERGE_ROWS = 2**18
"""How many rows a merge holds at a time."""
MERGE_BYTES = 2**28
"""How many bytes of rows a merge holds at a time, unless they are of one hash."""
SHARED_BYTES = 2**20
"""The most bytes of runs that are merged into a pack with others.

A large run is alone in its pack: it would keep the others' bytes from being deleted, and they its.
"""


FANOUT = 8
"""How many runs of about one size are merged into one."""
_WORTH = 4
"""How many times as many rows as all smaller ones a run has that is left at rest."""


def due(
    runs: Sequence[RunFile], fanout: int = FANOUT, leaving: Container[str] = ()
) -> list[tuple[RunFile, ...]]:
    """Return the groups of runs to merge now, each into one run; the smallest tier first.

    A tier is also due if one of its runs is in a pack that all runs are ``leaving``. Where the sum
    of a tier makes the next one due, both are merged at once: none of its rows is written twice.
    The groups are disjoint. Merging them may make another group due, if rows cancel.
    """
    tiers: dict[int, list[RunFile]] = defaultdict(list)
    for run in runs:
        tiers[_tier(run.rows, fanout)].append(run)
    groups: list[tuple[RunFile, ...]] = []
    below: list[RunFile] = []
    for tier in range(max(tiers, default=-1) + 1):
        own, arrives = tiers[tier], bool(below) and _tier(_rows(below), fanout) <= tier
        if len(own) + arrives >= fanout or any(run.pack in leaving for run in own):
            if not arrives and below:
                groups.append(tuple(below))
                below = []
            below = [*below, *own]
        elif arrives:
            groups.append(tuple(below))
            below = []
    return [*groups, tuple(below)] if below else groups


def at_rest(runs: Sequence[RunFile]) -> tuple[RunFile, ...]:
    """Return the runs to merge where nothing is added for a while: the small ones, or none.

    A run that has more than ``_WORTH`` times the rows of all smaller ones is left, with all that
    are larger: so a row is seldom written again for a few others.
    """
    found: list[RunFile] = []
    for run in sorted(runs, key=lambda run: run.rows):
        if found and run.rows > _WORTH * _rows(found):
            break
        found.append(run)
    return tuple(found) if len(found) > 1 else ()


def due_by_partition(
    runs: Sequence[RunFile], partitions: int, leaving: Container[str] = ()
) -> list[tuple[RunFile, ...]]:
    """Return the groups of runs to merge; a merged run stays within one partition's range.

    All runs are ``leaving`` these packs: see :func:`due`.
    """
    if len(runs) < FANOUT and all(run.pack not in leaving for run in runs):
        return []
    return [
        group for part in by_partition(runs, partitions) for group in due(part, leaving=leaving)
    ]


def by_partition(runs: Sequence[RunFile], partitions: int) -> list[list[RunFile]]:
    """Return the runs of each partition."""
    owners = partition_of(np.array([run.low for run in runs], np.int64), partitions)
    return [
        [run for run, owner in zip(runs, owners, strict=True) if owner == partition]
        for partition in range(partitions)
    ]


def merge(
    directory: Path, layout: Layout, runs: Sequence[RunFile], pack: PackWriter | None = None
) -> RunFile | None:
    """Write the sum of runs as one run, in constant memory; None if everything cancels.

    It goes into a ``pack`` with others if it is small, by default into one of its own.
    """
    parts = _scan(Spine.open(directory, layout, runs))
    if pack is not None and sum(run.bytes for run in runs) <= SHARED_BYTES:
        return pack.write_parts(layout, parts)
    return write_parts(directory, layout, parts)


def difference(
    directory: Path,
    layout: Layout,
    before: Sequence[RunFile],
    after: Sequence[RunFile],
    hashes: tuple[int, int] = (LOWEST, HIGHEST),
) -> RunFile | None:
    """Write the sum of the runs ``after`` minus that of ``before`` as one run; None if it is empty.

    Only rows with hashes in the range, both ends included, count. Uses constant memory: the
    negation of ``before`` is written as a temporary run, removed at the end.
    """
    old = Spine.open(directory, layout, before, *hashes)
    negation = write_parts(directory, layout, (part.negated() for part in _scan(old)))
    try:
        runs = [*([] if negation is None else [negation]), *after]
        spine = Spine.open(directory, layout, runs, *hashes)
        return write_parts(directory, layout, _scan(spine))
    finally:
        if negation is not None:
            remove_packs(directory, [negation.pack])


def differences(
    directory: Path,
    layout: Layout,
    before: Sequence[RunFile],
    after: Sequence[RunFile],
    partitions: int,
) -> tuple[RunFile, ...]:
    """Write :func:`difference` as a run for each partition in which it is not empty."""
    written = (difference(directory, layout, before, after, part) for part in ranges(partitions))
    return tuple(run for run in written if run is not None)


def _scan(spine: Spine) -> Iterator[ZSet]:
    return spine.scan(MERGE_ROWS, batch_bytes=MERGE_BYTES)


def _rows(runs: Sequence[RunFile]) -> int:
    return sum(run.rows for run in runs)


def _tier(rows: int, fanout: int) -> int:
    tier = 0
    while rows >= fanout:
        rows //= fanout
        tier += 1
    return tier
