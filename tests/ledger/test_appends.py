"""Appends to the embedded log: offsets, loads, producers, and refused rows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import (
    AppendRecord,
    Correction,
    CorrectionRecord,
    EpochCommit,
    Ledger,
    LoadProgress,
    Mode,
    NewObject,
    OffsetRange,
    ProducerPosition,
    Read,
    Reject,
    RejectCount,
    StatusSpan,
)
from headrace.storage.ledger.heads import MOST_IN_TAIL
from headrace.types import Epoch, Offset, RelationId
from ledger.building import Clock, segment

if TYPE_CHECKING:
    from pathlib import Path


def span(first: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(first), Offset(end))


def test_appends_get_consecutive_offsets(ledger: Ledger, orders: NewObject, clock: Clock) -> None:
    clock.now = 77.0
    files = [segment(rows) for rows in (10, 1, 5)]
    ranges = [ledger.log.append(orders.relation, file) for file in files]
    assert ranges == [span(0, 10), span(10, 11), span(11, 16)]
    assert [found.rows for found in ranges] == [10, 1, 5]
    assert ledger.head.log_end(orders.relation) == 16
    assert ledger.head.ends == {orders.relation: 16}
    found = ledger.log.segments(orders.relation, Offset(0), Offset(16))
    assert [(s.file, s.range, s.appended_at) for s in found] == [
        (file, at, 77.0) for file, at in zip(files, ranges, strict=True)
    ]


def test_segments_of_a_range_are_those_that_hold_any_of_it(
    ledger: Ledger, orders: NewObject
) -> None:
    bounds = [(0, 10), (10, 11), (11, 16)]
    for first, end in bounds:
        ledger.log.append(orders.relation, segment(end - first))
    for first in range(17):
        for end in range(first, 17):
            found = ledger.log.segments(orders.relation, Offset(first), Offset(end))
            wanted = [b for b in bounds if max(b[0], first) < min(b[1], end)]
            assert [(s.range.first, s.range.end) for s in found] == wanted


def test_the_newest_segments_are_known_without_a_query(
    address: str | Path, ledger: Ledger, orders: NewObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    relation = orders.relation
    ledger.log.append(relation, segment(3))
    staged = AppendRecord(relation, segment(2), further=(segment(0), segment(4)))
    amending = AppendRecord(relation, segment(1), correction=Correction(1))
    ledger.log.append_all([staged, amending])
    once = ProducerPosition("a", 1)
    for _ in range(2):
        ledger.log.append(relation, segment(2), producer=once)
    with Ledger.open(address, Mode.READ) as reader:
        stored = {
            (first, end): reader.log.segments(relation, Offset(first), Offset(end))
            for first in range(13)
            for end in range(first, 13)
        }
    with monkeypatch.context() as patched:
        patched.setattr(ledger._transactions, "reading", pytest.fail)
        for (first, end), segments in stored.items():
            assert ledger.log.segments(relation, Offset(first), Offset(end)) == segments
    ledger.commit(EpochCommit(Epoch(1), "read", reads=(Read(relation, Offset(0), Offset(4)),)))
    assert [s.range.first for s in ledger.head.tails[relation]] == [3, 5, 9, 10]
    assert ledger.log.segments(relation, Offset(0), Offset(12)) == stored[0, 12]
    cut = ledger.head.after_starts({relation: Offset(9)})
    assert cut.in_tail(relation, Offset(5), Offset(12)) is None, "the ledger knows what is kept"
    assert cut.in_tail(relation, Offset(9), Offset(12)) == stored[9, 12]
    for _ in range(MOST_IN_TAIL):
        ledger.log.append(relation, segment(1))
    assert len(ledger.head.tails[relation]) == MOST_IN_TAIL
    assert ledger.log.segments(relation, Offset(9), Offset(12)) == stored[9, 12]
    ledger.commit(EpochCommit(ledger.head.epoch, "drop", dropped=(relation,)))
    assert not ledger.head.tails


def test_a_correction_is_recorded_with_its_segment_or_not_at_all(
    address: str | Path, ledger: Ledger, orders: NewObject, clock: Clock
) -> None:
    clock.now = 77.0
    why = Correction(2, {"reason": "drift", "by": "ann"})
    ledger.log.append(orders.relation, segment(10))
    ledger.log.append_all([AppendRecord(orders.relation, segment(4), correction=why)])
    ledger.log.append_all([AppendRecord(orders.relation, segment(1), correction=Correction(1))])
    first = CorrectionRecord(orders.relation, span(10, 14), 77.0, why)
    second = CorrectionRecord(orders.relation, span(14, 15), 77.0, Correction(1))
    assert ledger.log.corrections(orders.relation) == (second, first), "newest first"
    assert ledger.log.corrections(orders.relation, 1) == (second,)

    def crash(stage: str) -> None:
        if stage == "before commit":
            raise RuntimeError(stage)

    ledger.close()
    with Ledger.open(address, fault=crash) as crashing:
        crashing.acquire()
        with pytest.raises(RuntimeError):
            crashing.log.append_all([AppendRecord(orders.relation, segment(2), correction=why)])
        assert crashing.log.corrections(orders.relation) == (second, first)
        assert crashing.head.log_end(orders.relation) == 15


def test_a_segment_with_corrections_is_listed_once_for_the_offsets_of_any_of_them(
    ledger: Ledger, orders: NewObject
) -> None:
    relation = orders.relation
    for rows, amends in [(10, None), (2, 1), (2, 1), (5, None), (3, 1), (4, None)]:
        correction = None if amends is None else Correction(amends)
        ledger.log.append_all([AppendRecord(relation, segment(rows), correction=correction)])

    def listed(first: int, end: int) -> list[int]:
        found = ledger.log.corrections_between(relation, Offset(first), Offset(end))
        assert all(each.amends for each in found)
        return [each.range.first for each in found]

    assert listed(0, 26) == [10, 12, 19]
    assert (listed(11, 26), listed(12, 19), listed(13, 19)) == ([12, 19], [12], [])
    known = ledger.log_merges.segments(relation, Offset(0), Offset(19))
    ledger.log_merges.exchange(known[:3], segment(14))
    assert (listed(0, 26), listed(11, 26), listed(13, 26)) == ([0, 19], [0, 19], [19])


def test_an_unknown_relation_has_no_log(ledger: Ledger) -> None:
    assert ledger.head.log_end(RelationId(9)) == 0
    with pytest.raises(HeadraceError, match="dropped or never created") as caught:
        ledger.log.append(RelationId(9), segment())
    assert caught.value.code is Code.CONFLICT


def test_a_load_resumes_where_its_last_append_left_it(ledger: Ledger, orders: NewObject) -> None:
    assert ledger.loads.progress(orders.relation, "bids.json|9|1") is None
    for position, finished in ((5, False), (9, True)):
        load = LoadProgress("bids.json|9|1", {"position": position}, finished)
        ledger.log.append(orders.relation, segment(1), load=load)
        assert ledger.loads.progress(orders.relation, "bids.json|9|1") == load
    with pytest.raises(HeadraceError, match="was finished already") as caught:
        ledger.log.append(orders.relation, segment(1), load=load)
    assert caught.value.code is Code.CONFLICT
    assert ledger.head.log_end(orders.relation) == 2


def test_a_producer_that_repeats_itself_is_heard_once(ledger: Ledger, orders: NewObject) -> None:
    def send(producer: str, sequence: int) -> OffsetRange:
        position = ProducerPosition(producer, sequence)
        return ledger.log.append(orders.relation, segment(2), producer=position)

    assert send("a", 1) == span(0, 2)
    assert send("a", 1) == span(2, 2), "acknowledged and ignored"
    assert send("b", 1) == span(2, 4)
    assert send("a", 7) == span(4, 6)
    assert send("a", 3) == span(6, 6)
    assert len(ledger.files.known().segments) == 3


def test_rejects_are_counted_kept_and_cut(ledger: Ledger, orders: NewObject, clock: Clock) -> None:
    clock.now = 5.0
    first = Reject("a.json", 3, "price", '"x" is not an INT', "{...}")
    long = Reject("a.json", 4, None, "not JSON", "\0" + "é" * 4096)
    assert ledger.log.append(orders.relation, None, rejects=[first]) == span(0, 0)
    ledger.log.append(orders.relation, segment(1), rejects=[long])
    assert ledger.rejects.count(orders.relation) == 2
    newest, oldest = ledger.rejects.newest(orders.relation)
    assert (oldest.reject, oldest.at) == (first, 5.0)
    assert newest.reject.raw == "\ufffd" + "é" * 2047, "cut at 4 KiB, between characters"
    assert len(ledger.rejects.newest(orders.relation, limit=1)) == 1
    assert ledger.rejects.count(RelationId(9)) == 0


def test_rejects_that_are_acknowledged_stay_and_are_counted_apart(
    ledger: Ledger, orders: NewObject, clock: Clock
) -> None:
    bad = [Reject("a.json", line, "price", "not an INT", "x") for line in range(3)]
    ledger.log.append(orders.relation, None, rejects=bad)
    clock.now = 9.0
    newest, *_, oldest = ledger.rejects.newest(orders.relation)
    assert ledger.rejects.acknowledge(orders.relation, [oldest.id, 999]) == 1
    assert ledger.rejects.counted(orders.relation) == RejectCount(3, 1)
    assert ledger.rejects.newest(orders.relation)[-1].acknowledged_at == 9.0
    clock.now = 10.0
    assert ledger.rejects.acknowledge(orders.relation) == 2
    assert ledger.rejects.counted(orders.relation).unacknowledged == 0
    assert [each.acknowledged_at for each in ledger.rejects.newest(orders.relation)] == [10, 10, 9]
    ledger.log.append(orders.relation, None, rejects=bad[:1])
    assert ledger.rejects.counted(orders.relation) == RejectCount(4, 3), "it counts from anew"
    assert newest.id in {each.id for each in ledger.rejects.newest(orders.relation)}


def test_spans_replace_those_that_are_known_and_end_with_their_time(ledger: Ledger) -> None:
    ledger.spans.put(
        [StatusSpan(5, 10, {"rows": 1}), StatusSpan(5, 15, {"rows": 2}), StatusSpan(60, 0, {})], {}
    )
    ledger.spans.put([StatusSpan(5, 15, {"rows": 3})], {5: 16, 60: 0})
    assert ledger.spans.since(5, 0) == (StatusSpan(5, 15, {"rows": 3}),)
    assert ledger.spans.since(60, 59) == (StatusSpan(60, 0, {}),)
    assert ledger.spans.since(60, 60) == ()


def test_an_ignored_append_records_nothing_that_came_with_it(
    ledger: Ledger, orders: NewObject
) -> None:
    once = ProducerPosition("a", 1)
    bad = Reject("a", 1, None, "bad", "")
    for _ in range(2):
        ledger.log.append(orders.relation, segment(1), producer=once, rejects=[bad])
    assert ledger.rejects.count(orders.relation) == 1


def test_concurrent_appends_get_disjoint_offsets_without_gaps(
    ledger: Ledger, orders: NewObject
) -> None:
    ranges: list[OffsetRange] = []

    def produce(rows: int) -> None:
        for _ in range(20):
            ranges.append(mine := ledger.log.append(orders.relation, segment(rows)))
            assert ledger.head.log_end(orders.relation) >= mine.end

    threads = [threading.Thread(target=produce, args=(rows,)) for rows in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ranges.sort(key=lambda found: found.first)
    assert [found.first for found in ranges[1:]] == [found.end for found in ranges[:-1]]
    assert ledger.head.log_end(orders.relation) == ranges[-1].end == 200
