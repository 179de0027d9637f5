"""Merging of logs without Spark: what remains, what a reader in the middle reads, what is deleted."""

from __future__ import annotations

import copy
import gc
import pickle
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import LongType

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime import log_merging
from headrace.execution.runtime.compaction import Compaction
from headrace.execution.runtime.log_merging import RESTING_SEGMENTS
from headrace.execution.runtime.published import STOPPED
from headrace.execution.runtime.step import events_in, log_share, whole_log
from headrace.planning.catalog import View
from headrace.storage.ledger import (
    Dirty,
    EpochCommit,
    Ledger,
    LedgerCopy,
    NewArrangement,
    NewBuild,
    NewObject,
    OffsetRange,
    Segment,
)
from headrace.storage.ledger.files import NamedFiles
from headrace.storage.ledger.log_merges import LogMerges
from headrace.storage.log import (
    Append,
    EmbeddedLog,
    Extent,
    InLedger,
    LogShare,
    appended_at,
    appended_by,
    forget_segments,
    merging,
    open_segment,
    read_range,
)
from headrace.storage.log.merging import TAIL_SEGMENTS
from headrace.types import BuildId, Column, Offset, Schema, rows_of
from runtime.crashing import Crash, Faults
from runtime.pure import ROW, TABLE, PureDatabase

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from headrace.planning.catalog import Table
    from runtime.pure import EventChange


@pytest.fixture
def db(tmp_path: Path) -> Iterator[PureDatabase]:
    db = PureDatabase(tmp_path)
    yield db
    db.close()


def rows_of_log(db: PureDatabase, share: LogShare) -> list[tuple[int, int]]:
    read = EmbeddedLog().read(db.directory / "log", share, ROW, offsets=True)
    found = pa.Table.from_batches(read)
    assert found["__offset"].to_pylist() == list(range(share.first, share.end))
    return list(zip(found["k"].to_pylist(), found["g"].to_pylist(), strict=True))


def land(db: PureDatabase, table: Table, first: int, count: int) -> None:
    """Append rows in landings of one, which epochs read."""
    for k in range(first, first + count):
        db.append(table, [(k, k % 7, 1)])
    while db.loop.advance() is not None:
        pass


def compact(db: PureDatabase, times: int, tail: int = TAIL_SEGMENTS) -> None:
    for _ in range(times):
        db.compaction.run(tail)


def files(db: PureDatabase) -> set[str]:
    return {path.name for path in (db.directory / "log").iterdir()}


def share_of(db: PureDatabase, table: Table) -> LogShare:
    state = db.loop.published.current
    return whole_log(db.ledger, state, table.id, db.ledger.head.log_end(table.id))


def test_landings_become_one_segment_with_the_same_changes_in_the_same_order(
    db: PureDatabase,
) -> None:
    table = db.create_table()
    view = db.create_view("v", table)
    land(db, table, 0, TAIL_SEGMENTS)
    before = rows_of_log(db, share_of(db, table))
    contents = db.rows(view.id)
    assert len(share_of(db, table).segments) == TAIL_SEGMENTS
    db.compaction.run()
    (segment,) = share_of(db, table).segments
    assert segment.file.footer
    assert rows_of_log(db, share_of(db, table)) == before
    assert db.rows(view.id) == contents
    assert db.ledger.log_merges.counts() == {table.id: 1}
    land(db, table, 1000, 3)
    assert len(rows_of_log(db, share_of(db, table))) == TAIL_SEGMENTS + 3
    assert db.rows(view.id) == _counts(rows_of_log(db, share_of(db, table)))


def _counts(rows: list[tuple[int, int]]) -> Counter[tuple[int, int]]:
    return Counter(Counter(g for _, g in rows).items())


def test_the_files_of_merged_segments_are_deleted_and_nothing_else_stays_of_them(
    db: PureDatabase,
) -> None:
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    (pack,) = files(db)
    db.compaction.run()
    db.compaction.run()  # a state that the first pass found may have been held
    assert files(db) == {share_of(db, table).segments[0].file.name}
    assert pack not in db.ledger.files.known().segments
    land(db, table, 500, 1)
    assert len(files(db)) == 2


