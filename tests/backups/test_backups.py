"""Backups and restores without Spark: what they have, crashes at each stage, damage, compaction."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.files import DirectoryPlace, ObjectStore, StoreAddress
from headrace.files.mounts import mount, unmount
from headrace.lifecycle.copies.backups import Backups, Target, restore
from headrace.lifecycle.copies.repository import Repository, place_at
from headrace.storage.ledger import RESTORING, Files, open_ledger
from headrace.storage.log.segments import forget_segments
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path

BACKUP_STAGES = [
    "ledger copied",
    pytest.param("ids copied", marks=pytest.mark.long),
    "files copied",
    pytest.param("ledger stored", marks=pytest.mark.long),
    "backed up",
]
RESTORE_STAGES = ["marked", "files restored", "ledger restored"]


class Crash(BaseException):
    """The process has ended here."""


class Faults:
    """At a stage, does something once: by default, ends the process."""

    def __init__(self, stage: str = "", does: Callable[[], None] | None = None) -> None:
        self.stage, self.does = stage, does

    def __call__(self, reached: str) -> None:
        if reached == self.stage:
            self.stage = ""
            if self.does is None:
                raise Crash(reached)
            self.does()


class Mill:
    """A database with a table and two views, and its backups in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = root / "backups"
        self.db = PureDatabase(root / "data")
        self.table = self.db.create_table()
        self.view = self.db.create_view("counts", self.table)
        self.db.create_view("above", self.view)

    def write(self, *keys: int) -> None:
        """Write rows, and make an epoch of them."""
        self.db.append(self.table, [(key, key % 3, 1) for key in keys])
        while self.db.loop.advance() is not None:
            pass

    def backups(self, fault: Callable[[str], None] = lambda _stage: None) -> Backups:
        compaction = self.db.compaction
        return Backups(
            self.db.directory,
            self.db.ledger,
            compaction.held,
            compaction.retirement.busy,
            lambda url: place_at(url, {}),
            fault,
        )

    def back_up(self, fault: Callable[[str], None] = lambda _stage: None, keep: int | None = None):
        return self.backups(fault).make(str(self.place), keep)

    def restore(self, name: str | None = None, to: str = "restored", **more: object):
        target = Target(DirectoryPlace(self.root / to))
        return restore(Repository(DirectoryPlace(self.place)), target, name, **more)

    def rows(self, db: PureDatabase) -> list[Counter[tuple[int, ...]]]:
        return [db.rows(relation.id) for relation in db.loop.catalog]

    def restored_rows(
        self, name: str | None = None, to: str = "restored"
    ) -> list[Counter[tuple[int, ...]]]:
        """Restore a backup, open what that is, have it make epochs, and return its rows."""
        shutil.rmtree(self.root / to, ignore_errors=True)
        self.restore(name, to)
        return opened_rows(self, self.root / to)

    def files(self) -> set[str]:
        return {key for key, _ in DirectoryPlace(self.place).names("files")}


def opened_rows(mill: Mill, directory: Path) -> list[Counter[tuple[int, ...]]]:
    forget_runs()
    forget_segments()
    open_ledger(directory).close()  # as a database is opened
    db = PureDatabase(directory)
    try:
        while db.loop.advance() is not None:
            pass
        return mill.rows(db)
    finally:
        db.close()


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    made = Mill(tmp_path)
    yield made
    made.db.close()


def test_a_restored_backup_has_the_rows_of_its_epoch_and_goes_on(mill: Mill) -> None:
    mill.write(1, 2, 3)
    mill.db.append(mill.table, [(4, 1, 1)])  # acknowledged, and read by no epoch yet
    made = mill.back_up()
    assert made.epoch == mill.db.ledger.head.epoch
    assert made.files_copied == len(mill.files()) > 0
    assert made.files_reused == 0
    assert made.bytes_copied == sum(size for _, size in DirectoryPlace(mill.place).names("files"))
    mill.db.loop.advance()
    expected = mill.rows(mill.db)
    mill.write(5, 6, 7)
    assert mill.restored_rows() == expected
    restored = PureDatabase(mill.root / "restored")
    table = restored.loop.catalog.find("t")
    restored.append(table, [(1, 0, -1), (9, 2, 1)])
    restored.loop.advance()
    assert restored.rows(table.id)[9, 2] == 1
    assert (1, 1) not in restored.rows(table.id)
    while restored.compaction.run():
        pass
    restored.close()
    assert not list((mill.root / "data/attempts").iterdir())


