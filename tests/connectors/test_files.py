"""Files for ``COPY``: what is read, what is refused, and where a resumed read goes on."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import gzip
import io
import json
import os
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import Given
from headrace.io.connectors.files import source as files
from headrace.io.connectors.files.change_files import read_changes
from headrace.io.connectors.files.source import Chunk, FileFormat, FileOptions, read_file
from headrace.io.formats import blocks
from headrace.io.formats.blocks import FilePosition, RecordBlock
from headrace.io.formats.captured import CapturedMessages
from headrace.io.formats.csv_text import CsvDecoder, CsvReader, Dialect
from headrace.io.formats.debezium import Debezium
from headrace.io.formats.debezium_values import Encoding
from headrace.io.formats.json_lines import JsonDecoder
from headrace.io.formats.messages import JsonMessages
from headrace.types import Column, Schema
from length import choose

UTC = dt.UTC


def schema(**columns: str | t.DataType) -> Schema:
    """Columns by type; a trailing ``!`` is NOT NULL."""
    return Schema(
        tuple(
            Column(name, _type(kind), not (isinstance(kind, str) and kind.endswith("!")))
            for name, kind in columns.items()
        )
    )


def captured(of: Schema) -> CapturedMessages:
    return CapturedMessages(of, (), Debezium(of.columns, (), Encoding()))


def _type(kind: str | t.DataType) -> t.DataType:
    if isinstance(kind, t.DataType):
        return kind
    known: dict[str, t.DataType] = {
        "tinyint": t.ByteType(),
        "smallint": t.ShortType(),
        "int": t.IntegerType(),
        "bigint": t.LongType(),
        "float": t.FloatType(),
        "double": t.DoubleType(),
        "dec": t.DecimalType(10, 2),
        "bool": t.BooleanType(),
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "date": t.DateType(),
        "ts": t.TimestampType(),
        "ntz": t.TimestampNTZType(),
    }
    return known[kind.rstrip("!")]


def load(path: Path, of: Schema, **options: str) -> tuple[list[dict[str, Any]], list[Any]]:
    rows, rejects = [], []
    for chunk in read_file(
        path, of, FileOptions.of(path, [Given(k, v) for k, v in options.items()])
    ):
        assert chunk.table.schema == of.arrow
        rows += chunk.table.to_pylist()
        rejects += chunk.rejects
    return rows, rejects


def written(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusals(rejects: list[Any]) -> list[tuple[int, str | None, str]]:
    return [(reject.line, reject.column, reject.reason) for reject in rejects]


# JSON


def test_json_fields_are_matched_by_name_and_others_ignored(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "bids.json",
        '{"auction":1001,"url":"x","dateTime":"2026-01-01T00:00:00.123"}\n{"auction":null}\n\n{}\n',
    )
    rows, rejects = load(path, schema(auction="bigint", dateTime="ts"))
    at = dt.datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC)
    assert rows == [
        {"auction": 1001, "dateTime": at},
        {"auction": None, "dateTime": None},
    ]
    assert [(r.line, r.reason) for r in rejects] == [(4, "none of the columns is in it")]


@pytest.mark.parametrize(
    "kind",
    ["tinyint", "smallint", "int", "bigint", "float", "double", "dec", "bool", "date", "ts", "ntz"],
)
def test_a_json_text_is_read_like_a_field_of_csv_in_a_column_of_any_type_but_text(tmp_path: Path, kind: str) -> None:  # fmt: skip
    texts = ["10", "-3", "1.0", "1.50", "1e1", "300", "true", "TRUE", "False", "yes", "1", "", " 7 ", "NaN", "-Infinity",
             " true", "2026-02-01", " 2026-02-01", "2026-02-01T03:04:05", "2026-02-01 03:04:05+01:00", "x", "0x10"]  # fmt: skip
    for text in texts:
        csv_ = written(tmp_path, "a.csv", f'a,b\n"{text}",\n')
        json_ = written(tmp_path, "a.json", json.dumps({"a": text}) + "\n")
        of = schema(a=kind, b="int")
        (rows, rejects), (as_json, json_rejects) = load(csv_, of), load(json_, of)
        assert repr(as_json) == repr(rows), (kind, text)
        assert [r.reason for r in json_rejects] == [r.reason for r in rejects], (kind, text)
    for other in ("10", "true"):
        bare = written(tmp_path, "a.json", f'{{"a": {other}}}\n')
        _, rejects = load(bare, schema(a="string"))
        assert [r.reason for r in rejects] == [f"{other} is not a STRING"]


def test_json_says_where_a_text_ends_too_early(tmp_path: Path) -> None:
    lines = ['{"name":"cut', '{"name":"a"', '{"name":', '{"name":"a","b":tru', '{"name" "a"}']
    _, rejects = load(written(tmp_path, "a.json", "\n".join(lines) + "\n"), schema(name="string"))
    assert [each.reason for each in rejects] == [
        "not JSON: it ends within the string that begins at character 9",
        "not JSON: it ends too early: Expecting ',' delimiter at its end",
        "not JSON: it ends too early: Expecting value at its end",
        "not JSON: Expecting value at character 17",
        "not JSON: Expecting ':' delimiter at character 9",
    ]
    decoded = JsonMessages(schema(name="string")).decode([lines[0].encode()])
    assert [each.reason for each in decoded.rejects] == [rejects[0].reason]


def test_a_number_with_a_fraction_of_zero_is_an_integer_in_every_format(tmp_path: Path) -> None:
    json = written(tmp_path, "a.json", '{"a": 1.0}\n{"a": 1e3}\n{"a": -2.50e1}\n')
    csv = written(tmp_path, "a.csv", "a\n1.0\n1e3\n-2.50e1\n")
    pq.write_table(pa.table({"a": [1.0, 1e3, -2.50e1]}), tmp_path / "a.parquet")
    for path in (json, csv, tmp_path / "a.parquet"):
        rows, rejects = load(path, schema(a="int"))
        assert ([row["a"] for row in rows], rejects) == ([1, 1000, -25], [])


def test_json_decimals_are_exact_as_numbers_and_as_strings(tmp_path: Path) -> None:
    texts = ["249.98", '"249.98"', "0.10", "1e2", "99999999.99", "-0.01", "7", "1.500"]
    path = written(tmp_path, "a.json", "".join(f'{{"a":{text}}}\n' for text in texts))
    rows, rejects = load(path, schema(a="dec"))
    wanted = ["249.98", "249.98", "0.10", "100.00", "99999999.99", "-0.01", "7.00", "1.50"]
    assert [str(row["a"]) for row in rows] == wanted
    assert rejects == []


BAD_JSON = [
    ("int", '"abc"', '"abc" is not an INT'),
    ("int", "1.7", "1.7 does not fit INT"),
    ("bigint", "1e999999999", "1E+999999999 does not fit BIGINT"),
    ("int", "2147483648", "2147483648 does not fit INT"),
    ("tinyint", "-129", "-129 does not fit TINYINT"),
    ("bigint", "9223372036854775808", "9223372036854775808 does not fit BIGINT"),
    ("bigint", "true", "true is not a BIGINT"),
    ("double", "1e400", "1E+400 does not fit DOUBLE"),
    ("float", "1e39", "1E+39 does not fit FLOAT"),
    ("dec", "1.005", "1.005 does not fit DECIMAL(10,2)"),
    ("dec", "100000000", "100000000 does not fit DECIMAL(10,2)"),
    ("dec", '"1_0"', '"1_0" is not a DECIMAL(10,2)'),
    ("bool", "1", "1 is not a BOOLEAN"),
    ("string", "1", "1 is not a STRING"),
    ("string", '"\\ud83d"', "half of a surrogate pair is not a STRING"),
    ("binary", '"%"', '"%" is not base64'),
    ("date", '"2026-02-30"', '"2026-02-30" is not a DATE'),
    ("ts", '"yesterday"', '"yesterday" is not a TIMESTAMP'),
    ("ts", "1767225600", "1767225600 is not a TIMESTAMP"),
    ("ntz", '"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00Z" is not a TIMESTAMP_NTZ'),
    ("int!", "null", "NULL in a NOT NULL column"),
]


def test_hexadecimal_is_no_integer_in_csv(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "a,b\n1,0xff\n0x10,x\n017,y\n")
    rows, rejects = load(path, schema(a="int", b="string"))
    assert [(row["a"], row["b"]) for row in rows] == [(1, "0xff"), (17, "y")]
    assert refusals(rejects) == [(3, "a", '"0x10" is not an INT')]


def test_a_header_with_another_name_than_the_column_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "id,grp\n70,lost\n")
    with pytest.raises(HeadraceError, match='no column "g" in its header, but "grp"'):
        load(path, schema(id="int", g="string"))
    assert load(path, schema(id="int"))[0] == [{"id": 70}]


@pytest.mark.parametrize(("kind", "value", "reason"), BAD_JSON)
def test_a_bad_json_value_is_refused_with_line_column_and_reason(
    tmp_path: Path, kind: str, value: str, reason: str
) -> None:
    path = written(tmp_path, "a.json", f'{{"a":{value}}}\n')
    rows, (reject,) = load(path, schema(a=kind))
    assert rows == []
    assert (reject.line, reject.column, reject.reason) == (1, "a", reason)
    assert reject.raw == f'{{"a":{value}}}'
    assert reject.file == str(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{nope}", "not JSON"),
        ("null", "not a JSON object"),
        ("5", "not a JSON object"),
        ('{"a":1}{"a":2}', "not JSON"),
        ('{"a":1,"a":2}', "it is given twice"),
        ('{"a":1', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
@pytest.mark.parametrize("first", ['{"a":0}\n', ""])
def test_a_line_that_is_no_object_is_refused(
    tmp_path: Path, line: str, reason: str, first: str
) -> None:
    path = written(tmp_path, "a.json", f'{first}{line}\n{{"a":9}}\n')
    if not first and line.startswith("["):
        pytest.skip("a file that begins so is refused as a whole")
    rows, (reject,) = load(path, schema(a="int"))
    assert [row["a"] for row in rows] == ([0, 9] if first else [9])
    assert reject.reason.startswith(reason)
    assert reject.line == 1 + bool(first)


def test_bytes_that_are_no_utf8_are_refused_even_in_fields_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", b'{"a":1}\n{"b":"\xff","a":2}\n{"a":3}\n')
    rows, rejects = load(path, schema(a="int"))
    assert [row["a"] for row in rows] == [1, 3]
    assert refusals(rejects) == [(2, None, "not UTF-8")]


def test_json_times_are_iso_with_or_without_zone(tmp_path: Path) -> None:
    texts = [
        "2026-01-01T10:00:00",
        "2026-01-01 10:00:00Z",
        "2026-01-01T12:00:00+02:00",
        "2026-01-01T10:00:00.123456789",
        "2026-01-01",
    ]
    path = written(tmp_path, "a.json", "".join(f'{{"a":"{text}"}}\n' for text in texts))
    rows, rejects = load(path, schema(a="ts"))
    ten = dt.datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert [row["a"] for row in rows] == [
        ten,
        ten,
        ten,
        ten.replace(microsecond=123_456),
        ten.replace(hour=0),
    ]
    assert rejects == []


def test_json_nests(tmp_path: Path) -> None:
    nested = t.StructType(
        [
            t.StructField("xs", t.ArrayType(t.IntegerType())),
            t.StructField("m", t.MapType(t.StringType(), t.DateType())),
        ]
    )
    path = written(
        tmp_path,
        "a.json",
        '{"s":{"xs":[1,null],"m":{"k":"2026-01-01"},"more":1}}\n{"s":null}\n{"s":{}}\n'
        '{"s":{"xs":["a"]}}\n{"s":{"m":{"k":"x"}}}\n',
    )
    rows, rejects = load(path, schema(s=nested))
    assert [row["s"] for row in rows] == [
        {"xs": [1, None], "m": [("k", dt.date(2026, 1, 1))]},
        None,
        {"xs": None, "m": None},
    ]
    assert [reject.reason for reject in rejects] == ['"a" is not an INT', '"x" is not a DATE']


def test_a_json_array_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", '[{"a":1},\n{"a":2}]')
    with pytest.raises(HeadraceError, match="one object per line"):
        load(path, schema(a="int"))


# CSV


def test_csv_header_names_match_regardless_of_case_and_order(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "\ufeffNAME,extra,Id\nann,x,1\n,,2\n\n")
    rows, rejects = load(path, schema(id="int", name="string"))
    assert rows == [{"id": 1, "name": "ann"}, {"id": 2, "name": None}]
    assert rejects == []


def test_a_column_that_csv_does_not_have_is_null(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "name\nann\n")
    rows, _ = load(path, schema(missing="date", name="string"))
    assert rows == [{"missing": None, "name": "ann"}]


def test_csv_without_header_goes_by_position(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "1\tann\n2\tbob")
    rows, _ = load(path, schema(id="int", name="string"), header="false")
    assert rows == [{"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}]


def test_csv_null_is_an_unquoted_null_text_and_never_a_quoted_one(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 'id,name\n1,\n2,""\n3,NA\n4,"NA"\n')
    rows, _ = load(path, schema(id="int", name="string"))
    assert [row["name"] for row in rows] == [None, "", "NA", "NA"]
    rows, _ = load(path, schema(id="int", name="string"), null="NA")
    assert [row["name"] for row in rows] == ["", "", None, "NA"]


def test_csv_quotes_hold_newlines_delimiters_and_quotes(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 'id,name\r\n1,"a,\nb""c"""\r\n2,5" pipe\r\n3,"x"y\r\nz,q\r\n')
    rows, rejects = load(path, schema(id="int", name="string"))
    assert [row["name"] for row in rows] == ['a,\nb"c"', '5" pipe', "xy"]
    assert refusals(rejects) == [(6, "id", '"z" is not an INT')]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a,b,n\r\none\rtwo,y,1\r\nplain,z,2\r\n", [("one\rtwo", "y", 1), ("plain", "z", 2)]),
        ('a,b,n\none\rtwo,y,1\nx,"q\r",2\n', [("one\rtwo", "y", 1), ("x", "q\r", 2)]),
        ("a,b,n\n\r,\r,1\r\nz,\r\r,2\r", [("\r", "\r", 1), ("z", "\r\r", 2)]),
        ('a,b,n\rone,"x\ny",1\rtwo,"\r\n",2', [("one", "x\ny", 1), ("two", "\r\n", 2)]),
        ("a,b,n\rone,y,1\r\rtwo,z,2\r", [("one", "y", 1), ("two", "z", 2)]),
        ('a,b,n\none,"x\ry"\r,1\ntwo,z\r"w",2\n', [("one", "x\ry\r", 1), ("two", 'z\r"w"', 2)]),
    ],
)  # fmt: skip
def test_csv_has_one_line_ending_per_file_and_the_other_character_is_text(
    tmp_path: Path, text: str, wanted: list[tuple[str, str, int]]
) -> None:
    for name in ("a.csv", "a.csv.gz"):
        data = text.encode()
        path = written(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data)
        rows, rejects = load(path, schema(a="string", b="string", n="int"))
        assert rejects == []
        assert [tuple(row.values()) for row in rows] == wanted


