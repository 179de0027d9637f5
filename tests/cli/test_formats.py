"""Lines of the three formats."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.execution.serving import Change
from headrace.execution.serving.values import csv_line, json_rows
from headrace.tools.cli.live import ChangeTable
from headrace.tools.cli.tables import AlignedColumns


@pytest.mark.long
@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_what_is_written_as_csv_is_read_back(fields: list[str]) -> None:
    written = csv_line(fields)
    assert next(csv.reader(io.StringIO(written, newline=""), strict=True)) == fields


def test_null_and_empty_text_differ_in_csv() -> None:
    assert csv_line([None, "", "x"]) == ',"",x\r\n'


def test_json_refuses_two_columns_of_one_name() -> None:
    with pytest.raises(HeadraceError, match='column "a" appears twice'):
        list(json_rows(["a", "b", "a"], []))


def test_columns_are_as_wide_as_their_widest_cell_in_the_terminal() -> None:
    columns = AlignedColumns(["name", "n"], [False, True])
    rows = [["水車", "1"], ["mill", "1000"], ["two\nlines", "2"]]
    columns.fit(rows)
    lines = [*columns.header(), *(line for row in rows for line in columns.lines(row))]
    assert lines == [
        " name  |    n",
        "-------+------",
        " 水車  |    1",
        " mill  | 1000",
        " two   |    2",
        " lines |",
    ]


def test_changes_widen_their_columns_as_they_come() -> None:
    table = ChangeTable()
    first = table.lines([Change(9, "+I", 1, {"n": 5})])
    later = table.lines([Change(10, "-D", -1, {"n": 12345})])
    assert [*first, *later] == [
        " epoch | op | n",
        "-------+----+---",
        "     9 | +I | 5",
        "    10 | -D | 12345",
    ]


def test_a_change_of_two_copies_is_two_lines() -> None:
    lines = ChangeTable().lines([Change(1, "+I", 2, {"n": 5})])
    assert len(lines) == 4
