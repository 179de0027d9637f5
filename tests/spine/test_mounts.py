"""Directories that are caches of a store of objects: packs and segments on their way."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from headrace.algebra.spine import (
    PackWriter,
    check_run,
    delete_packs,
    forget_runs,
    open_run,
    remove_packs,
    remove_packs_of,
)
from headrace.algebra.zset import WEIGHT, Layout
from headrace.errors import Code, HeadraceError
from headrace.files import ObjectStore, StoreAddress, mounts
from headrace.storage.log import SegmentWriter, open_segment
from headrace.storage.log.segments import forget_segments
from text_tables import zset

LAYOUT = Layout(("user",), pa.schema([("user", pa.string())]), pa.schema([(WEIGHT, pa.int64())]))
SEGMENT = pa.table({"k": [1, 2, 3], WEIGHT: [1, 1, -1]})


def users_of(run):
    return sorted(v for batch in run.batches for v in batch.column("user").to_pylist())


class Machine:
    """A machine with a cache of a store that it shares with others."""

    def __init__(self, path, store, most_bytes=1 << 30):
        self.store = store
        self.runs, self.log = path / "runs", path / "log"
        mounts.mount(self.runs, store, "runs", most_bytes)
        mounts.mount(self.log, store, "log", most_bytes)

    def write(self, *users, attempt=""):
        listed = "\n".join(f"+1 | {user}" for user in sorted(users))
        with PackWriter(self.runs, attempt) as pack:
            run = pack.write(zset(LAYOUT, f"weight | user \n {listed}"))
            pack.finish()
        return run

    def read(self, run):
        return users_of(open_run(self.runs, run, LAYOUT))

    @property
    def files(self):
        return {path.name for path in self.runs.iterdir()}


@pytest.fixture
def store():
    return ObjectStore.at(StoreAddress.of("memory:///"))


@pytest.fixture
def machine(tmp_path, store):
    yield from _machine(tmp_path / "one", store)


@pytest.fixture
def other(tmp_path, store):
    yield from _machine(tmp_path / "other", store)


def _machine(path, store):
    made = Machine(path, store)
    yield made
    for directory in (made.runs, made.log):
        mounts.unmount(directory)
    forget_runs()
    forget_segments()


def test_a_pack_is_in_the_store_and_is_fetched_where_it_is_missing(machine, other):
    run = machine.write("ada", "bob")
    assert [name for name, _ in machine.store.names()] == [f"runs/{run.pack}"]
    assert machine.files == {run.pack}
    assert other.files == set()
    assert other.read(run) == machine.read(run) == ["ada", "bob"]
    assert other.files == {run.pack}
    assert other.read(run) == ["ada", "bob"]
    assert other.store.requests.gets == 1


def test_a_damaged_copy_is_fetched_again(machine):
    run = machine.write("ada", "bob")
    for damage in (b"x" * run.end, b"short", b""):
        (machine.runs / run.pack).write_bytes(damage)
        forget_runs()
        assert machine.read(run) == ["ada", "bob"]
        check_run(machine.runs, run, LAYOUT)


def test_what_nobody_has_is_damage(machine, other):
    run = machine.write("ada")
    delete_packs(machine.runs, [run.pack])
    assert list(machine.store.names()) == []
    with pytest.raises(HeadraceError, match="is missing") as raised:
        other.read(run)
    assert raised.value.code is Code.CORRUPT


def test_a_reader_keeps_a_pack_that_is_deleted(machine, other):
    run = machine.write("ada")
    opened = open_run(other.runs, run, LAYOUT)
    delete_packs(machine.runs, [run.pack])
    remove_packs(other.runs, [run.pack])
    assert users_of(opened) == ["ada"]


def test_a_failed_attempt_leaves_nothing(machine):
    kept = machine.write("ada", attempt="a")
    machine.write("bob", attempt="b")
    with PackWriter(machine.runs, "b") as pack:
        pack.write(zset(LAYOUT, "weight | user \n +1 | eve"))
    remove_packs_of(machine.runs, "b")
    assert machine.files == {kept.pack}
    assert [name for name, _ in machine.store.names()] == [f"runs/{kept.pack}"]


def test_a_pack_that_the_store_does_not_take_is_not_finished(machine, monkeypatch):
    def refuse(*_):
        raise HeadraceError(Code.UNAVAILABLE, "the store did not answer")

    monkeypatch.setattr(ObjectStore, "put", refuse)
    with pytest.raises(HeadraceError, match="did not answer"):
        machine.write("ada")
    assert machine.files == set()
    (refused,) = SegmentWriter(machine.log).write([SEGMENT])
    assert isinstance(refused, HeadraceError)
    assert list(machine.log.iterdir()) == []
    monkeypatch.undo()
    writer = SegmentWriter(machine.log)
    (segment,) = writer.write([SEGMENT])
    assert open_segment(machine.log, segment).equals(SEGMENT)


def test_files_of_the_store_are_listed_with_those_of_the_cache(machine, other):
    first, second = machine.write("ada"), machine.write("bob")
    other.read(first)
    assert set(mounts.files_in(other.runs)) == {first.pack, second.pack}


def test_segments_are_objects_that_are_never_added_to(machine, other):
    writer = SegmentWriter(machine.log)
    first, second = [writer.write([SEGMENT, SEGMENT.slice(1)]) for _ in range(2)]
    assert first[0].name == first[1].name != second[0].name
    assert {name for name, _ in machine.store.names()} == {
        f"log/{first[0].name}",
        f"log/{second[0].name}",
    }
    assert open_segment(other.log, second[1]).equals(SEGMENT.slice(1))
    (other.log / second[0].name).write_bytes(b"damaged")
    forget_segments()
    assert open_segment(other.log, second[0]).equals(SEGMENT)
    large = pa.table({"k": range(1 << 18), WEIGHT: [1] * (1 << 18)})
    (alone,) = writer.write([large])
    assert open_segment(other.log, alone).equals(large)


def test_a_cache_stays_small_and_loses_nothing(tmp_path, store, monkeypatch):
    monkeypatch.setattr(mounts, "_LEAST_LOOKED", 1 << 12)
    small = Machine(tmp_path / "small", store, most_bytes=1 << 15)
    try:
        written = [small.write(*(f"user {n} {i}" for i in range(99))) for n in range(40)]
        size = sum(path.stat().st_size for path in small.runs.iterdir())
        assert size <= (1 << 15) + (1 << 13) < sum(run.bytes for run in written)
        forget_runs()
        for n, run in enumerate(written):
            assert small.read(run)[0] == f"user {n} 0"
        assert len(small.files) < len(written)
        assert len(list(store.names())) == len(written)
    finally:
        mounts.unmount(small.runs)
        mounts.unmount(small.log)
        forget_runs()


def test_a_data_directory_is_mounted_as_in_the_process_that_says_so(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    address = StoreAddress.of(f"file://{tmp_path}/store")
    assert mounts.Mounted.of(one) is None
    mounts.Mounted(address, 1 << 20).mount(one)
    try:
        found = mounts.Mounted.of(one)
        assert found == mounts.Mounted(address, 1 << 20)
        mounts.Mounted.of_json(found.to_json()).mount(other)
        known = mounts.mount_of(other / "runs")
        found.mount(other)
        assert mounts.mount_of(other / "runs") is known
    finally:
        mounts.Mounted.unmount(one)
        mounts.Mounted.unmount(other)
    assert mounts.Mounted.of(one) is None


def test_a_cache_on_a_full_disk_gives_up_what_can_be_fetched_again(machine, monkeypatch):
    run = machine.write("ada")
    monkeypatch.setattr(mounts.shutil, "disk_usage", lambda _directory: SimpleNamespace(free=0))
    mounts.new_name(machine.log, "next")
    assert machine.files == set()
    forget_runs()
    assert machine.read(run) == ["ada"]
