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

from headrace.errors import Code, HeadraceError
from headrace.ledger import Ledger, LedgerCopy, OffsetRange, Segment
from headrace.ledger.log_merges import LogMerges
from headrace.log import (
    Append,
    EmbeddedLog,
    LogShare,
    appended_at,
    appended_by,
    forget_segments,
    merging,
    open_segment,
    read_range,
)
from headrace.log.merging import TAIL_SEGMENTS
from headrace.runtime.compaction import Compaction
from headrace.runtime.log_merging import RESTING_SEGMENTS
from headrace.runtime.shares import log_share, whole_log
from headrace.types import Offset
from runtime.crashing import Crash, Faults
from runtime.pure import ROW, PureDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.catalog import Table


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


def compact(db: PureDatabase, times: int) -> None:
    for _ in range(times):
        db.compaction.run()


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
