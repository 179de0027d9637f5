"""Packs: many runs in one file, each opened, checked and shared by itself."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.algebra.spine import (
    PackWriter,
    RunFile,
    Spine,
    check_run,
    forget_runs,
    open_run,
    open_runs,
    pack,
    read_to_check,
    remove_packs,
    remove_packs_of,
    unchecked_bytes,
)
from headrace.algebra.spine.open_runs import LEAST_BYTES
from headrace.algebra.zset import WEIGHT, Layout, ZSet
from headrace.errors import Code, HeadraceError
from text_tables import zset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = pa.schema([(WEIGHT, pa.int64())])
LAYOUTS = tuple(
    Layout((name,), pa.schema([(name, pa.string())]), COUNT) for name in ("user", "city", "item")
)


def rows(layout: Layout, count: int) -> ZSet:
    (name,) = layout.key
    listed = "\n".join(f"+1 | {name}{i}" for i in range(count))
    return zset(layout, f"weight | {name} \n {listed}")


def values(directory: Path, file: RunFile, layout: Layout) -> list[str]:
    (name,) = layout.key
    run = open_run(directory, file, layout)
    return sorted(v for batch in run.batches for v in batch.column(name).to_pylist())


def test_a_written_run_that_is_kept_holds_no_rows_but_its_own(tmp_path: Path) -> None:
    whole = rows(LAYOUTS[0], 5000)
    with PackWriter(tmp_path) as writer:
        alone = writer.write(whole)
        part = writer.write(ZSet(LAYOUTS[0], whole.table.slice(10, 3)))
        writer.finish()
        for file in (alone, part):
            (batch,) = open_run(tmp_path, file, LAYOUTS[0]).batches
            assert batch.num_rows == file.rows
            assert batch.get_total_buffer_size() <= 2 * file.bytes


def written(writer: PackWriter) -> None:
    writer.write(rows(LAYOUTS[0], 2))
    writer.finish()


def expected(layout: Layout, count: int) -> list[str]:
    return sorted(f"{layout.key[0]}{i}" for i in range(count))


@pytest.fixture(autouse=True)
def nothing_open() -> None:
    forget_runs()


@pytest.fixture
def files(tmp_path: Path) -> list[RunFile]:
    """Three runs of different layouts in one pack, the second of them streamed."""
    with PackWriter(tmp_path, "a1") as writer:
        first = writer.write(rows(LAYOUTS[0], 5))
        whole = rows(LAYOUTS[1], 50)
        parts = (ZSet(LAYOUTS[1], whole.table.slice(at, 20)) for at in (0, 20, 40))
        second = writer.write_parts(LAYOUTS[1], parts)
        assert second is not None
        assert writer.write_parts(LAYOUTS[1], []) is None
        third = writer.write(rows(LAYOUTS[2], 1))
        writer.finish()
    forget_runs()
    return [first, second, third]


COUNTS = (5, 50, 1)


def test_the_runs_of_a_pack_share_one_file_and_are_read_each(
    tmp_path: Path, files: list[RunFile]
) -> None:
    (path,) = tmp_path.iterdir()
    assert {file.pack for file in files} == {path.name}
    assert all(file.position % 64 == 0 for file in files)
    assert [file.position for file in files] == sorted({file.position for file in files})
    assert path.stat().st_size == files[-1].end
    for file, layout, count in zip(files, LAYOUTS, COUNTS, strict=True):
        assert values(tmp_path, file, layout) == expected(layout, count)
        check_run(tmp_path, file, layout)


def test_a_pack_is_mapped_once_while_its_runs_are_open_and_only_what_is_opened_is_checked(
    tmp_path: Path, files: list[RunFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped: list[str] = []

    def memory_map(path: str) -> Any:
        mapped.append(path)
        return real(path)

    real = pa.memory_map
    monkeypatch.setattr(pa, "memory_map", memory_map)
    before = read_to_check()
    assert unchecked_bytes(tmp_path, files) == sum(file.bytes for file in files)
    kept = [open_run(tmp_path, file, layout) for file, layout in zip(files, LAYOUTS, strict=True)]
    assert len(mapped) == 1
    assert read_to_check() - before == sum(file.bytes for file in files)
    assert unchecked_bytes(tmp_path, files) == 0
    assert open_run(tmp_path, files[0], LAYOUTS[0]) is kept[0]
    forget_runs()
    open_run(tmp_path, files[2], LAYOUTS[2])
    assert len(mapped) == 2
    assert unchecked_bytes(tmp_path, files) == files[0].bytes + files[1].bytes


@pytest.mark.parametrize("large", [False, True])
def test_a_run_is_read_by_its_process_as_soon_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    if large:
        monkeypatch.setattr(pack, "_AT_ONCE_BYTES", 0)
    with PackWriter(tmp_path) as writer:
        for count in range(1, 5):
            file = writer.write(rows(LAYOUTS[0], count))
            assert values(tmp_path, file, LAYOUTS[0]) == expected(LAYOUTS[0], count)
            spine = Spine.open(tmp_path, LAYOUTS[0], [file])
            assert spine.rows_upper_bound == count
        writer.finish()
    assert len(list(tmp_path.iterdir())) == 1


def test_written_runs_leave_memory_when_others_need_it_and_are_read_from_the_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PackWriter(tmp_path) as writer:
        first = writer.write(rows(LAYOUTS[0], 3))
        monkeypatch.setattr(open_runs, "KEPT_BYTES", 2 * first.bytes)
        before = read_to_check()
        kept = [first, *(writer.write(rows(LAYOUTS[0], 3)) for _ in range(3))]
        for file in kept:
            assert values(tmp_path, file, LAYOUTS[0]) == expected(LAYOUTS[0], 3)
        assert read_to_check() - before == first.bytes + kept[1].bytes
        writer.finish()


def test_a_pack_is_synced_once_and_one_without_runs_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with PackWriter(tmp_path) as writer:
        for layout, count in zip(LAYOUTS, COUNTS, strict=True):
            writer.write(rows(layout, count))
        assert synced == []
        writer.finish()
    assert len(synced) == 1
    with PackWriter(tmp_path) as empty:
        empty.finish()
    assert len(list(tmp_path.iterdir())) == 1
    assert len(synced) == 1


def test_two_writers_of_one_attempt_do_not_meet_and_its_packs_are_removed_together(
    tmp_path: Path,
) -> None:
    one, other, foreign = PackWriter(tmp_path, "a"), PackWriter(tmp_path, "a"), PackWriter(tmp_path)
    runs = [writer.write(rows(LAYOUTS[0], 2)) for writer in (one, other, foreign)]
    for writer in (one, other, foreign):
        writer.finish()
    assert len({file.pack for file in runs}) == 3
    remove_packs_of(tmp_path, "a")
    assert [path.name for path in tmp_path.iterdir()] == [runs[2].pack]
    with pytest.raises(HeadraceError, match="is missing"):
        open_run(tmp_path, runs[0], LAYOUTS[0])


def test_an_abandoned_pack_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with PackWriter(tmp_path) as writer:
            writer.write(rows(LAYOUTS[0], 2))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_removed_pack_stays_readable_for_those_who_have_it_open(
    tmp_path: Path, files: list[RunFile]
) -> None:
    run = open_run(tmp_path, files[0], LAYOUTS[0])
    remove_packs(tmp_path, [files[0].pack])
    assert run.slice(0, 5).rows == 5
    with pytest.raises(HeadraceError, match="is missing"):
        open_run(tmp_path, files[0], LAYOUTS[0])


def test_a_pack_is_let_go_without_a_look_at_the_runs_of_others(
    tmp_path: Path, files: list[RunFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Runs(OrderedDict[Any, Any]):
        def __iter__(self) -> Any:
            raise AssertionError

    monkeypatch.setattr(open_runs._process, "runs", Runs())
    with PackWriter(tmp_path) as writer:
        other = writer.write(rows(LAYOUTS[0], 2))
        writer.finish()
    kept = open_run(tmp_path, other, LAYOUTS[0])
    for file, layout in zip(files, LAYOUTS, strict=True):
        open_run(tmp_path, file, layout)
    remove_packs(tmp_path, [files[0].pack])
    assert len(open_runs._process.runs) == 1
    assert open_run(tmp_path, other, LAYOUTS[0]) is kept
    forget_runs()


def test_a_full_disk_is_unavailable_and_the_pack_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    writer = PackWriter(tmp_path)
    with writer, pytest.raises(HeadraceError, match="could not be written") as caught:
        written(writer)
    assert caught.value.code is Code.UNAVAILABLE
    assert list(tmp_path.iterdir()) == []


def test_packs_that_other_processes_remove_are_not_kept_mapped(tmp_path: Path) -> None:
    def written() -> RunFile:
        with PackWriter(tmp_path) as writer:
            writer.write(rows(LAYOUTS[0], 2))
            file = writer.write(rows(LAYOUTS[0], 3))
            writer.finish()
        return file

    files = [written() for _ in range(6)]
    forget_runs()
    for file in files:
        open_run(tmp_path, file, LAYOUTS[0])
    mapped = open_runs._process.packs
    assert len(mapped) == 6
    for file in files[:4]:
        (tmp_path / file.pack).unlink()
    kept = open_run(tmp_path, files[5], LAYOUTS[0])
    for _ in range(4):
        file = written()
        open_runs.let_go(tmp_path, [file.pack])  # as another process, which has not written it
        open_run(tmp_path, file, LAYOUTS[0])
    assert len(mapped) == 6, "two that were there, and four new ones"
    assert open_run(tmp_path, files[5], LAYOUTS[0]) is kept


TORN: dict[str, tuple[Callable[[bytes, RunFile], bytes | None], str]] = {
    "missing": (lambda _data, _run: None, "is missing"),
    "empty": (lambda _data, _run: b"", "has 0 bytes instead of"),
    "torn within the run": (
        lambda data, run: data[: run.position + 100],
        "has 100 bytes instead of",
    ),
    "torn before the run": (lambda data, run: data[: run.position - 1], "has 0 bytes instead"),
    "torn at the run's last byte": (lambda data, run: data[: run.end - 1], "bytes instead of"),
    "a bit of the run": (
        lambda data, run: (
            data[: run.end - 9] + bytes([data[run.end - 9] ^ 1]) + data[run.end - 8 :]
        ),
        "does not match its checksum",
    ),
}


@pytest.mark.parametrize("damage", TORN)
def test_a_torn_pack_loses_only_the_runs_that_are_torn(
    tmp_path: Path, files: list[RunFile], damage: str
) -> None:
    path, (harm, message) = tmp_path / files[1].pack, TORN[damage]
    left = harm(path.read_bytes(), files[1])
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    for check in (open_run, check_run):
        with pytest.raises(HeadraceError, match=message) as caught:
            check(tmp_path, files[1], LAYOUTS[1])
        assert caught.value.code is Code.CORRUPT
        assert files[1].name in caught.value.primary
    if left:
        assert values(tmp_path, files[0], LAYOUTS[0]) == expected(LAYOUTS[0], 5)
    if "bit" in damage:
        assert values(tmp_path, files[2], LAYOUTS[2]) == expected(LAYOUTS[2], 1)


def test_a_run_at_another_position_is_refused(tmp_path: Path) -> None:
    with PackWriter(tmp_path) as writer:
        one = writer.write(rows(LAYOUTS[0], 5))
        other = writer.write(rows(LAYOUTS[0], 5).negated())
        writer.finish()
    assert one.bytes == other.bytes
    forget_runs()
    with pytest.raises(HeadraceError, match="does not match its checksum"):
        open_run(tmp_path, replace(one, position=other.position), LAYOUTS[0])
    assert values(tmp_path, one, LAYOUTS[0]) == expected(LAYOUTS[0], 5)


def test_large_runs_of_a_finished_pack_are_known_to_this_machine(tmp_path: Path) -> None:
    many = rows(LAYOUTS[0], 8000)
    with PackWriter(tmp_path) as writer:
        runs = [writer.write(many), writer.write(rows(LAYOUTS[1], 2)), writer.write(many)]
        writer.finish()
    assert runs[0].bytes > LEAST_BYTES
    forget_runs()
    before = read_to_check()
    for file in (runs[0], runs[2]):
        open_run(tmp_path, file, LAYOUTS[0])
    assert read_to_check() == before
    (tmp_path / runs[0].pack).rename(tmp_path / "moved")
    (tmp_path / runs[0].pack).write_bytes((tmp_path / "moved").read_bytes())
    forget_runs()
    open_run(tmp_path, runs[2], LAYOUTS[0])
    assert read_to_check() - before == runs[2].bytes, "another file is checked again"
