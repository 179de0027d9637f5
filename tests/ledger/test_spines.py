"""Which runs an epoch sees, through compaction, retention and drops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.algebra.spine import RunFile
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import EpochCommit, Files, Ledger, Merge, Mode, NewObject, RunKind
from headrace.storage.ledger.heads import MOST_RECENT
from headrace.types import ArrangementId, Epoch
from ledger.building import merge, relation, run, segment, step

if TYPE_CHECKING:
    from pathlib import Path

OWN = ArrangementId("1/0")


def names(ledger: Ledger, epoch: int | None = None) -> list[str]:
    at = None if epoch is None else Epoch(epoch)
    return [found.file.pack for found in ledger.spines.runs(OWN, at)]


@pytest.fixture
def three(ledger: Ledger, orders: NewObject) -> list[str]:
    """Runs a, b, c, added by epochs 2, 3, 4."""
    assert orders.arrangements[0].id == OWN
    for name in "abc":
        step(ledger, run(OWN, name))
    return ["a", "b", "c"]


def test_an_epoch_sees_the_runs_up_to_it(ledger: Ledger, three: list[str]) -> None:
    assert [names(ledger, epoch) for epoch in (1, 2, 3, 4)] == [[], ["a"], ["a", "b"], three]
    assert names(ledger) == three
    (first, *_) = ledger.spines.runs(OWN)
    assert (first.kind, first.added, first.removed) == (RunKind.DELTA, 2, None)
    assert first.file == RunFile("a", 0, 1, 10, "c", -5, 5)


def test_a_compaction_is_seen_by_later_epochs_only(ledger: Ledger, three: list[str]) -> None:
    merged = run(OWN, "ab", RunKind.MERGED)
    assert ledger.spines.compact([merge(OWN, ("a", "b"), merged)]) == 5
    assert names(ledger, 4) == three
    assert names(ledger, 3) == ["a", "b"]
    assert names(ledger) == ["c", "ab"], "the next epoch builds on the merged run"
    step(ledger, run(OWN, "d"))
    assert set(names(ledger, 5)) == {"ab", "c", "d"}
    assert names(ledger, 4) == three


def test_runs_that_cancel_out_are_merged_into_none(ledger: Ledger, three: list[str]) -> None:
    ledger.spines.compact([merge(OWN, tuple(three), None)])
    assert names(ledger) == []
    assert names(ledger, 4) == three


def test_the_deltas_of_the_last_epochs_are_known_without_a_query(
    ledger: Ledger, address: str | Path, three: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = relation(ledger, "other")
    ledger.commit(EpochCommit(Epoch(4), "other", created=(other,)))
    ledger.spines.compact([merge(OWN, ("a", "b"), run(OWN, "ab", RunKind.MERGED))])
    ledger.spines.compact([merge(OWN, ("c",), None)])
    step(ledger, run(OWN, "e"), run(other.arrangements[0].id, "d"), run(OWN, "a2"))
    ranges = [(Epoch(after), Epoch(upto)) for upto in range(1, 7) for after in range(1, upto + 1)]
    with Ledger.open(address, Mode.READ) as reader:
        stored = {each: reader.spines.delta_runs(OWN, *each) for each in ranges}
        counted = {each: reader.spines.delta_rows(OWN, *each) for each in ranges}
    with monkeypatch.context() as patched:
        patched.setattr(ledger._transactions, "reading", pytest.fail)
        for each, runs in stored.items():
            found = ledger.spines.delta_runs(OWN, *each)
            assert [(r.file, r.added, r.kind) for r in found] == [
                (r.file, r.added, r.kind) for r in runs
            ]
            assert ledger.spines.delta_rows(OWN, *each) == counted[each]
    assert [r.file.pack for r in stored[Epoch(1), Epoch(6)]] == [*three, "a2", "e"]
    ledger.spines.advance_since({OWN: Epoch(3)})
    with pytest.raises(HeadraceError, match="can no longer be read"):
        ledger.spines.delta_runs(OWN, Epoch(2), Epoch(6))
    for _ in range(MOST_RECENT):
        step(ledger)
    assert len(ledger.head.recent) == MOST_RECENT
    assert ledger.spines.delta_runs(OWN, Epoch(3), Epoch(6)) == stored[Epoch(3), Epoch(6)]


def test_an_arrangement_that_gets_another_layout_keeps_its_runs(
    ledger: Ledger, address: str | Path, three: list[str]
) -> None:
    layout = {"other": "columns"}
    ledger.commit(EpochCommit(Epoch(4), "alter-1", arranged={OWN: layout}))
    assert ledger.head.arrangements[OWN].layout == layout
    assert [names(ledger, epoch) for epoch in (2, 5, None)] == [["a"], three, three]
    with Ledger.open(address, Mode.READ) as again:
        assert again.head.arrangements == ledger.head.arrangements
        assert again.head.spines == ledger.head.spines


def test_a_merge_of_a_dropped_arrangement_is_a_conflict(ledger: Ledger, orders: NewObject) -> None:
    step(ledger, run(OWN, "a"))
    ledger.commit(EpochCommit(Epoch(2), "drop", dropped=(orders.relation,)))
    with pytest.raises(HeadraceError, match="dropped in epoch 3 while it was merged") as caught:
        ledger.spines.compact([merge(OWN, ("a",), run(OWN, "m", RunKind.MERGED))])
    assert caught.value.code is Code.CONFLICT


def test_a_run_merged_twice_is_an_invariant_broken(ledger: Ledger, three: list[str]) -> None:
    del three
    ledger.spines.compact([merge(OWN, ("a", "b"), run(OWN, "ab", RunKind.MERGED))])
    with pytest.raises(HeadraceError, match="removed runs were visible"):
        ledger.spines.compact([merge(OWN, ("b", "c"), run(OWN, "bc", RunKind.MERGED))])
    assert "bc" not in ledger.files.known().packs


def test_many_spines_are_read_at_once_each_in_order(ledger: Ledger, three: list[str]) -> None:
    other = relation(ledger, "other")
    ledger.commit(EpochCommit(Epoch(4), "a", created=(other,)))
    wanted = (other.arrangements[0].id, OWN)
    found = ledger.spines.of(wanted, Epoch(5))
    assert list(found) == list(wanted)
    assert [len(found[key]) for key in wanted] == [0, len(three)]
    assert ledger.spines.of(()) == {}


@pytest.mark.parametrize(
    ("arrangement", "epoch", "message"),
    [
        ("9/9", 2, 'arrangement "9/9" does not exist'),
        ("1/0", 9, "epoch 9 does not exist yet"),
        ("1/0", 0, "longer be read"),
    ],
)
def test_an_epoch_that_cannot_be_read_is_refused(
    ledger: Ledger, three: list[str], arrangement: str, epoch: int, message: str
) -> None:
    del three
    with pytest.raises(HeadraceError, match=message) as caught:
        ledger.spines.runs(ArrangementId(arrangement), Epoch(epoch))
    assert caught.value.code is Code.INVALID


def test_a_dropped_arrangement_is_read_at_the_epochs_before(
    ledger: Ledger, orders: NewObject, three: list[str]
) -> None:
    ledger.commit(EpochCommit(Epoch(4), "drop", dropped=(orders.relation,)))
    assert names(ledger, 4) == three
    for epoch in (5, None):
        with pytest.raises(HeadraceError, match="was dropped in epoch 5"):
            names(ledger, epoch)


def test_changes_are_the_delta_runs_between_two_epochs(ledger: Ledger, three: list[str]) -> None:
    step(ledger, run(OWN, "base", RunKind.MERGED))
    ledger.spines.compact([merge(OWN, tuple(three), run(OWN, "abc", RunKind.MERGED))])

    def changes(after: int, upto: int) -> list[str]:
        return [
            found.file.pack for found in ledger.spines.delta_runs(OWN, Epoch(after), Epoch(upto))
        ]

    assert changes(1, 5) == three
    assert changes(2, 3) == ["b"]
    assert changes(4, 5) == []
    ledger.spines.advance_since({OWN: Epoch(3)})
    assert changes(3, 5) == ["c"]
    with pytest.raises(HeadraceError, match="longer be read"):
        changes(2, 5)


def test_since_moves_forward_only_and_never_past_the_last_epoch(
    ledger: Ledger, three: list[str]
) -> None:
    del three
    assert ledger.spines.since(OWN) == 1
    ledger.spines.advance_since({OWN: Epoch(3)})
    ledger.spines.advance_since({OWN: Epoch(2)})
    assert ledger.spines.since(OWN) == 3
    assert [found.since for found in ledger.spines.arrangements()] == [3]
    with pytest.raises(HeadraceError, match="pass the last epoch"):
        ledger.spines.advance_since({OWN: Epoch(5)})
    with pytest.raises(HeadraceError, match="longer be read"):
        names(ledger, 2)
    assert names(ledger, 3) == ["a", "b"]


def test_garbage_is_what_no_readable_epoch_sees(ledger: Ledger, three: list[str]) -> None:
    ledger.spines.compact([merge(OWN, ("a", "b"), run(OWN, "ab", RunKind.MERGED))])
    step(ledger)
    assert not ledger.files.garbage()
    ledger.spines.advance_since({OWN: Epoch(4)})
    assert not ledger.files.garbage(), "epoch 4 still sees the originals"
    ledger.spines.advance_since({OWN: Epoch(5)})
    assert ledger.files.garbage() == Files(packs=frozenset({"a", "b"}))
    ledger.files.forget(Files(packs=frozenset({"a", "c"})))
    assert ledger.files.known().packs == {"b", "c", "ab"}, "what is not garbage stays"
    ledger.files.forget(ledger.files.garbage())
    assert ledger.files.known().packs == {"c", "ab"}
    assert set(names(ledger, 5)) == {"c", "ab"}
    assert three


def test_a_run_merged_away_before_any_epoch_saw_it_is_garbage_at_once(
    ledger: Ledger, three: list[str]
) -> None:
    ledger.spines.compact([merge(OWN, ("a", "b"), run(OWN, "ab", RunKind.MERGED))])
    ledger.spines.compact([merge(OWN, ("ab", "c"), run(OWN, "abc", RunKind.MERGED))])
    assert names(ledger) == ["abc"]
    assert names(ledger, 4) == three
    assert ledger.files.garbage() == Files(packs=frozenset({"ab"}))


def test_a_dropped_relations_files_are_garbage_once_unreadable(
    ledger: Ledger, orders: NewObject, three: list[str]
) -> None:
    kept = segment()
    ledger.log.append(orders.relation, kept)
    ledger.commit(EpochCommit(Epoch(4), "drop", dropped=(orders.relation,)))
    assert not ledger.files.garbage()
    assert ledger.files.known() == Files(frozenset(three), frozenset({kept.name}))
    ledger.spines.advance_since({OWN: Epoch(5)})
    assert ledger.files.garbage() == ledger.files.known()
    ledger.files.forget(ledger.files.garbage())
    assert not ledger.files.known()


def test_a_pack_is_garbage_when_all_of_its_runs_are(ledger: Ledger, orders: NewObject) -> None:
    assert orders.arrangements[0].id == OWN
    other = relation(ledger, "other")
    ledger.commit(EpochCommit(ledger.head.epoch, "a", created=(other,)))
    its = other.arrangements[0].id
    shared = [run(OWN, "shared"), run(its, "shared", position=64), run(OWN, "shared", position=128)]
    step(ledger, *shared)
    ledger.spines.compact([Merge(OWN, (("shared", 0), ("shared", 128)), run(OWN, "sum"))])
    step(ledger)
    ledger.spines.advance_since({OWN: ledger.head.epoch, its: ledger.head.epoch})
    assert not ledger.files.garbage(), "one of its runs is live"
    assert [(r.file.pack, r.file.position) for r in ledger.spines.runs(its)] == [("shared", 64)]
    ledger.files.forget(Files(packs=frozenset({"shared"})))
    assert ledger.files.known().packs == {"shared", "sum"}
    ledger.commit(EpochCommit(ledger.head.epoch, "drop", dropped=(other.relation,)))
    ledger.spines.release_dropped(ledger.head.epoch, ledger.head.epoch)
    assert ledger.files.garbage() == Files(packs=frozenset({"shared"}))
    ledger.files.forget(ledger.files.garbage())
    assert ledger.files.known().packs == {"sum"}
