"""What the steps of a fill read: its inputs part by part, or few rows of all of them at once.

The result of a fill, as the commit that publishes it needs it.

What a fill takes over of views that epochs maintain, in place of reading all of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

from headrace.algebra.spine import HIGHEST, LOWEST, merge, ranges
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.execution.runtime.step import RowsShare, Share, parts_of_log
from headrace.planning.catalog import Stream, View
from headrace.storage.ledger import EpochCommit
from headrace.storage.log import LogShare
from headrace.types import ArrangementId, RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.attempt import Attempt
    from headrace.execution.runtime.published import Published
    from headrace.planning.circuit.reuse import KeptState
    from headrace.storage.ledger import NewRun, Read
    from headrace.types import BuildId, Epoch, FrontierId


Narrowed: TypeAlias = "Callable[[RelationId, LogShare], LogShare]"
"""Returns the changes of a log in those segments that may have rows of a slice."""

Part: TypeAlias = "tuple[Mapping[RelationId, Share], int]"
"""What a step reads, and its number of rows."""


_LEAST = 1 << 14
"""The rows of a part that is not divided."""


def whole_log(_relation: RelationId, share: LogShare) -> LogShare:
    """Return all of a log, where no slice narrows it."""
    return share


@dataclass(frozen=True, slots=True)
class OfSlice:
    """Which parts of the inputs are read when only a slice of a view is computed.

    The runner knows the slice as ``build``. The first contents of ``lookups`` need not be read,
    since joins find all that matters in them. The slice ``expects`` about so many rows of inputs,
    if that is known.
    """

    build: BuildId
    lookups: frozenset[RelationId] = frozenset()
    narrowed: Narrowed = whole_log
    expects: int | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the contents of a fill's inputs, each of about ``most`` rows."""

    shares: Mapping[RelationId, Share]
    narrowed: Narrowed
    most: int
    groups: tuple[Mapping[RelationId, RowsShare], ...] = ()
    """Shares that are read before these; those of a group have the same hashes in each part."""

    def together(self) -> Iterator[Part]:
        """Yield all inputs as one part, as in a small epoch; nothing if they have no rows."""
        every = {id_: share for group in self.groups for id_, share in group.items()}
        shares = {**every, **self.shares}
        rows = sum(share.rows for share in shares.values())
        if rows:
            yield {id_: self._between(id_, share) for id_, share in shares.items()}, rows

    def one_by_one(self) -> Iterator[Part]:
        """Yield the parts of each input after the other."""
        for group in self.groups:
            yield from self._ranges(group)
        for id_, share in self.shares.items():
            match share:
                case LogShare() if share.rows:
                    for part in parts_of_log(self.narrowed(id_, share), self.most):
                        yield {id_: part}, part.rows
                case RowsShare():
                    yield from self._ranges({id_: share})

    def _ranges(self, group: Mapping[RelationId, RowsShare]) -> Iterator[Part]:
        """Yield the parts of some shares, each the rows of all of them in a range of hashes."""
        rows = sum(share.rows for share in group.values())
        slices = -(-rows // self.most)
        for low, high in ranges(slices) if slices else ():
            yield {i: replace(s, low=low, high=high) for i, s in group.items()}, rows // slices

    def _between(self, id_: RelationId, share: Share) -> Share:
        """Return a share; of a log, only the segments that may have rows of the slice."""
        return self.narrowed(id_, share) if isinstance(share, LogShare) else share


def in_two(part: Mapping[RelationId, Share], rows: int) -> tuple[Part, Part] | None:
    """Divide a part that has about so many rows; None if they are few.

    Ranges of hashes are halved, or else relations are read one after the other, or else a log is
    halved.
    """
    if rows <= _LEAST:
        return None
    (first, share), *others = part.items()
    low: Mapping[RelationId, Share]
    high: Mapping[RelationId, Share]
    if isinstance(share, RowsShare) and all(_has_range_of(share, each) for _, each in others):
        middle = (share.low + share.high) // 2
        low = {id_: _between(each, share.low, middle) for id_, each in part.items()}
        high = {id_: _between(each, middle + 1, share.high) for id_, each in part.items()}
        return (low, rows // 2), (high, rows - rows // 2)
    if others or isinstance(share, RowsShare):
        return ({first: share}, share.rows), (dict(others), rows - share.rows)
    half = rows // 2
    low, high = {first: share.between(0, half)}, {first: share.between(half, rows)}
    return (low, half), (high, rows - half)


def _has_range_of(share: RowsShare, other: Share) -> bool:
    return isinstance(other, RowsShare) and (other.low, other.high) == (share.low, share.high)


def _between(share: Share, low: int, high: int) -> Share:
    return replace(share, low=low, high=high) if isinstance(share, RowsShare) else share


@dataclass(frozen=True, slots=True)
class Filled:
    """The runs of a filled view, not yet in the ledger, and the point where they join epochs."""

    previous: Epoch
    reads: tuple[Read, ...]
    runs: tuple[NewRun, ...]
    layouts: Mapping[ArrangementId, Layout]
    """The layouts of the view's own arrangements."""
    rows: int
    caught_up: tuple[FrontierId, ...] = ()
    """The frontier that moves to this epoch, if it is not that of the epochs."""
    clock: int = 0
    quarantines: frozenset[ArrangementId] = frozenset()
    """The quarantines among the view's own arrangements."""
    taken_over: int = 0
    """The number of rows of other views' state that were read or copied in place of inputs."""

    def runs_of(self, id_: ArrangementId) -> tuple[NewRun, ...]:
        """Return the runs of one arrangement."""
        return tuple(run for run in self.runs if run.arrangement == id_)

    def change(
        self, runs: tuple[NewRun, ...], clock: int | None, verb: str, name: str
    ) -> EpochCommit:
        """Return the commit of an epoch that adds runs, and joins epochs at this point.

        The epoch's counters say that the relation of this name was, for example, ``filled``.
        """
        taken = {"taken_over": self.taken_over} if self.taken_over else {}
        return EpochCommit(
            self.previous,
            uuid4().hex,
            self.reads,
            runs,
            caught_up=self.caught_up,
            counters={verb: name, "changes": self.rows, **taken},
            clock=clock,
        )


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
