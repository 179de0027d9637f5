"""Differences between published states, sent to processes that read what this one publishes.

A difference has what is needed to read tables and views, not the state of their operators. It is
as large as the change: an epoch adds a few runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headrace.catalog import Catalog
from headrace.runtime.published import Published
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalog import Relation
    from headrace.ledger import Frontier, RunRecord, Slice
    from headrace.types import ArrangementId, Offset, RelationId
    from headrace.zset import Layout

Piece: TypeAlias = "RunRecord | tuple[int, int]"
"""A run, or the range ``[start, end)`` of the runs that the arrangement had before."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A published state, relative to another; what is None is as it was.

    ``spines`` has the arrangements whose runs changed, ``positions`` the logs that are read
    further; ``gone`` are arrangements and logs that are no longer there.
    """

    epoch: Epoch
    committed_at: float
    clock: int
    relations: tuple[Relation, ...] | None = None
    layouts: Mapping[ArrangementId, Layout] | None = None
    spines: Mapping[ArrangementId, tuple[Piece, ...]] = field(default_factory=dict)
    positions: Mapping[RelationId, Offset] = field(default_factory=dict)
    gone: frozenset[ArrangementId | RelationId] = frozenset()
    stopped: frozenset[RelationId] | None = None
    maintained: frozenset[RelationId] | None = None
    lagging: Mapping[RelationId, Frontier] | None = None
    dirty: Mapping[RelationId, tuple[Slice, ...]] | None = None


NOTHING = Published(Epoch(0), 0.0, 0, Catalog(), {}, {}, {}, frozenset(), frozenset())
"""The state from which the first difference is made."""


def difference(before: Published, after: Published) -> StateDifference:
    """Return the difference that turns the state ``before`` into the state ``after``."""
    spines = {}
    for id_ in after.layouts:
        runs, former = after.spines.get(id_, ()), before.spines.get(id_, ())
        if id_ not in before.layouts or runs != former:
            spines[id_] = _pieces(former if id_ in before.layouts else (), runs)
    gone: frozenset[ArrangementId | RelationId] = frozenset(
        (before.layouts.keys() - after.layouts.keys())
        | (before.positions.keys() - after.positions.keys())
    )
    done = before.positions
    return StateDifference(
        after.epoch,
        after.committed_at,
        after.clock,
        None if after.catalog is before.catalog else after.catalog.relations,
        None if after.layouts is before.layouts else after.layouts,
        spines,
        {id_: at for id_, at in after.positions.items() if done.get(id_) != at},
        gone,
        None if after.stopped == before.stopped else after.stopped,
        None if after.maintained == before.maintained else after.maintained,
        None if after.lagging == before.lagging else after.lagging,
        None if after.dirty == before.dirty else after.dirty,
    )


def applied(before: Published, change: StateDifference) -> Published:
    """Return the state that results from applying a difference to the state it is relative to.

    Runs of operators are not in it.
    """
    gone, spines = change.gone, dict(before.spines)
    for id_, pieces in change.spines.items():
        spines[id_] = _runs(before.spines.get(id_, ()), pieces)
    return Published(
        change.epoch,
        change.committed_at,
        change.clock,
        before.catalog if change.relations is None else Catalog.of(change.relations),
        before.layouts if change.layouts is None else change.layouts,
        {id_: runs for id_, runs in spines.items() if id_ not in gone},
        {i: at for i, at in {**before.positions, **change.positions}.items() if i not in gone},
        before.stopped if change.stopped is None else change.stopped,
        before.maintained if change.maintained is None else change.maintained,
        before.lagging if change.lagging is None else change.lagging,
        before.dirty if change.dirty is None else change.dirty,
    )


def _pieces(before: tuple[RunRecord, ...], after: tuple[RunRecord, ...]) -> tuple[Piece, ...]:
    places = {run.file.place: place for place, run in enumerate(before)}
    pieces: list[Piece] = []
    for run in after:
        place = places.get(run.file.place)
        last = pieces[-1] if pieces else None
        if place is None or before[place] != run:
            pieces.append(run)
        elif isinstance(last, tuple) and last[1] == place:
            pieces[-1] = (last[0], place + 1)
        else:
            pieces.append((place, place + 1))
    return tuple(pieces)


def _runs(before: tuple[RunRecord, ...], pieces: tuple[Piece, ...]) -> tuple[RunRecord, ...]:
    runs: list[RunRecord] = []
    for piece in pieces:
        if isinstance(piece, tuple):
            runs += before[piece[0] : piece[1]]
        else:
            runs.append(piece)
    return tuple(runs)
