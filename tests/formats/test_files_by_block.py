"""Avro, ORC and zstd files: the rows of one pass, wherever a reading stopped; damage says so."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.files.source import FileOptions, FilePosition, read_file
from headrace.io.formats import columnar as orc_format
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema(
    (
        Column("id", t.LongType()),
        Column("Name", t.StringType()),
        Column("price", t.DecimalType(9, 2), nullable=False),
        Column("at", t.TimestampType()),
        Column("tags", t.ArrayType(t.StringType())),
    )
)
AT = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROWS = [
    {
        "id": n,
        "name": None if n % 5 == 0 else f"n{n}",
        "price": Decimal(n).scaleb(-2),
        "at": AT + dt.timedelta(seconds=n),
        "tags": ["a"] * (n % 3),
        "unknown": n,
    }
    for n in range(1000)
]
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "unknown", "type": "int"},
    ],
}  # fmt: skip


def avro(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, AVRO, rows, codec="deflate", sync_interval=2000)


def orc_file(path: Path, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows).set_column(
        2, "price", pa.array([row["price"] for row in rows], pa.decimal128(12, 2))
    )
    with orc.ORCWriter(path, stripe_size=4096, batch_size=64) as writer:
        writer.write(table)


def read(path: Path, start: FilePosition | None = None) -> tuple[list[dict[str, Any]], list[Any], list[FilePosition]]:  # fmt: skip
    rows, rejects, ends = [], [], []
    for chunk in read_file(path, SCHEMA, FileOptions.of(path), start):
        rows += chunk.table.to_pylist()
        rejects += chunk.rejects
        ends.append(chunk.progress)
    return rows, rejects, ends


WRITTEN = {"avro": avro, "orc": orc_file}


@pytest.mark.parametrize("form", WRITTEN)
def test_rows_are_those_of_the_file_wherever_the_reading_begins(tmp_path, form, monkeypatch) -> None:  # fmt: skip
    path = tmp_path / f"rows.{form}"
    WRITTEN[form](path, ROWS)
    monkeypatch.setattr("headrace.io.connectors.files.source.CHUNK_ROWS", 1)
    monkeypatch.setattr(orc_format, "_BATCH_ROWS", 100)
    rows, rejects, ends = read(path)
    assert rejects == []
    wanted = [{("Name" if k == "name" else k): v for k, v in row.items() if k != "unknown"} for row in ROWS]  # fmt: skip
    assert rows == wanted
    assert len(ends) > 5
    assert ends[-1].line == 1000
    for end in ends:
        assert read(path, end)[0] == wanted[end.line :]


@pytest.mark.parametrize("form", WRITTEN)
def test_rows_that_do_not_fit_are_rejects_with_their_number(tmp_path, form) -> None:
    path = tmp_path / f"rows.{form}"
    bad = [{**row, "price": None} if row["id"] in (3, 700) else row for row in ROWS]
    bad[400] = {**bad[400], "price": Decimal("12345678.90")}
    WRITTEN[form](path, bad)
    rows, rejects, _ = read(path)
    assert [(each.line, each.column) for each in rejects] == [(4, "price"), (401, "price"), (701, "price")]  # fmt: skip
    assert len(rows) == 997
    assert {each.file for each in rejects} == {str(path)}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_file_that_is_cut_off_or_another_one_is_refused(tmp_path, form) -> None:
    path = tmp_path / f"rows.{form}"
    WRITTEN[form](path, ROWS)
    _, _, ends = read(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(HeadraceError, match="is not a whole") as caught:
        read(path)
    assert caught.value.code is Code.INVALID
    WRITTEN[form](path, ROWS[:900])
    with pytest.raises(HeadraceError, match="has changed since") as changed:
        read(path, ends[-1])
    assert changed.value.code is Code.CONFLICT


def test_zstd_text_is_read_like_plain_text_and_resumed(tmp_path) -> None:
    path = tmp_path / "rows.jsonl.zst"
    text = "".join(f'{{"id": {n}, "price": {n}.5, "name": "x{n}"}}\n' for n in range(5000))
    path.write_bytes(pa.compress(text.encode(), "zstd", asbytes=True))
    rows, rejects, ends = read(path)
    assert not rejects
    assert [row["id"] for row in rows] == list(range(5000))
    assert read(path, ends[-1])[0] == []
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(HeadraceError, match="not a whole zstd file"):
        read(path)
