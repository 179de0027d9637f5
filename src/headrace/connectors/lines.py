"""Changes as lines of JSON: ``{"epoch": 7, "op": "+I", "weight": 1, "row": {...}}``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.serving import OPERATION, with_operations
from headrace.serving.values import column_values, json_value
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


def json_lines(epoch: int, changes: pa.Table, key: Sequence[str]) -> Iterator[str]:
    """Yield the changes of an epoch, each row with its weight, as lines of JSON.

    A retraction and an insertion of one key are an update. Values are as :func:`json_value` has
    them: NaN and the infinities are text, for JSON has no number for them.
    """
    ordered = with_operations(changes, key)
    columns = {
        name: column_values(ordered[name])
        for name in ordered.schema.names
        if name not in (OPERATION, WEIGHT)
    }
    operations, weights = ordered[OPERATION].to_pylist(), ordered[WEIGHT].to_pylist()
    for at, (operation, weight) in enumerate(zip(operations, weights, strict=True)):
        row = {name: json_value(values[at]) for name, values in columns.items()}
        change = {"epoch": epoch, "op": operation, "weight": weight, "row": row}
        yield json.dumps(change, ensure_ascii=False, allow_nan=False)
