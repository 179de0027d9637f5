"""Packs of a whole database: what is written, synced, deleted, and how much of it is dead."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime import compaction
from headrace.storage.ledger import files, spines
from headrace.types import Epoch, rows_of
from mutations.active import Defect, defective
from runtime.pure import PARTITIONS, PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.algebra.spine import PackWriter, RunFile
    from headrace.algebra.zset import Layout
    from headrace.planning.catalog import Table, View


class Crash(BaseException):
    """The process has ended here."""


class Durability:
    """Notices a commit that names a pack which is not on disk, or whose name is not.

    It is the ``fault`` of a database, and stands for ``os.fsync``.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = directory / "runs"
        self.synced: dict[int, int] = {}
        self.listed: set[str] = set()
        self.syncs = 0
        monkeypatch.setattr(os, "fsync", self.sync)

    def sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if found.st_ino == self.runs.stat().st_ino:
            self.listed = {path.name for path in self.runs.iterdir()}
        self.synced[found.st_ino] = found.st_size
        self.syncs += 1

    def __call__(self, stage: str) -> None:
        if stage == "before commit":
            for path in self.runs.iterdir():
                found = path.stat()
                assert self.synced.get(found.st_ino) == found.st_size, "a pack is not synced"
                assert path.name in self.listed, "the directory is not synced"


def packs(db: PureDatabase) -> set[str]:
    return {path.name for path in db.loop.runs.iterdir()}


def insert(db: PureDatabase, table: Table, *keys: int) -> None:
    db.append(table, [(key, key % 3, 1) for key in keys])
    db.loop.advance()


def life(directory: Path, fault: object = None) -> None:
    """Make epochs of many runs, merge and delete them, and read everything from the disk."""
    db = PureDatabase(directory, *([] if fault is None else [fault]))  # type: ignore[list-item]
    table = db.create_table()
    counts = db.create_view("counts", table)
    above = db.create_view("above", counts)
    for number in range(24):
        insert(db, table, number, number + 1)
        if number % 8 == 7:
            db.compaction.run()
        if number % 5 == 4:
            forget_runs()
            check(db, table, counts, above, number + 2)
    fill = db.begin_view("counts", table, counts)
    insert(db, table, 50)
    db.finish_view(fill, counts)
    insert(db, table, 51)
    db.compaction.run()
    db.close()
    forget_runs()
    again = PureDatabase(directory)
    assert packs(again) == again.ledger.files.known().packs
    wanted = {(k, k % 3): 1 for k in (*range(25), 50, 51)}
    assert again.rows(table.id) == Counter(wanted)
    again.close()


def check(db: PureDatabase, table: Table, counts: View, above: View, keys: int) -> None:
    groups = Counter(key % 3 for key in range(keys))
    assert db.rows(table.id) == Counter({(key, key % 3): 1 for key in range(keys)})
    assert db.rows(counts.id) == Counter(dict.fromkeys(groups.items(), 1))
    assert db.rows(above.id) == Counter(dict.fromkeys(Counter(groups.values()).items(), 1))
    earlier = db.ledger.head.epoch - 2
    assert sum(db.rows(table.id, earlier).values()) == keys - 2


def test_every_commit_names_packs_that_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life(tmp_path, Durability(tmp_path, monkeypatch))


def test_an_epoch_writes_one_pack_and_syncs_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    db.create_view("above", db.create_view("counts", table))
    insert(db, table, 1, 2)
    before = packs(db)
    db.append(table, [(3, 0, 1), (4, 1, 1)])
    watched = Durability(tmp_path, monkeypatch)
    db.loop.advance()
    (made,) = packs(db) - before
    spines = db.ledger.spines.of(record.id for record in db.ledger.spines.arrangements())
    new = [run.file for runs in spines.values() for run in runs if run.file.pack == made]
    assert len(new) >= len(spines) >= 5
    assert watched.syncs == 2, "the pack and its directory"


_PACK, _OPEN = "headrace.algebra.spine.pack", "headrace.algebra.spine.open_runs"
_FILES, _ATTEMPT = "headrace.storage.ledger.files", "headrace.execution.runtime.attempt"
DEFECTS = (
    Defect(
        "a pack is not synced", _PACK, "PackWriter.finish", "os.fsync(self._file.fileno())", "1"
    ),
    Defect(
        "compaction commits before the directory is synced",
        "headrace.execution.runtime.compaction",
        "Compaction._merge",
        "sync_directory(directory)",
        "None",
    ),
    Defect(
        "compaction commits before its pack is synced",
        "headrace.execution.runtime.compaction",
        "Compaction._merge",
        "pack.finish()",
        "pack._file = None",
    ),
    Defect(
        "a pack goes with the first of its runs that is dead",
        _FILES,
        "_garbage",
        ".where(dead, unit.not_in(needed))",
        ".where(dead)",
    ),
    Defect("a pack goes with a run that is replaced", _ATTEMPT, "Attempt._remove", " - kept", ""),
    Defect("runs have a wrong position", _PACK, "PackWriter._ended", "written.position", "0"),
    Defect(
        "runs are read elsewhere", _OPEN, "_read", "memory.slice(file.position", "memory.slice(0"
    ),
)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_of_packs_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Defect
) -> None:
    watched = Durability(tmp_path, monkeypatch)
    with defective(defect), pytest.raises((AssertionError, HeadraceError)) as noticed:
        life(tmp_path, watched)
    if isinstance(noticed.value, HeadraceError):
        assert noticed.value.code in (Code.CORRUPT, Code.INTERNAL)