def test_the_second_backup_copies_what_is_new(mill: Mill) -> None:
    mill.write(*range(10))
    first = mill.back_up()
    rows = mill.rows(mill.db)
    again = mill.back_up()
    assert (again.files_copied, again.bytes_copied) == (0, 0)
    assert again.files_reused == first.files_copied
    mill.write(20)
    later = mill.back_up()
    assert later.files_copied > 0
    assert later.files_reused > 0
    assert mill.restored_rows(first.name) == rows
    assert mill.restored_rows() == mill.rows(mill.db)
    names = [manifest.name for manifest in mill.backups().at(str(mill.place))]
    assert names == [first.name, again.name, later.name]


def test_a_file_of_the_log_that_has_grown_is_restored_as_it_was(mill: Mill) -> None:
    mill.write(1)
    first = mill.back_up()
    rows = mill.rows(mill.db)
    mill.write(2)
    second = mill.back_up()
    logs = {each.rpartition(".")[0] for each in mill.files() if "/log/" in each}
    assert len(logs) == 1, "both writes are in one file"
    assert mill.restored_rows(first.name) == rows
    assert mill.restored_rows(second.name) == mill.rows(mill.db)


@pytest.mark.parametrize("stage", BACKUP_STAGES)
def test_a_backup_that_ends_at_any_stage_leaves_the_former_one(mill: Mill, stage: str) -> None:
    mill.write(*range(10))
    mill.back_up()
    before = mill.rows(mill.db)
    mill.write(30)
    with pytest.raises(Crash):
        mill.back_up(Faults(stage), keep=1)
    after = mill.rows(mill.db)
    assert mill.restored_rows() == (after if stage == "backed up" else before)
    # What it has copied is not copied again, and in the end nothing is left of it.
    copied = mill.files()
    made = mill.back_up(keep=1)
    assert mill.restored_rows() == after
    if stage in ("files copied", "ledger stored", "backed up"):
        assert made.files_copied == 0
        assert mill.files() <= copied
    names = {key for key, _ in DirectoryPlace(mill.place).names("backups")}
    assert names == {f"backups/{made.name}.json", f"backups/{made.name}.ledger.db"}


def test_only_the_newest_backups_are_kept_with_their_files(mill: Mill) -> None:
    made, rows = [], []
    for n in range(3):
        mill.write(*range(n * 8, n * 8 + 8))
        while mill.db.compaction.run():
            pass
        made.append(mill.back_up(keep=2))
        rows.append(mill.rows(mill.db))
    repository = Repository(DirectoryPlace(mill.place))
    assert repository.names() == [each.name for each in made[-2:]]
    named = {file.key for name in repository.names() for file in repository.manifest(name).files}
    assert mill.files() == named
    assert mill.restored_rows(made[-2].name) == rows[-2]
    with pytest.raises(HeadraceError, match="does not exist"):
        mill.restore(made[0].name, "other")


@pytest.mark.parametrize("stage", ["ledger copied", "ids copied"])
def test_compaction_beside_a_backup_deletes_nothing_that_it_copies(mill: Mill, stage: str) -> None:
    def rewrite(times: int) -> None:
        """The history is four epochs, so that files become garbage."""
        for n in range(times):
            mill.db.append(mill.table, [(key, (key + n) % 3, 1) for key in range(8)])
            mill.db.loop.advance()
            mill.db.compaction.run()

    mill.write(*range(40))
    rewrite(6)
    expected = mill.rows(mill.db)
    named = mill.db.ledger.files.known()
    mill.back_up(Faults(stage, lambda: rewrite(12)))
    assert mill.restored_rows() == expected
    rewrite(1)
    gone = named.packs - mill.db.ledger.files.known().packs
    assert gone, "the test shows nothing without garbage"
    assert not gone & {path.name for path in (mill.db.directory / "runs").iterdir()}


def test_what_is_already_at_the_place_is_not_held(mill: Mill) -> None:
    mill.write(*range(5))
    mill.back_up()
    held: list[Files] = []
    everything = mill.db.ledger.files.known()

    def look() -> None:
        held.append(mill.db.compaction.held.without(everything))

    mill.back_up(Faults("ledger copied", look))
    mill.back_up(Faults("ids copied", look))
    assert held == [Files(), everything]


