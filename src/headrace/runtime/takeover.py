"""What a fill takes over of views that epochs maintain, in place of reading all of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.catalog import Stream, View
from headrace.runtime.cancelling import check_cancelled
from headrace.runtime.step import RowsShare
from headrace.spine import HIGHEST, LOWEST, merge
from headrace.types import ArrangementId, RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from headrace.circuit.reuse import KeptState
    from headrace.runtime.attempt import Attempt
    from headrace.runtime.published import Published
    from headrace.runtime.step import Share
    from headrace.zset import Layout

Sizes: TypeAlias = Callable[[ArrangementId | RelationId], int]
"""Returns the number of rows of an arrangement, or of a relation."""

_ABSENT: Final = 1 << 60
"""The size of an arrangement that a state does not have: nothing is worth it."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """State of views that epochs maintain, as the fill of another one takes it over.

    ``inputs`` are the kept arrangements that the first steps read, by the names of their shares,
    which are ids of no relation; those of one group are read together. ``copied`` are those that
    the build's own arrangements are copies of. ``unread`` are relations that need not be read,
    ``views`` those whose state it is.
    """

    inputs: tuple[Mapping[RelationId, KeptState], ...]
    copied: Mapping[ArrangementId, KeptState]
    unread: frozenset[RelationId]
    views: tuple[RelationId, ...]

    def groups(self, state: Published) -> tuple[Mapping[RelationId, RowsShare], ...]:
        """Return the shares of the inputs in a state, by group."""
        return tuple(
            {name: _contents(state, each) for name, each in group.items()} for group in self.inputs
        )

    def rows(self, state: Published) -> int:
        """Return how many rows are read or copied."""
        taken = [each for group in self.inputs for each in group.values()]
        return sum(_rows_in(state, each.arrangement) for each in (*taken, *self.copied.values()))

    def layouts(self) -> dict[ArrangementId, Layout]:
        """Return the layouts of the arrangements that are copies."""
        return {own: each.layout for own, each in self.copied.items()}

    def copy(self, state: Published, directory: Path, attempt: Attempt) -> None:
        """Copy the arrangements that are taken over as they are, run by run."""
        for own, kept in self.copied.items():
            made = []
            for run in state.spines[kept.arrangement]:
                check_cancelled()
                made.append(merge(directory, kept.layout, [run.file]))
            attempt.put(own, [file for file in made if file is not None])


def kept_views(
    state: Published, inputs: Collection[RelationId], build: View | None
) -> Iterator[RelationId]:
    """Yield the views whose state, in a published one, is that of all rows of what they read.

    They read some of the ``inputs``. A ``build`` with the same query takes nothing over of the one
    that serves: that it is computed again may be why it is made.
    """
    behind, inputs = state.left_out.union(state.dirty), {*inputs}
    replaced = () if build is None else (build.id, build.candidate_of)
    for each in state.catalog.by_id.values():
        if not isinstance(each, View) or each.id in behind or each.quarantines:
            continue
        same = build is not None and each.id in replaced and each.circuit == build.circuit
        if not (same or inputs.isdisjoint(each.depends_on) or _lacks_events(state, each)):
            yield each.id


def sizes_in(state: Published, shares: Mapping[RelationId, Share]) -> Sizes:
    """Return the sizes of arrangements in a state, and of relations by their shares."""

    def size(of: ArrangementId | RelationId) -> int:
        if isinstance(of, str):
            return _rows_in(state, of) if of in state.spines else _ABSENT
        return shares[of].rows

    return size


def _contents(state: Published, kept: KeptState) -> RowsShare:
    files = tuple(run.file for run in state.spines[kept.arrangement])
    return RowsShare(kept.layout, files, LOWEST, HIGHEST)


def _rows_in(state: Published, id_: ArrangementId) -> int:
    return sum(run.file.rows for run in state.spines[id_])


def _lacks_events(state: Published, view: View) -> bool:
    """Whether a stream below a view has lost events, or had when the view was filled."""
    streams = [id_ for id_ in view.depends_on if isinstance(state.catalog.by_id[id_], Stream)]
    return bool(state.begins.get(view.id)) or any(state.starts.get(id_) for id_ in streams)