def test_dead_bytes_stay_bounded_although_runs_that_rarely_change_share_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_DEAD_BYTES", 1 << 30)
    db = PureDatabase(tmp_path)
    db.loop.settings = replace(db.loop.settings, history_epochs=1)
    table = db.create_table()
    for name in ("one", "two", "three"):
        db.create_view(name, table)
    rare = db.create_view("rare", table)
    db.finish_view(db.begin_view("rare", table, rare), rare)  # without the rows of group 0

    def dead_and_live() -> tuple[int, int]:
        dead = sum(use.dead for use in db.ledger.files.pack_uses())
        assert dead == sum(db.ledger.files.dead_bytes().values())
        spines = db.ledger.spines.of(record.id for record in db.ledger.spines.arrangements())
        return dead, sum(run.file.bytes for runs in spines.values() for run in runs)

    for number in range(48):
        db.append(table, [(number, 1 if number % 8 == 1 else 0, 1)])
        db.loop.advance()
        if number % 8 == 7:
            db.compaction.run()
    dead, live = dead_and_live()
    assert dead > live
    monkeypatch.setattr(compaction, "_DEAD_BYTES", 1)
    for number in range(48, 54):
        db.append(table, [(number, 0, 1)])
        db.loop.advance()
        db.compaction.run()
    dead, live = dead_and_live()
    assert dead <= live
    forget_runs()
    assert db.rows(table.id).total() == 54
    assert db.rows(rare.id) == Counter({(1, 6): 1})


def test_between_passes_only_what_has_changed_is_looked_at_without_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = PureDatabase(tmp_path)
    tables = [db.create_table(f"t{number}") for number in range(3)]
    looked: list[str] = []
    found = compaction.due_by_partition

    def looking(files: list[RunFile], *arguments: object) -> object:
        looked.append(files[0].pack if files else "")
        return found(files, *arguments)  # type: ignore[arg-type]

    for table in tables:
        insert(db, table, 1)
    db.compaction.merge_due()
    monkeypatch.setattr(compaction, "due_by_partition", looking)
    insert(db, tables[0], 2)
    monkeypatch.setattr(type(db.ledger._transactions), "reading", None)
    assert db.compaction.merge_due() == 0
    assert len(looked) == 1
    assert db.compaction.merge_due() == 0
    assert len(looked) == 1


@pytest.mark.parametrize("asked", [files._WITH_DEAD, spines._REPLACED])
def test_what_nothing_needs_is_found_by_the_runs_that_were_removed(
    tmp_path: Path, asked: sa.Select[tuple[str]]
) -> None:
    PureDatabase(tmp_path).close()
    text = asked.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        plan = [row[3] for row in ledger.execute(f"EXPLAIN QUERY PLAN {text}")]
    assert not any("SCAN runs" in step for step in plan)
    assert any("runs_by_removal" in step for step in plan)


def test_a_row_is_written_again_once_for_each_eightfold_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    merge, written = compaction.merge, Counter[str]()

    def counting(directory: Path, layout: Layout, group: list[RunFile], pack: PackWriter) -> object:
        written["rows"] += sum(file.rows for file in group)
        return merge(directory, layout, group, pack)

    monkeypatch.setattr(compaction, "merge", counting)
    for number in range(128):
        insert(db, table, number)
        if number % 8 == 7:
            db.compaction.merge_due()
    runs = db.ledger.head.next_spines[rows_of(table.id)]
    assert sum(run.file.rows for run in runs) == 128
    assert 64 <= written["rows"] <= 128 * 2


