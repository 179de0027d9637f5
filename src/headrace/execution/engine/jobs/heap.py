"""The size of a JVM's heap as text. Imports neither PySpark nor Java, since settings use it."""

from __future__ import annotations

import re
from typing import Final

LEAST_HEAP: Final = 512 << 20
"""The smallest heap, in bytes, with which Spark starts."""
_SHIFTS: Final = {"k": 10, "m": 20, "g": 30, "t": 40}


def heap_bytes(written: str) -> int | None:
    """Return a size such as ``2g`` in bytes, or None for any other text."""
    found = re.fullmatch(r"(\d{1,9})([kmgt])b?", written.strip().lower())
    return None if found is None else int(found[1]) << _SHIFTS[found[2]]
