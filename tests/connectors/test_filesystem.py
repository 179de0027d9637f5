"""Directories as sources: which files are read, when, once, and what is said of the others."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import Given
from headrace.io.connectors.files import watched as filesystem
from headrace.io.connectors.files.directories import FilePattern
from headrace.io.connectors.files.watched import DirectorySource, FileColumns, Options
from headrace.io.connectors.options import read_options
from headrace.types import Column, Schema
from length import choose

N = Column("n", t.LongType())
LONG_AGO = 1_600_000_000.0


@dataclass
class Landed:
    """What parts of a directory have led to; each ``look`` opens the source anew."""

    path: str
    options: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, tuple[str, t.DataType]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[Any] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    position: Any = None
    value: Schema = field(default_factory=lambda: Schema((N,)))
    _running: Any = None

    def source(self) -> DirectorySource:
        given = {"path": self.path, "scan.settle": "0", "source.monitor-interval": "0"}
        given |= self.options
        options = read_options(Options, [Given(k, v) for k, v in given.items()], "a directory")
        columns = tuple(Column(name, type_) for name, (_, type_) in self.metadata.items())
        keys = tuple((name, key) for name, (key, _) in self.metadata.items())
        whole = Schema((*self.value.columns, *columns))
        return DirectorySource(options, FileColumns(whole, self.value, keys), lambda _: dict(self.notes))  # fmt: skip

    def look(self, parts: int | None = None) -> list[int]:
        """Read by a new source, for some parts or until nothing is left; return the new numbers."""
        source, before, self._running = self.source(), len(self.rows), None
        looked = 0
        for part in source.parts(self.position):
            self._land(part)
            looked = 0 if part.notes or part.rejects else looked + 1
            parts = None if parts is None else parts - 1
            if parts == 0 or (parts is None and looked == 2):
                break
        source.close()
        return [row["n"] for row in self.rows[before:]]

    def step(self) -> list[int]:
        """Go on with the same source for one look at the directory; return the new numbers."""
        if self._running is None:
            self._running = self.source().parts(self.position)
            if self.position is None:
                self._land(next(self._running))
        before = len(self.rows)
        self._land(next(self._running))
        return [row["n"] for row in self.rows[before:]]

    def _land(self, part: Any) -> None:
        assert part.rows.num_rows == 0 or part.notes
        rows = part.rows.to_pylist()
        assert all(row.pop("__weight") == 1 for row in rows)
        self.rows += rows
        self.rejects += part.rejects
        self.notes |= json.loads(json.dumps(dict(part.notes)))
        self.position = dict(part.position)


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {n}}}\n' for n in numbers)


def write(path: Path, text: str | bytes, at: float = LONG_AGO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (at, at))
    return path


def test_files_are_read_once_in_the_order_of_their_time_then_name(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", lines(3), 200)
    write(tmp_path / "a.jsonl", lines(4), 200 + 1)
    write(tmp_path / "c.csv", "n\n1\n2\n", 100)
    landed = Landed(str(tmp_path))
    landed.value = Schema((N,))
    assert landed.look() == [1, 2, 3, 4]
    assert landed.look() == []
    write(tmp_path / "late.jsonl", lines(5), 50)  # older than all that were read
    assert landed.look() == [5]
    assert landed.look() == []
    assert landed.rejects == []


def test_each_format_and_compression_is_read(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", "n\n1\n", 1)
    write(tmp_path / "2.jsonl.gz", gzip.compress(lines(2).encode()), 2)
    write(tmp_path / "3.json.zst", pa.compress(lines(3).encode(), "zstd", asbytes=True), 3)
    pq.write_table(pa.table({"N": [4]}), tmp_path / "4.parquet")
    write(tmp_path / "5.tsv", "m\tn\nx\t5\n")
    assert sorted(Landed(str(tmp_path)).look()) == [1, 2, 3, 4, 5]


def test_names_that_are_not_files_yet_are_passed_over(tmp_path: Path) -> None:
    for name in (".hidden.jsonl", "_SUCCESS.jsonl", "x.jsonl.tmp", "x.inprogress", "_tmp/x.jsonl"):
        write(tmp_path / name, lines(9))
    (tmp_path / "x.jsonl.tmp").rename(tmp_path / "x.jsonl")
    landed = Landed(str(tmp_path))
    assert landed.look() == [9]
    assert landed.rejects == []


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["a.csv"]),
        ("**/*.csv", ["a.csv", "x/b.csv", "x/y/c.csv"]),
        ("x/**", ["x/b.csv", "x/b.json", "x/y/c.csv"]),
        ("x/?.csv", ["x/b.csv"]),
        ("x/[ab].*", ["x/b.csv", "x/b.json"]),
        ("*/y/c.csv", ["x/y/c.csv"]),
        ("x/[!b].csv", []),
        ("a.csv", ["a.csv"]),
        ("", ["a.csv", "x/b.csv", "x/b.json", "x/y/c.csv"]),
    ],
)
def test_patterns_name_files_below_their_first_directories(tmp_path: Path, pattern: str, names: list[str]) -> None:  # fmt: skip
    for name in ("a.csv", "x/b.csv", "x/b.json", "x/y/c.csv"):
        write(tmp_path / name, "n\n1\n")
    found = FilePattern.of(f"file://{tmp_path}/{pattern}").files()
    assert sorted(str(each.path.relative_to(tmp_path)) for each in found) == names


def test_a_file_is_read_when_it_has_not_changed_for_a_while(tmp_path: Path) -> None:
    landed = Landed(str(tmp_path), {"scan.settle": "0.4 s"})
    path = tmp_path / "x.jsonl"
    landed.step()
    path.write_text(lines(1))
    assert landed.step() == []
    ends = time.monotonic() + 1
    while time.monotonic() < ends:  # a writer that never pauses for long
        with path.open("a") as file:
            file.write(lines(2))
        assert landed.step() == []
        time.sleep(0.05)
    written = path.read_text().count("\n")
    begun = time.monotonic()
    while not landed.step():
        assert time.monotonic() < begun + 10
        time.sleep(0.02)
    assert time.monotonic() > begun + 0.3
    assert len(landed.rows) == written
    write(tmp_path / "renamed.jsonl", lines(3), LONG_AGO)  # complete elsewhere, long ago
    assert landed.step() == [3]
    ahead = write(tmp_path / "ahead.jsonl", lines(4), time.time() + 3600)
    assert landed.step() == []  # by a clock that is ahead
    time.sleep(0.45)
    assert landed.step() == [4]
    assert ahead.exists()


def test_a_file_that_changes_after_it_was_read_is_a_reject_each_time(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", lines(1), 100)
    landed = Landed(str(tmp_path))
    assert landed.look() == [1]
    write(path, lines(1, 2), 200)
    assert landed.look() == []
    (reject,) = landed.rejects
    assert reject.file == str(path)
    assert "changed after it was read, from 9 to 18 bytes" in reject.reason
    assert landed.look() == []
    write(path, lines(1, 2, 3), 300)
    landed.look()
    assert len(landed.rejects) == 2


def test_an_interrupted_file_continues_and_one_that_changed_meanwhile_does_not(tmp_path, monkeypatch) -> None:  # fmt: skip
    monkeypatch.setattr("headrace.io.connectors.files.source.CHUNK_ROWS", 1)
    monkeypatch.setattr("headrace.io.formats.blocks.BLOCK_BYTES", 4096)
    monkeypatch.setattr(filesystem, "CHUNK_ROWS", 1)
    first = write(tmp_path / "a.jsonl", lines(*range(2000)), 100)
    write(tmp_path / "b.jsonl", lines(*range(2000, 4000)), 200)
    landed = Landed(str(tmp_path))
    for _ in range(2):  # each time a new source, as after a crash
        landed.look(parts=3)
    assert 0 < len(landed.rows) < 2000
    kept = [row["n"] for row in landed.rows]
    assert kept == list(range(len(kept)))
    write(first, lines(*range(1000)), 300)
    landed.look()
    assert [row["n"] for row in landed.rows] == [*kept, *range(2000, 4000)]
    (reject,) = landed.rejects
    assert "changed while it was read" in reject.reason
    assert reject.line == len(kept)
    assert landed.look() == []


def test_a_file_that_is_removed_before_its_end_is_a_reject(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("headrace.io.connectors.files.source.CHUNK_ROWS", 1)
    monkeypatch.setattr("headrace.io.formats.blocks.BLOCK_BYTES", 4096)
    monkeypatch.setattr(filesystem, "CHUNK_ROWS", 1)
    path = write(tmp_path / "a.jsonl", lines(*range(2000)))
    landed = Landed(str(tmp_path))
    landed.look(parts=3)
    assert 0 < len(landed.rows) < 2000
    path.unlink()
    landed.look()
    (reject,) = landed.rejects
    assert (reject.line, reject.reason) == (len(landed.rows), "it was removed while it was read")
    landed.look()
    assert len(landed.rejects) == 1


def test_a_file_that_cannot_be_read_as_it_should_stops_no_other(tmp_path: Path) -> None:
    whole = gzip.compress(lines(*range(1000)).encode())
    write(tmp_path / "cut.jsonl.gz", whole[: len(whole) // 2], 1)
    write(tmp_path / "no.parquet", b"PAR1 this is not", 2)
    write(tmp_path / "strange.xyz", "?", 3)
    write(tmp_path / "other.csv", "m\n1\n", 4)
    write(tmp_path / "bad.jsonl", lines(1) + "[]\n" + '{"n": "x"}\n', 5)
    write(tmp_path / "good.jsonl", lines(2), 6)
    landed = Landed(str(tmp_path))
    assert landed.look()[-2:] == [1, 2]
    reasons = {f"{Path(each.file).name}:{each.line}": each.reason for each in landed.rejects}
    assert "is not a whole gzip file" in reasons["cut.jsonl.gz:0"]
    assert "is not a whole Parquet file" in reasons["no.parquet:0"]
    assert "does not show in its name" in reasons["strange.xyz:0"]
    assert "none of the columns" in reasons["other.csv:0"]
    assert reasons.keys() >= {"bad.jsonl:2", "bad.jsonl:3"}
    assert landed.look() == []
    assert len(landed.rejects) == 6


def test_a_file_that_may_not_be_read_now_is_tried_again_and_delays_no_other(tmp_path, monkeypatch) -> None:  # fmt: skip
    shut = write(tmp_path / "a.jsonl", lines(1), 1)
    write(tmp_path / "b.jsonl", lines(2), 2)
    landed = Landed(str(tmp_path))
    original = type(shut).open

    def refused(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path == shut:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(type(shut), "open", refused)
        with pytest.raises(HeadraceError, match="cannot be read") as caught:
            landed.look()
    assert caught.value.code is Code.UNAVAILABLE
    assert [row["n"] for row in landed.rows] == [2]
    assert landed.look() == [1]


def test_a_missing_directory_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as caught:
        Landed(str(tmp_path / "absent" / "*.csv")).look()
    assert caught.value.code is Code.UNAVAILABLE


def test_links_that_leave_the_directory_are_rejects_and_those_within_are_followed(tmp_path: Path) -> None:  # fmt: skip
    secret = write(tmp_path / "outside" / "secret.jsonl", lines(666))
    root = tmp_path / "root"
    write(root / "x" / "a.jsonl", lines(1))
    (root / "file.jsonl").symlink_to(secret)
    (root / "directory").symlink_to(secret.parent)
    (root / "same").symlink_to(root / "x")  # the same files by another name: read once
    (root / "x" / "loop").symlink_to(root)
    (root / "dangling.jsonl").symlink_to(tmp_path / "nothing")
    (root / "inside.jsonl").symlink_to(write(root / "y.d" / "b.jsonl", lines(2)))
    linked = tmp_path / "linked"
    linked.symlink_to(root)  # the root itself may be a link
    landed = Landed(str(linked))
    assert sorted(landed.look()) == [1, 2, 2]  # a link to a file is a name of its own
    assert sorted(Path(each.file).name for each in landed.rejects) == ["directory", "file.jsonl"]  # fmt: skip
    assert all("out of the directory" in each.reason for each in landed.rejects)
    landed.look()
    assert len(landed.rejects) == 2


def test_columns_have_the_path_the_name_the_size_the_time_and_the_partitions(tmp_path: Path) -> None:  # fmt: skip
    metadata: dict[str, tuple[str, t.DataType]] = {
        "path": ("file.path", t.StringType()),
        "name": ("file.name", t.StringType()),
        "size": ("file.size", t.LongType()),
        "at": ("file.modification-time", t.TimestampType()),
        "dt": ("partition.dt", t.DateType()),
        "hour": ("partition.hour", t.IntegerType()),
        "country": ("partition.country", t.StringType()),
    }
    path = write(tmp_path / "dt=2026-11-26/HOUR=07/country=a%2Fb/f.jsonl", lines(1), 100)
    write(tmp_path / "dt=2026-11-27/country=__HIVE_DEFAULT_PARTITION__/f.jsonl", lines(2), 101)
    bad = write(tmp_path / "dt=soon/f.jsonl", lines(3))
    landed = Landed(str(tmp_path), metadata=metadata)
    landed.look()
    assert landed.rows[0] == {
        "n": 1,
        "path": str(path),
        "name": "f.jsonl",
        "size": 9,
        "at": dt.datetime.fromtimestamp(100, dt.UTC),
        "dt": dt.date(2026, 11, 26),
        "hour": 7,
        "country": "a/b",
    }
    assert landed.rows[1]["hour"] is landed.rows[1]["country"] is None
    (reject,) = landed.rejects
    assert reject.file == str(bad)
    assert 'directory "dt="' in reject.reason


def test_files_that_are_there_already_are_passed_over_if_so_asked(tmp_path: Path) -> None:
    write(tmp_path / "old.jsonl", lines(1))
    landed = Landed(str(tmp_path), {"scan.startup.mode": "latest-offset"})
    assert landed.look() == []
    write(tmp_path / "new.jsonl", lines(2), 50)
    assert landed.look() == [2]
    assert landed.rejects == []


def test_a_file_that_is_being_written_at_the_beginning_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(lines(1))
    write(tmp_path / "old.jsonl", lines(9))
    landed = Landed(str(tmp_path), {"scan.startup.mode": "latest-offset", "scan.settle": "0.3 s"})
    assert landed.step() == []
    with path.open("a") as file:
        file.write(lines(2))
    time.sleep(0.35)
    assert landed.step() == [1, 2]
    assert landed.rejects == []


def test_a_relative_path_is_stored_as_the_place_that_it_meant(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "a.jsonl", lines(1))
    source = Landed("in/../in/*.jsonl").source()
    assert source.options.path == f"{tmp_path}/in/*.jsonl"
    assert source.identity == f"filesystem|{tmp_path}/in/*.jsonl"


# -- files that grow -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_is_appended_to_a_file_is_read_by_whole_lines(tmp_path: Path, form: str) -> None:
    choices = random.Random(7)
    whole = lines(*range(3000)) if form == "jsonl" else "n,t\n" + "".join(f'{n},"a\n{n}"\n' for n in range(3000))  # fmt: skip
    path = tmp_path / f"log.{form}"
    path.touch()
    landed = Landed(str(path), {"scan.file-mode": "append"})
    data, written = whole.encode(), 0
    while written < len(data):
        size = choices.choice([1, 7, 500, 5000])
        with path.open("ab") as file:
            file.write(data[written : written + size])
        written += size
        landed.look() if choices.random() < 0.1 else landed.step()
        landed._running = landed._running if choices.random() < 0.9 else None
    landed.look()
    assert [row["n"] for row in landed.rows] == list(range(3000))
    assert landed.rejects == []


def test_a_growing_file_that_is_cut_off_or_replaced_is_read_no_more(tmp_path: Path) -> None:
    landed = Landed(str(tmp_path), {"scan.file-mode": "append"})
    for name in ("cut.jsonl", "other.jsonl", "kept.jsonl"):
        write(tmp_path / name, lines(*range(500)))
    assert len(landed.look()) == 1500
    write(tmp_path / "cut.jsonl", lines(7))
    write(tmp_path / "other.jsonl", lines(*range(1000, 1600)))
    with (tmp_path / "kept.jsonl").open("a") as file:
        file.write(lines(500))
    assert landed.look() == [500]
    assert sorted(Path(each.file).name for each in landed.rejects) == ["cut.jsonl", "other.jsonl"]  # fmt: skip
    assert all("was replaced or cut off" in each.reason for each in landed.rejects)
    with (tmp_path / "cut.jsonl").open("a") as file:
        file.write(lines(8))
    assert landed.look() == []
    assert len(landed.rejects) == 2


def test_of_growing_files_what_is_there_already_can_be_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", lines(1, 2) + '{"n": ')
    landed = Landed(str(path), {"scan.file-mode": "append", "scan.startup.mode": "latest-offset"})
    assert landed.look() == []
    with path.open("a") as file:
        file.write("3}\n" + lines(4))
    assert landed.look() == [3, 4]


# -- many files ----------------------------------------------------------------------------


@pytest.mark.long
def test_many_small_files_are_read_in_few_parts(tmp_path: Path) -> None:
    count = choose(400, 100_000)
    for n in range(count):
        write(tmp_path / f"{n % 97}" / f"{n}.jsonl", lines(n), n)
    landed = Landed(str(tmp_path))
    assert landed.look() == list(range(count))
    assert landed.look() == []
    assert len(landed.notes) == count


def test_random_histories_of_a_directory_land_every_line_once_or_say_why_not(tmp_path: Path) -> None:  # fmt: skip
    for seed in range(choose(8, 200)):
        choices, root = random.Random(seed), tmp_path / str(seed)
        root.mkdir()
        landed, numbers, wanted, changed = Landed(str(root)), iter(range(10**6)), [], 0
        for step in range(30):
            match choices.choice(["write", "write", "change", "look", "restart", "remove"]):
                case "write":
                    new = [next(numbers) for _ in range(choices.randrange(1, 4))]
                    wanted += new
                    write(root / f"{choices.randrange(3)}" / f"{step}.jsonl", lines(*new), choices.random() * 1e9)  # fmt: skip
                case "change" | "remove" as what:
                    landed.look()
                    files = sorted(root.rglob("*.jsonl"))
                    if files and what == "remove":
                        choices.choice(files).unlink()
                    elif files:
                        changed += 1
                        write(choices.choice(files), lines(next(numbers)), 1e9 + step)
                        landed.look()
                case "look":
                    landed.step()
                case "restart":
                    landed._running = None
        landed._running = None
        landed.look()
        assert sorted(row["n"] for row in landed.rows) == wanted, seed
        assert len(landed.rejects) == changed, seed


def test_a_pattern_does_not_leave_the_directories_that_it_names(tmp_path, monkeypatch) -> None:
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path / "x")
    write(tmp_path / "a.csv", "n\n1\n")
    assert [each.name for each in FilePattern.of("../*.csv").files()] == ["a.csv"]
    with pytest.raises(HeadraceError, match=r"has '\.\.' after"):
        FilePattern.of("*/../*.csv")


@pytest.mark.parametrize(
    ("path", "options", "metadata", "code", "words"),
    [
        ("s3://bucket/x", {}, {}, Code.UNSUPPORTED, "s3://"),
        ("", {"scan.file-mode": "append", "format": "parquet"}, {}, Code.INVALID, "not appended to"),
        ("", {}, {"a": ("file.size", t.StringType())}, Code.INVALID, "cannot have the file.size"),
        ("", {}, {"a": ("partition.x", t.ArrayType(t.LongType()))}, Code.UNSUPPORTED, "cannot be read"),
        ("", {"format": "jsn"}, {}, Code.INVALID, "is not a value"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_when_the_relation_is_created(tmp_path, path, options, metadata, code, words) -> None:  # fmt: skip
    landed = Landed(path or str(tmp_path), options, metadata)
    with pytest.raises(HeadraceError) as caught:
        landed.source().check()
    assert words in caught.value.primary
    assert caught.value.code is code


def test_compressed_files_are_not_appended_to(tmp_path: Path) -> None:
    options = {"scan.file-mode": "append"}
    write(tmp_path / "a.jsonl.gz", gzip.compress(lines(1).encode()))
    with pytest.raises(HeadraceError, match="is compressed"):
        Landed(str(tmp_path / "a.jsonl.gz"), options).source().check()
    write(tmp_path / "b.jsonl", lines(2))
    landed = Landed(str(tmp_path), options)
    assert landed.look() == [2]
    (reject,) = landed.rejects
    assert "is compressed" in reject.reason


def test_the_first_file_has_to_fit_when_the_relation_is_created(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "m,o\n1,2\n")
    with pytest.raises(HeadraceError, match="none of the columns"):
        Landed(str(tmp_path)).source().check()
    Landed(str(tmp_path), {"header": "false"}).source().check()
