"""Small files that the ledger keeps until a store has them, and files that are deleted together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.errors import HeadraceError
from headrace.files.bundles import DIGITS, name_in
from headrace.storage.ledger import (
    AppendRecord,
    EpochCommit,
    Files,
    Ledger,
    NewObject,
    SegmentFile,
    SmallFile,
)
from headrace.types import ArrangementId, Epoch, RelationId
from ledger.building import merge, relation, run

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.storage.ledger.transactions import WriteTransaction

OWN = ArrangementId("1/0")
FIRST, SECOND = "0" * DIGITS, "1" * DIGITS


def written(ledger: Ledger, *names: str, folder: str = "runs") -> None:
    for name in names:
        ledger.small_files.written.add(SmallFile(folder, name, name.encode()))


def step(ledger: Ledger, *packs: str) -> None:
    runs = tuple(run(OWN, pack) for pack in packs)
    ledger.commit(EpochCommit(ledger.head.epoch, "step", runs=runs))


def test_a_file_is_stored_by_the_transaction_that_names_it(
    ledger: Ledger, orders: NewObject
) -> None:
    written(ledger, "a", "b")
    written(ledger, "segment", folder="log")
    assert ledger.small_files.body("runs", "a") == b"a", "whoever has written it can read it"
    ledger.log.append(orders.relation, SegmentFile("segment", 1, 7, "c"))
    assert ledger.small_files.names() == {("log", "segment"): 7}
    step(ledger, "a")
    assert ledger.small_files.names() == {("log", "segment"): 7, ("runs", "a"): 1}
    assert [file.name for file in ledger.small_files.written.all()] == ["b"]
    assert ledger.small_files.body("runs", "a") == b"a"
    assert ledger.small_files.body("log", "a") is None
    found = ledger.small_files.read([("runs", "a"), ("runs", "gone")])
    assert found == [SmallFile("runs", "a", b"a")]
    ledger.small_files.forget([("runs", "a")])
    assert ledger.small_files.body("runs", "a") is None
    assert list(ledger.small_files.names()) == [("log", "segment")]


def test_what_a_failed_transaction_names_is_kept_by_nobody(
    ledger: Ledger, orders: NewObject
) -> None:
    written(ledger, "a")
    with pytest.raises(HeadraceError, match="did not follow"):
        ledger.commit(EpochCommit(Epoch(7), "step", runs=(run(OWN, "a"),)))
    written(ledger, "segment", folder="log")
    with pytest.raises(HeadraceError, match="never created"):
        ledger.log.append_together([record(RelationId(99), "segment")])
    assert ledger.small_files.written.all() == ()
    assert ledger.small_files.names() == {}
    assert orders


def record(relation: RelationId, name: str) -> AppendRecord:
    return AppendRecord(relation, SegmentFile(name, 1, 7, "c"))


def test_a_transaction_that_is_tried_again_stores_a_file_once(
    ledger: Ledger, orders: NewObject
) -> None:
    written(ledger, "a")
    key, transactions = ("runs", "a"), ledger._transactions

    def change(_: WriteTransaction) -> None:
        """Name nothing: only whether the file is stored matters."""

    for _ in range(2):  # as if it was not known whether the first one was committed
        written(ledger, "a")
        transactions.write(change, [key])
    assert ledger.small_files.names() == {key: 1}
    assert orders


def test_files_of_a_bundle_are_garbage_together(ledger: Ledger, orders: NewObject) -> None:
    one, two, other = name_in(FIRST, "one"), name_in(FIRST, "two"), name_in(SECOND, "three")
    written(ledger, one, two, other)
    step(ledger, one, other)
    step(ledger, two)
    ledger.spines.compact([merge(OWN, (one, other), run(OWN, "sum"))])
    step(ledger)
    ledger.spines.advance_since({OWN: ledger.head.epoch})
    assert ledger.files.garbage() == Files(packs=frozenset({other}))
    assert [(use.unit, use.dead, use.kept) for use in ledger.files.pack_uses()] == [(FIRST, 10, 10)]
    assert ledger.files.dead_bytes() == {OWN: 10}
    ledger.files.forget(Files(packs=frozenset({one, other})))
    assert ledger.files.known().packs == {one, two, "sum"}
    assert set(ledger.small_files.names()) == {("runs", one), ("runs", two)}
    ledger.spines.compact([merge(OWN, (two, "sum"), run(OWN, "all"))])
    step(ledger)
    ledger.spines.advance_since({OWN: ledger.head.epoch})
    assert ledger.files.garbage() == Files(packs=frozenset({one, two, "sum"}))
    ledger.files.forget(ledger.files.garbage())
    assert ledger.files.known().packs == {"all"}
    assert ledger.small_files.names() == {}
    assert orders


def test_segments_of_a_bundle_are_garbage_together(ledger: Ledger, orders: NewObject) -> None:
    other = relation(ledger, "other")
    ledger.commit(EpochCommit(ledger.head.epoch, "a", created=(other,)))
    names = [name_in(FIRST, "one"), name_in(FIRST, "two")]
    for its, name in zip((orders, other), names, strict=True):
        ledger.log.append(its.relation, SegmentFile(name, 10, 100, "c"))
    for its in (orders, other):
        assert not ledger.files.garbage(), "one of them is still read"
        ledger.commit(EpochCommit(ledger.head.epoch, "drop", dropped=(its.relation,)))
        ledger.spines.release_dropped(ledger.head.epoch, ledger.head.epoch)
    assert ledger.files.garbage() == Files(segments=frozenset(names))
    ledger.files.forget(Files(segments=frozenset(names[:1])))
    assert ledger.files.known().segments == {names[1]}


def test_a_copy_of_a_ledger_keeps_no_file(ledger: Ledger, orders: NewObject, tmp_path: Path):
    written(ledger, "a")
    step(ledger, "a")
    ledger.copy_to(tmp_path / "copy.db")
    with Ledger.open(tmp_path / "copy.db") as copy:
        assert copy.small_files.names() == {}
        assert copy.files.known().packs == {"a"}
    assert ledger.small_files.names()
    assert orders