@pytest.mark.usefixtures("_small_blocks")
@given(
    st.lists(st.lists(st.text(st.sampled_from('ab"\n\r'), max_size=5), min_size=2, max_size=2)),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_fields_are_those_that_were_written_wherever_blocks_end(
    tmp_path: Path, records: list[list[str]], ending: str
) -> None:
    def field(text: str) -> str:
        plain = text and '"' not in text and "\n" not in text and not text.endswith("\r")
        if plain and (ending != "\r" or "\r" not in text):
            return text
        return '"' + text.replace('"', '""') + '"'

    lines = [f"{field(a)},{field(b)}{ending}" for a, b in records]
    filler = f"aaaaaaaa,bbbbbbbb{ending}" * 30
    path = written(tmp_path, "a.csv", f"a,b{ending}{filler}{''.join(lines)}")
    rows, rejects = load(path, schema(a="string", b="string"))
    assert rejects == []
    assert [list(row.values()) for row in rows][30:] == records


def test_csv_records_of_another_width_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "id,name\n1\n2,b\n3,c,d\n")
    rows, rejects = load(path, schema(id="int", name="string"))
    assert [row["id"] for row in rows] == [2]
    assert refusals(rejects) == [
        (2, None, "1 fields instead of 2"),
        (4, None, "3 fields instead of 2"),
    ]


