"""A data directory that a version with format 4 of the ledger has made.

It has tables, a stream with a correction, views with an aggregate, a join, DISTINCT, a recursion, a
quarantine, one that lags behind, compacted runs, and 3 epochs of history.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "format_4.tar.xz"


def format_4(place: Path) -> tuple[Path, dict[str, list[Any]]]:
    """Return a copy of the directory, and the rows of its relations, sorted by their text."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    rows = json.loads((place / "rows.json").read_text(encoding="utf-8"))
    return place / "data", rows
