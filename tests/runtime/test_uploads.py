"""Uploads of small files, in bundles: another machine finds each of them at any time."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime import uploads
from headrace.files import ObjectStore, StoreAddress, bundles, mounts
from headrace.files.bundles import bundle_of, object_of
from headrace.lifecycle.copies.inspecting import FileChecks, State
from headrace.storage.log.segments import forget_segments
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.execution.runtime.uploads import Uploads

FOLDERS = ("runs", "log")


class Place:
    """A store, a ledger, and machines with caches of the store."""

    def __init__(self, path: Path) -> None:
        self.path, self.store = path, ObjectStore.at(StoreAddress.of("memory:///"))
        self.mounted: list[Path] = []
        self.db = self.opened("one")
        self.table = self.db.create_table()
        self.view = self.db.create_view("counts", self.table)
        self.given: list[tuple[int, int, int]] = []

    def directory(self, machine: str) -> Path:
        directory = self.path / machine
        for folder in FOLDERS:
            mounts.mount(directory / folder, self.store, folder, 1 << 30)
        self.mounted.append(directory)
        return directory

    def opened(self, machine: str) -> PureDatabase:
        return PureDatabase(self.directory(machine), ledger=self.path / "ledger.db")

    @property
    def uploads(self) -> Uploads:
        assert self.db.uploads is not None
        return self.db.uploads

    def change(self, *keys: int) -> None:
        """Write rows, and make the epoch that reads them."""
        changes = [(key, key % 3, 1) for key in keys]
        self.given += changes
        self.db.append(self.table, changes)
        self.db.loop.advance()

    def objects(self, folder: str) -> set[str]:
        return {name.partition("/")[2] for name, _ in self.store.names(f"{folder}/")}

    def named(self) -> dict[str, frozenset[str]]:
        known = self.db.ledger.files.known()
        return {"runs": known.packs, "log": known.segments}

    def found_elsewhere(self, machine: str, *, with_ledger: bool = True) -> dict[str, set[str]]:
        """Fetch all files that the ledger names on another machine; return those found."""
        directory = self.directory(machine)
        if with_ledger:
            mounts.wait_in(directory, self.db.ledger.small_files)
        found: dict[str, set[str]] = {}
        for folder, names in self.named().items():
            found[folder] = {n for n in names if mounts.fetch(str(directory / folder / n))}
            for name in found[folder]:
                written = self.db.directory / folder / name
                if written.exists():
                    assert (directory / folder / name).read_bytes() == written.read_bytes()
        return found

    def close(self) -> None:
        self.db.close()
        for directory in self.mounted:
            for folder in FOLDERS:
                mounts.unmount(directory / folder)
        forget_runs()
        forget_segments()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def test_a_file_is_found_before_and_after_its_bundle_is_uploaded(place: Place) -> None:
    for key in range(3):
        place.change(key)
    assert place.store.requests.puts == 0
    assert place.found_elsewhere("before") == place.named()
    assert place.found_elsewhere("no ledger", with_ledger=False) == {"runs": set(), "log": set()}
    place.uploads.upload_named()
    assert place.store.requests.puts == 2, "all packs, and all segments"
    assert place.db.ledger.small_files.names() == {}
    before = place.store.requests.gets
    assert place.found_elsewhere("after", with_ledger=False) == place.named()
    assert place.store.requests.gets <= before + 2 * len(place.named()["runs"])
    assert all(name.startswith("bundle-") for folder in FOLDERS for name in place.objects(folder))


def test_what_is_committed_after_its_bundle_was_uploaded_is_an_object_of_its_own(
    place: Place,
) -> None:
    place.change(1)
    held = place.uploads.bundle("runs", None)  # a writer begins
    place.uploads.upload_named()
    there = place.objects("runs")
    assert object_of(str(held)) in there
    late = bundles.name_in(held, "run-late")
    (place.db.directory / "runs" / late).write_bytes(b"late")
    mounts.keep(place.db.directory / "runs" / late)
    place.db.ledger._transactions.write(lambda _: None, [("runs", late)])
    place.uploads.upload_named()
    assert place.objects("runs") == there | {late}
    directory = place.directory("other")
    assert mounts.fetch(str(directory / "runs" / late))
    assert (directory / "runs" / late).read_bytes() == b"late"


def test_a_failed_upload_is_repeated_with_what_was_decided(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, bytes]] = []

    def fails(_self: ObjectStore, name: str, body: bytes) -> None:
        sent.append((name, body))
        raise HeadraceError(Code.UNAVAILABLE, "the store did not answer")

    place.change(1)
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "put", fails)
        for _ in range(2):
            with pytest.raises(HeadraceError, match="did not answer"):
                place.uploads.upload_named()
    assert sent[0] == sent[1], "a request that arrives late changes nothing"
    assert place.uploads.waiting_bytes > 0
    place.change(2)
    place.uploads.upload_named()
    assert place.found_elsewhere("other", with_ledger=False) == place.named()
    assert place.uploads.waiting_bytes == 0


def test_what_another_process_has_left_is_uploaded_file_by_file(place: Place) -> None:
    place.change(1)
    left = place.named()
    place.db.close()  # without an upload, as if it was killed
    place.db = place.opened("two")
    place.uploads.upload_named()
    assert {folder: place.objects(folder) for folder in FOLDERS} == left
    place.change(2)
    place.uploads.upload_named()
    assert place.found_elsewhere("other", with_ledger=False).keys() == left.keys()


def test_a_job_is_given_what_no_transaction_has_named(place: Place) -> None:
    place.change(1)
    name = mounts.new_name(place.db.directory / "runs", "run-attempt")
    (place.db.directory / "runs" / name).write_bytes(b"of an attempt")
    mounts.keep(place.db.directory / "runs" / name)
    mounts.upload(place.db.directory)
    directory = place.directory("executor")
    assert mounts.fetch(str(directory / "runs" / name))
    assert place.db.ledger.small_files.written.all() == ()


def test_files_wait_neither_without_limit_nor_forever(place: Place) -> None:
    def name() -> str:
        return mounts.new_name(place.db.directory / "runs", "run-x")

    assert bundle_of(name()) is not None
    large = place.db.directory / "runs" / name()
    large.write_bytes(bytes(mounts.SMALL_BYTES + 1))
    mounts.keep(large)
    assert place.objects("runs") == {large.name}
    place.uploads._waiting = uploads.MOST_BYTES
    assert bundle_of(name()) is None
    place.uploads._waiting = 0
    place.uploads._since = time.monotonic() - mounts.WAITS_SECONDS - 1
    assert bundle_of(name()) is None
    place.uploads.upload_named()
    assert bundle_of(name()) is not None


def test_files_of_different_owners_are_in_different_bundles(place: Place) -> None:
    found = [place.uploads.bundle(f, owner) for f in FOLDERS for owner in (None, 7, None)]
    assert len(set(found)) == 4


def test_a_bundle_is_deleted_when_all_of_its_files_are_garbage(place: Place) -> None:
    for key in range(6):
        place.change(key)
    place.uploads.upload_named()
    for key in range(30):
        place.change(key % 7)
        place.uploads.upload_named()
        place.db.compaction.run()
    place.uploads.upload_named()
    assert len(place.objects("runs")) < 10, "of 30"
    names = place.named()["runs"]
    kept = {object_of(bundle) for name in names if (bundle := bundle_of(name)) is not None}
    assert place.objects("runs") <= names | kept
    assert place.found_elsewhere("other", with_ledger=False) == place.named()
    expected = {key: group for key, group, _ in place.given}
    assert place.db.rows(place.table.id) == Counter(expected.items())


def test_a_file_that_may_wait_is_not_deleted_to_make_room(place: Place) -> None:
    mount = mounts.mount_of(place.db.directory / "runs")
    assert mount is not None
    mount.most_bytes = 0
    place.change(1)
    mount.make_room()
    assert {path.name for path in mount.directory.iterdir()} == place.named()["runs"]
    old = time.time() - 3 * mounts.WAITS_SECONDS
    for path in mount.directory.iterdir():
        os.utime(path, (old, old))
    mount.make_room()
    assert list(mount.directory.iterdir()) == []
    forget_runs()
    assert place.db.rows(place.table.id) == Counter({(1, 1): 1}), "fetched from the ledger"


def test_uploads_happen_in_the_background_and_at_the_end(place: Place) -> None:
    place.uploads.start()
    place.change(1)
    for _ in range(100):
        if not place.db.ledger.small_files.names():
            break
        time.sleep(0.1)
    assert place.store.requests.puts == 2
    place.change(2)
    place.uploads.close()
    assert place.db.ledger.small_files.names() == {}
    assert place.found_elsewhere("other", with_ledger=False) == place.named()


def unseen(_done: int, _total: int) -> None:
    """Show no progress."""


def test_the_doctor_reads_files_wherever_they_are(place: Place) -> None:
    place.change(1)
    place.uploads.upload_named()
    place.change(2)

    def wrong() -> list[str]:
        checks = FileChecks(place.db.directory, place.db.ledger, place.store, open_elsewhere=False)
        quick = [f for f in checks.run(unseen, quick=True) if f.state is not State.OK]
        assert quick == []
        return [f.found for f in checks.run(unseen, quick=False) if f.state is not State.OK]

    assert wrong() == []
    (bundle,) = place.objects("runs")
    body = b"".join(place.store.pieces(f"runs/{bundle}"))
    place.store.put(f"runs/{bundle}", body[:-1] + b"?")
    assert len(wrong()) == 1
    place.store.put(f"runs/{bundle}", body[:-1])
    names = [name for name in place.named()["runs"] if object_of(str(bundle_of(name))) == bundle]
    assert len(wrong()) == len(names)
    place.store.delete([f"runs/{bundle}"])
    missing = FileChecks(place.db.directory, place.db.ledger, place.store, open_elsewhere=False)
    found = list(missing.run(unseen, quick=True))
    assert any("missing" in each.found for each in found)