def test_csv_lines_are_counted_by_the_line_ending_of_the_file(tmp_path: Path) -> None:
    for text in ("a\r1\r2\rx\r", "a\n1\n2\nx\n", "a\r\n1\r\n2\r\nx\r\n"):
        _, rejects = load(written(tmp_path, "a.csv", text), schema(a="int"))
        assert refusals(rejects) == [(4, "a", '"x" is not an INT')]


def test_a_quote_that_is_never_closed_costs_its_line_only(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 'id,name\n1,"a"\n2,"b\n3,c\n4,d\n')
    rows, rejects = load(path, schema(id="int", name="string"))
    assert [row["id"] for row in rows] == [1, 3, 4]
    assert refusals(rejects) == [(3, None, "a quote is never closed")]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("int", "abc", '"abc" is not an INT'),
        ("int", "2147483648", '"2147483648" does not fit INT'),
        ("int", "1.7", '"1.7" does not fit INT'),
        ("int", "1e9999999999999999999", '"1e9999999999999999999" does not fit INT'),
        ("bigint", "9223372036854775808", '"9223372036854775808" does not fit BIGINT'),
        ("int", '""', '"" is not an INT'),
        ("dec", "1.005", '"1.005" does not fit DECIMAL(10,2)'),
        ("double", "1e400", '"1e400" does not fit DOUBLE'),
        ("bool", "yes", '"yes" is not a BOOLEAN'),
        ("date", "2026-02-30", '"2026-02-30" is not a DATE'),
        ("ts", "soon", '"soon" is not a TIMESTAMP'),
        ("ntz", "2026-01-01T00:00:00Z", '"2026-01-01T00:00:00Z" is not a TIMESTAMP_NTZ'),
        ("int!", "", "NULL in a NOT NULL column"),
        ("string", b"\xff", "not UTF-8"),
    ],
)
def test_a_bad_csv_field_is_refused_with_line_column_and_reason(
    tmp_path: Path, kind: str, text: str | bytes, reason: str
) -> None:
    raw = text.encode() if isinstance(text, str) else text
    path = written(tmp_path, "a.csv", b"a,b\n" + raw + b",1\n")
    rows, rejects = load(path, schema(a=kind, b="int"))
    assert rows == []
    assert refusals(rejects) == [(2, "a", reason)]


