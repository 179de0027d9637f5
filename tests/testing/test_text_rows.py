"""Rows as text, and rows compared."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import types as t

from headrace.errors import HeadraceError
from headrace.testing.comparing import TextRows, array_of, difference, shown, summed
from headrace.types import Column, Schema


def values(type_: t.DataType, *cells: str) -> list[object]:
    column = Column("c", type_)
    rows = TextRows.of(["c", *cells])
    arrow = Schema((column,)).arrow.field(0).type
    return array_of([row[0] for row in rows.rows], column, arrow).to_pylist()


def test_cells_are_read_by_the_type_of_their_column():
    assert values(t.IntegerType(), "1", "NULL", " -3 ") == [1, None, -3]
    assert values(t.DecimalType(10, 2), "10", "0.50") == [Decimal("10.00"), Decimal("0.50")]
    assert values(t.DateType(), "2026-01-31") == [date(2026, 1, 31)]
    assert values(t.TimestampType(), "2026-01-31 10:00:00", "2026-01-31T10:00:00+01:00") == [
        datetime(2026, 1, 31, 10, tzinfo=UTC),
        datetime(2026, 1, 31, 9, tzinfo=UTC),
    ]
    assert values(t.BooleanType(), "true", "false") == [True, False]
    assert values(t.ArrayType(t.IntegerType()), "[1, null, 2]") == [[1, None, 2]]


def test_quotes_keep_what_a_plain_cell_cannot_have():
    cells = ["plain text", "'NULL'", "''", "' a '", "'a|b'", "'it''s'", "it's", "NULL"]
    found = values(t.StringType(), *cells)
    assert found == ["plain text", "NULL", "", " a ", "a|b", "it's", "it's", None]
    assert values(t.StringType(), *map(shown, found)) == found


def test_rules_separate_parts_except_below_the_header():
    rows = TextRows.of(["a | b", "--+--", "1 | 2", "", "-----", "3 | 4", "---|---"])
    assert rows.header == ("a", "b")
    assert [len(part) for part in rows.parts] == [1, 1]
    bordered = TextRows.of(["| a | b |", "|---|---|", "| 1 | 'x|y' |"])
    assert [cell.text for cell in bordered.rows[0]] == ["1", "x|y"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [([], "has no header"), (["a | b", "1"], "1 cells for 2 columns")],
)
def test_a_malformed_table_is_refused(lines, message):
    with pytest.raises(HeadraceError, match=message):
        TextRows.of(lines)


def test_a_cell_that_does_not_fit_names_its_column():
    with pytest.raises(HeadraceError, match=r'column "c": .*ten') as caught:
        values(t.IntegerType(), "ten")
    assert caught.value.hint == "It is of type int; NULL is written NULL."


def test_a_difference_pairs_rows_of_one_key():
    expected = [("ann", 1, None), ("bob", 2, "x"), ("eve", 3, "y")]
    actual = [("ann", 1, None), ("bob", 5, "z"), ("joe", 4, "y")]
    found = difference(("name", "n", "note"), expected, actual, key=("name",))
    assert str(found) == (
        "1 row missing (-), 1 row not expected (+), 1 row changed (~ expected → actual);"
        " 1 row equal\n"
        "    name | n     | note\n"
        "  - eve  | 3     | y\n"
        "  + joe  | 4     | y\n"
        "  ~ bob  | 2 → 5 | x → z"
    )


def test_without_a_key_rows_that_are_mostly_alike_are_paired():
    found = difference(("a", "b", "c"), [(1, 2, 3)], [(1, 2, 4), (9, 9, 9)])
    assert found.changed == (((1, 2, 3), (1, 2, 4)),)
    assert found.unexpected == ((9, 9, 9),)


def test_rows_are_compared_as_bags_with_null_and_nan_equal_to_themselves():
    nan = float("nan")
    assert not difference(("a",), [(1,), (None,), (1,)], [(None,), (1,), (1,)])
    assert not difference(("a",), [(nan,), (0.0,)], [(-0.0,), (nan,)])
    found = difference(("a",), [(1,), (1,)], [(1,)])
    assert (found.missing, found.equal) == (((1,),), 1)


def test_floats_are_equal_within_a_tolerance_only_if_one_is_given():
    sums = [("a", 0.1 + 0.2), ("b", 1.0)]
    assert difference(("k", "x"), [("a", 0.3), ("b", 1.0)], sums)
    assert not difference(("k", "x"), [("a", 0.3), ("b", 1.0)], sums, tolerance=1e-9)
    assert difference(("k", "x"), [("a", 0.31), ("b", 1.0)], sums, tolerance=1e-9)
    assert difference(("k", "x"), [("c", 0.3), ("b", 1.0)], sums, tolerance=1e-9)


def test_changes_of_one_row_and_sign_are_added():
    changes = [(1, 1, "a"), (1, 1, "a"), (1, -1, "a"), (2, 3, "a")]
    assert summed(changes) == [(1, 2, "a"), (1, -1, "a"), (2, 3, "a")]
