"""CSV values of messages: each is one row or one reject, whatever stands in the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.io.formats.csv_text import CsvMessages, Dialect
from headrace.types import Column, Schema

COLUMNS = Schema((Column("id", t.IntegerType()), Column("text", t.StringType())))


def test_a_value_is_a_row_or_a_reject_in_its_place() -> None:
    values = [
        b"1,one",
        b"",
        b'2,"two, ""or"" so\nmore"\r\n',
        b"x,three",
        b'4,"open',
        b"5,five\n6,six",
        b"7",
        b"8,",
        b'9,""',
        b"10,\xff",
        b'a"b,c',
        b'11,d"e',
        b"12,one\rtwo\r\n",
    ]
    found = CsvMessages(COLUMNS, Dialect()).decode(values)
    assert found.rows.to_pylist() == [
        {"id": 1, "text": "one"},
        {"id": 2, "text": 'two, "or" so\nmore'},
        {"id": 8, "text": None},
        {"id": 9, "text": ""},
        {"id": 11, "text": 'd"e'},
        {"id": 12, "text": "one\rtwo"},
    ]
    assert found.kept.tolist() == [0, 2, 7, 8, 11, 12]
    assert {each.line: (each.column, each.reason) for each in found.rejects} == {
        1: (None, "an empty value"),
        3: ("id", '"x" is not an INT'),
        4: (None, "a quote is never closed"),
        5: (None, "more than one record"),
        6: (None, "1 fields instead of 2"),
        9: ("text", "not UTF-8"),
        10: ("id", '"a\\"b" is not an INT'),
    }


def test_a_number_that_is_too_large_for_its_decimal_is_rejected() -> None:
    columns = Schema((Column("n", t.DecimalType(38, 25)),))
    values = [b"5555555555555555.5555", b" -1.5 ", b"-1.5e30", b"1e-25", b"9" * 39]
    found = CsvMessages(columns, Dialect()).decode(values)
    given = [None if n is None else str(n) for n in found.rows["n"].to_pylist()]
    assert given == [f"-1.5{'0' * 24}", "1E-25"]
    assert [reject.line for reject in found.rejects] == [0, 2, 4]


def test_the_delimiter_is_chosen() -> None:
    found = CsvMessages(COLUMNS, Dialect("|", "'", "-")).decode([b"1|'a|b'", b"-|-"])
    assert found.rows.to_pylist() == [{"id": 1, "text": "a|b"}, {"id": None, "text": None}]


@given(st.lists(st.text(st.sampled_from('a1,"\n\r é'), max_size=8).map(str.encode), max_size=20))
def test_values_are_decoded_as_if_each_were_alone(values: list[bytes]) -> None:
    decoder = CsvMessages(COLUMNS, Dialect())
    together = decoder.decode(values)
    alone = [decoder.decode([value]) for value in values]
    assert together.kept.tolist() == [n for n, one in enumerate(alone) if len(one.kept)]
    assert together.rows.to_pylist() == [row for one in alone for row in one.rows.to_pylist()]
    assert [each.reason for each in together.rejects] == [
        each.reason for one in alone for each in one.rejects
    ]