def test_csv_times_may_mix_zones_within_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "a\n2026-01-01T10:00:00\n2026-01-01 12:00:00+02:00\n")
    rows, _ = load(path, schema(a="ts"))
    assert {row["a"] for row in rows} == {dt.datetime(2026, 1, 1, 10, tzinfo=UTC)}


def test_a_header_with_none_of_the_columns_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "1,ann\n")
    with pytest.raises(HeadraceError, match="none of the columns") as caught:
        load(path, schema(id="int", name="string"))
    assert caught.value.hint is not None
    assert "header" in caught.value.hint


# Parquet


def test_parquet_widens_narrows_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ID": pa.array([1, 2**40, None, 4], pa.int64()),
            "price": pa.array([Decimal("1.5"), Decimal("2.0"), None, Decimal("1.5")]),
            "at": pa.array([0, 1, 2, 3], pa.timestamp("ns")),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=2)
    rows, rejects = load(path, schema(id="int", price="dec", at="ts", none="string"))
    assert [(row["id"], row["price"], row["none"]) for row in rows] == [
        (1, Decimal("1.50"), None),
        (None, None, None),
        (4, Decimal("1.50"), None),
    ]
    assert refusals(rejects) == [(2, "id", "1099511627776 does not fit INT")]
    _, rejects = load(path, schema(id="bigint!"))
    assert refusals(rejects) == [(3, "id", "NULL in a NOT NULL column")]


