"""JSON lines that are alike: what is read as CSV means the same as line by line."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.io.formats.blocks import FilePosition, RecordBlock
from headrace.io.formats.json_lines import JsonDecoder, Likeness, read_alike
from headrace.types import Column, Schema
from length import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES: dict[str, t.DataType] = {
    "small": t.ByteType(),
    "whole": t.LongType(),
    "single": t.FloatType(),
    "real": t.DoubleType(),
    "exact": t.DecimalType(20, 2),
    "long": t.DecimalType(38, 25),
    "truth": t.BooleanType(),
    "text": t.StringType(),
    "day": t.DateType(),
    "instant": t.TimestampType(),
    "local": t.TimestampNTZType(),
    "of_day": t.TimeType(3),
}
ROW = {
    "small": -7,
    "whole": 2**53 + 1,
    "single": 0.5,
    "real": -1.25e300,
    "exact": Decimal("1.50"),
    "long": Decimal("0.25"),
    "truth": True,
    "text": "é, {}: [null]",
    "day": dt.date(2026, 1, 31),
    "instant": dt.datetime(2026, 1, 31, 10, 0, 0, 5, dt.UTC),
    "local": dt.datetime(2026, 1, 31, 10),  # noqa: DTZ001
    "of_day": dt.time(10, 0, 0, 5000),
}


def schema(*names: str) -> Schema:
    return Schema(tuple(Column(name, TYPES[name], nullable=True) for name in names))


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, dt.date | dt.time) else value


def line(row: dict[str, Any], separators: tuple[str, str] | None = None) -> str:
    written = {name: plain(value) for name, value in row.items()}
    return json.dumps(written, ensure_ascii=False, separators=separators) + "\n"


def alike(data: str, of: Schema) -> list[dict[str, Any]] | None:
    """The rows that are read as CSV; None if the lines are left to others."""
    decoder = JsonDecoder("a", of)
    decoder._unlike = lambda _data: None  # type: ignore[method-assign]
    found = decoder._whole(data.encode())
    return None if found is None else found.to_pylist()


def one_by_one(data: str, of: Schema) -> tuple[list[dict[str, Any]], int]:
    decoder = JsonDecoder("a", of)
    decoder._whole = lambda _data: None  # type: ignore[method-assign]
    found = decoder.decode(RecordBlock(data.encode(), 1, FilePosition(), 0))
    rows = [row for table in found.tables for row in table.to_pylist()]
    return rows, len(found.rejects)


@pytest.mark.parametrize("separators", [None, (",", ":"), (" , ", " : ")])
def test_every_type_of_plain_values_is_read(separators: tuple[str, str] | None) -> None:
    other = {**ROW, "small": 0, "real": 0, "truth": False, "text": "", "whole": -(2**63)}
    absent = {
        name: None if name in {"small", "real", "exact", "truth"} else ROW[name] for name in ROW
    }
    rows = [ROW, other, absent]
    data = "".join(line(row, separators) for row in rows)
    assert alike(data, schema(*TYPES)) == rows
    assert alike(data.rstrip("\n"), schema(*TYPES)) == rows
    assert one_by_one(data, schema(*TYPES)) == (rows, 0)


def test_names_are_found_where_they_are_and_others_passed_over() -> None:
    data = line(ROW) + line({**ROW, "text": "b", "whole": 1})
    assert alike(data, schema("text", "whole")) == [
        {"text": ROW["text"], "whole": ROW["whole"]},
        {"text": "b", "whole": 1},
    ]
    assert alike('{"b":"x"}\n', schema("text", "whole")) is None
    assert one_by_one('{"b":"x"}\n', schema("text", "whole")) == ([], 1)


def test_a_long_file_in_several_parses() -> None:
    data = "".join(line({"whole": i, "text": str(i) * 9}) for i in range(20_000))
    found = read_alike(data.encode(), schema("whole"), 1 << 16)
    assert found is not None
    assert found["whole"].to_pylist() == list(range(20_000))


@pytest.mark.long
def test_a_bad_line_of_a_long_block_is_told_by_its_number() -> None:
    lines = [line({"whole": i, "text": str(i) * 9}) for i in range(50_000)]
    lines[40_000] = '{"whole":1,"text":"a"\n'
    lines[45_000] = line({"whole": 45_000, "text": "x" * (3 << 20)})
    decoded = JsonDecoder("a", schema("whole")).decode(
        RecordBlock("".join(lines).encode(), 7, FilePosition(), 0)
    )
    found = [row["whole"] for table in decoded.tables for row in table.to_pylist()]
    assert found == [i for i in range(50_000) if i != 40_000]
    assert [reject.line for reject in decoded.rejects] == [40_007]


def test_texts_may_end_like_a_member() -> None:
    rows = [{"text": "a", "whole": 1}, {"text": "a,", "whole": 2}, {"text": ",", "whole": 3}]
    data = "".join(line(row, (",", ":")) for row in rows)
    assert alike(data, schema("text", "whole")) == rows
    assert one_by_one(data, schema("text", "whole")) == (rows, 0)
    agrees(data, schema("text", "whole"))


@given(
    st.lists(st.integers(0, 10**19), min_size=1, max_size=40),
    st.sampled_from([(", ", ": "), (",", ":")]),
)
def test_whole_numbers_of_any_length(numbers: Sequence[int], separators: tuple[str, str]) -> None:
    data = "".join(line({"whole": n, "text": "a", "small": n % 100}, separators) for n in numbers)
    agrees(data, schema("whole", "small"))
    if max(numbers) < 2**63:
        assert alike(data, schema("whole", "small")) == [
            {"whole": n, "small": n % 100} for n in numbers
        ]


ODD = [
    '{"whole":1,"text":"a",}',
    '{"whole":1,"text":"a"',
    '{"whole":1,"text":"a"}}',
    '{"whole":1}"text":"a"}',
    '{"whole":1,"text":"a"} x',
    '{"whole":1,"text":"a"}\r',
    '{"whole":1,"text":"a"}\r{"whole":1,"text":"a"}',
    '{"whole":1,"text":"a\tb"}',
    '{"whole":1,"text":"a\x00b"}',
    '{"whole":1,"text":"a\\u0041"}',
    '{"whole":1,"text":"a\\"}',
    '{"whole":01,"text":"a"}',
    '{"whole":0x1,"text":"a"}',
    '{"whole":+1,"text":"a"}',
    '{"whole":1.,"text":"a"}',
    '{"whole":1.0,"text":"a"}',
    '{"whole":1e0,"text":"a"}',
    '{"whole":-0,"text":"a"}',
    '{"whole": 1,"text":"a"}',
    '{"whole":1 ,"text":"a"}',
    '{"whole":true,"text":"a"}',
    '{"whole":nan,"text":"a"}',
    '{"whole":[1],"text":"a"}',
    '{"whole":9223372036854775808,"text":"a"}',
    '{"whole":"1","text":"a"}',
    '{"whole":1,"text":null}',
    '{"whole":1,"text":1}',
    '{"whole":1,"text":"a","text":"b"}',
    '{"whole":1,"whole":2,"text":"b"}',
    '{"whole":1,"tex_":"a"}',
    '{"whale":1,"text":"a"}',
    '{"text":"a","whole":1}',
    '{"whole"x1,"text":"a"}',
    '{"whole":1x"text":"a"}',
    '{"whole":1,"text"x"a"}',
    'x"whole":1,"text":"a"}',
    '["whole",1,"text","a"]',
    '"whole":1,"text":"a"}',
    '{"whole":1,"text":"a","b":1}',
    "{}",
    "",
    "   ",
    "null",
    '{"whole":1,"text":"a"',
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", ["alone", "first", "last", "between"])
def test_an_odd_line_is_what_it_is_alone(odd: str, place: str) -> None:
    regular = '{"whole":5,"text":"c"}'
    lines = {
        "alone": [odd, odd],
        "first": [odd, regular],
        "last": [regular, odd],
        "between": [regular, odd, regular],
    }[place]
    data = "".join(f"{each}\n" for each in lines)
    agrees(data, schema("whole", "text"))
    agrees(data, schema("text"))  # what is not read has to be JSON as well
    agrees(data, schema("whole"))


def agrees(data: str, of: Schema) -> None:
    rows, rejects = one_by_one(data, of)
    found = alike(data, of)
    assert found is None or (repr(found) == repr(rows) and rejects == 0)
    decoded = JsonDecoder("a", of).decode(RecordBlock(data.encode(), 1, FilePosition(), 0))
    assert repr([row for table in decoded.tables for row in table.to_pylist()]) == repr(rows)
    assert len(decoded.rejects) == rejects


@pytest.mark.parametrize(
    "number",
    ["5555555555555555.5555", "-1.5e30", "9" * 60, "1e12", "9" * 13 + "." + "9" * 25, "1e-25"],
)
def test_a_number_is_the_same_decimal_or_rejected_for_its_digits(number: str) -> None:
    value = Decimal(number)
    rows, rejects = one_by_one(f'{{"long":{number}}}\n', schema("long"))
    fits = value.copy_abs() < Decimal(10) ** 13
    assert (rows, rejects) == (([{"long": value}], 0) if fits else ([], 1))
    agrees(f'{{"long":{number}}}\n{{"long":0.5}}\n', schema("long"))
    nested = Schema((Column("a", t.ArrayType(t.DecimalType(38, 25))),))
    agrees(f'{{"a":[{number},null]}}\n{{"a":[0.5]}}\n', nested)


MEMBERS = st.tuples(
    st.sampled_from(['"a"', '"b"', '"c"', '"d"', '"e"', '"f"', "a"]),
    st.sampled_from([":", " : ", ":", ":", ":", ""]),
    st.sampled_from(["1", "-1.5e3", "null", '"x"', '""', '"a,"', "true", "1", "[", "01"]),
    st.sampled_from([",", ",", ",", ",", ",", ", ", "}", ""]),
).map("".join)


@settings(max_examples=choose(700, 5000), deadline=None)
@given(st.lists(MEMBERS, max_size=3), st.sampled_from(["{", "{", "{ ", "", "["]))
def test_a_line_that_has_a_likeness_is_a_flat_object(members: Sequence[str], opening: str) -> None:
    text = opening + "".join(members).rstrip(", }") + "}"
    found = Likeness.of(text)
    try:
        parsed = json.loads(text)
    except ValueError:
        assert found is None
    else:
        flat = isinstance(parsed, dict) and not any(
            isinstance(value, (dict, list)) for value in parsed.values()
        )
        assert found is None or (flat and {*found.bare, *found.quoted} == set(parsed))
        event("alike" if found is not None else "not alike")


VALUES = st.sampled_from(
    [
        "1",
        "-0",
        "1.0",
        "1e2",
        "null",
        "true",
        "1e400",
        "1e39",
        "0.1",
        "249.98",
        "1.005",
        "300",
        "-129",
        "3000000000",
        "9223372036854775808",
        "000",
        "0.123456789012345678901",
        "12345678901234567890",
    ]
)
TEXTS = st.sampled_from(
    [
        "",
        "x",
        "1",
        "null",
        "é",
        "2026-01-01",
        "2026-02-30",
        "2026-01-01T10:00:00Z",
        "2026-01-01T10",
        "2026-01-01T10:00:00",
        "2026-01-01T10:00:00.1234567Z",
        "2026-01-01 10:00:00+02:30",
        "10000-01-01",
        "2026-01-01T24:00:00Z",
        "2026-1-1",
        "+2026-01-01",
        " 2026-01-01",
        "2026-01-01T10:00:60Z",
    ]
)


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(TYPES)), st.lists(st.tuples(VALUES, TEXTS), min_size=1, max_size=3))
def test_values_mean_what_they_mean_alone(name: str, values: Sequence[tuple[str, str]]) -> None:
    quoted = isinstance(
        TYPES[name], t.StringType | t.DateType | t.TimestampType | t.TimestampNTZType
    )
    data = "".join(
        f'{{"{name}":"{text}","b":{bare}}}\n' if quoted else f'{{"b":"{text}","{name}":{bare}}}\n'
        for bare, text in values
    )
    agrees(data, schema(name))
