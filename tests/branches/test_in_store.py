"""Branches of a database whose files are in an object store, and whose ledger is in PostgreSQL."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from branches.test_branching import rows_of
from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.files import ObjectStore, StoreAddress
from headrace.files.mounts import Mounted, store_of
from headrace.lifecycle.copies import branch_places
from headrace.lifecycle.copies.branch_places import InStore
from headrace.lifecycle.copies.branching import Branches
from headrace.lifecycle.copies.inspecting import FileChecks, State
from headrace.storage.ledger import STORE_SETTING, Ledger, MissingLedgerError, Mode, PostgresAddress
from headrace.storage.log.segments import forget_segments
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.types import Epoch


class Crash(BaseException):
    """The process has ended here."""


class Mill:
    """A database with a table and a view in a store; its directory may be lost."""

    def __init__(self, root: Path, postgres: str) -> None:
        self.root = root
        self.address = PostgresAddress.of(postgres, "mill")
        self.url = f"file://{root}/store"
        self.db = self.opened()
        self.table = self.db.create_table()
        self.db.create_view("counts", self.table)
        self.made = self.branches()

    def opened(self, branch: str | None = None, cache: str = "data") -> PureDatabase:
        """Open the database, or a branch of it, in a directory."""
        url, address = self.url, self.address
        if branch is not None:
            url, address = StoreAddress.branch_url(url, branch), address.of_branch(branch)
        directory = self.root / cache
        directory.mkdir(exist_ok=True)
        ledger = Ledger.open(address, create=branch is None)
        if branch is None:
            ledger.acquire()
            ledger.settings.set(STORE_SETTING, url)
        assert ledger.settings.get(STORE_SETTING) == url
        Mounted(StoreAddress.of(url), 1 << 30).mount(directory)
        return PureDatabase(directory, ledger=ledger)

    def branches(self, fault: Callable[[str], None] = lambda _stage: None) -> Branches:
        db = self.db
        store = store_of(db.directory)
        assert store is not None
        held = db.compaction.held
        places = InStore(db.directory, db.ledger, self.address, store, held, fault)
        found = Branches(
            db.directory,
            db.ledger,
            places,
            held,
            db.compaction.retirement.busy,
            fault,
            lambda: 77.0,
        )
        found.recover()
        return found

    def reopen(self) -> None:
        """Open the database on another machine, as after a crash."""
        self.db.close()
        forget_runs()
        forget_segments()
        Mounted.unmount(self.db.directory)
        shutil.rmtree(self.db.directory)
        self.db = self.opened()
        self.made = self.branches()

    def write(self, *keys: int, group: int = 0) -> None:
        self.db.append(self.table, [(key, (key + group) % 3, 1) for key in keys])
        while self.db.loop.advance() is not None:
            pass

    def rewrite(self, times: int) -> None:
        for n in range(times):
            self.write(*range(8), group=n)
            assert self.db.uploads is not None
            self.db.uploads.upload()
            self.db.compaction.run()

    def objects(self) -> set[str]:
        return {name for name, _ in ObjectStore.at(StoreAddress.of(self.url)).names()}

    @property
    def epoch(self) -> Epoch:
        return self.db.ledger.head.epoch


@pytest.fixture
def mill(tmp_path: Path, postgres_url: str) -> Iterator[Mill]:
    pytest.importorskip("obstore")
    made = Mill(tmp_path, postgres_url)
    yield made
    made.db.close()
    Mounted.unmount(made.db.directory)


@pytest.fixture
def opened(mill: Mill) -> Iterator[Callable[..., PureDatabase]]:
    """Opens branches in a cache that has nothing yet."""
    found: list[PureDatabase] = []

    def open_(name: str) -> PureDatabase:
        forget_runs()
        forget_segments()
        found.append(mill.opened(name, f"cache{len(found)}"))
        return found[-1]

    yield open_
    for each in found:
        each.close()
        Mounted.unmount(each.directory)


def test_a_branch_reads_its_parents_objects_and_writes_its_own(mill, opened) -> None:
    mill.write(*range(10))
    mill.db.append(mill.table, [(50, 1, 1)])
    made = mill.made.create("b")
    assert made.epoch == mill.epoch
    branch = opened("b")
    branch.loop.advance()
    mill.db.loop.advance()
    assert rows_of(branch) == rows_of(mill.db)
    assert not {name for name in mill.objects() if name.startswith("branches/")}
    branch.append(mill.table, [(1, 0, -1), (100, 2, 1)])
    branch.loop.advance()
    branch.uploads.upload()
    assert {name.split("/")[1] for name in mill.objects() if name.startswith("branches/")} == {"b"}
    theirs = rows_of(branch)
    mill.write(*range(20, 30))
    assert rows_of(branch) == theirs
    assert rows_of(mill.db) != theirs
    (listed,) = mill.made.all()
    assert (listed.name, listed.from_epoch, listed.created_at) == ("b", made.epoch, 77.0)
    assert listed.epoch == branch.ledger.head.epoch
    assert listed.own_bytes > 0
    assert listed.shared_bytes > 0
    assert not branch.ledger.violations()
    branch.close()
    again = opened("b")  # on another machine, with an empty cache
    assert rows_of(again) == theirs


def test_the_parent_keeps_what_a_branch_needs_also_after_a_restart(mill, opened) -> None:
    mill.write(*range(40))
    mill.rewrite(6)
    rows, then = rows_of(mill.db), mill.epoch
    mill.made.create("b")
    mill.made.create("old", then)
    mill.rewrite(6)
    mill.reopen()
    mill.rewrite(6)
    branch = opened("b")
    assert rows_of(branch) == rows
    assert rows_of(opened("old")) == rows
    branch.append(mill.table, [(1, 2, 1)])
    branch.loop.advance()
    while branch.compaction.run():
        pass
    branch.close()
    mill.made.drop("b")
    for each in (branch.directory,):
        Mounted.unmount(each)


def test_garbage_is_deleted_once_no_branch_needs_it(mill) -> None:
    mill.write(*range(40))
    mill.rewrite(6)
    mill.made.create("b")
    needed = {f"{f.folder}/{f.name}" for f in mill.db.ledger.files.needed()}
    mill.rewrite(14)
    there = mill.objects()
    mill.made.drop("b")
    mill.db.compaction.run()
    after = mill.objects()
    assert there - after, "the test shows nothing if nothing was held"
    assert not {name for name in after if name.startswith("branches/")}
    assert needed
    with pytest.raises(MissingLedgerError):
        Ledger.open(mill.address.of_branch("b"), Mode.READ)
    assert mill.made.all() == []
    assert rows_of(mill.db)


@pytest.mark.parametrize("stage", ["branch: begun", "branch: recorded", "branch: named"])
def test_a_creation_that_ends_at_any_stage_leaves_no_branch_or_a_whole_one(
    mill, opened, stage
) -> None:
    mill.write(*range(10))
    rows = rows_of(mill.db)

    def fault(reached: str) -> None:
        if reached == stage:
            raise Crash

    with pytest.raises(Crash):
        mill.branches(fault).create("b")
    mill.reopen()
    whole = stage == "branch: named"
    assert [each.name for each in mill.made.all()] == ["b"] * whole
    if not whole:
        assert not {name for name in mill.objects() if name.startswith("branches/")}
        mill.made.create("b")
    assert rows_of(opened("b")) == rows


def test_a_drop_that_is_interrupted_is_finished_when_the_database_is_opened(mill, opened) -> None:
    mill.write(*range(10))
    mill.made.create("b")
    branch = opened("b")
    branch.append(mill.table, [(1, 2, 1)])
    branch.loop.advance()
    branch.uploads.upload()
    with pytest.raises(HeadraceError) as error:
        mill.made.drop("b")
    assert error.value.code is Code.CONFLICT
    branch.close()

    def fault(reached: str) -> None:
        if reached == "branch: unnamed":
            raise Crash

    with pytest.raises(Crash):
        mill.branches(fault).drop("b")
    assert {name for name in mill.objects() if name.startswith("branches/")}
    mill.reopen()
    assert mill.made.all() == []
    assert not {name for name in mill.objects() if name.startswith("branches/")}
    with pytest.raises(HeadraceError, match='branch "b" does not exist'):
        mill.made.drop("b")
    mill.made.create("b")


def test_the_name_of_a_branchs_schema_has_a_limit(mill) -> None:
    with pytest.raises(HeadraceError, match="is too long"):
        mill.made.create("b" * 60)
    assert mill.made.all() == []


def test_a_branch_is_sound_with_the_objects_of_its_parent(mill, opened) -> None:
    mill.write(*range(10))
    mill.made.create("b")
    branch = opened("b")
    branch.append(mill.table, [(1, 2, 1)])
    branch.loop.advance()
    branch.uploads.upload()
    store = store_of(branch.directory)
    checks = FileChecks(branch.directory, branch.ledger, store, open_elsewhere=False)
    found = {(each.check, each.state) for each in checks.run(lambda *_: None, quick=False)}
    assert found == {("files", State.OK)}
    object_ = next(name for name in mill.objects() if name.startswith("runs/"))
    ObjectStore.at(StoreAddress.of(mill.url)).delete([object_])
    found = {each.state for each in checks.run(lambda *_: None, quick=True)}
    assert found == {State.WRONG}


def test_a_ledger_of_another_database_is_not_taken_for_that_of_a_branch(mill) -> None:
    mill.write(1)
    Ledger.open(mill.address.of_branch("b")).close()
    with pytest.raises(HeadraceError, match="exists already") as error:
        mill.made.create("b")
    assert error.value.code is Code.CONFLICT
    assert mill.made.all() == []
    Ledger.open(mill.address.of_branch("b"), Mode.READ).close()


@pytest.mark.parametrize("written", [False, True])
def test_a_creation_whose_end_is_not_known_leaves_no_branch_or_a_whole_one(
    mill, opened, monkeypatch, written
) -> None:
    mill.write(1, 2)
    rows = rows_of(mill.db)
    restore = branch_places.restore_ledger

    def lost(*given: object, **more: object) -> None:
        if written:
            restore(*given, **more)
        raise HeadraceError(Code.UNAVAILABLE, "the connection was lost")

    monkeypatch.setattr(branch_places, "restore_ledger", lost)
    with pytest.raises(HeadraceError, match="was lost"):
        mill.made.create("b")
    assert [each.name for each in mill.made.all()] == ["b"] * written
    if written:
        assert rows_of(opened("b")) == rows
