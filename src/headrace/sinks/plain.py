"""Sinks for trying things out: one that throws all away, one that prints."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sinks.lines import json_line
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class Blackhole:
    """Takes everything, and keeps nothing."""

    guarantee: str = "nothing is kept"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Prints each change as a line of JSON to standard output."""

    guarantee: str = "at least once"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Print the changes: what went, then what came."""
        for row in changes.sort_by(WEIGHT).to_pylist():
            sys.stdout.write(f"{json_line(epoch, row)}\n")
        sys.stdout.flush()
