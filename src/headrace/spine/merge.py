"""Compaction: which runs to merge, and merging them. It never changes what a spine contains.

Size-tiered, as in O'Neil et al., "The log-structured merge-tree" (1996), in the form that rewrites
least: a run of n rows is in tier ``floor(log_fanout n)``, and a tier that has ``fanout`` runs is
merged whole. So a spine of n rows has at most ``(fanout - 1) * (1 + log_fanout n)`` runs when
nothing is due, and a row that survives is rewritten about once per tier.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from headrace.spine.ranges import HIGHEST, LOWEST
from headrace.spine.run_file import RunFile, RunWriter
from headrace.spine.spine import Spine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from headrace.zset import Layout, ZSet

MERGE_ROWS = 2**18
"""How many rows a merge holds at a time."""


def due(runs: Sequence[RunFile], fanout: int = 8) -> list[tuple[RunFile, ...]]:
    """Return the groups of runs that should be merged now, each into one; the smallest first.

    The groups are disjoint. Merging may make another group due.
    """
    tiers: dict[int, list[RunFile]] = defaultdict(list)
    for run in runs:
        tiers[_tier(run.rows, fanout)].append(run)
    return [tuple(tiers[tier]) for tier in sorted(tiers) if len(tiers[tier]) >= fanout]


def merge(directory: Path, layout: Layout, runs: Sequence[RunFile]) -> RunFile | None:
    """Write the sum of runs as one run, in flat memory; None where everything cancels."""
    return _written(directory, layout, Spine.open(directory, layout, runs).scan(MERGE_ROWS))


def difference(
    directory: Path,
    layout: Layout,
    before: Sequence[RunFile],
    after: Sequence[RunFile],
    hashes: tuple[int, int] = (LOWEST, HIGHEST),
) -> RunFile | None:
    """Write what leads from one sum of runs to another as one run; None where they are equal.

    Only rows with hashes in the range, both ends included, count. In flat memory: what takes
    ``before`` back is a run for as long as that lasts.
    """
    old = Spine.open(directory, layout, before, *hashes)
    gone = _written(directory, layout, (part.negated() for part in old.scan(MERGE_ROWS)))
    try:
        runs = [*([] if gone is None else [gone]), *after]
        spine = Spine.open(directory, layout, runs, *hashes)
        return _written(directory, layout, spine.scan(MERGE_ROWS))
    finally:
        if gone is not None:
            (directory / gone.name).unlink(missing_ok=True)


def _written(directory: Path, layout: Layout, parts: Iterable[ZSet]) -> RunFile | None:
    with RunWriter(directory, layout) as writer:
        empty = True
        for part in parts:
            writer.append(part)
            empty = False
        return None if empty else writer.finish()


def _tier(rows: int, fanout: int) -> int:
    tier = 0
    while rows >= fanout:
        rows //= fanout
        tier += 1
    return tier
