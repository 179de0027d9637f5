"""Tables for people: nothing is wider than the terminal, numbers stand at the right."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headrace.tools.cli.paint import Paint
from headrace.tools.cli.tables import Look, aligned, vertical

_TEXTS = st.text("ab0 |…é水車\n\x1b", max_size=40)


@given(
    st.lists(st.lists(_TEXTS | st.none(), min_size=3, max_size=3), max_size=4),
    st.lists(_TEXTS, min_size=3, max_size=3),
    st.integers(20, 120),
)
def test_no_line_is_wider_than_the_terminal(
    rows: list[list[str | None]], names: list[str], width: int
) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * 3
    table = pa.Table.from_arrays([pa.array(c, pa.string()) for c in columns], names)
    lines, cut = aligned(table, Look(width=width))
    assert all(cell_len(line) <= width and "\n" not in line for line in lines)
    whole, _ = aligned(table, Look())
    assert cut or lines == whole


def test_the_widest_columns_are_cut_first_and_the_last_are_left_out() -> None:
    table = pa.table({"n": [1], "long": ["x" * 50], "longer": ["y" * 60]})
    lines, cut = aligned(table, Look(width=40))
    assert cut
    assert lines[-1] == " 1 | " + "x" * 15 + "… | " + "y" * 14 + "…"
    many = pa.table({f"column{i}": ["x" * 9] for i in range(9)})
    lines, cut = aligned(many, Look(width=40))
    assert cut
    assert lines[0] == " column0  | column1  | column2  | …"


def test_null_and_emphasis() -> None:
    table = pa.table({"a": ["NULL", None], "n": pa.array([None, 10], pa.int32())})
    lines, _ = aligned(table, Look("-", Paint(coloured=True)))
    assert lines == [
        " \x1b[1ma   \x1b[0m | \x1b[1m n\x1b[0m",
        "------+----",
        " NULL | \x1b[2m -\x1b[0m",
        " \x1b[2m-   \x1b[0m | 10",
    ]
    assert vertical(["a"], [["two\nlines"]], Look())[1:] == ["a | two", "  | lines"]
