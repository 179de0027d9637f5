"""What the quarantines of views do in a step, as data.

A quarantine keeps rows of one relation apart, on which the query of a view fails. Which rows these
are is found by trials, :mod:`headrace.execution.runtime.isolating`: steps whose results are
discarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.operators import ERROR, REFUSED, SINCE
from headrace.algebra.spine import RunFile, Spine
from headrace.algebra.zset import HASH, Layout
from headrace.errors import Code, HeadraceError
from headrace.types import ArrangementId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from headrace.algebra.zset.order import Ints
    from headrace.execution.runtime.published import Published


_SCAN_ROWS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class RefusedHash:
    """Inserted rows with a hash are refused: the error, and the clock in microseconds, UTC."""

    hash: int
    error: str
    since: int


@dataclass(frozen=True, slots=True)
class Guarded:
    """The instructions of one quarantine in a step.

    It keeps the rows that are refused, and those that are ``known``, in runs of its layout. In a
    trial, other insertions are held back unless their hashes are ``below`` a bound, and the hashes
    of all of them are ``listed``.
    """

    refused: tuple[RefusedHash, ...] = ()
    known: tuple[RunFile, ...] = ()
    below: int | None = None
    listed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        return {
            "refused": [[each.hash, each.error, each.since] for each in self.refused],
            "known": [run.to_json() for run in self.known],
            "below": self.below,
            "listed": self.listed,
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Guarded:
        """Return the value that :meth:`to_json` wrote."""
        return cls(
            tuple(RefusedHash(*each) for each in value["refused"]),
            tuple(RunFile.of_json(run) for run in value["known"]),
            value["below"],
            value["listed"],
        )


NO_GUARDS: Final[Mapping[ArrangementId, Guarded]] = MappingProxyType({})
"""Every quarantine keeps copies of the rows that it has, and refuses no others."""


def refusals(refused: Sequence[RefusedHash]) -> pa.Table:
    """Return refusals as the input of :class:`headrace.algebra.operators.Quarantine`."""
    columns = {HASH: "hash", ERROR: "error", SINCE: "since"}
    values = {name: [getattr(each, field) for each in refused] for name, field in columns.items()}
    return pa.table(values, schema=REFUSED)


def candidates_of(quarantine: ArrangementId) -> ArrangementId:
    """Return the name under which a trial reports the inserted rows that reach a quarantine."""
    return ArrangementId(f"{quarantine}.candidates")


def candidates_in(directory: Path, layout: Layout, runs: Iterable[RunFile]) -> Ints:
    """Return the hashes of the rows in runs of a layout, ascending, each once."""
    spine = Spine.open(directory, layout, tuple(runs))
    found = [np.unique(part.hashes) for part in spine.scan(_SCAN_ROWS)]
    return np.concatenate([np.zeros(0, np.int64), *found])


def require_same(
    directory: Path,
    state: Published,
    layouts: Mapping[ArrangementId, Layout],
    quarantines: Iterable[ArrangementId],
    files: Mapping[ArrangementId, Sequence[RunFile]],
) -> None:
    """Refuse to go on with a slice in which more copies of rows are in quarantine than stored.

    Where equal rows are both read and in quarantine, which of them come first in a slice is not
    known, so all are taken for those in quarantine.

    Raises:
        HeadraceError: ``conflict``.
    """
    for id_ in quarantines:
        stored = [run.file for run in state.spines.get(id_, ())]
        there = Spine.open(directory, layouts[id_], stored)
        for part in Spine.open(directory, layouts[id_], files.get(id_, ())).scan(_SCAN_ROWS):
            probes, found = there.lookup(part.hashes, part.keys)
            copies = np.zeros(part.rows, np.int64)
            np.add.at(copies, probes, found.weights)
            if (part.weights > copies).any():
                raise HeadraceError(
                    Code.CONFLICT,
                    "a slice cannot be recomputed in which equal rows are read and in quarantine",
                    hint="REPAIR the view, which fills it again.",
                )