def test_a_reader_in_the_middle_reads_the_former_files_until_it_ends(db: PureDatabase) -> None:
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    share = share_of(db, table)
    read = EmbeddedLog().read(db.directory / "log", share, ROW, offsets=True)
    first = next(read)
    compact(db, 3)
    assert len(files(db)) == 2
    assert first.num_rows + sum(batch.num_rows for batch in read) == TAIL_SEGMENTS
    assert rows_of_log(db, share) == rows_of_log(db, share_of(db, table))
    del share, read, first
    gc.collect()
    db.compaction.run()
    assert len(files(db)) == 1


def test_a_state_that_is_held_holds_the_files_of_its_logs(db: PureDatabase) -> None:
    """A job of Spark, or another process, was given segments that no object here names."""
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    state = db.loop.published.current
    compact(db, 3)
    assert len(files(db)) == 2
    del state
    db.compaction.run()
    assert len(files(db)) == 1


def test_what_epochs_have_not_read_is_not_merged(db: PureDatabase) -> None:
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    for k in range(TAIL_SEGMENTS):
        db.append(table, [(10_000 + k, 0, 1)])
    db.compaction.run()
    sizes = [s.range.rows for s in share_of(db, table).segments]
    assert sizes == [TAIL_SEGMENTS, *[1] * TAIL_SEGMENTS]


