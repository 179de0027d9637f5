"""Followed rows as a table: the same bag as the changes make, each row in its place."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.execution.serving import Change
from headrace.tools.cli.live import LiveTable
from headrace.tools.cli.tables import Look


def _rows(table: LiveTable) -> list[str]:
    return [line.strip() for line in table.lines(Look(), 1000)[2:-1]]


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.booleans()))))
def test_the_table_is_the_bag_that_its_changes_make(
    epochs: list[list[tuple[int, int, bool]]],
) -> None:
    table, bag = LiveTable(["n"]), Counter[int]()
    for epoch, wished in enumerate(epochs):
        changes = []
        for n, copies, comes in wished:
            weight = copies if comes else -min(copies, bag[n])
            if weight:
                bag[n] += weight
                changes.append(Change(epoch, "+I" if comes else "-D", weight, {"n": n}))
        table.apply(changes)
    assert Counter(map(int, _rows(table))) == +bag


def test_an_update_stays_where_the_row_was() -> None:
    table = LiveTable(["k", "n"])
    table.apply([Change(1, "+I", 1, {"k": k, "n": 0}) for k in "abc"])
    table.apply(
        [
            Change(2, "-U", -1, {"k": "b", "n": 0}),
            Change(2, "+U", 1, {"k": "b", "n": 7}),
            Change(2, "-D", -1, {"k": "a", "n": 0}),
        ]
    )
    assert _rows(table) == ["b | 7", "c | 0"]
    assert table.lines(Look(), 10)[-1] == "2 rows (epoch 2, 3 changes); Ctrl-C ends it"


def test_what_does_not_fit_is_counted() -> None:
    table = LiveTable(["n"])
    table.apply([Change(1, "+I", 1, {"n": n}) for n in range(100)])
    lines = table.lines(Look(), 10)
    assert len(lines) == 10
    assert lines[-1].startswith("100 rows, the first 7 shown (epoch 1")
