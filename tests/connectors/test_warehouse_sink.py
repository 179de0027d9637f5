"""Merges for warehouses, run by DuckDB: what they make of the staged files, in whatever order."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import duckdb
import pytest
from pyspark.sql import types as t

from connectors.sink_histories import Histories, Row, context, prove, row, table
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors.lake.warehouse import Options, Warehouse, check, opened
from headrace.io.connectors.options import Given, read_options
from headrace.types import Column, Epoch, Schema

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.io.connectors.lake.warehouse import WarehouseSink

NEW: Row = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)
DUCKDB = {
    "BIGNUMERIC": "DECIMAL",
    "INT64": "BIGINT",
    "BOOL": "BOOLEAN",
    "TIMESTAMP_TZ": "TIMESTAMPTZ",
    "TIMESTAMP": "TIMESTAMPTZ",
    "NUMBER(38,0)": "BIGINT",
    "NUMBER": "DECIMAL",
}
"""The types of warehouses that the rows of histories have, as DuckDB's."""


def as_duckdb(text: str) -> str:
    names = "|".join(map(re.escape, sorted(DUCKDB, key=len, reverse=True)))
    return re.sub(
        rf"(?<=[`\"\w] )(?:{names})(?=[,) (])", lambda found: DUCKDB[found[0]], text
    ).replace("`", '"')


class Loaded:
    """A warehouse that has what was copied to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = duckdb.connect()
        self.database.execute("SET TimeZone = 'UTC'; CREATE SCHEMA shop")

    def run(self, name: str) -> None:
        """Load the files of an epoch, and merge them."""
        self.database.execute(as_duckdb((self.directory / "create.sql").read_text()))
        place = self.directory / name
        self.database.execute(
            "CREATE OR REPLACE TABLE shop.spent__headrace AS SELECT * FROM read_parquet(?)",
            [str(place / "*.parquet")],
        )
        self.database.execute(as_duckdb((place / "merge.sql").read_text()))

    @property
    def epochs(self) -> list[str]:
        """The directories, in their order."""
        return sorted(place.name for place in self.directory.glob("epoch=*"))

    def rows(self) -> Counter[Row]:
        """Return the rows of the table."""
        return Counter(self.database.execute("SELECT * FROM shop.spent").fetchall())


def sink(directory: Path, warehouse: Warehouse = Warehouse.SNOWFLAKE) -> WarehouseSink:
    options = Options(path="w", warehouse=warehouse, table="shop.spent", location="@files/spent")
    check(options, context(directory))
    return opened(options, context(directory))


@pytest.mark.parametrize("warehouse", Warehouse)
def test_merges_in_order_are_the_view_however_often_the_process_ends(tmp_path, warehouse) -> None:
    def read() -> Counter[Row]:
        loaded = Loaded(tmp_path / "sinks/w")
        for name in loaded.epochs:
            loaded.run(name)
        return loaded.rows()

    settings = DeliverySettings(part_rows=6, joins=True)
    prove(lambda: sink(tmp_path, warehouse), read, epochs=8, kills=8, settings=settings)


def test_a_merge_that_comes_again_or_too_early_has_no_effect(tmp_path) -> None:
    random_, histories = Random(7), Histories()
    writer = sink(tmp_path)
    wanted = []
    for _ in range(5):
        changed = {id_: random_.choice([None, row(random_, id_)]) for id_ in range(8)}
        histories.change(changed)
        after = Epoch(histories.last - 1)
        writer.write(histories.last, histories.delta(after, histories.last, 4))
        wanted.append(histories.at(histories.last))
    loaded = Loaded(tmp_path / "sinks/w")
    names = loaded.epochs
    for number, name in enumerate(names):
        before = wanted[number - 1] if number else Counter()
        for later in names[number + 1 :]:
            loaded.run(later)
            assert loaded.rows() == before
        for again in [name, name, *names[:number]]:
            loaded.run(again)
            assert loaded.rows() == wanted[number]


def test_after_a_reset_the_first_merge_replaces_all_rows(tmp_path) -> None:
    writer, loaded = sink(tmp_path), Loaded(tmp_path / "sinks/w")
    writer.write(Epoch(3), [table([(NEW, 1), ((2, *NEW[1:]), 1)])])
    loaded.run(loaded.epochs[0])
    assert len(loaded.rows()) == 2
    writer.clear()
    assert writer.durable() is None
    writer.write(Epoch(5), [table([((4, *NEW[1:]), 1)])])
    writer.write(Epoch(6), [])
    for name in loaded.epochs:
        loaded.run(name)
    assert loaded.rows() == Counter([(4, *NEW[1:])])


def test_a_directory_that_is_removed_breaks_the_chain_of_merges(tmp_path) -> None:
    writer = sink(tmp_path)
    writer.write(Epoch(3), [table([(NEW, 1)])])
    writer.write(Epoch(4), [table([((2, *NEW[1:]), 1)])])
    shutil.rmtree(tmp_path / f"sinks/w/epoch={4:020d}")
    with pytest.raises(HeadraceError, match="has lost changes") as caught:
        writer.write(Epoch(5), [table([((3, *NEW[1:]), 1)])])
    assert caught.value.code is Code.CONFLICT
    assert Loaded(tmp_path / "sinks/w").epochs == [f"epoch={3:020d}"]


def test_the_statements_are_those_of_the_warehouse(tmp_path) -> None:
    sink(tmp_path, Warehouse.BIGQUERY).write(Epoch(3), [table([(NEW, 1)])])
    place = tmp_path / "sinks/w/epoch=00000000000000000003"
    load = (place / "load.sql").read_text()
    assert "LOAD DATA OVERWRITE `shop`.`spent__headrace` (`id` INT64," in load
    assert "`amount` BIGNUMERIC(12, 2)" in load
    assert "uris = ['@files/spent/epoch=00000000000000000003/*.parquet']" in load
    later = sink(tmp_path)
    assert later.durable() == 3
    later.write(Epoch(4), [table([(NEW, 1)])])
    load = (tmp_path / "sinks/w/epoch=00000000000000000004/load.sql").read_text()
    assert 'COPY INTO "shop"."spent__headrace" FROM \'@files/spent/epoch=' in load
    assert '"headrace_deleted" BOOLEAN' in load


@pytest.mark.parametrize(
    ("key", "value"),
    [("table", "a b"), ("table", "a`; DROP TABLE b"), ("location", "gs://a' b"), ("path", "../x")],
)
def test_names_that_could_be_statements_are_refused(key, value) -> None:
    given = {"path": "w", "warehouse": "bigquery", "table": "a.b", "location": "gs://a", key: value}
    with pytest.raises(HeadraceError):
        read_options(Options, [Given(*pair) for pair in given.items()], "a warehouse sink")


def test_rows_that_a_warehouse_cannot_hold_are_refused(tmp_path) -> None:
    options = Options(path="w", warehouse=Warehouse.BIGQUERY, table="a.b", location="gs://a")
    given = context(tmp_path)
    with pytest.raises(HeadraceError, match="no unique key of the rows is known"):
        check(options, dataclasses.replace(given, key=()))
    listed = Schema((Column("id", t.LongType()), Column("l", t.ArrayType(t.LongType()))))
    with pytest.raises(HeadraceError, match="cannot be written to bigquery"):
        check(options, dataclasses.replace(given, schema=listed))
    precise = Schema((Column("id", t.DecimalType(38, 38)),))
    with pytest.raises(HeadraceError, match="too many digits for snowflake"):
        check(
            dataclasses.replace(options, warehouse=Warehouse.SNOWFLAKE),
            dataclasses.replace(given, schema=precise),
        )