def test_a_log_that_was_not_read_far_enough_is_looked_at_again_soon(db: PureDatabase) -> None:
    table = db.create_table()
    for k in range(TAIL_SEGMENTS):
        db.append(table, [(k, 0, 1)])
    db.compaction.run()
    assert len(share_of(db, table).segments) == TAIL_SEGMENTS
    land(db, table, 1000, TAIL_SEGMENTS // 2)
    db.compaction.run()
    assert len(share_of(db, table).segments) == 1


def test_a_segment_is_written_while_others_of_its_file_are_merged(db: PureDatabase) -> None:
    """It is in a file whose other segments are in use no longer: the ledger does not name it yet."""
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    (written,) = db.segments.write([pa.table({"k": [1], "g": [1], "__weight": [1]})])
    compact(db, 3)
    assert not isinstance(written, Exception)
    db.ledger.log.append(table.id, written)
    db.segments.settle([written])
    assert open_segment(db.directory / "log", written).num_rows == 1
    db.compaction.run()
    assert open_segment(db.directory / "log", written).num_rows == 1
    assert written.name in db.ledger.files.known().segments


def test_a_log_at_rest_is_merged_with_fewer_landings(db: PureDatabase) -> None:
    table = db.create_table()
    land(db, table, 0, RESTING_SEGMENTS)
    db.compaction.run()
    assert len(share_of(db, table).segments) == RESTING_SEGMENTS
    db.compaction.run(RESTING_SEGMENTS)
    assert len(share_of(db, table).segments) == 1


@pytest.mark.parametrize("merge", [Compaction.run, Compaction.merge_logs])
def test_a_database_that_was_opened_merges_what_earlier_processes_have_left(
    tmp_path: Path, merge: Callable[[Compaction], object]
) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    before = rows_of_log(db, share_of(db, table))
    db.close()
    db = PureDatabase(tmp_path)
    merge(db.compaction)
    assert len(share_of(db, table).segments) == 1
    assert rows_of_log(db, share_of(db, table)) == before
    db.close()


def test_many_landings_leave_few_files_and_few_rows_in_the_ledger(db: PureDatabase) -> None:
    table = db.create_table()
    for n in range(40):
        for _ in range(50):
            rows = pa.table({"k": [n, n + 1], "g": [1, 2], "__weight": [1, 1]})
            db.appender.append(Append(table.id, rows))
        while db.loop.advance() is not None:
            pass
        db.compaction.run()
    db.compaction.run()
    share = share_of(db, table)
    assert share.end == 4_000
    assert len(share.segments) <= TAIL_SEGMENTS + 8
    assert db.ledger.log_merges.counts() == {table.id: len(share.segments)}
    assert len(files(db)) <= 12
    assert not db.ledger.violations()
    read = read_range(db.directory / "log", share.segments, Offset(0), share.end, ["k"])
    assert [k for batch in read for k in batch["k"].to_pylist()] == [
        k for n in range(40) for _ in range(50) for k in (n, n + 1)
    ]


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_merge_looks_at_does_not_grow_with_the_log(
    db: PureDatabase, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    monkeypatch.setattr(merging, "FULL_SIZE", 64)
    if not kept:  # as rows with types that Parquet does not keep
        monkeypatch.setattr(merging, "keeps", lambda _: False)
    segments, opened = LogMerges.segments, merging.blocks
    looked, read = list[int](), list[int]()

    def counted(self: LogMerges, *range_: Any) -> Any:
        found = segments(self, *range_)
        looked.append(len(found))
        return found

    def counted_too(*given: Any) -> Any:
        read[-1] += 1
        return opened(*given)

    monkeypatch.setattr(LogMerges, "segments", counted)
    monkeypatch.setattr(merging, "blocks", counted_too)
    table = db.create_table()
    for number in range(5):
        read.append(0)
        land(db, table, 1_000 * number, TAIL_SEGMENTS)
        db.compaction.run()
    assert max(looked) <= 2 * TAIL_SEGMENTS
    assert len(set(read)) == 1
    assert db.ledger.log_merges.counts()[table.id] >= 5 * TAIL_SEGMENTS // 64
    assert len(rows_of_log(db, share_of(db, table))) == 5 * TAIL_SEGMENTS


def instructions(db: PureDatabase, what: Callable[[], object]) -> int:
    """Return about how many instructions of SQLite something takes: the rows it looks at count."""
    count = 0

    def counting() -> int:
        nonlocal count
        count += 1
        return 0

    def watched(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_progress_handler(counting, 10)

    db.ledger._transactions.store._close_idle()
    with db.ledger._transactions.reading() as connection:
        pool = connection.engine.pool
    db.ledger._transactions.store._close_idle()
    sa.event.listen(pool, "checkout", watched)
    what()
    sa.event.remove(pool, "checkout", watched)
    db.ledger._transactions.store._close_idle()
    return 10 * count


def test_a_sweep_after_a_merge_does_not_look_at_the_segments_that_stay(db: PureDatabase) -> None:
    kept, busy = db.create_table("kept"), db.create_table("busy")
    db.compaction.run()
    looked = []
    for number in range(2):
        land(db, kept, 1_000 * number, 1 + 200 * number)
        db.ledger.log.landed.take(1)  # those are not merged
        db.segments.close_pack(frozenset(files(db)))
        land(db, busy, 1_000 * number, RESTING_SEGMENTS)
        assert db.compaction.logs.run(tail=RESTING_SEGMENTS) >= RESTING_SEGMENTS
        before = files(db)
        looked.append(instructions(db, db.compaction.sweep))
        assert before - files(db), "the file that was merged is deleted"
    assert db.ledger.log_merges.counts()[kept.id] > 200
    assert looked[1] <= 1.2 * looked[0] + 100


def test_a_long_tail_is_merged_in_parts(db: PureDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_merging, "_AT_ONCE", 300)
    segments, looked = LogMerges.segments, list[int]()

    def counted(self: LogMerges, *given: Any) -> Any:
        found = segments(self, *given)
        looked.append(len(found))
        return found

    monkeypatch.setattr(LogMerges, "segments", counted)
    table = db.create_table()
    land(db, table, 0, 4 * TAIL_SEGMENTS)
    before = rows_of_log(db, share_of(db, table))
    db.compaction.run()
    assert max(looked) <= 300
    assert rows_of_log(db, share_of(db, table)) == before
    assert len(share_of(db, table).segments) <= TAIL_SEGMENTS


def landed_beside(db: PureDatabase) -> tuple[Table, Table]:
    """Create a log with one landing among many of another, in one file, and merge the latter."""
    slow, busy = db.create_table("slow"), db.create_table("busy")
    land(db, slow, 0, 1)
    land(db, busy, 0, RESTING_SEGMENTS)
    db.append(slow, [(7, 7, 1)])  # which no epoch has read
    return slow, busy


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files left however few bytes in them are not needed."""
    monkeypatch.setattr(log_merging, "_DEAD_AT_REST", 1)


@pytest.mark.usefixtures("leaving")
def test_one_landing_of_a_log_does_not_keep_the_bytes_of_all_that_landed_beside_it(
    db: PureDatabase,
) -> None:
    slow, busy = landed_beside(db)
    (pack,) = files(db)
    before = [rows_of_log(db, share_of(db, each)) for each in (slow, busy)]
    times = [each.appended_at for each in share_of(db, slow).segments]
    for _ in range(3):
        db.compaction.run(RESTING_SEGMENTS)
    assert pack not in files(db) | db.ledger.files.known().segments
    assert len(files(db)) == 2
    forget_segments()
    assert [rows_of_log(db, share_of(db, each)) for each in (slow, busy)] == before
    assert [each.appended_at for each in share_of(db, slow).segments] == times
    assert db.loop.advance() is not None, "the epoch that reads the moved landing"
    assert db.rows(slow.id) == Counter([(0, 0), (7, 7)])
    left = files(db)
    db.compaction.run(RESTING_SEGMENTS)
    assert files(db) == left, "nothing is copied twice"
    land(db, slow, 100, 1)
    assert len(files(db)) == 3


def test_landings_are_moved_while_others_arrive_out_of_files_that_were_merged(
    db: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_merging, "_DEAD_BYTES", 1)
    slow, busy = db.create_table("slow"), db.create_table("busy")
    land(db, slow, 0, 1)
    (pack,) = files(db)
    land(db, busy, 0, TAIL_SEGMENTS - 1)
    compact(db, 2)
    assert files(db) == {pack}
    asked: list[set[str]] = []
    uses = NamedFiles.log_uses

    def noted(self: NamedFiles, among: Collection[str] | None = None) -> dict[str, int]:
        asked.append(set(among or ()))
        return uses(self, among)

    monkeypatch.setattr(NamedFiles, "log_uses", noted)
    land(db, busy, 1000, TAIL_SEGMENTS)
    compact(db, 3)
    assert pack not in files(db)
    assert asked == [{pack}], "no other file is looked at, nor any again"
    assert db.rows(slow.id) == Counter([(0, 0)])


def test_a_landing_is_not_copied_for_a_few_bytes_beside_it(db: PureDatabase) -> None:
    landed_beside(db)
    (pack,) = files(db)
    for _ in range(3):
        db.compaction.run(RESTING_SEGMENTS)
    assert pack in files(db)


@pytest.mark.usefixtures("leaving")
def test_a_reader_in_the_middle_reads_the_former_file_of_a_landing_that_was_moved(
    db: PureDatabase,
) -> None:
    slow, _ = landed_beside(db)
    share = share_of(db, slow)
    before = rows_of_log(db, share)
    for _ in range(3):
        db.compaction.run(RESTING_SEGMENTS)
    forget_segments()
    assert rows_of_log(db, share) == before
    assert len(files(db)) == 3
    del share
    gc.collect()
    db.compaction.run(RESTING_SEGMENTS)
    assert len(files(db)) == 2


@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("stage", ["log copied", "segments moved"])
def test_landings_that_are_moved_in_a_crash_are_in_one_file_or_the_other(
    tmp_path: Path, stage: str
) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    logs = landed_beside(db)
    before = [rows_of_log(db, share_of(db, each)) for each in logs]
    faults.stage = stage
    with pytest.raises(Crash):
        db.compaction.run(RESTING_SEGMENTS)
    db.close()
    forget_segments()
    db = PureDatabase(tmp_path)
    assert [rows_of_log(db, share_of(db, each)) for each in logs] == before
    assert files(db) <= db.ledger.files.known().segments, "what is not named was swept"
    for _ in range(3):
        db.compaction.run(RESTING_SEGMENTS)
    assert [rows_of_log(db, share_of(db, each)) for each in logs] == before
    assert len(files(db)) == 2
    db.close()


def test_a_share_says_nothing_of_holds_to_other_processes(db: PureDatabase) -> None:
    table = db.create_table()
    land(db, table, 0, 1)
    share = log_share(db.ledger, table.id, Offset(0), Offset(1))
    assert share.segments[0].hold is not None
    pickled = pickle.dumps(share)
    assert pickle.loads(pickled).segments[0].hold is None  # noqa: S301
    assert copy.deepcopy(share).segments[0].hold is None
    assert share == LogShare(
        (
            Segment(
                table.id,
                OffsetRange(Offset(0), Offset(1)),
                share.segments[0].file,
                share.segments[0].appended_at,
            ),
        ),
        Offset(0),
        Offset(1),
    )


@pytest.mark.parametrize(
    "stage",
    ["log merged", "segments exchanged", "before commit", "after commit", "log exchanged", "swept"],
)
def test_a_merge_that_crashes_is_made_whole_or_not_at_all_and_leaves_no_file(
    tmp_path: Path, stage: str
) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    before = rows_of_log(db, share_of(db, table))
    faults.stage = stage
    with pytest.raises(Crash):
        compact(db, 3)
    db.close()
    forget_segments()
    db = PureDatabase(tmp_path)
    assert rows_of_log(db, share_of(db, table)) == before
    assert not db.ledger.violations()
    assert files(db) <= db.ledger.files.known().segments, "what is not named was swept"
    compact(db, 3)
    assert rows_of_log(db, share_of(db, table)) == before
    assert len(share_of(db, table).segments) == 1
    assert len(files(db)) == 1
    db.close()


def test_who_is_overtaken_while_merging_changes_nothing(tmp_path: Path) -> None:
    def overtake(stage: str) -> None:
        if stage == "log merged" and not others:
            others.append(PureDatabase(tmp_path))
            others[0].compaction.run()

    others: list[PureDatabase] = []
    db = PureDatabase(tmp_path, overtake)
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    before = rows_of_log(db, share_of(db, table))
    with pytest.raises(HeadraceError, match="another process took over"):
        db.compaction.run()
    (other,) = others
    assert rows_of_log(other, share_of(other, table)) == before
    assert len(share_of(other, table).segments) == 1
    compact(other, 3)
    assert files(other) == other.ledger.files.known().segments
    assert rows_of_log(other, share_of(other, table)) == before
    other.close()
    db.close()


@pytest.mark.parametrize("damaged", ["torn", "changed"])
def test_a_damaged_small_segment_is_not_merged_and_is_still_named(
    db: PureDatabase, damaged: str
) -> None:
    table = db.create_table()
    land(db, table, 0, TAIL_SEGMENTS)
    (pack,) = files(db)
    path = db.directory / "log" / pack
    whole = path.read_bytes()
    at = share_of(db, table).segments[100].file.position + 300
    path.write_bytes(whole[:at] if damaged == "torn" else whole[:at] + b"~~~~" + whole[at + 4 :])
    forget_segments()
    with pytest.raises(HeadraceError) as caught:
        db.compaction.run()
    assert caught.value.code is Code.CORRUPT
    assert pack in caught.value.primary
    assert files(db) == {pack}
    assert len(share_of(db, table).segments) == TAIL_SEGMENTS
    path.write_bytes(whole)
    assert len(rows_of_log(db, share_of(db, table))) == TAIL_SEGMENTS


def test_a_branch_of_an_epoch_has_the_first_changes_of_a_merged_segment(
    tmp_path: Path,
) -> None:
    seconds = [1000.0]
    db = PureDatabase(tmp_path, clock=lambda: seconds[0])
    table = db.create_table()
    epochs = []
    for k in range(TAIL_SEGMENTS):
        seconds[0] += 1
        land(db, table, k, 1)
        epochs.append(db.ledger.head.epoch)
    db.loop.settings = replace(db.loop.settings, history_epochs=1000)
    db.compaction.run()
    (segment,) = share_of(db, table).segments
    expected = rows_of_log(db, share_of(db, table))
    copy_ = tmp_path / "copy.db"
    db.ledger.copy_to(copy_)
    with LedgerCopy(copy_).changing() as change:
        change.rewind(epochs[99], partial(appended_by, tmp_path / "log"))
    with Ledger.open(copy_) as rewound:
        rewound.acquire()
        assert rewound.head.log_end(table.id) == 100
        (cut,) = rewound.log.segments(table.id, Offset(0), Offset(100))
        assert cut.file.rows == 100
        assert rows_of_log(db, LogShare((cut,), Offset(0), Offset(100))) == expected[:100]
        assert not rewound.violations()
    assert [appended_by(tmp_path / "log", segment, 1000.0 + n) for n in (0, 1, 100, 999)] == [
        *(0, 1, 100, TAIL_SEGMENTS)
    ]
    assert appended_at(tmp_path / "log", [segment], Offset(41)) == 1042.0
    db.close()


# -- corrections -------------------------------------------------------------------------------


class Sensors:
    """A stream of events, one correction after each few of them, and its states by log end."""

    def __init__(self, db: PureDatabase) -> None:
        self.db, self.stream = db, db.create_stream()
        self.events = dict[int, int]()
        self.states = {0: dict[int, int]()}
        self.number = 0

    def land(self, rows: int) -> None:
        first = max(self.states)
        numbers = range(self.number, self.number + rows)
        self.events |= dict(zip(range(first, first + rows), numbers, strict=True))
        self._append([(None, n, 1) for n in numbers])

    def correct(self, *events: int, void: bool = False) -> None:
        old = [(event, self.events.pop(event), -1) for event in events]
        new = [] if void else [(event, self.number, 1) for event in events]
        self.events |= {event: n for event, n, _ in new}
        self._append([*old, *new])

    def _append(self, changes: list[EventChange]) -> None:
        end = self.db.append_events(self.stream, changes)
        self.number += len(changes)
        self.states[end] = dict(self.events)

    def run(self, corrections: int, rows: int = 1) -> None:
        """Land four times some events and correct some of all, so many times."""
        for number in range(corrections):
            for _ in range(4):
                self.land(rows)
            there = sorted(self.events)
            some = {there[0], there[number * 37 % len(there)], there[-1]}
            self.correct(*some, void=number % 3 == 2)

    def read(self, db: PureDatabase, end: int) -> dict[int, int]:
        extent = Extent.of(db.ledger, self.stream.id, Offset(0), Offset(end))
        events = events_in(db.directory, self.stream, extent, InLedger(db.ledger))
        (*parts,) = events.parts(["n", "__offset"])
        found = {at: n for part in parts for n, at in zip(*part.to_pydict().values(), strict=True)}
        assert events.count() == len(found) == sum(part.num_rows for part in parts)
        share = log_share(db.ledger, self.stream.id, Offset(0), Offset(end)).as_corrected()
        rows = EmbeddedLog().read(db.directory / "log", share, NUMBER, offsets=True)
        assert found == by_offset(rows)
        return found

    def check(self, db: PureDatabase) -> None:
        """Compare what is read with the events, at a few positions: after corrections, between."""
        ends = sorted(self.states)
        for end in {*ends[:: 1 + len(ends) // 12], *ends[-2:]}:
            assert self.read(db, end) == self.states[end], end


NUMBER = pa.schema([pa.field("n", pa.int64())])


def by_offset(rows: Iterator[pa.RecordBatch]) -> dict[int, int]:
    """Return the number of each event that is read, which has the weight 1."""
    read = [row for batch in rows for row in batch.to_pylist()]
    assert {row["__weight"] for row in read} <= {1}
    found = {row["__offset"]: row["n"] for row in read}
    assert len(found) == len(read)
    return found


@pytest.mark.parametrize("stage", [None, "log merged", "segments exchanged", "log exchanged"])
def test_a_log_with_corrections_is_merged_and_read_as_before_at_each_position(
    tmp_path: Path, stage: str | None
) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    sensors = Sensors(db)
    sensors.run(9)
    assert db.ledger.log_merges.counts() == {sensors.stream.id: 45}
    before = db.ledger.log.corrections(sensors.stream.id)
    if stage is not None:
        faults.stage = stage
        with pytest.raises(Crash):
            compact(db, 3, RESTING_SEGMENTS)
        db.close()
        forget_segments()
        db = PureDatabase(tmp_path)
    compact(db, 3, RESTING_SEGMENTS)
    assert db.ledger.log_merges.counts() == {sensors.stream.id: 1}, "corrections are no boundary"
    assert len(files(db)) == 1
    assert db.ledger.log.corrections(sensors.stream.id) == before
    sensors.db = db
    sensors.check(db)
    sensors.run(4)
    sensors.check(db)
    compact(db, 3, RESTING_SEGMENTS)
    forget_segments()
    sensors.check(db)
    assert not db.ledger.violations()
    db.close()


def test_a_stream_with_many_corrections_is_few_segments_and_a_count_opens_few(
    db: PureDatabase,
) -> None:
    sensors = Sensors(db)
    counts = []
    for _ in range(4):
        sensors.run(6, 100)
        compact(db, 2, RESTING_SEGMENTS)
        counts.append(db.ledger.log_merges.counts()[sensors.stream.id])
    assert max(counts) <= 4, counts
    end = Offset(max(sensors.states))
    found = db.ledger.log.corrections_between(sensors.stream.id, Offset(0), end)
    assert len(found) <= max(counts), "they are listed by segment, not each"
    assert sensors.read(db, end) == sensors.states[end]


def test_a_branch_has_the_corrections_of_a_merged_segment_up_to_its_epoch(tmp_path: Path) -> None:
    seconds = [1000.0]

    def clock() -> float:
        seconds[0] += 0.001
        return seconds[0]

    db = PureDatabase(tmp_path, clock=clock)
    db.loop.settings = replace(db.loop.settings, history_epochs=1000)
    sensors, table, ends = Sensors(db), db.create_table(), {}
    for k in range(6):
        sensors.run(1)
        land(db, table, k, 1)
        ends[db.ledger.head.epoch] = max(sensors.states)
    compact(db, 2, RESTING_SEGMENTS)
    assert db.ledger.log_merges.counts()[sensors.stream.id] == 1
    for epoch, end in list(ends.items())[::3]:
        copy_ = tmp_path / f"copy-{epoch}.db"
        db.ledger.copy_to(copy_)
        with LedgerCopy(copy_).changing() as change:
            change.rewind(epoch, partial(appended_by, tmp_path / "log"))
        with Ledger.open(copy_) as rewound:
            rewound.acquire()
            assert rewound.head.log_end(sensors.stream.id) == end
            (cut,) = rewound.log.segments(sensors.stream.id, Offset(0), Offset(end))
            share = LogShare((cut,), Offset(0), Offset(end)).as_corrected()
            rows = EmbeddedLog().read(tmp_path / "log", share, NUMBER, offsets=True)
            assert by_offset(rows) == sensors.states[end]
    db.close()


# -- what holds merging, and the files of what was merged ---------------------------------------


def test_a_stream_is_merged_to_its_end_once_its_only_view_has_stopped(db: PureDatabase) -> None:
    sensors = Sensors(db)
    view = View(
        db.ledger.ids.relation(),
        "over",
        Schema((Column("n", LongType()),)),
        "SELECT n FROM s",
        (sensors.stream.id,),
    )
    rows = NewArrangement(rows_of(view.id), TABLE.to_json())
    made = NewObject(view.id, "over", "view", view.to_json(), view.depends_on, (rows,))
    build = NewBuild(BuildId(view.id), view.id, view.to_json(), view.depends_on, serving=True)
    db.ledger.commit(EpochCommit(db.ledger.head.epoch, "made", created=(made,), builds=(build,)))
    state = db.loop.published.current
    db.loop.published.publish(state.catalog.with_(view), {**state.layouts, rows.id: TABLE})
    sensors.run(4)
    compact(db, 1, RESTING_SEGMENTS)
    assert db.ledger.log_merges.counts() == {sensors.stream.id: 20}, "epochs are to read them"
    db.ledger.dirty.mark(Dirty(view.id, STOPPED, 0.0))
    db.loop.published.publish()
    sensors.run(2)
    compact(db, 1, RESTING_SEGMENTS)
    assert db.ledger.log_merges.counts() == {sensors.stream.id: 1}
    sensors.check(db)


def test_what_still_reads_merged_segments_is_counted_and_a_read_that_ended_holds_nothing(
    db: PureDatabase,
) -> None:
    sensors = Sensors(db)
    sensors.run(4)
    sensors.check(db)  # what these reads remember of corrections holds no file
    end = Offset(max(sensors.states))
    share = log_share(db.ledger, sensors.stream.id, Offset(0), end)
    compact(db, 3, RESTING_SEGMENTS)
    (held,) = db.compaction.logs.held_segments()
    assert (held.relation, held.segments, held.reads) == (sensors.stream.id, 20, 1)
    assert len(files(db)) == 2
    assert share.rows == end
    del share
    gc.collect()
    compact(db, 2, RESTING_SEGMENTS)
    assert not db.compaction.logs.held_segments()
    assert len(files(db)) == 1