def test_a_parquet_column_of_another_kind_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["x"]}), path)
    with pytest.raises(HeadraceError, match='column "a" is INT, but string'):
        load(path, schema(a="int"))


def test_a_damaged_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "a.parquet", b"PAR1 but no more")
    with pytest.raises(HeadraceError, match="not a whole Parquet file"):
        load(path, schema(a="int"))


# Any file


def test_a_missing_file_a_directory_a_pipe_and_an_unknown_format_are_errors(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)  # nobody writes to it: opening it would never return
    for path, message in (
        (tmp_path / "none.json", "does not exist"),
        (tmp_path, "is a directory"),
        (pipe, "is a pipe"),
        (Path("/dev/zero"), "is a pipe, a socket or a device"),
    ):
        with pytest.raises(HeadraceError, match=message) as caught:
            read_file(path, schema(a="int"), FileOptions(FileFormat.JSON))
        assert caught.value.code is Code.INVALID
        with pytest.raises(HeadraceError, match=message):
            next(read_changes(path, captured(schema(a="int"))))
    with pytest.raises(HeadraceError, match="does not show in its name"):
        FileOptions.of(Path("a.txt"))
    with pytest.raises(HeadraceError, match="does not exist") as caught:
        FileOptions.of(Path("a.csv"), [Given("delimeter", ";")])
    assert caught.value.hint == 'Did you mean "delimiter"?'
    with pytest.raises(HeadraceError, match="does not apply to json"):
        FileOptions.of(Path("a.json"), [Given("header", "true")])


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.parquet"])
def test_an_empty_file_has_no_rows(tmp_path: Path, name: str) -> None:
    assert load(written(tmp_path, name, ""), schema(a="int")) == ([], [])


