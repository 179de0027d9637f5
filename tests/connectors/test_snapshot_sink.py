"""Directories with all rows of a view: the newest is the view, and others are untouched."""

from __future__ import annotations

import dataclasses
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from connectors.sink_histories import Row, context, prove, table
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors.files.change_files import OutputFormat
from headrace.io.connectors.files.sink import Content, Options
from headrace.io.connectors.lake.snapshots import SnapshotSink, check, opened
from headrace.types import Column, Epoch, Schema

if TYPE_CHECKING:
    from pathlib import Path

NEW: Row = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)


def sink(directory: Path, partitions: str | None = None, *, stops: bool = False) -> SnapshotSink:
    options = Options("x", OutputFormat.PARQUET, partitions, Content.SNAPSHOT)
    check(options, context(directory))
    found = opened(options, context(directory, stops=stops))
    assert isinstance(found, SnapshotSink)
    return found


def newest(directory: Path) -> Path:
    return max((directory / "sinks/x").glob("epoch=*"))


def rows(directory: Path) -> Counter[Row]:
    files = newest(directory).rglob("*.parquet")
    return Counter(
        tuple(each.values()) for file in files for each in pq.ParquetFile(file).read().to_pylist()
    )


@pytest.mark.parametrize(("partitions", "joins"), [(None, True), ("ok, name", False)])
def test_the_newest_directory_is_the_view_however_often_the_process_ends(
    tmp_path, monkeypatch, partitions, joins
) -> None:
    monkeypatch.setattr("headrace.io.connectors.files.change_files._OPEN", 3)
    prove(
        lambda: sink(tmp_path, partitions),
        lambda: rows(tmp_path),
        epochs=6,
        kills=6,
        settings=DeliverySettings(part_rows=6, joins=joins),
    )
    stored = sink(tmp_path, partitions).stored()
    assert stored is not None
    found = Counter(tuple(each.values()) for part in stored for each in part.to_pylist())
    assert found == rows(tmp_path)
    assert len(list((tmp_path / "sinks/x").iterdir())) == 2


def test_partitions_that_did_not_change_are_the_same_files(tmp_path) -> None:
    writer = sink(tmp_path, "name")
    other = (2, "b", *NEW[2:])
    writer.write(Epoch(1), [table([(NEW, 1), (other, 1)])])
    before = {file.parent.name: file.stat().st_ino for file in newest(tmp_path).rglob("*.parquet")}
    moved = (2, "c", *NEW[2:])
    writer.write(Epoch(2), [table([(other, -1), (moved, 1)])])
    after = {file.parent.name: file.stat().st_ino for file in newest(tmp_path).rglob("*.parquet")}
    assert after.keys() == {"name=a", "name=c"}
    assert after["name=a"] == before["name=a"]
    assert rows(tmp_path) == Counter([NEW, moved])
    writer.write(Epoch(3), [table([(NEW, -1), (moved, -1)])])
    assert rows(tmp_path) == Counter()
    assert newest(tmp_path).name.endswith("3")


def test_a_process_that_was_overtaken_writes_nothing(tmp_path) -> None:
    first, second = sink(tmp_path), sink(tmp_path)
    assert first.durable() is second.durable() is None
    first.write(Epoch(1), [table([(NEW, 1)])])
    with pytest.raises(HeadraceError, match="has changed since it was last looked at") as caught:
        second.write(Epoch(1), [table([(NEW, 1)])])
    assert caught.value.code is Code.UNAVAILABLE
    assert second.durable() == 1
    second.clear()
    assert second.durable() is None


def test_a_row_that_no_directory_is_for_is_refused(tmp_path) -> None:
    long = (2, "x" * 300, *NEW[2:])
    (refused,) = sink(tmp_path, "name").write(Epoch(1), [table([(NEW, 1), (long, 1)])])
    assert "too long" in refused.why
    assert rows(tmp_path) == Counter([NEW])
    stopping = sink(tmp_path / "other", "name", stops=True)
    assert len(stopping.write(Epoch(1), [table([(NEW, 1), (long, 1)])])) == 1
    assert stopping.durable() is None


def test_an_epoch_without_changes_is_recorded(tmp_path) -> None:
    writer = sink(tmp_path)
    for epoch, parts in ((1, []), (2, [table([(NEW, 1)])]), (3, [])):
        assert list(writer.write(Epoch(epoch), parts)) == []
        assert writer.durable() == epoch
    assert rows(tmp_path) == Counter([NEW])


def test_what_cannot_be_a_snapshot_is_refused(tmp_path) -> None:
    given = context(tmp_path)
    with pytest.raises(HeadraceError, match="in format 'csv' is not supported"):
        check(Options("x", OutputFormat.CSV, None, Content.SNAPSHOT), given)
    options = Options("x", OutputFormat.PARQUET, None, Content.SNAPSHOT)
    with pytest.raises(HeadraceError, match="no unique key of the rows is known"):
        check(options, dataclasses.replace(given, key=()))
    interval = Schema((Column("id", t.DayTimeIntervalType()),))
    with pytest.raises(HeadraceError, match="cannot be written to files of Parquet"):
        check(options, dataclasses.replace(given, schema=interval))