def test_nothing_is_retired_until_the_ids_are_copied(mill: Mill) -> None:
    free: list[bool] = []

    def look() -> None:
        """Whether another thread could retire events."""
        busy = mill.db.compaction.retirement.busy

        def take() -> None:
            free.append(busy.acquire(blocking=False))
            if free[-1]:
                busy.release()

        other = threading.Thread(target=take)
        other.start()
        other.join()
        mill.db.compaction.retirement.run()  # it waits for nobody

    mill.write(1)
    for stage in ("ledger copied", "ids copied"):
        mill.back_up(Faults(stage, look))
    assert free == [False, True]


def test_files_of_a_store_are_fetched_to_be_backed_up(mill: Mill) -> None:
    store = ObjectStore.at(StoreAddress.of(f"file://{mill.root}/store"))
    for folder in ("runs", "log"):
        directory = mill.db.directory / folder
        for path in directory.iterdir():
            store.put(f"{folder}/{path.name}", path)
        mount(directory, store, folder, 1 << 30)
    try:
        mill.write(*range(20))
        runs, log = newest(mill.db.directory / "runs"), newest(mill.db.directory / "log")
        runs.unlink()
        spoil(log, 100)
        mill.back_up()
        assert mill.restored_rows() == mill.rows(mill.db)
        mill.write(*range(20, 40))
        runs = newest(mill.db.directory / "runs")
        runs.unlink()
        store.delete([f"runs/{runs.name}"])
        with pytest.raises(HeadraceError, match=f"{runs.name}.* is damaged"):
            mill.back_up()
    finally:
        for folder in ("runs", "log"):
            unmount(mill.db.directory / folder)


def test_appends_beside_a_backup_are_in_the_next_one(mill: Mill) -> None:
    mill.write(1)
    done = threading.Event()

    def load() -> None:
        key = 100
        while not done.is_set():
            mill.db.append(mill.table, [(key, key % 3, 1)])
            key += 1

    writer = threading.Thread(target=load)
    writer.start()
    try:
        made = [mill.back_up() for _ in range(3)]
    finally:
        done.set()
        writer.join()
    counts = []
    for each in made:
        (table, *views) = mill.restored_rows(each.name)
        keys = sorted(key for key, _ in table)
        assert keys == [1, *range(100, 100 + len(keys) - 1)], "a prefix of what was written"
        assert sum(n for _, n in views[0]) == len(keys)
        counts.append(len(keys))
    assert counts == sorted(counts)


@pytest.mark.parametrize("folder", ["runs", "log"])
def test_a_damaged_file_is_not_backed_up(mill: Mill, folder: str) -> None:
    mill.write(*range(5))
    mill.back_up()
    before = mill.rows(mill.db)
    mill.write(7)
    (path,) = [newest(mill.db.directory / folder)]
    spoil(path, path.stat().st_size - 100)
    with pytest.raises(HeadraceError, match=f"{path.name}.* is damaged") as error:
        mill.back_up()
    assert error.value.code is Code.CORRUPT
    assert mill.restored_rows() == before
    path.unlink()
    with pytest.raises(HeadraceError, match="is damaged") as error:
        mill.back_up()
    assert "No such file" in error.value.detail
    assert mill.restored_rows() == before


