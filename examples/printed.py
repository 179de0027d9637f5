"""What the smallest examples have in common: each prints what is shown at its top."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import headrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database, Result, Subscription


def run(example: Callable[[Callable[..., Database]], None]) -> int:
    """Run an example in a new directory."""
    with tempfile.TemporaryDirectory() as folder:
        example(partial(headrace.connect, Path(folder) / "db"))
    return 0


def show(result: Result) -> None:
    """Print rows in the order of their text, one on each line."""
    for line in sorted("  ".join(map(str, row)) for row in result.fetchall()):
        print(line)


def changes(followed: Subscription) -> None:
    """Print the changes of an epoch, retractions first."""
    found = sorted(followed.poll(timeout=60) or (), key=lambda change: change.weight)
    for change in found:
        print("+" if change.weight > 0 else "-", *change.row.values())


def main(example: Callable[[Callable[..., Database]], None]) -> None:
    """Run an example, and end the process."""
    sys.exit(run(example))
