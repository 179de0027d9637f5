"""Parts that depend on the rows of their table: against a table that is changed row by row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import WEIGHT
from headrace.execution.runtime.ports import Part
from headrace.lifecycle.inputs.rows import depends_on_rows, with_rows_before
from headrace.storage.ledger import Reject

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.string()), ("b", pa.int64())])
KEEP = object()
"""A cell that is unchanged."""


class Rows:
    """The rows of a table, as the part finds them."""

    def __init__(self, rows: list[tuple]) -> None:
        self.rows = rows
        self.asked: list[list[tuple]] = []

    def _table(self, rows: list[tuple]) -> pa.Table:
        return pa.table(list(map(list, zip(*rows, strict=True))) or [[], [], []], schema=SCHEMA)

    def parts(self, columns):
        yield self._table(self.rows).select(list(columns))

    def alike(self, rows):
        wanted = [tuple(row.values()) for row in rows.to_pylist()]
        self.asked.append(wanted)
        names = rows.column_names
        cells = [SCHEMA.names.index(name) for name in names]
        return self._table([r for r in self.rows if tuple(r[i] for i in cells) in wanted])

    with_keys = alike


def part(
    changes: list[tuple[int, tuple]], emptied: tuple[int, ...] = (), places: Any = None
) -> Part:
    """Return a part of weights and rows; each row has an origin of its own unless given."""
    cells = {
        name: pa.array([row[i] is KEEP for _, row in changes], pa.bool_())
        for i, name in enumerate(SCHEMA.names)
        if any(row[i] is KEEP for _, row in changes)
    }
    columns = [
        pa.array([None if row[i] is KEEP else row[i] for _, row in changes], field.type)
        for i, field in enumerate(SCHEMA)
    ]
    rows = pa.table(columns, schema=SCHEMA)
    rows = rows.append_column(WEIGHT, pa.array([w for w, _ in changes], pa.int64()))
    at = places or list(range(len(changes)))
    return Part(
        rows,
        (),
        {"at": 1},
        origin=lambda row: ("f", at[row]),
        unchanged=cells,
        emptied=emptied,
        payload=lambda row: f"p{at[row]}",
    )


def changes_of(done: Part) -> list[tuple]:
    assert not done.unchanged
    assert not done.emptied
    return [tuple(row.values()) for row in done.rows.to_pylist()]


def test_a_part_of_whole_rows_asks_for_nothing() -> None:
    assert not depends_on_rows(part([(1, (1, "x", 2)), (-1, (1, None, None))]), ("k",))
    assert not depends_on_rows(part([(1, (1, "x", 2))]), ())
    assert depends_on_rows(part([(-1, (1, "x", 2))]), ())
    assert depends_on_rows(part([], emptied=(0,)), ("k",))
    assert depends_on_rows(part([(1, (1, KEEP, 2))]), ("k",))


def test_a_cell_keeps_the_value_of_the_last_row_of_its_key() -> None:
    table = Rows([(1, "old", 1), (2, "other", 2), (3, "third", 3)])
    changes = [
        (1, (1, KEEP, 10)),
        (1, (2, "new", 20)),
        (1, (2, KEEP, KEEP)),
        (1, (1, KEEP, KEEP)),
        (1, (4, "four", 4)),
        (1, (4, KEEP, 5)),
    ]
    done = with_rows_before(part(changes), ("k",), table)
    assert changes_of(done) == [
        (1, "old", 10, 1),
        (2, "new", 20, 1),
        (2, "new", 20, 1),
        (1, "old", 10, 1),
        (4, "four", 4, 1),
        (4, "four", 5, 1),
    ]
    assert sorted(table.asked[0]) == [(1,), (2,), (4,)]
    assert done.rejects == ()


def test_a_cell_without_a_row_before_is_a_reject() -> None:
    changes = [
        (1, (7, KEEP, 1)),
        (-1, (1, None, None)),
        (1, (1, KEEP, 2)),
        (1, (2, KEEP, 3)),
    ]
    done = with_rows_before(part(changes), ("k",), Rows([(1, "x", 0), (2, "y", 0)]))
    assert changes_of(done) == [(1, None, None, -1), (2, "y", 3, 1)]
    reason = "the table has no earlier row to take the unchanged value from"
    assert done.rejects == (
        Reject("f", 0, "a", reason, "p0"),
        Reject("f", 2, "a", reason, "p2"),
    )
    assert [done.origin(row) for row in range(2)] == [("f", 1), ("f", 3)]


def test_a_row_that_moves_to_another_key_keeps_the_cells_of_the_former() -> None:
    changes = [
        (1, (1, "a", 1)),
        (-1, (1, None, None)),
        (1, (5, KEEP, 2)),
        (-1, (5, None, None)),
        (1, (6, KEEP, KEEP)),
    ]
    moved = part(changes, places=[0, 1, 1, 2, 2])
    assert changes_of(with_rows_before(moved, ("k",), Rows([])))[2::2] == [
        (5, "a", 2, 1),
        (6, "a", 2, 1),
    ]
    apart = with_rows_before(part(changes), ("k",), Rows([]))
    assert [reject.line for reject in apart.rejects] == [2, 4]


def test_emptying_deletes_the_rows_of_the_table_and_what_the_part_wrote_before() -> None:
    table = Rows([(1, "x", 1), (2, "y", 2)])
    changes = [(1, (3, "z", 3)), (1, (1, "n", 9)), (1, (3, KEEP, 4))]
    done = with_rows_before(part(changes, emptied=(0, 1)), ("k",), table)
    assert changes_of(done) == [(1, None, None, -1), (2, None, None, -1), (1, "n", 9, 1)]
    assert [reject.line for reject in done.rejects] == [2]
    assert done.origin(2) == ("f", 1)
    last = with_rows_before(part(changes[:2], emptied=(2,)), ("k",), Rows([]))
    assert changes_of(last) == []


def test_without_a_key_a_deletion_takes_back_a_row_and_its_kept_cells() -> None:
    table = Rows([(1, "c", 1), (1, "r", 1), (2, "c", 2)])
    changes = [
        (-1, (1, KEEP, 1)),
        (1, (1, "u", 5)),
        (-1, (1, KEEP, 5)),
        (-1, (9, KEEP, 9)),
        (1, (9, "u", 10)),
        (-1, (2, KEEP, 2)),
        (-1, (2, KEEP, 2)),
        (1, (8, "c", 8)),
    ]
    done = with_rows_before(part(changes, places=[0, 0, 1, 2, 2, 3, 4, 5]), (), table)
    assert changes_of(done) == [
        (1, "r", 1, -1),
        (1, "u", 5, 1),
        (1, "u", 5, -1),
        (2, "c", 2, -1),
        (8, "c", 8, 1),
    ]
    assert [(r.line, r.column, r.raw) for r in done.rejects] == [
        (2, "before", "p2"),
        (4, "before", "p4"),
    ]
    assert [done.origin(row)[1] for row in range(5)] == [0, 0, 1, 3, 5]


def test_emptying_a_table_without_a_key_takes_back_whole_rows() -> None:
    table = Rows([(1, "x", 1), (1, "x", 1), (2, None, None)])
    done = with_rows_before(part([(-1, (1, "x", 1)), (1, (4, "q", 4))], emptied=(1,)), (), table)
    assert Counter(changes_of(done)) == Counter(
        [(1, "x", 1, -1), (1, "x", 1, -1), (2, None, None, -1), (4, "q", 4, 1)]
    )


cell = st.sampled_from([KEEP, KEEP, "x", "y"])
number = st.sampled_from([KEEP, 1, 2])
change = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 3), cell, number),
    st.tuples(st.just("delete"), st.integers(1, 3)),
    st.tuples(st.just("move"), st.integers(1, 3), st.integers(4, 5), cell, number),
    st.tuples(st.just("empty")),
)


@given(
    before=st.dictionaries(
        st.integers(1, 4), st.tuples(st.sampled_from(["p", None]), st.integers(7, 9))
    ),
    history=st.lists(change, max_size=12),
)
def test_random_histories_by_key(before: dict, history: list) -> None:
    """Parts lead to the table that changing it row by row leads to."""
    table = dict(before)
    changes: list[tuple[int, tuple]] = []
    places: list[int] = []
    emptied: list[int] = []
    refused: list[int] = []

    def put(place: int, key: int, cells: tuple, former: tuple | None) -> None:
        changes.append((1, (key, *cells)))
        places.append(place)
        if KEEP in cells and former is None:
            refused.append(place)
            return
        kept = former or ()
        table[key] = tuple(kept[i] if c is KEEP else c for i, c in enumerate(cells))

    for place, (what, *given_) in enumerate(history):
        match what:
            case "put":
                put(place, given_[0], tuple(given_[1:]), table.get(given_[0]))
            case "delete":
                table.pop(given_[0], None)
                changes.append((-1, (given_[0], None, None)))
                places.append(place)
            case "move":
                changes.append((-1, (given_[0], None, None)))
                places.append(place)
                put(place, given_[1], tuple(given_[2:]), table.pop(given_[0], None))
            case "empty":
                table.clear()
                emptied.append(len(changes))
    start = [(key, *cells) for key, cells in before.items()]
    done = part(changes, tuple(emptied), places)
    if depends_on_rows(done, ("k",)):
        done = with_rows_before(done, ("k",), Rows(start))
    found = {row[0]: row[1:] for row in start}
    for *row, weight in changes_of(done):
        if weight > 0:
            found[row[0]] = tuple(row[1:])
        else:
            found.pop(row[0], None)
    assert found == table
    skipped = places[emptied[-1]] if emptied and emptied[-1] < len(places) else 0
    if emptied and emptied[-1] == len(places):
        skipped = len(history)
    assert [reject.line for reject in done.rejects] == [r for r in refused if r >= skipped]