def newest(directory: Path) -> Path:
    return max(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def spoil(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("what", ["runs", "log", "ledger", "missing", "short"])
def test_a_damaged_backup_is_found_and_nothing_of_it_can_be_opened(mill: Mill, what: str) -> None:
    mill.write(*range(5))
    made = mill.back_up()
    manifest = Repository(DirectoryPlace(mill.place)).manifest(made.name)
    key = manifest.ledger_key if what == "ledger" else manifest.files[-1].key
    if what in ("runs", "log"):
        key = next(file.key for file in manifest.files if file.folder == what)
    path = mill.place / key
    if what == "missing":
        path.unlink()
    elif what == "short":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        spoil(path, 70)
    with pytest.raises(HeadraceError, match=r"damaged|missing") as error:
        mill.restore()
    assert error.value.code is Code.CORRUPT
    assert not (mill.root / "restored/ledger.db").exists()
    with pytest.raises(HeadraceError, match="is not restored completely"):
        open_ledger(mill.root / "restored")


@pytest.mark.parametrize("stage", RESTORE_STAGES)
def test_a_restore_that_ends_at_any_stage_goes_on_and_is_not_opened_before(
    mill: Mill, stage: str
) -> None:
    mill.write(*range(5))
    mill.back_up()
    expected = mill.rows(mill.db)
    with pytest.raises(Crash):
        mill.restore(fault=Faults(stage))
    directory = mill.root / "restored"
    with pytest.raises(HeadraceError, match="is not restored completely"):
        open_ledger(directory)
    if stage == "files restored":
        spoil(newest(directory / "runs"), 70)
    done = mill.restore()
    if stage == "files restored":
        assert done.kept == done.files - 1
    assert not (directory / RESTORING).exists()
    assert opened_rows(mill, directory) == expected


def test_another_backup_may_be_restored_after_an_interrupted_one(mill: Mill) -> None:
    mill.write(1)
    first = mill.back_up()
    expected = mill.rows(mill.db)
    mill.write(2)
    mill.back_up()
    with pytest.raises(Crash):
        mill.restore(fault=Faults("ledger restored"))
    mill.restore(first.name)
    assert opened_rows(mill, mill.root / "restored") == expected


def test_a_restore_overwrites_nothing(mill: Mill) -> None:
    mill.write(1)
    with pytest.raises(HeadraceError, match="has no backups"):
        mill.restore()
    mill.back_up()
    with pytest.raises(HeadraceError, match="is not empty"):
        mill.restore(to="data")
    (mill.root / "file").write_text("")
    with pytest.raises(HeadraceError, match="is a file"):
        mill.restore(to="file")
    (mill.root / "empty/lost+found").mkdir(parents=True)
    mill.restore(to="empty")
    with pytest.raises(HeadraceError, match="is not empty"):
        mill.restore(to="empty")


def test_a_place_belongs_to_one_database(mill: Mill, tmp_path: Path) -> None:
    mill.write(1)
    mill.back_up()
    other = Mill(tmp_path / "other")
    with pytest.raises(HeadraceError, match="backups of another database"):
        other.backups().make(str(mill.place))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    for place, why in (
        (foreign, "is no place of backups"),
        (other.db.directory / "backups", "is in the data directory"),
        ("", "names no place"),
        ("file://host/path", "names no place"),
    ):
        with pytest.raises(HeadraceError, match=why) as error:
            other.backups().make(str(place))
        assert error.value.code is Code.INVALID
    assert (foreign / "notes.txt").read_text() == "mine"
    other.backups().make(f"file://{tmp_path}/a%20b")
    assert (tmp_path / "a b").is_dir()
    other.db.close()


def test_a_restored_database_is_backed_up_to_the_same_place(mill: Mill) -> None:
    mill.write(*range(5))
    first = mill.back_up()
    mill.restore()
    db = PureDatabase(mill.root / "restored")
    mill.db.close()
    mill.db = db
    mill.table = db.loop.catalog.find("t")
    mill.write(6)
    second = mill.back_up()
    assert second.files_reused > 0
    assert Repository(DirectoryPlace(mill.place)).names() == [first.name, second.name]
    assert mill.restored_rows(to="again") == mill.rows(db)


def test_one_backup_is_made_at_a_time_and_can_be_cancelled(mill: Mill) -> None:
    mill.write(1)
    backups = mill.backups()

    def cancel(_done: int, _total: int) -> None:
        with pytest.raises(HeadraceError, match="another backup"):
            backups.make(str(mill.root / "second"))
        raise HeadraceError(Code.CANCELLED, "the statement was cancelled")

    with pytest.raises(HeadraceError, match="was cancelled"):
        backups.make(str(mill.place), None, cancel)
    assert Repository(DirectoryPlace(mill.place)).names() == []
    backups.make(str(mill.place))


def test_a_manifest_names_no_other_directories(mill: Mill) -> None:
    mill.write(1)
    made = mill.back_up()
    path = mill.place / f"backups/{made.name}.json"
    text = path.read_text()
    for name in ("../x", "..", "/etc/passwd", ".hidden"):
        path.write_text(
            text.replace('["runs", "run-', f'["runs", "{name}", 1, "0"], ["runs", "run-', 1)
        )
        with pytest.raises(HeadraceError, match=r"manifest .* is damaged"):
            mill.restore()
    path.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(HeadraceError, match="has format 2"):
        mill.restore()
    path.write_text(text[:-9])
    with pytest.raises(HeadraceError, match="is damaged"):
        mill.restore()
