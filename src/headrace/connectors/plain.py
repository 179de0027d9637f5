"""Sinks for experiments: one discards all changes, one prints them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.connectors.lines import json_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


@dataclass(frozen=True, slots=True)
class Blackhole:
    """Discards all changes."""

    guarantee: str = "nothing is kept"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Prints each change as a line of JSON to standard output."""

    key: tuple[str, ...] = ()
    """The columns of a unique key of the rows; empty if none is known."""
    guarantee: str = "at least once"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Print the changes in the order of :func:`with_operations`."""
        for line in json_lines(epoch, changes, self.key):
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
