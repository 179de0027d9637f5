"""What the steps of a fill read: its inputs part by part, or few rows of all of them at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.log import LogShare
from headrace.runtime.shares import parts_of_log
from headrace.runtime.step import RowsShare, Share
from headrace.spine import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.types import BuildId, RelationId

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
