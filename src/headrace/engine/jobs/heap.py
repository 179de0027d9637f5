"""The size of a JVM's heap, as it is written."""

from __future__ import annotations

import re
from typing import Final

LEAST_HEAP: Final = 512 << 20
"""Spark does not start with less."""
_SHIFTS: Final = {"k": 10, "m": 20, "g": 30, "t": 40}


def heap_bytes(written: str) -> int | None:
    """Return the bytes of a size such as ``2g``; None if it is not one."""
    found = re.fullmatch(r"(\d{1,9})([kmgt])b?", written.strip().lower())
    return None if found is None else int(found[1]) << _SHIFTS[found[2]]
