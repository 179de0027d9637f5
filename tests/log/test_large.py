"""Large segments: rows come back just as they were, and no more is read than is asked for."""

from __future__ import annotations

import decimal
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.algebra.zset import WEIGHT, Restriction, Test
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import OffsetRange, Segment, SegmentFile
from headrace.storage.log import (
    APPENDED,
    EmbeddedLog,
    LargeWriter,
    LogShare,
    SegmentWriter,
    blocks,
    forget_segments,
    keeps,
    large_parts,
    merging,
    open_segment,
    read_range,
    write_segment,
)
from headrace.storage.log import large as large_module
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBERS = pa.schema([pa.field("n", pa.int64()), pa.field("name", pa.string())])


def numbers(first: int, end: int) -> pa.Table:
    values = range(first, end)
    return pa.table([pa.array(values, pa.int64()), [f"row {n}" for n in values]], schema=NUMBERS)


def large(directory: Path, *tables: pa.Table) -> SegmentFile:
    with LargeWriter(directory, tables[0].schema) as writer:
        for number, table in enumerate(tables):
            for batch in table.to_batches():
                writer.write(batch, pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows))
        return writer.finish()


def placed(*files: SegmentFile) -> tuple[Segment, ...]:
    found, end = [], 0
    for file in files:
        span = OffsetRange(Offset(end), Offset(end + file.rows))
        found.append(Segment(RelationId(1), span, file, 0.0))
        end += file.rows
    return tuple(found)


