"""The order in which rows of several runs are added, without comparing what one run has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.zset import ZSet
    from headrace.zset.equality import Bools, Ints


def in_blocks_of_runs(rows: ZSet, parts: Sequence[Ints], codes: Ints) -> tuple[Ints, Bools]:
    """Return :meth:`ZSet.in_blocks` of rows that are those of several runs, one after the other.

    ``parts`` are the codes of each run's rows, which ascend, and ``codes`` all of them. The rows
    that a run has of one code are different rows, in the order of the layout: so they are
    compared only if another run has rows of that code.
    """
    order = codes.argsort(kind="stable")
    ascending = codes[order]
    run = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order]
    if ((ascending[1:] == ascending[:-1]) & (run[1:] != run[:-1])).any():
        return rows.in_blocks(codes)
    return order, np.ones(len(order), np.bool_)
