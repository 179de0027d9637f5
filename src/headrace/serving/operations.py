"""The change of one epoch as a changelog: what goes and comes under one key is an update."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATIONS = {"+I": "INSERT", "-U": "UPDATE_BEFORE", "+U": "UPDATE_AFTER", "-D": "DELETE"}
"""The operations of a changelog in signs and in words."""

OPERATION = "__op"
"""The column of the operations, in signs."""


def with_operations(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows of an epoch's change, each with its weight, in order and with ``__op``.

    What went under a key stands before what came under it. Without a unique key nothing is paired:
    all that went stands before all that came.
    """
    keys = zip(*(changes[name].to_pylist() for name in key), strict=True)
    shown = map(repr, keys) if key else [""] * changes.num_rows
    went: dict[str, list[int]] = defaultdict(list)
    came: dict[str, list[int]] = defaultdict(list)
    for place, (of, weight) in enumerate(zip(shown, changes[WEIGHT].to_pylist(), strict=True)):
        (came if weight > 0 else went)[of].append(place)
    places: list[int] = []
    operations: list[str] = []
    for of in dict.fromkeys([*went, *came]):
        paired = bool(key) and of in went and of in came
        for found, alone, update in ((went, "-D", "-U"), (came, "+I", "+U")):
            rows = found.get(of, [])
            places += rows
            operations += [update if paired else alone] * len(rows)
    ordered = changes.take(pa.array(places, pa.int64()))
    return ordered.append_column(OPERATION, pa.array(operations, pa.string()))
