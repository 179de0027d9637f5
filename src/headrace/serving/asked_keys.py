"""Keys that rows are asked for, as columns: each key once, by ascending hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from headrace.spine import pairs_among
from headrace.zset import row_codes, same_pairs
from headrace.zset.equality import valid
from headrace.zset.row_hash import hashes_of
from headrace.zset.zset import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.zset.equality import Ints


@dataclass(frozen=True, slots=True)
class AskedKeys:
    """The different keys of some rows, by ascending hash.

    ``values`` has one column for each of ``names``. ``of`` has, for each of the rows that ask, the
    position of its key, and -1 if a part of the key is NULL: NULL equals nothing.
    """

    names: tuple[str, ...]
    hashes: Ints
    values: tuple[pa.Array, ...]
    of: Ints

    @classmethod
    def among(cls, names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> Self:
        """Return the keys of ``rows`` rows; ``columns`` are those of the key, by ``names``."""
        known = np.ones(rows, np.bool_)
        for values in columns:
            known &= valid(values)
        places = known.nonzero()[0]
        taken = [values.take(pa.array(places)) for values in columns]
        codes = row_codes(taken, len(places))
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        once = [values.take(pa.array(first)) for values in taken]
        hashes = hashes_of(once, len(first))
        order = hashes.argsort(kind="stable")
        at = np.empty(len(order), np.int64)
        at[order] = np.arange(len(order))
        of = np.full(rows, -1, np.int64)
        of[places] = at[group]
        ordered = tuple(values.take(pa.array(order)) for values in once)
        return cls(tuple(names), hashes[order], ordered, of)

    def __len__(self) -> int:
        """Return the number of different keys."""
        return len(self.hashes)

    def equal(self, probes: Ints, rows: pa.Table) -> tuple[Ints, Ints]:
        """Return which of some keys and rows, pairwise, are equal: the keys, and the rows' places.

        ``probes`` has one position of a key for each of the rows, whose hash is the same.
        """
        columns = [column(rows, name) for name in self.names]
        agree = same_pairs(columns, None, self.values, probes)
        return probes[agree], agree.nonzero()[0]

    def found_in(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Return all pairs of a key and a row that has it, as positions; rows in any order."""
        hashes = hashes_of([column(rows, name) for name in self.names], rows.num_rows)
        probes, places = pairs_among(hashes, self.hashes)
        probes, kept = self.equal(probes, rows.take(pa.array(places)))
        return probes, places[kept]