def test_gzip_is_read_by_its_ending_and_damage_is_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"a":1}\n{"a":2}\n')
    rows, _ = load(written(tmp_path, "a.json.gz", whole), schema(a="int"))
    assert [row["a"] for row in rows] == [1, 2]
    with pytest.raises(HeadraceError, match="not a whole gzip file"):
        load(written(tmp_path, "b.json.gz", whole[:-9]), schema(a="int"))


def test_a_type_that_csv_cannot_hold_is_unsupported(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "a\n1\n")
    with pytest.raises(HeadraceError) as caught:
        load(path, schema(a=t.ArrayType(t.IntegerType())))
    assert caught.value.code is Code.UNSUPPORTED


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 300)
    monkeypatch.setattr(files, "CHUNK_ROWS", 40)
    monkeypatch.setattr("headrace.io.formats.columnar._BATCH_ROWS", 30)


def example(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    lines = []
    for i in range(400):
        bad = i % 37 == 5
        if "json" in name:
            lines.append(f'{{"id":{"x" if bad else i},"name":"n{i}"}}\n')
        else:
            lines.append(f'{"x" if bad else i},"n\n{i}"\n')
    if "parquet" in name:
        ids = [2**40 if i % 37 == 5 else i for i in range(400)]
        table = pa.table({"id": ids, "name": [f"n{i}" for i in range(400)]})
        pq.write_table(table, path, row_group_size=70)
        return path
    text = ("" if "json" in name else "id,name\n") + "".join(lines)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.json.gz", "a.csv.gz", "a.parquet"])
def test_resuming_after_any_chunk_gives_the_rows_of_one_pass(tmp_path: Path, name: str) -> None:
    path = example(tmp_path, name)
    of = schema(id="int", name="string")
    options = FileOptions.of(path)
    once = list(read_file(path, of, options))
    assert len(once) > 3
    assert sum(chunk.table.num_rows for chunk in once) == 389
    assert [chunk.bytes_done for chunk in once] == sorted(chunk.bytes_done for chunk in once)
    assert once[-1].bytes_done == once[-1].bytes_total == path.stat().st_size
    for place, chunk in enumerate(once):
        progress = FilePosition.of_json(json.loads(json.dumps(chunk.progress.to_json())))
        rest = list(read_file(path, of, options, progress))
        assert rows_of(rest) == rows_of(once[place + 1 :])
        assert rejects_of(rest) == rejects_of(once[place + 1 :])
    lines = [reject.line for reject in rejects_of(once)]
    step, first = {"j": (37, 6), "c": (74, 12), "p": (37, 6)}[name[2]]
    assert lines == list(range(first, first + step * 11, step))


def rows_of(chunks: list[Chunk]) -> list[Any]:
    return [row for chunk in chunks for row in chunk.table.to_pylist()]


def rejects_of(chunks: list[Chunk]) -> list[Any]:
    return [reject for chunk in chunks for reject in chunk.rejects]


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_a_bad_row_at_any_place_is_refused_alone(tmp_path: Path, name: str) -> None:
    of = schema(id="int", name="string")
    for bad in range(70):
        if name == "a.json":
            lines = [f'{{"id":{"[]" if i == bad else i}}}\n' for i in range(70)]
        else:
            lines = ["id\n", *(f"{'x' if i == bad else i}\n" for i in range(70))]
        rows, rejects = load(written(tmp_path, name, "".join(lines)), of)
        assert [row["id"] for row in rows] == [i for i in range(70) if i != bad]
        assert [reject.line for reject in rejects] == [bad + 1 + (name == "a.csv")]


@pytest.mark.usefixtures("_small_blocks")
def test_a_record_longer_than_a_block_is_read(tmp_path: Path) -> None:
    long = "x" * 5000
    path = written(tmp_path, "a.csv", f'id,name\n1,"{long}\n{long}"\n2,b\n')
    rows, _ = load(path, schema(id="int", name="string"))
    assert [len(row["name"]) for row in rows] == [10_001, 1]


def test_a_record_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100)
    monkeypatch.setattr(blocks, "LONGEST_RECORD", 1000)
    path = written(tmp_path, "a.csv", 'id,name\n1,b\n2,"' + "c,\n" * 1000)
    with pytest.raises(HeadraceError, match="longer than 64 MiB from line 3"):
        load(path, schema(id="int", name="string"))


