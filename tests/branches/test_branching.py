"""Branches without Spark: what they begin with, isolation, compaction, crashes, and what is left of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.published import STOPPED, WAITING
from headrace.lifecycle.copies.branch_places import InDirectory
from headrace.lifecycle.copies.branching import Branches
from headrace.planning.catalog import RefreshKind, RefreshPolicy
from headrace.storage.ledger import (
    Dirty,
    EpochCommit,
    Ledger,
    Mode,
    PostgresAddress,
    ProducerPosition,
    Retired,
    SegmentFile,
    ledger_to_read,
    open_ledger,
)
from headrace.storage.log.segments import forget_segments
from headrace.types import ArrangementId, Epoch
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAGES = ("branch: ledger copied", "branch: begun", "branch: linked", "branch: named")
Rows = list[Counter[tuple[int, ...]]]


class Mill:
    """A database with a table and two views, one above the other."""

    def __init__(self, directory: Path, ledger: Ledger | None = None) -> None:
        self.directory = directory
        self.db = PureDatabase(directory, ledger=ledger)
        self.table = self.db.loop.catalog.find("t") or self.db.create_table()
        if self.db.loop.catalog.find("counts") is None:
            view = self.db.create_view("counts", self.table)
            self.db.create_view("above", view)

    def write(self, *keys: int, group: int = 0) -> None:
        """Write rows, and make an epoch of them."""
        self.db.append(self.table, [(key, (key + group) % 3, 1) for key in keys])
        while self.db.loop.advance() is not None:
            pass

    def rewrite(self, times: int) -> None:
        """Replace rows, so that files of before become garbage: the history is four epochs."""
        for n in range(times):
            self.write(*range(8), group=n)
            self.db.compaction.run()

    @property
    def epoch(self) -> Epoch:
        return self.db.ledger.head.epoch

    def branches(self, fault: Callable[[str], None] = lambda _stage: None) -> Branches:
        compaction = self.db.compaction
        return Branches(
            self.directory,
            self.db.ledger,
            InDirectory(self.directory, fault),
            compaction.held,
            compaction.retirement.busy,
            fault,
            lambda: 77.0,
        )

    def rows(self, epoch: Epoch | None = None) -> Rows:
        return rows_of(self.db, epoch)

    def files(self) -> set[str]:
        return files_of(self.directory)


def rows_of(db: PureDatabase, epoch: Epoch | None = None) -> Rows:
    return [db.rows(r.id, epoch) for r in db.loop.catalog if r.kind != "sink"]


def files_of(directory: Path) -> set[str]:
    """The files and directories below one, without those in which SQLite has its log."""
    found = (path.relative_to(directory) for path in directory.rglob("*"))
    return {str(path) for path in found if not path.name.startswith("ledger.db-")}


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    made = Mill(tmp_path / "data")
    yield made
    made.db.close()


@pytest.fixture
def opened() -> Iterator[Callable[[Path], PureDatabase]]:
    """Opens data directories as a database does; reads what is on disk."""
    found: list[PureDatabase] = []

    def open_(directory: Path) -> PureDatabase:
        forget_runs()
        forget_segments()
        open_ledger(directory).close()
        found.append(PureDatabase(directory))
        return found[-1]

    yield open_
    for each in found:
        each.close()


def at(mill: Mill, name: str) -> Path:
    return mill.directory / "branches" / name


def test_a_branch_begins_with_all_that_was_acknowledged_and_goes_its_own_way(mill, opened) -> None:
    mill.write(*range(10))
    mill.db.append(mill.table, [(50, 1, 1)])  # read by no epoch yet
    made = mill.branches().create("b")
    assert (made.epoch, made.without, made.refilled) == (mill.epoch, (), ())
    branch = opened(at(mill, "b"))
    assert rows_of(branch) == mill.rows()
    branch.loop.advance()
    mill.db.loop.advance()
    assert rows_of(branch) == mill.rows()
    before = mill.rows()
    branch.append(mill.table, [(1, 0, -1), (100, 2, 1)])
    branch.loop.advance()
    assert branch.rows(mill.table.id)[100, 2] == 1
    assert mill.rows() == before
    theirs = rows_of(branch)
    mill.write(*range(20, 30))
    assert mill.rows() != before
    assert rows_of(branch) == theirs
    assert not branch.ledger.violations()
    assert branch.ledger.settings.identity != mill.db.ledger.settings.identity


def test_a_branch_reads_the_epochs_before_it(mill, opened) -> None:
    mill.write(1, 2)
    first, rows = mill.epoch, mill.rows()
    mill.write(3)
    mill.branches().create("b")
    branch = opened(at(mill, "b"))
    branch.append(mill.table, [(9, 1, 1)])
    branch.loop.advance()
    assert rows_of(branch, first) == rows
    assert rows_of(branch, Epoch(first + 1)) == mill.rows()


def test_nothing_is_copied_but_the_ledger(mill) -> None:
    mill.write(*range(10))
    mill.branches().create("b")
    needed = mill.db.ledger.files.needed()
    assert needed
    for file in needed:
        parents = (mill.directory / file.folder / file.name).stat()
        assert os.path.samestat(parents, (at(mill, "b") / file.folder / file.name).stat())
    (branch,) = mill.branches().all()
    assert branch.shared_bytes == sum(
        (mill.directory / file.folder / file.name).stat().st_size for file in needed
    )
    assert branch.own_bytes == (at(mill, "b") / "ledger.db").stat().st_size
    assert (branch.name, branch.from_epoch, branch.created_at) == ("b", mill.epoch, 77.0)
    assert branch.epoch == mill.epoch
    assert branch.in_use is None


def test_the_parent_deletes_its_files_and_the_branch_keeps_them(mill, opened) -> None:
    mill.write(*range(40))
    mill.rewrite(6)
    rows = mill.rows()
    mill.branches().create("b")
    shared = {f"{file.folder}/{file.name}" for file in mill.db.ledger.files.needed()}
    mill.rewrite(12)
    gone = {name for name in shared if not (mill.directory / name).exists()}
    assert gone, "the test shows nothing without garbage"
    branch = opened(at(mill, "b"))
    assert rows_of(branch) == rows
    branch.append(mill.table, [(1, 2, 1)])
    branch.loop.advance()
    while branch.compaction.run():
        pass
    assert branch.rows(mill.table.id)[1, 2] == 1
    (listed,) = mill.branches().all()
    assert listed.shared_bytes > 0
    assert listed.own_bytes > 0


def test_the_branch_deletes_its_files_and_the_parent_keeps_them(mill, opened) -> None:
    mill.write(*range(40))
    mill.rewrite(6)
    rows, named = mill.rows(), mill.db.ledger.files.needed()
    mill.branches().create("b")
    branch = opened(at(mill, "b"))
    for n in range(12):
        branch.append(mill.table, [(key, (key + n) % 3, 1) for key in range(8)])
        branch.loop.advance()
        branch.compaction.run()
    gone = [f for f in named if not (at(mill, "b") / f.folder / f.name).exists()]
    assert gone, "the test shows nothing without garbage"
    forget_runs()
    forget_segments()
    assert mill.rows() == rows
    assert all((mill.directory / file.folder / file.name).exists() for file in named)


def test_dropping_leaves_the_directory_as_it_was(mill) -> None:
    mill.write(*range(10))
    before = mill.files()
    mill.branches().create("b")
    mill.branches().create("c")
    mill.branches().drop("b")
    assert [each.name for each in mill.branches().all()] == ["c"]
    mill.branches().drop("c")
    assert mill.files() == before
    assert mill.branches().all() == []


def test_an_earlier_epoch_is_what_a_branch_begins_with(mill, opened) -> None:
    mill.write(1, 2, 3)
    then, rows = mill.epoch, mill.rows()
    end = mill.db.ledger.head.ends[mill.table.id]
    mill.write(4, 5)
    later = mill.db.create_view("later", mill.table)
    mill.db.append(mill.table, [(6, 1, 1)])
    made = mill.branches().create("b", then)
    assert made.epoch == then
    assert made.refilled == (), "no state of operators was replaced yet"
    branch = opened(at(mill, "b"))
    head = branch.ledger.head
    assert (head.epoch, head.ends[mill.table.id], head.position(mill.table.id)) == (then, end, end)
    assert branch.loop.advance() is None
    assert later.id not in branch.loop.catalog.by_id
    assert rows_of(branch) == rows
    assert not branch.ledger.violations()
    branch.append(mill.table, [(4, 1, 1), (5, 2, 1)])
    branch.loop.advance()
    mill.db.loop.advance()
    mill.write(6, group=0)
    assert branch.rows(mill.table.id)[4, 1] == 1
    assert not branch.ledger.violations()


def test_a_branch_of_the_last_epoch_leaves_out_what_no_epoch_has_read(mill, opened) -> None:
    mill.write(1)
    mill.db.append(mill.table, [(2, 1, 1)])
    mill.branches().create("b", mill.epoch)
    branch = opened(at(mill, "b"))
    assert branch.loop.advance() is None
    assert rows_of(branch) == mill.rows()


def test_what_was_dropped_and_replaced_since_is_as_it_was(mill, opened) -> None:
    mill.write(1, 2, 3, 4)
    view = mill.db.loop.catalog.find("above")
    then, rows = mill.epoch, mill.rows()
    counts = mill.db.loop.catalog.find("counts")
    mill.db.finish_view(mill.db.begin_view("counts", mill.table, former=counts), counts)
    mill.db.drop(view)
    mill.write(7)
    mill.branches().create("b", then)
    branch = opened(at(mill, "b"))
    assert rows_of(branch) == rows
    assert branch.loop.catalog.find("counts").query == counts.query
    assert branch.loop.catalog.find("above").id == view.id
    assert not branch.ledger.violations()


def test_views_whose_state_is_gone_are_filled_again(mill, opened) -> None:
    counts = mill.db.loop.catalog.find("counts")
    mill.db.create_view("__3", counts)
    key, then, since = 0, mill.epoch, mill.epoch
    while since <= then:  # until runs of its state have been merged
        then, key = mill.epoch, key + 1
        mill.write(key)
        mill.db.compaction.run()
        since = mill.db.ledger.spines.since(ArrangementId(f"{counts.build}/groups"))
    rows = mill.rows(then)
    made = mill.branches().create("b", then)
    assert made.refilled[0] == "counts"
    assert "above" in made.refilled, "it reads a view that is filled again"
    assert "a query that is followed" in made.refilled, "a hidden view is not called by its name"
    assert rows_of(opened(at(mill, "b"))) == rows
    with ledger_to_read(at(mill, "b")) as ledger:
        marked = {(entry.view, entry.cause) for entry in ledger.head.dirty}
        views = {build.view for build in ledger.head.builds.values()}
        assert marked == {(view, WAITING) for view in views}
        assert not ledger.violations()


def test_an_epoch_that_cannot_be_read_any_more_is_refused(mill) -> None:
    mill.write(1)
    then, before = mill.epoch, None
    mill.rewrite(8)
    before = mill.files()
    with pytest.raises(HeadraceError, match=f"cannot begin at epoch {then}") as error:
        mill.branches().create("b", then)
    assert error.value.code is Code.INVALID
    assert "can be read from epoch" in error.value.detail
    with pytest.raises(HeadraceError, match="does not exist yet"):
        mill.branches().create("b", Epoch(mill.epoch + 1))
    assert mill.files() == before


def test_a_definition_that_was_altered_since_is_refused(mill) -> None:
    mill.write(1)
    then, head = mill.epoch, mill.db.ledger.head
    changed = {mill.table.id: mill.table.to_json()}
    mill.db.ledger.commit(EpochCommit(head.epoch, "changes", redefined=changed))
    with pytest.raises(HeadraceError, match="cannot begin") as error:
        mill.branches().create("b", then)
    assert 'Table "t" was altered in epoch' in error.value.detail
    mill.branches().create("b", mill.epoch)


def test_a_view_that_was_refreshed_since_is_refused(mill, opened) -> None:
    mill.write(1)
    view = mill.db.create_view("hourly", mill.table, RefreshPolicy(RefreshKind.MANUAL))
    then, rows = mill.epoch, mill.rows()
    mill.write(2)
    mill.branches().create("before", then)
    assert rows_of(opened(at(mill, "before"))) == rows
    mill.db.refresh(view)
    with pytest.raises(HeadraceError, match="cannot begin") as error:
        mill.branches().create("b", then)
    assert 'View "hourly" was refreshed in epoch' in error.value.detail


def test_slices_that_were_dirty_then_are_dirty_again(mill) -> None:
    mill.write(1)
    view = mill.db.loop.catalog.find("counts").id
    mill.db.ledger.dirty.mark(Dirty(view, STOPPED, 1.0, "old", mill.epoch))
    mill.write(2)
    then = mill.epoch
    other = mill.db.loop.catalog.find("above").id
    mill.write(3)
    mill.db.ledger.dirty.mark(Dirty(other, "since", 1.0, "new", mill.epoch))
    mill.branches().create("b", then)
    with ledger_to_read(at(mill, "b")) as ledger:
        assert [(e.view, e.detail) for e in ledger.head.dirty] == [(view, "old")]


def test_a_view_that_was_wrong_then_and_repaired_since_is_filled_again(mill) -> None:
    mill.write(1, 2, 3)
    view = mill.db.loop.catalog.find("counts")
    mill.db.damage(view, 0)
    then = mill.epoch
    mill.db.finish_replay(mill.db.begin_replay(view, [0]))
    assert mill.branches().create("wrong", then).refilled == ("counts", "above")
    assert mill.branches().create("right", mill.epoch).refilled == ()


def test_an_epoch_is_refused_if_a_log_no_longer_has_its_last_events(mill) -> None:
    mill.write(1, 2)
    then = mill.epoch
    mill.write(3)
    retired = Retired(mill.db.ledger.head.ends[mill.table.id], {}, 1.0)
    mill.db.ledger.log.retire(mill.table.id, retired)
    with pytest.raises(HeadraceError, match="cannot begin") as error:
        mill.branches().create("b", then)
    assert "no longer keeps events from that time" in error.value.detail
    mill.branches().create("b", mill.epoch)


def test_what_is_recorded_of_a_log_that_is_cut_goes_with_its_end(mill) -> None:
    mill.write(1)
    then = mill.epoch
    path = next((mill.directory / "log").iterdir())
    file = SegmentFile(path.name, 0, 0, "c")
    mill.db.ledger.log.append(mill.table.id, file, producer=ProducerPosition("p", 7))
    mill.branches().create("now")
    mill.write(2)
    mill.branches().create("then", then)
    found = {}
    for name in ("now", "then"):
        with Ledger.open(at(mill, name) / "ledger.db", Mode.READ) as ledger:
            found[name] = ledger.producers.last(mill.table.id, "p")
    assert found == {"now": 7, "then": None}


def test_sinks_are_left_out(mill, opened) -> None:
    sink = mill.db.create_sink(mill.db.loop.catalog.find("counts"))
    mill.write(1)
    made = mill.branches().create("b")
    assert made.without == ("sink of_counts",)
    branch = opened(at(mill, "b"))
    assert sink.id not in branch.loop.catalog.by_id
    assert branch.ledger.deliveries.all() == {}
    assert not branch.ledger.violations()
    assert sink.id in mill.db.ledger.deliveries.all()


def test_names_are_of_directories_and_nothing_else(mill) -> None:
    mill.write(1)
    before = mill.files()
    for name in ("", "..", "a/b", "A", "-a", "a.b", "a" * 64, ".a"):
        with pytest.raises(HeadraceError, match="is not a name of a branch"):
            mill.branches().create(name)
        with pytest.raises(HeadraceError):
            mill.branches().drop(name)
    assert mill.files() == before
    mill.branches().create("b-1_c")
    with pytest.raises(HeadraceError, match="exists already") as error:
        mill.branches().create("b-1_c")
    assert error.value.code is Code.CONFLICT
    with pytest.raises(HeadraceError, match='branch "b-1" does not exist') as error:
        mill.branches().drop("b-1")
    assert "b-1_c" in error.value.hint


def test_a_branch_that_is_open_is_not_dropped(mill) -> None:
    mill.write(1)
    mill.branches().create("b")
    ledger = open_ledger(at(mill, "b"))
    try:
        (listed,) = mill.branches().all()
        assert listed.in_use == f"process {os.getpid()}"
        with pytest.raises(HeadraceError, match="open in this process already") as error:
            mill.branches().drop("b")
        assert error.value.code is Code.CONFLICT
    finally:
        ledger.close()
    mill.branches().drop("b")


def test_a_branch_has_branches(mill, opened) -> None:
    mill.write(1, 2)
    mill.branches().create("b")
    branch = Mill(at(mill, "b"))
    branch.write(3)
    branch.branches().create("c")
    rows = branch.rows()
    branch.db.close()
    with pytest.raises(HeadraceError, match='branch "b" has a branch "c"'):
        mill.branches().drop("b")
    inner = opened(at(mill, "b") / "branches" / "c")
    assert rows_of(inner) == rows


def test_a_missing_file_and_a_disk_that_fails_leave_no_branch(mill, monkeypatch) -> None:
    mill.write(*range(5))
    before = mill.files()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def crossing(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    for fails, code in ((full, Code.UNAVAILABLE), (crossing, Code.UNSUPPORTED)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", fails)
            with pytest.raises(HeadraceError) as error:
                mill.branches().create("b")
            assert error.value.code is code
    assert mill.files() == before
    file = mill.db.ledger.files.needed()[0]
    (mill.directory / file.folder / file.name).unlink()
    with pytest.raises(HeadraceError, match=f"{file.name}.* is missing"):
        mill.branches().create("b")
    assert not at(mill, "b").exists()


def test_ids_that_were_merged_meanwhile_are_left_out_if_the_log_has_their_events(mill) -> None:
    folder = mill.directory / "seen"
    folder.mkdir()
    mill.write(1, 2, 3)
    names = [f"{mill.table.id}-0-2-a.npy", f"{mill.table.id}-2-3-b.npy"]
    for name in names:
        (folder / name).write_bytes(b"ids")
    places = mill.branches().places
    make = places.make

    class Places:
        """Makes a branch after a file of ids has disappeared."""

        kept: tuple[str, ...] = ()

        def __getattr__(self, name: str) -> object:
            return getattr(places, name)

        def make(self, begun) -> None:
            (folder / names[0]).unlink()
            assert (begun.ids, begun.kept_ids) == (names, [])
            make(replace(begun, kept_ids=self.kept))

    branches = mill.branches()
    branches.places = Places()
    branches.create("b")
    assert [path.name for path in (at(mill, "b") / "seen").iterdir()] == names[1:]
    (folder / names[0]).write_bytes(b"ids")
    branches.places.kept = (names[0],)
    with pytest.raises(HeadraceError, match=r"a\.npy.* is missing"):
        branches.create("c")


def test_ids_of_later_events_are_not_taken_to_an_earlier_epoch(mill) -> None:
    folder = mill.directory / "seen"
    folder.mkdir()
    mill.write(1, 2, 3)
    then = mill.epoch
    mill.write(4)
    for first, end in ((0, 3), (3, 4)):
        (folder / f"{mill.table.id}-{first}-{end}-a.npy").write_bytes(b"ids")
    mill.branches().create("b", then)
    found = [path.name for path in (at(mill, "b") / "seen").iterdir()]
    assert found == [f"{mill.table.id}-0-3-a.npy"]


def test_compaction_beside_a_creation_deletes_nothing_that_it_needs(mill, opened) -> None:
    mill.write(*range(40))
    mill.rewrite(6)
    expected = mill.rows()
    known = mill.db.ledger.files.known()

    def fault(stage: str) -> None:
        if stage == "branch: begun":
            mill.rewrite(12)

    mill.branches(fault).create("b")
    assert rows_of(opened(at(mill, "b"))) == expected
    mill.rewrite(1)
    assert known.packs - mill.db.ledger.files.known().packs, "nothing was held: no garbage"


def test_a_branch_that_is_made_beside_appends_has_a_prefix_of_them(mill, opened) -> None:
    mill.write(1)
    ended = threading.Event()

    def load() -> None:
        key = 100
        while not ended.is_set():
            mill.db.append(mill.table, [(key, key % 3, 1)])
            key += 1

    writer = threading.Thread(target=load)
    writer.start()
    try:
        for name in ("a", "b", "c"):
            mill.branches().create(name)
    finally:
        ended.set()
        writer.join()
    counts = []
    for name in ("a", "b", "c"):
        branch = opened(at(mill, name))
        while branch.loop.advance() is not None:
            pass
        table, counted, *_ = rows_of(branch)
        keys = sorted(key for key, _ in table)
        assert keys == [1, *range(100, 100 + len(keys) - 1)]
        assert sum(n for _, n in counted) == len(keys)
        counts.append(len(keys))
    assert counts == sorted(counts)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from branches.test_branching import Mill

def fault(stage):
    if stage == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

mill = Mill(Path(sys.argv[1]))
getattr(mill.branches(fault), sys.argv[2])("b")
"""


