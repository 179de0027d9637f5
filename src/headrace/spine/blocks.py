"""The order in which rows of several runs are added, without comparing what one run has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.zset.zset import fresh

if TYPE_CHECKING:
    from headrace.zset import ZSet
    from headrace.zset.equality import Bools, Ints


def in_blocks_of_runs(rows: ZSet, codes: Ints, runs: Ints) -> tuple[Ints, Bools]:
    """Return :meth:`ZSet.in_blocks` of rows of several runs, one run after the other.

    ``runs`` has the number of each row's run. The rows that a run has of one code are different
    rows, in the order of the layout: they are compared only if another run has rows of that code.
    """
    order = codes.argsort(kind="stable")
    ascending = codes[order]
    runs = runs[order]
    shared = ((ascending[1:] == ascending[:-1]) & (runs[1:] != runs[:-1])).nonzero()[0]
    if not len(shared):
        return order, np.ones(len(order), np.bool_)
    block = fresh(ascending).cumsum() - 1
    several = np.zeros(block[-1] + 1, np.bool_)
    several[block[shared]] = True
    compared = several[block]
    if compared.all():
        return rows.in_blocks(codes)
    some, first = rows.in_blocks(codes, among=order[compared])
    order = np.concatenate([order[~compared], some])
    first = np.concatenate([np.ones(len(order) - len(some), np.bool_), first])
    merged = codes[order].argsort(kind="stable")
    return order[merged], first[merged]
