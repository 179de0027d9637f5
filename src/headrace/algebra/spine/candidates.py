"""Reads the few rows of an arrangement that may meet a restriction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.algebra.zset.row_hash import can_hash, spark_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.algebra.spine import Spine
    from headrace.algebra.zset import Layout, Restriction, ZSet


SCAN_ROWS: Final = 1 << 18
"""The number of physical rows read at a time."""

MOST_KEYS: Final = 100_000
"""The most keys by which rows of a slice are looked up."""


def candidates(spine: Spine, restriction: Restriction) -> Iterator[ZSet]:
    """Yield the rows of a spine that may meet a restriction, consolidated, by ascending hash.

    If the restriction determines the keys, rows are looked up. Otherwise the tested columns of all
    rows are read, and the other columns of the rows that pass.
    """
    keys = keys_of(spine.layout, restriction)
    if keys is None:
        yield from spine.scan(SCAN_ROWS, restriction)
        return
    types = [values.type for values in keys]
    given = zip(*(values.to_pylist() for values in keys), strict=True)
    hashes = np.array([spark_hash(key, types) for key in given], np.int64)
    found = spine.lookup(hashes, keys)[1].consolidated()
    kept = restriction.rows(found.table)
    rows = found if kept is None else found.filter(kept)
    if rows.rows:
        yield rows


def keys_of(layout: Layout, restriction: Restriction) -> list[pa.Array] | None:
    """Return the distinct keys that the restriction allows; None if not determined, or too many."""
    fields = [layout.columns.field(name) for name in layout.key]
    if not all(can_hash(field.type) for field in fields):
        return None
    return restriction.of_key(layout.key, MOST_KEYS)
