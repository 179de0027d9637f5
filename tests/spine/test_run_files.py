"""Run files: what is written is read, and whatever is not what was written is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import xxhash

from headrace.algebra.spine import (
    PackWriter,
    RunFile,
    forget_runs,
    open_run,
    open_runs,
    pack,
    sync_directory,
    write_parts,
    write_run,
)
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.errors import Code, HeadraceError
from reference import bag
from text_tables import zset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = pa.schema([(WEIGHT, pa.int64())])
LAYOUT = Layout(("user",), pa.schema([("user", pa.string())]), COUNT)
OTHER = Layout(("user",), pa.schema([("user", pa.binary())]), COUNT)


def users(count: int, *, start: int = 0) -> ZSet:
    names = "\n".join(f"+1 | user{i}" for i in range(start, start + count))
    return zset(LAYOUT, f"weight | user \n {names}")


@pytest.fixture(autouse=True)
def nothing_open() -> None:
    forget_runs()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rows = users(50)
    file = write_run(tmp_path, rows)
    run = open_run(tmp_path, file, LAYOUT)
    assert bag(run.slice(0, run.rows).table, ["user"]) == bag(rows.table, ["user"])
    assert (file.low, file.high) == (rows.hashes[0], rows.hashes[-1])
    data = (tmp_path / file.pack).read_bytes()
    assert file.bytes == len(data)
    assert file.checksum == xxhash.xxh3_64(data).hexdigest()


def test_a_run_file_survives_json(tmp_path: Path) -> None:
    file = write_run(tmp_path, users(3))
    assert RunFile.of_json(file.to_json()) == file


def test_names_are_never_reused(tmp_path: Path) -> None:
    names = {write_run(tmp_path, users(1)).pack for _ in range(20)}
    assert len(names) == 20
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_run_without_rows_has_an_empty_range(tmp_path: Path) -> None:
    file = write_run(tmp_path, ZSet.empty(LAYOUT))
    assert file.low > file.high
    assert open_run(tmp_path, file, LAYOUT).rows == 0


def test_large_runs_are_cut_into_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "BATCH_ROWS", 8)
    run = open_run(tmp_path, write_run(tmp_path, users(50)), LAYOUT)
    assert [batch.num_rows for batch in run.batches] == [8, 8, 8, 8, 8, 8, 2]


def test_small_parts_are_gathered_into_batches(tmp_path: Path) -> None:
    rows = users(50)
    parts = (ZSet(LAYOUT, rows.table.slice(start, 5)) for start in range(0, 50, 5))
    file = write_parts(tmp_path, LAYOUT, parts)
    assert file is not None
    run = open_run(tmp_path, file, LAYOUT)
    assert [batch.num_rows for batch in run.batches] == [50]


def test_a_writer_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def parts() -> Iterator[ZSet]:
        yield users(10)
        raise KeyError

    with pytest.raises(KeyError):
        write_parts(tmp_path, LAYOUT, parts())
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_not_finished_leaves_no_file(tmp_path: Path) -> None:
    with PackWriter(tmp_path) as writer:
        writer.write(users(10))
    assert list(tmp_path.iterdir()) == []


def test_parts_out_of_order_are_refused(tmp_path: Path) -> None:
    rows = users(10)
    with pytest.raises(HeadraceError, match="out of order"):
        write_parts(tmp_path, LAYOUT, [rows, rows])


def test_opening_maps_the_file_and_copies_nothing(tmp_path: Path) -> None:
    file = write_run(tmp_path, users(5000))
    before = pa.total_allocated_bytes()
    run = open_run(tmp_path, file, LAYOUT)
    assert pa.total_allocated_bytes() == before
    assert not run.hashes[0].flags.owndata


def test_an_open_run_is_shared(tmp_path: Path) -> None:
    file = write_run(tmp_path, users(5))
    assert open_run(tmp_path, file, LAYOUT) is open_run(tmp_path, file, LAYOUT)


def test_a_run_in_use_outlives_its_file(tmp_path: Path) -> None:
    file = write_run(tmp_path, users(5))
    run = open_run(tmp_path, file, LAYOUT)
    (tmp_path / file.pack).unlink()
    forget_runs()
    assert run.slice(0, 5).rows == 5


def test_only_some_runs_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_runs, "OPEN_RUNS", 2)
    first, *_ = files = [write_run(tmp_path, users(1)) for _ in range(3)]
    opened = [open_run(tmp_path, file, LAYOUT) for file in files]
    assert open_run(tmp_path, files[2], LAYOUT) is opened[2]
    assert open_run(tmp_path, first, LAYOUT) is not opened[0]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: path.unlink(), "is missing"),
    "empty": (lambda path: path.write_bytes(b""), "has 0 bytes instead of"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-9]), "bytes instead of"),
    "a bit at the start": (lambda path: flip(path, 0), "does not match its checksum"),
    "a bit in the middle": (lambda path: flip(path, 900), "does not match its checksum"),
    "a bit at the end": (lambda path: flip(path, -1), "does not match its checksum"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_by_name_with_what_to_do(tmp_path: Path, damage: str) -> None:
    file = write_run(tmp_path, users(50))
    harm, message = DAMAGES[damage]
    harm(tmp_path / file.pack)
    with pytest.raises(HeadraceError, match=message) as caught:
        open_run(tmp_path, file, LAYOUT)
    assert caught.value.code == Code.CORRUPT
    assert file.name in caught.value.primary
    assert "REPAIR" in (caught.value.hint or "")


def test_two_files_that_changed_places_are_refused(tmp_path: Path) -> None:
    files = [write_run(tmp_path, users(5, start=start)) for start in (1, 5)]
    assert files[0].bytes == files[1].bytes
    first, second = (tmp_path / file.pack for file in files)
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    for file in files:
        with pytest.raises(HeadraceError, match="does not match its checksum"):
            open_run(tmp_path, file, LAYOUT)


def test_a_file_of_another_arrangement_is_refused(tmp_path: Path) -> None:
    file = write_run(tmp_path, users(5))
    with pytest.raises(HeadraceError, match="does not have the columns") as caught:
        open_run(tmp_path, file, OTHER)
    assert caught.value.code == Code.CORRUPT
    assert open_run(tmp_path, file, LAYOUT).rows == 5
    with pytest.raises(HeadraceError, match="does not have the columns"):
        open_run(tmp_path, file, OTHER)


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    data = b"not an Arrow file at all"
    (tmp_path / "x.arrow").write_bytes(data)
    file = RunFile("x.arrow", 0, 1, len(data), xxhash.xxh3_64(data).hexdigest(), 0, 0)
    with pytest.raises(HeadraceError, match="is not an Arrow file"):
        open_run(tmp_path, file, LAYOUT)


def test_a_wrong_number_of_rows_is_refused(tmp_path: Path) -> None:
    file = replace(write_run(tmp_path, users(5)), rows=6)
    with pytest.raises(HeadraceError, match="has 5 rows instead of 6"):
        open_run(tmp_path, file, LAYOUT)


def test_another_description_of_an_open_file_is_checked_anew(tmp_path: Path) -> None:
    file = write_run(tmp_path, users(5))
    open_run(tmp_path, file, LAYOUT)
    with pytest.raises(HeadraceError, match="does not match its checksum"):
        open_run(tmp_path, replace(file, checksum="0" * 16), LAYOUT)


def test_a_directory_can_be_synced(tmp_path: Path) -> None:
    write_run(tmp_path, users(1))
    sync_directory(tmp_path)


def test_hash_and_weight_are_never_null_in_a_file(tmp_path: Path) -> None:
    file = write_run(tmp_path, users(1))
    schema = pa.ipc.open_stream((tmp_path / file.pack).read_bytes()).schema
    assert not schema.field(HASH).nullable
    assert not schema.field(WEIGHT).nullable