def killed(directory: Path, what: str, stage: str) -> None:
    """Open a database in a process that makes or drops a branch, and kill that at a stage."""
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(tests=tests), str(directory), what, stage],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_a_creation_that_is_killed_leaves_no_branch_or_a_whole_one(tmp_path, opened, stage) -> None:
    directory = tmp_path / "data"
    first = Mill(directory)
    first.write(*range(10))
    rows, before = first.rows(), first.files()
    first.db.close()
    killed(directory, "create", stage)
    whole = stage == "branch: named"
    again = Mill(directory)
    assert [each.name for each in again.branches().all()] == (["b"] if whole else [])
    assert again.rows() == rows
    if whole:
        assert rows_of(opened(directory / "branches" / "b")) == rows
    else:
        assert again.files() == before
        again.branches().create("b")
    again.db.close()


def test_a_drop_that_is_killed_leaves_nothing_for_ever(tmp_path) -> None:
    directory = tmp_path / "data"
    first = Mill(directory)
    first.write(*range(10))
    before = first.files()
    first.branches().create("b")
    first.db.close()
    killed(directory, "drop", "branch: unnamed")
    assert not (directory / "branches" / "b").exists()
    assert any((directory / "attempts").iterdir())
    again = Mill(directory)
    assert again.branches().all() == []
    again.branches().create("c")
    again.branches().drop("c")
    assert again.files() == before
    again.db.close()


def test_the_ledger_of_a_branch_is_in_its_directory_and_not_in_postgres(
    tmp_path, opened, postgres_url
) -> None:
    mill = Mill(tmp_path / "data", Ledger.open(PostgresAddress.of(postgres_url)))
    mill.write(*range(10))
    then, rows = mill.epoch, mill.rows()
    mill.write(20)
    mill.branches().create("now")
    mill.branches().create("then", then)
    branch = opened(at(mill, "now"))
    assert rows_of(branch) == mill.rows()
    branch.append(mill.table, [(99, 1, 1)])
    branch.loop.advance()
    assert branch.rows(mill.table.id)[99, 1] == 1
    assert mill.db.rows(mill.table.id)[99, 1] == 0
    assert rows_of(opened(at(mill, "then"))) == rows
    mill.db.close()


def test_a_branch_outlives_the_directory_of_its_parent(mill, opened, tmp_path) -> None:
    mill.write(*range(10))
    rows = mill.rows()
    mill.branches().create("b")
    shutil.move(at(mill, "b"), tmp_path / "apart")
    shutil.rmtree(mill.directory)
    assert rows_of(opened(tmp_path / "apart")) == rows
