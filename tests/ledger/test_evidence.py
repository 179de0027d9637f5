"""What reconciliation has found: kept in one transaction with the dirty entries of it."""

from __future__ import annotations

import pytest

from headrace.storage.ledger import (
    Dirty,
    DirtyState,
    EpochCommit,
    Evidence,
    Ledger,
    NewObject,
    RepairPath,
    Slice,
)
from headrace.types import Epoch, Offset, RelationId


def found(view: RelationId, where: str, at: float = 5.0) -> Evidence:
    rows = ({"g": 1, "n": 2},)
    return Evidence(
        view, Epoch(1), at, Slice(where), {RelationId(7): Offset(3)}, "3:abc", rows, (), 1
    )


def marked(view: RelationId, where: str) -> Dirty:
    return Dirty(view, "reconciliation", 5.0, slice=Slice(where), repair=RepairPath.REPLAY)


def test_evidence_progress_and_dirty_entries_are_one_transaction(
    ledger: Ledger, orders: NewObject
) -> None:
    view = orders.relation
    assert ledger.evidence.record(view, {"done": 1}) is None
    assert ledger.evidence.progress() == {view: {"done": 1}}
    stored = ledger.evidence.record(view, {"done": 2}, found(view, "a"), [marked(view, "a")])
    assert stored is not None
    assert stored.id is not None
    assert ledger.evidence.progress() == {view: {"done": 2}}
    assert ledger.evidence.found(view) == ledger.evidence.found() == (stored,)
    (entry,) = ledger.head.dirty
    assert (entry.slice, entry.origin, entry.state) == (
        Slice("a"),
        {"evidence": stored.id},
        DirtyState.OPEN,
    )
    ledger.evidence.settle(stored.id, "repaired")
    assert [each.outcome for each in ledger.evidence.found()] == ["repaired"]


@pytest.mark.parametrize("stage", ["evidence", "before commit"])
def test_a_comparison_that_is_not_committed_leaves_nothing(
    ledger: Ledger, orders: NewObject, stage: str
) -> None:
    view = orders.relation

    def fault(reached: str) -> None:
        if reached == stage:
            raise KeyboardInterrupt

    ledger._transactions.fault = fault
    with pytest.raises(KeyboardInterrupt):
        ledger.evidence.record(view, {"done": 2}, found(view, "a"), [marked(view, "a")])
    assert (ledger.evidence.progress(), ledger.evidence.found(), ledger.head.dirty) == ({}, (), ())


def test_of_a_view_the_newest_evidence_is_kept_until_it_is_dropped(
    ledger: Ledger, orders: NewObject
) -> None:
    view = orders.relation
    for number in range(103):
        ledger.evidence.record(view, {}, found(view, f"a = {number}"))
    kept = ledger.evidence.found(view)
    assert [each.slice.where for each in kept] == [f"a = {n}" for n in range(102, 2, -1)]
    ledger.commit(EpochCommit(Epoch(1), "drop", dropped=(view,)))
    assert (ledger.evidence.progress(), ledger.evidence.found()) == ({}, ())
