"""Data directories that versions with former formats of the ledger have made.

They have tables, a stream with a correction, views with an aggregate, a join, DISTINCT, a recursion, a
quarantine, one that lags behind, compacted runs, and 3 epochs of history. Those of formats 5
to 7 were made of the ones before, with packs of their own; a store has none of their files.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

FORMATS = (4, 5, 6, 7)


def of_format(number: int, place: Path) -> tuple[Path, dict[str, list[Any]]]:
    """Return a copy of a directory, and the rows of its relations, sorted by their text."""
    with tarfile.open(Path(__file__).parent / f"format_{number}.tar.xz") as archive:
        archive.extractall(place, filter="data")
    rows = json.loads((place / "rows.json").read_text(encoding="utf-8"))
    return place / "data", rows