class Reads:
    """The row groups and the columns that are read of large segments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[tuple[int, tuple[str, ...]]] = []
        read = large_module.LargeFile.read

        def counted(
            file: large_module.LargeFile, group: large_module.RowGroup, names: tuple[str, ...]
        ) -> pa.RecordBatch:
            self.parts.append((group.number, tuple(names)))
            return read(file, group, names)

        monkeypatch.setattr(large_module.LargeFile, "read", counted)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    yield Reads(monkeypatch)
    forget_segments()


def test_rows_of_every_type_that_a_log_stores_come_back_just_as_they_were(tmp_path: Path) -> None:
    nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_BEEF))[0]
    variant = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    nested = pa.list_(
        pa.struct([("m", pa.map_(pa.string(), pa.decimal128(10, 3))), ("v", variant)])
    )
    big = decimal.Decimal("12345678901234567890123456.0123456789")
    columns = {
        "boolean": pa.array([True, None, False]),
        "tiny": pa.array([-128, None, 127], pa.int8()),
        "small": pa.array([-(2**15), None, 2**15 - 1], pa.int16()),
        "int": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
        "long": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        "float": pa.array([-0.0, None, float("inf")], pa.float32()),
        "double": pa.array([-0.0, nan, 0.0], pa.float64()),
        "text": pa.array(["", None, "\x00 ünï\U0001f600"]),
        "binary": pa.array([b"", None, b"\xff" * 70_000]),
        "date": pa.array([-1, None, 2**20], pa.int32()).cast(pa.date32()),
        "moment": pa.array([-1, None, 2**60], pa.timestamp("us", "UTC")),
        "local": pa.array([-1, None, 2**60], pa.timestamp("us")),
        "span": pa.array([-1, None, 2**60], pa.duration("us")),
        "months": pa.array([-1, None, 2**20], pa.int32()),
        "cents": pa.array([decimal.Decimal("-1.05"), None, 2], pa.decimal128(5, 2)),
        "wide": pa.array([big, None, -big], pa.decimal128(38, 10)),
        "void": pa.nulls(3),
        "list": pa.array([[], None, [None, 1]], pa.list_(pa.int32())),
        "map": pa.array([[], None, [("a", None)]], pa.map_(pa.string(), pa.list_(pa.int64()))),
        "variant": pa.array(
            [{"value": b"\x0c", "metadata": b"\x01"}, None, {"value": b""}], variant
        ),
        "a.b": pa.array([{"c": 1}, None, {"c": None}], pa.struct([("c", pa.int64())])),
        "a": pa.array([{"b": "x"}, None, {"b": None}], pa.struct([("b", pa.string())])),
        "nested": pa.array([[{"m": [("k", 1)], "v": None}], None, [None]], nested),
        WEIGHT: pa.array([1, -1, 1], pa.int64()),
    }
    rows = pa.table(columns)
    assert keeps(rows.schema)
    file = large(tmp_path, rows, rows)
    (batch,) = read_range(tmp_path, placed(file), Offset(0), Offset(6))
    expected = pa.concat_tables([rows, rows])
    assert batch.schema.equals(expected.schema)
    for name in expected.schema.names:
        stored, read = expected[name].combine_chunks(), batch[name]
        if pa.types.is_floating(stored.type):  # by bits: NaN with its payload, and -0.0
            ints = pa.int64() if stored.type == pa.float64() else pa.int32()
            assert read.is_valid().equals(stored.is_valid())
            stored, read = stored.view(ints).drop_null(), read.view(ints).drop_null()
        assert read.equals(stored), name


@pytest.mark.parametrize("type_", [pa.month_day_nano_interval(), pa.struct([])], ids=str)
def test_types_that_parquet_changes_are_not_put_into_a_large_segment(type_: pa.DataType) -> None:
    assert not keeps(pa.schema([pa.field("c", type_)]))


def test_a_range_reads_only_the_row_groups_and_columns_that_it_needs(
    tmp_path: Path, reads: Reads
) -> None:
    file = large(tmp_path, numbers(0, 300_000))
    assert file.rows == 300_000
    batches = list(read_range(tmp_path, placed(file), Offset(65_530), Offset(65_540), ["n"]))
    assert [n for b in batches for n in b["n"].to_pylist()] == list(range(65_530, 65_540))
    assert reads.parts == [(0, ("n",)), (1, ("n",))]


def test_a_restriction_reads_the_row_groups_that_may_hold_it_and_first_only_its_columns(
    tmp_path: Path, reads: Reads
) -> None:
    share = LogShare(placed(large(tmp_path, numbers(0, 300_000))), Offset(0), Offset(300_000))
    one = Restriction((Test("n", pa.array([70_000])),))
    (batch,) = EmbeddedLog().read(tmp_path, share, NUMBERS, offsets=True, restriction=one)
    assert batch.to_pydict() == {
        "n": [70_000], "name": ["row 70000"], WEIGHT: [1], "__offset": [70_000],
    }  # fmt: skip
    assert reads.parts == [(1, ("n",)), (1, ("name",))]
    reads.parts.clear()
    none = Restriction((Test("n", low=pa.scalar(300_000)),))
    assert not list(EmbeddedLog().read(tmp_path, share, NUMBERS, offsets=True, restriction=none))
    assert reads.parts == []


def test_the_newest_rows_are_read_first_if_asked_and_nothing_else_of_the_log(
    tmp_path: Path, reads: Reads
) -> None:
    files = [
        large(tmp_path, numbers(0, 200_000)),
        write_segment(tmp_path, numbers(200_000, 200_003)),
    ]
    share = LogShare(placed(*files), Offset(0), Offset(200_003))
    read = EmbeddedLog().read(tmp_path, share, NUMBERS, offsets=False, newest_first=True)
    assert next(read)["n"].to_pylist() == [200_000, 200_001, 200_002]
    assert reads.parts == []
    assert next(read)["n"].to_pylist()[-1] == 199_999
    assert reads.parts == [(3, ("n", "name"))]
    firsts = [b.first for b in blocks(tmp_path, share.segments, Offset(0), Offset(200_003))]
    assert firsts == [0, 65_536, 131_072, 196_608, 200_000]


def test_parts_in_parquet_files_are_listed_with_the_rows_that_they_have(tmp_path: Path) -> None:
    files = [
        write_segment(tmp_path, numbers(0, 10)),
        large(tmp_path, numbers(10, 70_000)),
        large(tmp_path, numbers(70_000, 70_010)),
    ]
    parts = large_parts(tmp_path, placed(*files), Offset(15), Offset(70_005))
    assert [(p.first, p.first_row, p.end_row) for p in parts] == [
        (15, 5, 69_990),
        (70_000, 0, 5),
    ]
    for part in parts:
        read = pq.read_table(part.path).slice(part.first_row, part.end_row - part.first_row)
        assert read.schema.names == ["n", "name", APPENDED]
        assert read["n"][0].as_py() == part.first


def test_rows_say_when_they_were_appended(tmp_path: Path) -> None:
    file = large(tmp_path, numbers(0, 2), numbers(2, 3))
    (batch,) = read_range(tmp_path, placed(file), Offset(0), Offset(3), [APPENDED])
    assert batch[APPENDED].to_pylist() == [0, 0, 1]


def test_a_large_segment_may_count_for_its_first_rows_only(tmp_path: Path) -> None:
    whole = large(tmp_path, numbers(0, 10))
    cut = SegmentFile(whole.name, 7, whole.bytes, whole.checksum, footer=whole.footer)
    assert open_segment(tmp_path, cut)["n"].to_pylist() == list(range(7))
    more = SegmentFile(whole.name, 11, whole.bytes, whole.checksum, footer=whole.footer)
    with pytest.raises(HeadraceError, match="10 rows instead of 11"):
        open_segment(tmp_path, more)


def test_row_groups_are_of_bounded_size_also_of_wide_rows(tmp_path: Path) -> None:
    wide = pa.table({"text": ["x" * 100_000] * 1000})
    file = large(tmp_path, wide, wide)
    read = list(blocks(tmp_path, placed(file), Offset(0), Offset(2000)))
    assert len(read) >= 6
    assert max(block.rows for block in read) * 100_000 <= large_module.GROUP_BYTES * 1.1


@pytest.mark.parametrize("at", [0, 3, 800, 300_000, -9, -1])
def test_a_changed_byte_anywhere_is_found_by_whoever_reads_it(tmp_path: Path, at: int) -> None:
    file = large(tmp_path, numbers(0, 70_000), numbers(0, 70_000))
    path = tmp_path / file.name
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    forget_segments()
    with pytest.raises(HeadraceError) as caught:
        list(read_range(tmp_path, placed(file), Offset(0), Offset(140_000)))
    assert caught.value.code is Code.CORRUPT
    assert file.name in caught.value.primary
    assert caught.value.hint
    with pytest.raises(HeadraceError):
        large_parts(tmp_path, placed(file), Offset(0), Offset(140_000))


@pytest.mark.parametrize("damage", ["missing", "short", "empty"])
def test_a_torn_large_segment_is_named(tmp_path: Path, damage: str) -> None:
    file = large(tmp_path, numbers(0, 1000))
    path = tmp_path / file.name
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(whole[:-7] if damage == "short" else b"")
    forget_segments()
    with pytest.raises(HeadraceError) as caught:
        open_segment(tmp_path, file)
    assert caught.value.code is Code.CORRUPT


def test_an_unfinished_large_segment_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.files.bundles.os.fsync", full)
    with pytest.raises(HeadraceError) as caught:
        large(tmp_path, numbers(0, 10))
    assert caught.value.code is Code.UNAVAILABLE
    assert list(tmp_path.iterdir()) == []


class Held(LargeWriter):
    """A writer that notes the most memory of Arrow, and the most parts of rows that wait."""

    bytes, parts = 0, 0

    def write(self, rows: pa.RecordBatch, appended: pa.Array) -> None:
        super().write(rows, appended)
        Held.bytes = max(Held.bytes, pa.total_allocated_bytes())
        Held.parts = max(Held.parts, len(self._waiting) + len(self._parts))


def test_a_merge_holds_a_row_group_whatever_it_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_module, "GROUP_ROWS", 4_096)
    monkeypatch.setattr(merging, "LargeWriter", Held)
    of_group = numbers(0, 4_096).nbytes
    held = []
    for groups in (4, 32):
        segments = placed(large(tmp_path, *(numbers(n, n + 4_096) for n in range(groups))))
        forget_segments()
        Held.bytes, before = 0, pa.total_allocated_bytes()
        (found,) = merging.merged(tmp_path, segments + _after(segments, tmp_path))
        assert found.file is not None
        assert found.file.rows == groups * 4_096 + 4_096
        held.append(Held.bytes - before)
    assert max(held) <= 6 * of_group


def _after(segments: tuple[Segment, ...], directory: Path) -> tuple[Segment, ...]:
    """Return one more segment that follows."""
    (last,) = placed(write_segment(directory, numbers(0, 4_096)))
    first = segments[-1].range.end
    return (replace(last, range=OffsetRange(first, Offset(first + 4_096))),)


def test_landings_of_one_row_that_are_merged_do_not_wait_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_module, "_MOST_WAITING", 16)
    monkeypatch.setattr(merging, "LargeWriter", Held)
    written = SegmentWriter(tmp_path).write([numbers(n, n + 1) for n in range(200)])
    segments = placed(*(each for each in written if isinstance(each, SegmentFile)))
    Held.parts = 0
    (found,) = merging.merged(tmp_path, segments)
    assert found.file is not None
    assert open_segment(tmp_path, found.file).equals(numbers(0, 200))
    assert Held.parts <= 200 // 16 + 16