# Laws

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PRINTED = st.text(st.sampled_from('ab ,"\n\r;\té'), max_size=6)
COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "i": ("int", st.integers(-(2**31), 2**31 - 1)),
    "l": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "d": ("double", st.floats(allow_nan=False, allow_infinity=False)),
    "m": ("dec", st.decimals(-99999999, 99999999, places=2)),
    "b": ("bool", st.booleans()),
    "s": ("string", TEXT | PRINTED),
    "y": ("binary", st.binary(max_size=5)),
    "t": ("date", st.dates(dt.date(1, 1, 1))),
    "z": ("ts", st.datetimes(dt.datetime(1, 1, 2), timezones=st.just(UTC))),  # noqa: DTZ001
    "n": ("ntz", st.datetimes(dt.datetime(1, 1, 2))),  # noqa: DTZ001
}


@st.composite
def tables(draw: st.DrawFn, without: str = "") -> tuple[Schema, pa.Table]:
    names = draw(
        st.lists(st.sampled_from([n for n in COLUMNS if n not in without]), min_size=1, unique=True)
    )
    of = schema(**{name: COLUMNS[name][0] for name in names})
    rows = draw(st.lists(st.tuples(*(st.none() | COLUMNS[name][1] for name in names)), max_size=50))
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, of.arrow, strict=True)]
    return of, pa.table(arrays, schema=of.arrow)


def as_json(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dt.date():
            return value.isoformat()
        case Decimal():
            return str(value)
    return value


def read_back(name: str, data: bytes, of: Schema, **options: str) -> pa.Table:
    with TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(data)
        chunks = list(
            read_file(path, of, FileOptions.of(path, [Given(k, v) for k, v in options.items()]))
        )
    assert rejects_of(chunks) == []
    return pa.concat_tables([of.arrow.empty_table(), *(chunk.table for chunk in chunks)])


LAW = settings(max_examples=choose(50, 150), deadline=None, suppress_health_check=list(HealthCheck))


@LAW
@given(tables())
def test_json_is_read_back_equal(case: tuple[Schema, pa.Table]) -> None:
    of, table = case
    lines = [
        json.dumps({k: as_json(v) for k, v in row.items()}) + "\n" for row in table.to_pylist()
    ]
    assert read_back("a.json", "".join(lines).encode(), of).equals(table)


@LAW
@given(tables(without="y"), st.sampled_from(["\n", "\r\n"]), st.sampled_from([",", ";", "\t"]))
def test_csv_is_read_back_equal(case: tuple[Schema, pa.Table], end: str, delimiter: str) -> None:
    of, table = case
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end, delimiter=delimiter)
    writer.writerow(of.names)
    for row in table.to_pylist():
        fields = []
        for value in row.values():
            text = "" if value is None else str(as_json(value))
            quoted = isinstance(value, str) or any(c in text for c in '",;\t\r\n')
            fields.append('"' + text.replace('"', '""') + '"' if quoted else text)
        out.write(delimiter.join(fields) + end)
    data = out.getvalue().encode()
    assert read_back("a.csv", data, of, delimiter=delimiter).equals(table)


@LAW
@given(tables())
def test_parquet_is_read_back_equal(case: tuple[Schema, pa.Table]) -> None:
    of, table = case
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=7)
    assert read_back("a.parquet", out.getvalue(), of).equals(table)


