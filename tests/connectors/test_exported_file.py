"""Files that COPY ... TO writes are read by COPY ... FROM as equal rows, and appear whole."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.test_files import schema, tables
from headrace.errors import Code, HeadraceError
from headrace.io.connectors.files.change_files import ExportOptions, write_file
from headrace.io.connectors.files.source import FileOptions, read_file
from headrace.io.connectors.options import Given
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("x.csv", "x.tsv", "x.csv.gz", "x.jsonl", "x.json.zst", "x.parquet")


def written(path: Path, table: pa.Table, **options: str) -> int:
    given_ = [Given(key, value) for key, value in options.items()]
    parts = [table.slice(0, 7), table.slice(7)]
    return write_file(path, table.schema, parts, ExportOptions.of(path, given_), lambda _rows: None)


def read(path: Path, of: Schema, **options: str) -> pa.Table:
    given_ = [Given(key, value) for key, value in options.items()]
    chunks = list(read_file(path, of, FileOptions.of(path, given_)))
    assert [reject for chunk in chunks for reject in chunk.rejects] == []
    return pa.concat_tables([of.arrow.empty_table(), *(chunk.table for chunk in chunks)])


@given(tables())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_rows_of_all_types_come_back_equal(tmp_path: Path, made: tuple[Schema, pa.Table]) -> None:
    of, table = made
    for name in NAMES:
        assert written(tmp_path / name, table) == table.num_rows
        assert read(tmp_path / name, of).equals(table), name


def test_a_lone_carriage_return_in_quotes_does_not_end_a_record(tmp_path: Path) -> None:
    of = schema(y="binary")
    table = pa.table([pa.array([b"\r"])], schema=of.arrow)
    for name in NAMES:
        written(tmp_path / name, table)
        assert read(tmp_path / name, of).equals(table), name


FAR = 2_932_897
DAY = 86_400_000_000


def test_nested_and_unusual_values_come_back_equal(tmp_path: Path) -> None:
    of = Schema(
        (
            Column("f", t.FloatType()),
            Column("d", t.DateType()),
            Column("z", t.TimestampType()),
            Column("n", t.TimestampNTZType()),
            Column("s", t.StringType()),
        )
    )
    days = [0, FAR, -719_163, None, 10**8]
    times = [0, FAR * DAY, 2**63 - 1, None, -(2**62) + 1]
    columns: list[Any] = [
        pa.array([0.1, float("nan"), float("inf"), None, -0.0], pa.float32()),
        pa.array(days, pa.int32()).cast(pa.date32()),
        pa.array(times, pa.timestamp("us", "UTC")),
        pa.array(times, pa.timestamp("us")),
        pa.array(["a\rb", 'q"\r\n', "", None, "NULL,\t"]),
    ]
    table = pa.table(columns, schema=of.arrow)
    for name in NAMES:
        written(tmp_path / name, table)
        found = read(tmp_path / name, of)
        assert found.drop_columns("f").equals(table.drop_columns("f")), name
        assert repr(found["f"].to_pylist()) == repr(table["f"].to_pylist()), name
    deep = schema(
        a=t.ArrayType(t.StructType([t.StructField("x", t.DecimalType(5, 2))])),
        m=t.MapType(t.IntegerType(), t.BinaryType()),
    )
    rows = pa.table(
        [
            pa.array([[{"x": Decimal("1.50")}, None], [], None], deep.arrow.field(0).type),
            pa.array([[(1, b"\xff"), (2, None)], None, []], deep.arrow.field(1).type),
        ],
        schema=deep.arrow,
    )
    for name in ("x.jsonl", "x.parquet"):
        written(tmp_path / name, rows)
        assert read(tmp_path / name, deep).equals(rows)
    with pytest.raises(HeadraceError, match="cannot be written as CSV"):
        written(tmp_path / "y.csv", rows)


def test_a_reader_sees_the_file_before_or_the_new_one_whole(tmp_path: Path) -> None:
    of = schema(a="int")
    table = pa.table({"a": pa.array(range(10), pa.int32())}, schema=of.arrow)
    for name in NAMES:
        path = tmp_path / name
        written(path, table)
        before = path.read_bytes()

        def failing(path: Path = path, before: bytes = before) -> Iterator[pa.Table]:
            yield table
            assert path.read_bytes() == before
            raise HeadraceError(Code.CANCELLED, "cancelled")

        with pytest.raises(HeadraceError, match="cancelled"):
            write_file(path, of.arrow, failing(), ExportOptions.of(path), lambda _rows: None)
        assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(NAMES)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    table = pa.table({"a": [1]})
    for name, options, why in [
        ("x", {}, "does not show in its name"),
        ("x.avro", {}, "writing files of format avro is not supported"),
        ("x.parquet.gz", {}, "cannot be compressed as a whole"),
        ("x.json", {"header": "true"}, 'option "header" does not apply to json files'),
        ("x.csv", {"headers": "true"}, 'option "headers"'),
        ("none/x.csv", {}, "could not be written"),
        ("d.csv", {}, "is a directory"),
    ]:
        (tmp_path / "d.csv").mkdir(exist_ok=True)
        with pytest.raises(HeadraceError, match=why):
            written(tmp_path / name, table, **options)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(HeadraceError, match='column "a" appears twice'):
        written(tmp_path / "x.csv", twice)


@given(st.lists(st.text(st.sampled_from('ab,;"\r\n\t'), max_size=4) | st.none(), max_size=9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_options_of_csv_are_those_of_reading(tmp_path: Path, texts: list[str | None]) -> None:
    of = schema(a="string", b="string")
    table = pa.table([pa.array(texts, pa.string())] * 2, schema=of.arrow)
    for options in (
        {"header": "false"},
        {"delimiter": ";"},
        {"header": "false", "delimiter": "\t"},
        {"null": "NULL"},
        {"null": "a", "delimiter": ";"},
    ):
        written(tmp_path / "x.csv", table, **options)
        assert read(tmp_path / "x.csv", of, **options).equals(table)


def test_null_is_written_as_a_text_that_no_value_is(tmp_path: Path) -> None:
    of = schema(n="int", s="string", b="binary", d="date")
    rows = pa.table(
        [[1, None], ["NULL", None], [b"\xff", None], [date(2026, 1, 2), None]], schema=of.arrow
    )
    written(tmp_path / "x.csv", rows, null="NULL")
    lines = (tmp_path / "x.csv").read_bytes().splitlines()[1:]
    assert lines == [b'"1","NULL","\xff","2026-01-02"', b"NULL,NULL,NULL,NULL"]
    texts = rows.select(["n", "s", "d"])
    written(tmp_path / "y.csv", texts, null="NULL")
    read_back = schema(n="int", s="string", d="date")
    assert read(tmp_path / "y.csv", read_back, null="NULL").equals(texts)
    with pytest.raises(HeadraceError, match="separates fields"):
        written(tmp_path / "x.csv", rows, null=",")
    with pytest.raises(HeadraceError, match='"null" does not apply to json'):
        written(tmp_path / "x.json", rows, null="-")
