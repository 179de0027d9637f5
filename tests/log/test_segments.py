"""Segments of the embedded log: whole or refused."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import OffsetRange, Segment, SegmentFile
from headrace.storage.log import segments as log
from headrace.storage.log import write_segment
from headrace.storage.log.appender import BATCH_ROWS, SegmentWriter
from headrace.types import Offset, RelationId


@pytest.fixture(autouse=True)
def _nothing_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_verified", OrderedDict())
    log.forget_segments()


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, end), pa.int64()), WEIGHT: [1] * (end - start)})


def placed(*files: SegmentFile) -> list[Segment]:
    found, end = [], 0
    for file in files:
        span = OffsetRange(Offset(end), Offset(end + file.rows))
        found.append(Segment(RelationId(1), span, file, 0.0))
        end += file.rows
    return found


def test_a_segment_is_read_as_it_was_written_in_batches_of_bounded_size(tmp_path: Path) -> None:
    table = numbers(0, 200_000)
    segment = write_segment(tmp_path, table)
    read = log.open_segment(tmp_path, segment)
    assert read.equals(table)
    assert segment.rows == 200_000
    assert max(batch.num_rows for batch in read.to_batches()) <= BATCH_ROWS
    assert segment.bytes == (tmp_path / segment.name).stat().st_size


def test_a_range_spans_segments_and_is_cut_at_both_ends(tmp_path: Path) -> None:
    files = [write_segment(tmp_path, numbers(a, a + 10)) for a in (0, 10, 20)]
    for first in range(31):
        for end in range(first, 31):
            batches = log.read_range(tmp_path, placed(*files), Offset(first), Offset(end), ["n"])
            assert [n for b in batches for n in b.column(0).to_pylist()] == list(range(first, end))


def test_reading_a_range_copies_nothing(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, numbers(0, 60_000))
    before = pa.total_allocated_bytes()
    batches = list(log.read_range(tmp_path, placed(segment), Offset(5), Offset(59_000)))
    assert sum(batch.num_rows for batch in batches) == 58_995
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_gap_in_the_log_is_an_error(tmp_path: Path) -> None:
    segments = placed(*[write_segment(tmp_path, numbers(a, a + 10)) for a in (0, 10, 20)])
    with pytest.raises(HeadraceError) as caught:
        list(log.read_range(tmp_path, [segments[0], segments[2]], Offset(0), Offset(30)))
    assert caught.value.code is Code.CORRUPT
    assert "offset 10" in caught.value.primary


@pytest.mark.parametrize("damage", ["missing", "short", "changed", "empty"])
def test_a_damaged_segment_is_named(tmp_path: Path, damage: str) -> None:
    segment = write_segment(tmp_path, numbers(0, 1000))
    log.forget_segments()
    path = tmp_path / segment.name
    whole = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "short":
            path.write_bytes(whole[:-7])
        case "changed":
            path.write_bytes(whole[:800] + bytes([whole[800] ^ 1]) + whole[801:])
        case "empty":
            path.write_bytes(b"")
    with pytest.raises(HeadraceError) as caught:
        log.open_segment(tmp_path, segment)
    assert caught.value.code is Code.CORRUPT
    assert segment.name in caught.value.primary
    assert caught.value.hint


def test_a_checksum_is_computed_once_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = write_segment(tmp_path, numbers(0, 20_000))
    log.forget_segments()
    log.open_segment(tmp_path, segment)
    monkeypatch.setattr(log, "_checksum", pytest.fail)
    log.open_segment(tmp_path, segment)


def test_the_segments_of_many_landings_map_nothing_into_memory(tmp_path: Path) -> None:
    written = SegmentWriter(tmp_path).write([numbers(n, n + 1) for n in range(100)])
    files = [each for each in written if isinstance(each, SegmentFile)]
    log.forget_segments()
    read = [log.open_segment(tmp_path, each) for each in files]
    assert str(tmp_path) not in Path("/proc/self/maps").read_text(encoding="utf-8")
    assert [table["n"][0].as_py() for table in read] == list(range(100))


@pytest.mark.parametrize("rows", [10, 20_000])
def test_a_segment_is_not_called_damaged_if_it_could_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    def no_more(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    segment = write_segment(tmp_path, numbers(0, rows))
    monkeypatch.setattr(Path, "open", no_more)
    monkeypatch.setattr(pa, "memory_map", no_more)
    with pytest.raises(HeadraceError) as caught:
        log.open_segment(tmp_path, segment)
    assert caught.value.code is Code.UNAVAILABLE
    assert caught.value.detail == "Too many open files."


def test_a_segment_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.files.bundles.os.fsync", full)
    with pytest.raises(HeadraceError) as caught:
        write_segment(tmp_path, numbers(0, 10))
    assert caught.value.code is Code.UNAVAILABLE
    assert list(tmp_path.iterdir()) == []


def test_a_process_remembers_the_newest_of_the_segments_that_it_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_MOST_VERIFIED", 2)
    first, *others = [write_segment(tmp_path, numbers(a, a + 5)) for a in (0, 5, 10)]
    assert [checksum for _, checksum in log._verified] == [each.checksum for each in others]
    assert log.open_segment(tmp_path, first).num_rows == 5
    assert len(log._verified) == 2


def test_what_was_just_appended_is_read_from_memory_until_more_has_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(tmp_path)
    (first,) = writer.write([numbers(0, 5)])
    assert isinstance(first, SegmentFile)
    monkeypatch.setattr(log, "KEPT_BYTES", 2 * first.bytes)
    others = [f for f in writer.write([numbers(5, 10)]) if isinstance(f, SegmentFile)]
    writer.close()
    for path in tmp_path.iterdir():
        path.unlink()
    files = [first, *others]
    batches = log.read_range(tmp_path, placed(*files), Offset(3), Offset(10), ["n"])
    assert [n for b in batches for n in b.column(0).to_pylist()] == list(range(3, 10))
    other = SegmentWriter(tmp_path)
    other.write([numbers(10, 15)])
    other.close()
    assert log.open_segment(tmp_path, others[0]).num_rows == 5
    with pytest.raises(HeadraceError, match="is damaged"):
        log.open_segment(tmp_path, first)
    log.forget_segments()
    with pytest.raises(HeadraceError, match="is damaged"):
        log.open_segment(tmp_path, others[0])
