"""Changes as lines of JSON: ``{"epoch": 7, "op": "+I", "weight": 1, "row": {...}}``."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from typing import TYPE_CHECKING

from headrace.serving import OPERATION, with_operations
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


def json_lines(epoch: int, changes: pa.Table, key: Sequence[str]) -> Iterator[str]:
    """Yield the changes of an epoch, rows each with a weight, as lines of JSON.

    What goes and comes under one key is an update. Decimals are text, so that no digit is lost;
    times are ISO 8601; binary is hexadecimal.
    """
    for row in with_operations(changes, key).to_pylist():
        operation, weight = row.pop(OPERATION), row.pop(WEIGHT)
        change = {"epoch": epoch, "op": operation, "weight": weight, "row": row}
        yield json.dumps(change, default=_text, ensure_ascii=False)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, (datetime, date, time)) else str(value)