def statements(db: PureDatabase, table: Table, number: int) -> int:
    """Return how many statements of SQL, and transactions, a landing and its epoch take."""
    found: list[str] = []
    with db.ledger._transactions.reading() as connection:
        pool = connection.engine.pool

    def traced(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_trace_callback(found.append)

    db.ledger._transactions.store._close_idle()  # those that are kept are not checked out again
    sa.event.listen(pool, "checkout", traced)
    db.append(table, [(number, 1, 1)])
    landed = len(found)
    db.loop.advance()
    sa.event.remove(pool, "checkout", traced)
    assert [each for each in found[:landed] if each.startswith("BEGIN")] == ["BEGIN IMMEDIATE"]
    assert sum(each.startswith("BEGIN") for each in found[landed:]) == 1
    return len(found)


def test_a_landing_and_an_epoch_are_a_transaction_each_however_many_views_there_are(
    tmp_path: Path,
) -> None:
    asked = []
    for others in (0, 12):
        db = PureDatabase(tmp_path / str(others))
        table, other = db.create_table(), db.create_table("other")
        db.create_view("counts", table)
        for number in range(others):
            db.create_view(f"unreached{number}", other)
        insert(db, table, 1)
        asked.append(statements(db, table, 2))
        db.close()
    few, many = asked
    assert few == many <= 30


def test_at_rest_a_database_takes_little_more_than_what_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.ledger.commit._LEAST", 16)
    monkeypatch.setattr(compaction, "_DEAD_BYTES", 1 << 12)
    db = PureDatabase(tmp_path)
    table = db.create_table()
    db.create_view("above", db.create_view("counts", table))
    for number in range(200):
        insert(db, table, number)
        if number % 8 == 7:
            db.compaction.merge_due()
        if number % 64 == 63 or number > 190:
            db.compaction.run()
    before = sum(path.stat().st_size for path in tmp_path.glob("ledger.db*"))
    db.compaction.rest()
    spines = db.ledger.head.next_spines.values()
    live = sum(run.file.bytes for runs in spines for run in runs)
    kept = sum(path.stat().st_size for path in db.loop.runs.iterdir())
    assert kept <= 3 * live, "of that, the changes of epochs that can still be read"
    assert sum(path.stat().st_size for path in tmp_path.glob("ledger.db*")) < before / 4
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        assert ledger.execute("SELECT count(*) FROM epochs").fetchone()[0] <= 16 + 2
        assert ledger.execute("SELECT count(*) FROM reads").fetchone()[0] <= 16 + 2
        assert ledger.execute("PRAGMA freelist_count").fetchone()[0] <= 64
    db.close()
    forget_runs()
    again = PureDatabase(tmp_path)
    assert again.rows(table.id).total() == 200
    insert(again, table, 200)
    assert again.rows(table.id).total() == 201
    again.close()


def test_at_rest_state_is_small_and_every_kept_epoch_can_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.ledger.commit._LEAST", 1)
    db = PureDatabase(tmp_path)
    table = db.create_table()
    counts = db.create_view("counts", table)
    for number in range(30):
        insert(db, table, number)
    last = db.ledger.head.epoch
    rows = {Epoch(at): db.rows(counts.id, Epoch(at)) for at in range(last - 2, last + 1)}
    assert db.compaction.rest() == last + 1, "an empty epoch lets go of what was merged"
    forget_runs()
    state = [
        runs
        for id_, runs in db.ledger.head.next_spines.items()
        if db.ledger.head.arrangements[id_].build is not None
    ]
    assert all(len(runs) <= PARTITIONS for runs in state)
    assert {epoch: db.rows(counts.id, epoch) for epoch in rows} == rows
    assert db.rows(table.id).total() == 30
    assert (tmp_path / "ledger.db-wal").stat().st_size == 0
    assert db.ledger.epochs.newest()[-1].epoch == last - db.loop.settings.history_epochs
    assert not db.ledger.violations()
    files_then = packs(db)
    assert db.compaction.rest() == last + 1, "there is nothing left to do"
    assert packs(db) == files_then
    insert(db, table, 30)
    assert db.rows(table.id).total() == 31


def test_a_compaction_that_comes_too_late_leaves_no_pack(tmp_path: Path) -> None:
    def fault(stage: str) -> None:
        if stage == "merged":
            db.drop(view)

    db = PureDatabase(tmp_path, fault)
    table = db.create_table()
    view = db.create_view("counts", table)
    for number in range(8):
        insert(db, table, number)
    with pytest.raises(HeadraceError, match="while it was merged"):
        db.compaction.run()
    assert packs(db) == db.ledger.files.known().packs
    db.compaction.run()
    assert db.rows(table.id).total() == 8


def test_a_full_disk_at_the_sync_of_a_pack_fails_the_epoch_and_the_next_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    view = db.create_view("counts", table)
    insert(db, table, 1)
    before = packs(db)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    db.append(table, [(2, 0, 1)])
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(HeadraceError, match="could not be written") as failed:
            db.loop.advance()
    assert failed.value.code is Code.UNAVAILABLE
    assert packs(db) == before
    db.loop.advance()
    assert db.rows(view.id) == Counter({(1, 1): 1, (0, 1): 1})


def test_a_missing_and_a_torn_pack_are_named_and_other_packs_are_read(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table, other = db.create_table(), db.create_table("other")
    view = db.create_view("counts", table)
    insert(db, other, 7)
    before = packs(db)
    insert(db, table, 1)
    (made,) = packs(db) - before
    path = db.loop.runs / made
    whole = path.read_bytes()
    for left in (None, b"", whole[:-1], whole[:100]):
        path.unlink(missing_ok=True)
        if left is not None:
            path.write_bytes(left)
        forget_runs()
        with pytest.raises(HeadraceError) as failed:
            (db.rows(table.id), db.rows(view.id))
        assert failed.value.code is Code.CORRUPT
        assert f'run file "{made}@' in failed.value.primary
        assert db.rows(other.id) == Counter({(7, 1): 1})
    path.write_bytes(whole)
    forget_runs()
    assert db.rows(view.id) == Counter({(1, 1): 1})
