"""Fields of JSON objects as producers write them: other case, text for numbers, a mark before all."""

from __future__ import annotations

import json
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.errors import HeadraceError
from headrace.io.connectors.files.source import FileFormat, FileOptions, read_file
from headrace.io.formats.blocks import FilePosition, RecordBlock
from headrace.io.formats.json_lines import JsonDecoder, require_lines
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.storage.ledger import Reject

SCHEMA = Schema(
    (
        Column("id", t.LongType()),
        Column("Name", t.StringType()),
        Column("score", t.DoubleType()),
    )
)


def decoded(lines: list[str], schema: Schema = SCHEMA) -> tuple[list[dict[str, Any]], list[Reject]]:
    data = "\n".join(lines).encode()
    found = JsonDecoder("f", schema).decode(RecordBlock(data, 1, FilePosition(), len(data)))
    table = pa.concat_tables([schema.arrow.empty_table(), *found.tables])
    return table.to_pylist(), found.rejects


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("other", ['"ID": 7, "NAME": "x"', '"Id":7,"extra":[1],"name":"x"'])
def test_names_match_in_any_case(count: int, other: str) -> None:
    rows, rejects = decoded([f"{{{other}}}"] * count)
    assert rows == [{"id": 7, "Name": "x", "score": None}] * count
    assert rejects == []


cases = st.sampled_from([str, str.upper, str.lower, str.title])
rows_of = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-9, 9)),
        st.one_of(st.none(), st.sampled_from(["", "id", '"ID"', "é"])),
        st.one_of(st.none(), st.sampled_from([0.5, 1.0, -2.25])),
        st.tuples(cases, cases, cases),
        st.sets(st.integers(0, 2)),
    ),
    min_size=1,
    max_size=60,
)


@given(rows_of)
def test_a_field_is_found_however_it_is_spelled_or_left_out(given_rows: list[Any]) -> None:
    lines, wanted, empty = [], [], 0
    for *values, spell, left_out in given_rows:
        kept = {
            f(name): value
            for i, (f, name, value) in enumerate(zip(spell, SCHEMA.names, values, strict=True))
            if i not in left_out
        }
        lines.append(json.dumps(kept))
        if not kept:
            empty += 1
            continue
        wanted.append({n: None if i in left_out else values[i] for i, n in enumerate(SCHEMA.names)})
    rows, rejects = decoded(lines)
    assert rows == wanted
    assert len(rejects) == empty


@pytest.mark.parametrize("count", [1, 100])
def test_an_object_without_any_of_the_columns_is_a_reject(count: int) -> None:
    rows, rejects = decoded(['{"other": 1}', "{}", '{"id": null}'] * count)
    assert rows == [{"id": None, "Name": None, "score": None}] * count
    assert {reject.reason for reject in rejects} == {"none of the columns is in it"}
    assert len(rejects) == 2 * count


def test_a_field_that_is_there_in_two_cases_is_given_twice() -> None:
    rows, rejects = decoded(['{"id": 1, "ID": 2}', '{"Id": 1, "ID": 2}', '{"id": 1, "id": 2}'])
    assert rows == [{"id": 1, "Name": None, "score": None}]
    assert [(r.column, r.reason) for r in rejects] == [("id", "it is given twice")] * 2


@pytest.mark.parametrize("count", [1, 100])
def test_numbers_may_be_text_and_specials_are(count: int) -> None:
    lines = [
        '{"id": "9007199254740993", "score": "NaN"}',
        '{"id": 1.0, "score": "-Infinity"}',
        '{"id": 1e3, "score": "Infinity"}',
        '{"id": " 5 ", "score": "0.5"}',
    ]
    rows, rejects = decoded(lines * count)
    assert rejects == []
    assert [row["id"] for row in rows] == [9007199254740993, 1, 1000, 5] * count
    first = rows[0]["score"]
    assert isnan(first)
    assert [row["score"] for row in rows[1:4]] == [float("-inf"), float("inf"), 0.5]
    _, refused = decoded(['{"id": "x"}', '{"id": "1.5"}', '{"score": "far"}', '{"id": true}'])
    assert [reject.column for reject in refused] == ["id", "id", "score", "id"]


def test_fields_of_structs_match_in_any_case() -> None:
    inner = t.StructType([t.StructField("a", t.LongType())])
    schema = Schema((Column("s", inner),))
    rows, rejects = decoded(['{"S": {"A": 3}}', '{"s": {"a": 1, "A": 2}}'], schema)
    assert rows == [{"s": {"a": 3}}, {"s": {"a": 1}}]
    assert rejects == []


def test_fields_within_match_in_any_case_beside_others() -> None:
    point = t.StructType([t.StructField("id", t.LongType())])
    for type_, wrap in ((point, lambda x: x), (t.ArrayType(point), lambda x: [x])):
        schema = Schema((Column("k", t.LongType()), Column("s", type_)))
        given_rows = [{"k": n, "s": wrap({"ID" if n == 3 else "id": n})} for n in range(40)]
        rows, rejects = decoded([json.dumps(row) for row in given_rows], schema)
        assert rejects == []
        assert rows == [{"k": n, "s": wrap({"id": n})} for n in range(40)]


@pytest.mark.parametrize("lines", [1, 100])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"id": 1}\n' * lines)
    chunks = list(read_file(path, SCHEMA, FileOptions(FileFormat.JSON)))
    assert [row["id"] for chunk in chunks for row in chunk.table.to_pylist()] == [1] * lines
    assert all(not chunk.rejects for chunk in chunks)
    assert chunks[-1].progress.position == path.stat().st_size


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_file_that_is_one_array_is_refused_also_after_a_mark(mark: bytes) -> None:
    with pytest.raises(HeadraceError, match="holds a JSON array"):
        require_lines('file "f.json"', mark + b' [{"a": 1}]')
    require_lines('file "f.json"', mark + b'{"a": [1]}')
