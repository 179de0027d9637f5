"""Sinks for experiments: one discards all changes, one prints them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.io.connectors.sinks import json_lines
from headrace.io.connectors.systems import SinkConnector, System

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class Options:
    """No options."""


class Unrecorded:
    """A target that records no epoch, keeps no rows, and cannot be read."""

    __slots__ = ()

    def durable(self) -> Epoch | None:
        """Return None: it records no epoch."""
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
    """The sink that discards all changes."""

    guarantee: str = "nothing is kept"

    def write(self, _epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Read the changes and discard them."""
        for _ in parts:
            pass
        return ()


@dataclass(frozen=True, slots=True)
class Printed(Unrecorded):
    """The sink that prints each change to standard output as a line of JSON."""

    key: tuple[str, ...] = ()
    """The columns of a unique key of the rows; empty if none is known."""
    guarantee: str = "at least once"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Print the changes; those of a part in the order of :func:`with_operations`."""
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
