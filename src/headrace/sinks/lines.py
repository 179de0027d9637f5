"""Changes as lines of JSON: ``{"epoch": 7, "op": "+I", "weight": 1, "row": {...}}``."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from typing import Any

from headrace.zset import WEIGHT


def json_line(epoch: int, row: dict[str, Any]) -> str:
    """Return one change, whose weight is among its columns, as a line of JSON.

    Decimals are text, so that no digit is lost; times are ISO 8601; binary is hexadecimal.
    """
    weight = row[WEIGHT]
    plain = {name: value for name, value in row.items() if name != WEIGHT}
    operation = "+I" if weight > 0 else "-D"
    change = {"epoch": epoch, "op": operation, "weight": weight, "row": plain}
    return json.dumps(change, default=_text, ensure_ascii=False)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, (datetime, date, time)) else str(value)
