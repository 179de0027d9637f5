"""File sinks stay inside their directory, whatever links somebody puts into it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from datetime import UTC, datetime
from glob import glob
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from connectors.sink_histories import Row, context, prove, table
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors.files.sink import (
    Content,
    Options,
    OutputFormat,
    check,
    opened,
    place,
    sink_path,
)
from headrace.io.connectors.lake import snapshots as snapshot_sink
from headrace.io.connectors.lake import warehouse as warehouse_sink
from headrace.io.connectors.lake.warehouse import Warehouse
from headrace.types import Column, Epoch, Schema
from length import choose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

NEW: Row = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)
CHANGES = table([(NEW, 1)])


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sinks").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "sinks" / "away").symlink_to(tmp_path / "outside")
    for path in ("away", "away/deeper"):
        with pytest.raises(HeadraceError, match="outside of the directory for sinks") as caught:
            place(path, context(tmp_path))
        assert caught.value.code is Code.INVALID
    (tmp_path / "sinks" / "x").mkdir()
    (tmp_path / "sinks" / "other").symlink_to(tmp_path / "sinks" / "x")
    assert place("other", context(tmp_path)) == place("x", context(tmp_path))


def test_an_absolute_path_is_below_a_root_for_sinks(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "root"
    for each in (data / "sinks", root / "in", tmp_path / "rootless"):
        each.mkdir(parents=True)
    (root / "away").symlink_to(tmp_path / "rootless")
    given = dataclasses.replace(context(data), roots=(root, tmp_path / "data"))
    assert place(f"{root}/in/x", given) == root / "in" / "x"
    for path in (root, tmp_path / "rootless" / "x", root / "away" / "x", data / "ledger", "/"):
        with pytest.raises(HeadraceError, match="outside of the directories for sinks"):
            place(str(path), given)
    with pytest.raises(HeadraceError, match="outside of the directories for sinks"):
        place(f"{root}/in/x", context(data))
    for path in (f"{root}/../x", f"{root}/./x", "//x"):
        with pytest.raises(HeadraceError, match="outside of the directory for sinks"):
            sink_path(path)
    opened(Options(f"{root}/in/x", OutputFormat.JSON), given).write(Epoch(1), [CHANGES])
    assert [each.name for each in (root / "in/x").iterdir()] == [f"{1:020d}.jsonl"]


def test_a_sink_does_not_follow_links_that_come_later(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept")
    sink = opened(Options("a/b", OutputFormat.JSON), context(tmp_path))
    sink.write(Epoch(1), [CHANGES])
    directory = tmp_path / "sinks" / "a" / "b"
    (directory / f".{2:020d}.draft").symlink_to(outside / "secret")
    sink.write(Epoch(2), [CHANGES])
    assert (outside / "secret").read_text() == "kept"
    assert sorted(file.name for file in directory.iterdir()) == [f"{n:020d}.jsonl" for n in (1, 2)]
    (tmp_path / "sinks" / "a").rename(tmp_path / "moved")
    (tmp_path / "sinks" / "a").symlink_to(outside)
    with pytest.raises(HeadraceError, match="has become a symbolic link"):
        sink.write(Epoch(3), [CHANGES])
    assert [file.name for file in outside.iterdir()] == ["secret"]


def parquet(directory: Path) -> Counter[Row]:
    """Return the sum of the changes in files of Parquet: what came twice would count twice."""
    total: Counter[Row] = Counter()
    for file in directory.rglob("*.parquet"):
        for change in pq.ParquetFile(file).read().to_pylist():
            weight = change.pop("__weight")
            assert (change.pop("__op") in ("+I", "+U")) == (weight > 0)
            total[tuple(change.values())] += weight
            names = [part.name for part in file.parents if part.name.startswith("ok=")]
            assert not names or names == [f"ok={_directory(change['ok'])}"]
    return Counter({each: weight for each, weight in total.items() if weight})


def _directory(value: object) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else str(value).lower()


@pytest.mark.parametrize("partitions", [None, "ok, name"])
@pytest.mark.parametrize("joins", choose([True], [True, False]))
def test_files_have_each_change_once_however_often_the_process_ends(
    tmp_path, monkeypatch, partitions, joins
) -> None:
    monkeypatch.setattr("headrace.io.connectors.files.change_files._OPEN", 3)
    options = Options("x", OutputFormat.PARQUET, partitions)
    check(options, context(tmp_path))
    prove(
        lambda: opened(options, context(tmp_path)),
        lambda: parquet(tmp_path / "sinks" / "x"),
        epochs=12,
        settings=DeliverySettings(part_rows=6, joins=joins),
    )
    sink = opened(options, context(tmp_path))
    assert sink.durable() is not None
    sink.clear()
    assert sink.durable() is None
    assert not list((tmp_path / "sinks" / "x").iterdir())


@pytest.mark.parametrize(
    "options",
    [
        *(Options("x", form, by) for form in OutputFormat for by in (None, "ok")),
        Options("x", OutputFormat.PARQUET, "ok", Content.SNAPSHOT),
        warehouse_sink.Options(path="x", warehouse=Warehouse.SNOWFLAKE, table="t", location="@f"),
    ],
    ids=str,
)
def test_readers_of_the_directory_see_no_file_that_is_being_written(tmp_path, options) -> None:
    module = warehouse_sink if isinstance(options, warehouse_sink.Options) else snapshot_sink
    directory = tmp_path / "sinks" / "x"

    def seen() -> set[str]:
        return {
            name
            for name in glob("**/*.*", root_dir=directory, recursive=True)  # noqa: PTH207 (passes over hidden names)
            if name != "create.sql"
        }

    def parts(before: set[str]) -> Iterator[pa.Table]:
        yield CHANGES
        assert seen() == before
        yield table([((2, "b", *NEW[2:]), 1)])
        assert seen() == before

    writer = module.opened(options, context(tmp_path))
    assert writer.durable() is None
    writer.write(Epoch(1), parts(set()))
    first = seen()
    assert first
    old = {directory / f"{n:020d}.{kind}" for n in (2, 3) for kind in ("draft", "changes")}
    for each in old:
        each.mkdir()
        (each / "0.parquet").write_bytes(b"PAR1")
    (directory / f".{3:020d}.draft").write_text("half")
    assert writer.durable() == 1, "drafts of a version before, and of one that was killed, go"
    assert seen() == first
    writer.write(Epoch(2), parts(first))
    assert not [p for p in directory.iterdir() if "draft" in p.name or "changes" in p.name]


@pytest.mark.parametrize("parts", [[], [CHANGES.slice(0, 0)]])
def test_the_first_file_of_an_empty_view_can_be_read(tmp_path, parts) -> None:
    for form in OutputFormat:
        sink = opened(Options(form.value, form), context(tmp_path))
        sink.write(Epoch(1), parts)
        sink.write(Epoch(2), [CHANGES])
        files = sorted((tmp_path / "sinks" / form.value).iterdir())
        assert all(each.stat().st_size for each in files)
        assert len(files) == (1 if form is OutputFormat.JSON else 2)
        if form is OutputFormat.CSV:
            empty, header = (each.read_text().splitlines() for each in files)
            assert empty == header[:1]
            assert header[0].startswith('"id","name"')


def test_a_directory_can_have_any_value_in_its_name(tmp_path) -> None:
    names = ["", None, ".", "..", "a/b", "a=b", "%", "ß \n", "x" * 300]
    rows = [((id_, name, *NEW[2:]), 1) for id_, name in enumerate(names)]
    sink = opened(Options("x", OutputFormat.JSON, "name"), context(tmp_path))
    (refused,) = sink.write(Epoch(1), [table(rows)])
    assert json.loads(refused.row)["row"]["id"] == 8
    assert refused.why == "the value of name is too long for the name of a directory"
    found = {
        json.loads(line)["row"]["id"]: file.parent
        for file in (tmp_path / "sinks/x/epoch=00000000000000000001").glob("*/*.jsonl")
        for line in file.read_text().splitlines()
    }
    assert sorted(found) == list(range(8))
    assert found[4].name == "name=a%2Fb"
    stopping = opened(Options("y", OutputFormat.JSON, "name"), context(tmp_path, stops=True))
    assert len(stopping.write(Epoch(1), [table(rows)])) == 1
    assert stopping.durable() is None


def test_what_a_format_cannot_hold_is_refused(tmp_path) -> None:
    empty = Schema((Column("s", t.StructType()),))
    given = dataclasses.replace(context(tmp_path), schema=empty)
    check(Options("x", OutputFormat.JSON), given)
    for form in (OutputFormat.CSV, OutputFormat.PARQUET):
        with pytest.raises(HeadraceError, match="cannot be written as"):
            check(Options("x", form), given)
    with pytest.raises(
        HeadraceError, match='column "nam" to partition by does not exist'
    ) as caught:
        check(Options("x", OutputFormat.CSV, "nam"), context(tmp_path))
    assert caught.value.hint == 'Did you mean "name"?'
