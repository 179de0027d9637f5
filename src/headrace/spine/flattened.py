"""The rows of a spine as columns to scan, as :mod:`headrace.spine.columns` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from headrace.spine.run import Run
    from headrace.spine.stored import Batch
    from headrace.zset import ZSet

Mask: TypeAlias = "NDArray[np.bool_] | None"


@dataclass(frozen=True, slots=True)
class Flat:
    """The rows of a spine: those of ``runs`` where a mask is true, and those of ``beside``.

    A row of the runs counts once; a mask of None is true everywhere. ``beside`` is consolidated,
    and its rows have weights.
    """

    runs: tuple[tuple[Run, Mask], ...]
    beside: ZSet

    def batches(self) -> Iterator[tuple[Batch, Mask]]:
        """Yield the batches of the runs, each with its mask."""
        for run, counted in self.runs:
            starts = run.offsets.tolist()
            for number, batch in enumerate(run.batches):
                within = slice(starts[number], starts[number + 1])
                yield batch, None if counted is None else counted[within]
