"""Short ways to fill a ledger, and where to put it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from headrace.algebra.spine import RunFile
from headrace.storage.ledger import (
    LIVE,
    EpochCommit,
    Ledger,
    Merge,
    NewArrangement,
    NewBuild,
    NewObject,
    NewRun,
    RunKind,
    SegmentFile,
)
from headrace.storage.ledger.sqlite import SqliteFile
from headrace.types import ArrangementId, BuildId, Epoch, FrontierId, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.storage.ledger import PostgresAddress

_numbers = itertools.count()


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(
    arrangement: str, pack: str | None = None, kind: RunKind = RunKind.DELTA, position: int = 0
) -> NewRun:
    """A run of 10 bytes, in a pack of its own by default."""
    file = RunFile(pack or f"pack-{next(_numbers)}", position, 1, 10, "c", -5, 5)
    return NewRun(file, ArrangementId(arrangement), kind)


def merge(arrangement: str, packs: Iterable[str], output: NewRun | None) -> Merge:
    """A merge of the only runs of some packs."""
    return Merge(ArrangementId(arrangement), tuple((pack, 0) for pack in packs), output)


def segment(rows: int = 10) -> SegmentFile:
    return SegmentFile(f"segment-{next(_numbers)}", rows, 100, "c")


def relation(ledger: Ledger, name: str, inputs: tuple[RelationId, ...] = ()) -> NewObject:
    """A relation with one arrangement, ``"<id>/0"``."""
    reserved = ledger.ids.relation()
    kept = (NewArrangement(ArrangementId(f"{reserved}/0"), {"key": ["a"]}),)
    return NewObject(reserved, name, "view", {"sql": name}, inputs, kept)


def build(
    id_: BuildId,
    view: NewObject,
    inputs: tuple[RelationId, ...] = (),
    *,
    serving: bool = True,
    frontier: FrontierId = LIVE,
) -> NewBuild:
    """A build of a view, with one arrangement, ``"<id>/state"``; the first defines it as it was."""
    state = NewArrangement(ArrangementId(f"{id_}/state"), {"key": ["a"]})
    again = {} if id_ == view.relation else {"build": id_}
    return NewBuild(
        id_, view.relation, {**view.definition, **again}, inputs, (state,), frontier, serving
    )


def step(ledger: Ledger, *runs: NewRun) -> Epoch:
    """Commit an epoch with these runs."""
    return ledger.commit(EpochCommit(ledger.head.epoch, "attempt", runs=runs))


def where(ledger: Ledger) -> Path | PostgresAddress:
    """Where an open ledger is."""
    database = ledger._transactions.store.database
    return database.file if isinstance(database, SqliteFile) else database.address
