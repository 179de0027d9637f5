"""Sinks for experiments: one discards all changes, one prints them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.connectors.lines import json_lines
from headrace.connectors.systems import SinkConnector, System

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from headrace.runtime.ports import RefusedRow
    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


class Unrecorded:
    """A target that keeps no epoch, has nothing to remove, and cannot be read."""

    __slots__ = ()

    def durable(self) -> Epoch | None:
        """Return None: it records none."""
        return None

    def stored(self) -> Iterator[pa.Table] | None:
        """Return None: it cannot be read."""
        return None

    def clear(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Blackhole(Unrecorded):
    """Discards all changes."""

    guarantee: str = "nothing is kept"

    def write(self, _epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Read the changes, and do nothing."""
        for _ in parts:
            pass
        return ()


@dataclass(frozen=True, slots=True)
class Printed(Unrecorded):
    """Prints each change as a line of JSON to standard output."""

    key: tuple[str, ...] = ()
    """The columns of a unique key of the rows; empty if none is known."""
    guarantee: str = "at least once"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Print the changes, those of each part in the order of :func:`with_operations`."""
        for part in parts:
            for line in json_lines(epoch, part, self.key):
                sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        return ()


PRINT: Final = System(
    sink=SinkConnector("print", Options, open=lambda _options, context: Printed(context.key))
)
BLACKHOLE: Final = System(
    sink=SinkConnector("blackhole", Options, open=lambda _options, _context: Blackhole())
)
