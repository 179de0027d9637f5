"""Files that Spark wrote in the former calendar are read as Spark reads them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import types as t

from headrace.io.formats.blocks import FilePosition
from headrace.io.formats.calendars import Calendar
from headrace.io.formats.columnar import avro_chunks, orc_chunks, parquet_chunks
from headrace.types import Column, Schema
from length import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

MOMENTS = (
    *("-0044-03-15 12:00:00", "-0004-02-29 23:00:00", "0001-01-01 00:00:00"),
    *("0100-02-28 23:59:59.5", "0100-03-01 00:00:00", "1000-01-01 12:34:56.123456"),
    *("1100-03-01 01:00:00", "1500-02-28 23:00:00", "1500-03-01 00:00:00"),
    *("1582-10-04 10:00:00", "1582-10-15 00:00:00.000001", "1883-11-18 12:00:00"),
    *("1900-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00"),
)
NESTED = t.StructType(
    [
        t.StructField("times", t.ArrayType(t.TimestampType())),
        t.StructField("days", t.MapType(t.StringType(), t.DateType())),
        t.StructField(
            "pairs",
            t.ArrayType(
                t.StructType(
                    [t.StructField("d", t.DateType()), t.StructField("at", t.TimestampType())]
                )
            ),
        ),
    ]
)
COLUMNS = Schema(
    (
        Column("id", t.IntegerType()),
        Column("at", t.TimestampType()),
        Column("d", t.DateType()),
        Column("local", t.TimestampNTZType()),
        Column("x", NESTED),
    )
)
NUMBERS = (
    "unix_micros(at) AS at",
    "unix_date(d) AS d",
    "unix_micros(CAST(CAST(local AS STRING) AS TIMESTAMP)) AS local",
    "transform(x.times, t -> unix_micros(t)) AS times",
    "unix_date(x.days['k']) AS day",
    "unix_date(x.pairs[0].d) AS pair_d",
    "unix_micros(x.pairs[0].at) AS pair_at",
)
WRITTEN = [
    (zone, mode, kind)
    for kind in ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS")
    for mode in ("LEGACY", "CORRECTED")
    for zone in ("America/Los_Angeles", "UTC", "Asia/Kolkata", "GMT+05:30", "+05:30")
]
SHORT = [WRITTEN[0], WRITTEN[13], WRITTEN[15], WRITTEN[20]]


def read(chunks: Callable[..., Any], path: Path, columns: Schema = COLUMNS) -> pa.Table:
    (file,) = [path] if path.is_file() else path.glob("part-*")
    parts = [table for _, found in chunks(file, columns, FilePosition()) for table in found.tables]
    return pa.concat_tables(parts).combine_chunks()


def numbers(values: pa.Array) -> list[int | None]:
    return values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64()).to_pylist()


def seen(table: pa.Table) -> dict[str, list[Any]]:
    """Return what :data:`NUMBERS` has of rows."""
    times, days, pairs = table["x"].chunk(0).flatten()
    pair_d, pair_at = pairs.flatten().flatten()
    each = np.array_split(np.array(numbers(times.flatten()), object), len(table))
    return {
        **{name: numbers(table[name].chunk(0)) for name in ("at", "d", "local")},
        "times": [part.tolist() for part in each],
        "day": numbers(days.items),
        "pair_d": numbers(pair_d),
        "pair_at": numbers(pair_at),
    }


def test_dates_and_times_in_the_former_calendar_are_those_that_spark_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    listed = ",".join(
        f"({i}, TIMESTAMP'{at} UTC', DATE'{at.rpartition(' ')[0]}', TIMESTAMP_NTZ'{at}')"
        for i, at in enumerate(MOMENTS)
    )
    text = f"""SELECT id, at, d, local, named_struct('times', array(at, NULL), 'days', map('k', d),
        'pairs', array(named_struct('d', d, 'at', at))) AS x
        FROM VALUES {listed} AS v(id, at, d, local)"""
    for zone, mode, kind in choose(SHORT, WRITTEN):
        session.conf.set("spark.sql.session.timeZone", zone)
        session.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", mode)
        session.conf.set("spark.sql.parquet.int96RebaseModeInWrite", mode)
        session.conf.set("spark.sql.parquet.outputTimestampType", kind)
        path = tmp_path / f"{zone}-{mode}-{kind}".replace("/", "_")
        session.sql(text).coalesce(1).write.parquet(str(path))
        session.conf.set("spark.sql.session.timeZone", "UTC")
        expected = session.read.parquet(str(path)).orderBy("id").selectExpr(*NUMBERS).toArrow()
        assert seen(read(parquet_chunks, path)) == expected.to_pydict(), path.name
    session.sql(text).select("id", "d").coalesce(1).write.orc(str(tmp_path / "orc"))
    expected = session.read.orc(str(tmp_path / "orc")).orderBy("id").selectExpr("unix_date(d) AS d")
    days = Schema((Column("d", t.DateType()),))
    found = numbers(read(orc_chunks, tmp_path / "orc", days)["d"].chunk(0))
    assert found == expected.toArrow()["d"].to_pylist()


def test_an_orc_file_in_the_present_calendar_keeps_its_dates(tmp_path: Path) -> None:
    day = dt.date(1000, 1, 1)
    orc.write_table(pa.table({"d": [day]}), tmp_path / "a.orc")
    columns = Schema((Column("d", t.DateType()),))
    assert read(orc_chunks, tmp_path / "a.orc", columns)["d"].to_pylist() == [day]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"org.apache.spark.version": "3.1.0"}, dt.date(1000, 1, 6)),
        ({"org.apache.spark.version": "2.4.8"}, dt.date(1000, 1, 1)),
        (
            {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""},
            dt.date(1000, 1, 1),
        ),
        ({"org.apache.spark.legacyDateTime": ""}, dt.date(1000, 1, 6)),
    ],
)
def test_the_marks_of_an_avro_file_say_in_which_calendar_it_is(
    tmp_path: Path, marks: Mapping[str, str], expected: dt.date
) -> None:
    days = {"type": "int", "logicalType": "date"}
    record = {"type": "record", "name": "r", "fields": [{"name": "d", "type": days}]}
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, record, [{"d": dt.date(1000, 1, 6)}], metadata=dict(marks))
    columns = Schema((Column("d", t.DateType()),))
    assert read(avro_chunks, tmp_path / "a.avro", columns)["d"].to_pylist() == [expected]


def test_times_in_96_bits_are_in_the_present_calendar_since_a_later_version() -> None:
    marks = {"org.apache.spark.version": "3.0.2", "org.apache.spark.timeZone": "Europe/Berlin"}
    assert Calendar.of_int96(marks).zone == "Europe/Berlin"
    assert not Calendar.of_datetimes(marks).is_former
    assert not Calendar.of_int96(marks | {"org.apache.spark.version": "3.1.0"}).is_former