JSON_VALUES = st.sampled_from(
    [
        "1",
        "-0",
        "1.0",
        "1e2",
        '"1"',
        '"x"',
        "null",
        "true",
        "NaN",
        "Infinity",
        "1e400",
        "1e39",
        "0.1",
        "249.98",
        '"249.98"',
        "1.005",
        '"+1"',
        '"2026-01-01"',
        '"2026-01-01T10:00:00Z"',
        '"2026-01-01T10:00:00.1234567"',
        '"2026-01-01T10"',
        '{"x":1}',
        "[1]",
        '"\\u0000"',
        "300",
        "3000000000",
        "9223372036854775808",
        '""',
        '"1e2"',
        '"2026-01-01T10:00:00+0230"',
    ]
)
CSV_VALUES = st.sampled_from(
    [
        "1",
        " 1",
        "1 ",
        "-0",
        "+1",
        "0x10",
        "1e2",
        "1.0",
        "",
        '""',
        "NaN",
        "inf",
        "1e400",
        "1e39",
        "true",
        "TRUE",
        " true",
        "2026-01-01",
        " 2026-01-01",
        "2026-01-01T10:00:00Z",
        "abc",
        "2026-01-01 10:00",
        '"1"',
        '"a""b"',
        'a"b',
        '"a"b',
        '"a\nb"',
        "é",
        "300",
        ".5",
        "249.98",
    ]
)


@LAW
@given(st.sampled_from(sorted(COLUMNS)), st.lists(JSON_VALUES, min_size=1, max_size=3))
def test_json_at_once_agrees_with_one_by_one(name: str, values: list[str]) -> None:
    decoder = JsonDecoder("a", schema(a=COLUMNS[name][0]))
    block = RecordBlock("".join(f'{{"a":{v}}}\n' for v in values).encode(), 1, FilePosition(), 0)
    agrees(decoder, block)


@LAW
@given(st.sampled_from(sorted(COLUMNS)), st.lists(CSV_VALUES, min_size=1, max_size=3))
def test_csv_at_once_agrees_with_one_by_one(name: str, values: list[str]) -> None:
    decoder = CsvDecoder("a", schema(a=COLUMNS[name][0], b="int"), Dialect(), [0, 1])
    agrees(decoder, RecordBlock("".join(f"{v},1\n" for v in values).encode(), 1, FilePosition(), 0))


def agrees(decoder: Any, block: RecordBlock) -> None:
    at_once = decoder._whole(block.data)
    decoder._whole = lambda _data: None
    one_by_one = decoder.decode(block)
    if at_once is not None:
        assert one_by_one.rejects == []
        assert str(pa.concat_tables(one_by_one.tables).to_pylist()) == str(at_once.to_pylist())


@LAW
@given(st.lists(st.sampled_from(['"', ",", "\n", "a", "\r\n", '""']), max_size=40))
def test_a_cut_of_csv_never_parts_a_record(pieces: list[str]) -> None:
    reader = CsvReader(Dialect())
    data = "".join(pieces).encode()
    starts = {span.start for span in reader.spans(data, 1)} | {len(data)}
    for end in range(len(data) + 1):
        cut = reader.cut(data[:end], False)  # noqa: FBT003
        assert cut == 0 or cut in starts


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "envelope"])
def test_all_columns_that_are_wrong_in_a_row_are_named(tmp_path: Path, form: str) -> None:
    of = schema(a="tinyint", b="bool", c="int!")
    path = tmp_path / f"rows.{form}"
    wrong = 'a: "x" is not a TINYINT; b: "y" is not a BOOLEAN; c: NULL in a NOT NULL column'
    match form:
        case "json":
            path.write_text('{"a":"x","b":"y"}\n{"a":"x","b":true,"c":1}\n')
        case "csv":
            path.write_text("a,b,c\nx,y,\nx,true,1\n")
        case "parquet":
            pq.write_table(pa.table({"a": [300, 300], "b": [None, True], "c": [None, 1]}), path)
            wrong = "a: 300 does not fit TINYINT; c: NULL in a NOT NULL column"
        case _:
            path.write_text('{"op":"c","after":{"a":"x","b":"y"}}\n')
            part, _ = next(read_changes(path, captured(of)))
            (reject,) = part.rejects
            assert (reject.column, reject.reason) == ("a, b, c", wrong)
            return
    rows, (several, one) = load(path, of)
    assert rows == []
    assert (several.column, several.reason) == (
        "a, c" if form == "parquet" else "a, b, c",
        wrong,
    )
    assert (one.column, one.reason) == (
        "a",
        "300 does not fit TINYINT" if form == "parquet" else '"x" is not a TINYINT',
    )
