"""NearRows: functions over slices around changes, beside the same over whole groups in Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import (
    BEFORE,
    ORDERS,
    REACHED,
    SLICE,
    VERSION,
    FrameReach,
    NearRows,
    sums_of,
)
from headrace.algebra.spine import Run, Spine, sums_between
from headrace.algebra.spine.first_rows import Reads
from headrace.algebra.zset import WEIGHT, Layout, OrderBy, ZSet
from headrace.errors import Code, HeadraceError
from length import choose
from reference import Bag, compacted, nonzero, plus, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Row = tuple[Any, ...]
Function = "Callable[[list[Row], int], Any]"
COLUMNS = pa.schema([("k", pa.int32()), ("o", pa.int64()), ("x", pa.int64())])
COUNT = pa.schema([(WEIGHT, pa.int64())])
ORDER = (OrderBy("o"), OrderBy("x"))
BY_KEY = Layout(("k",), COLUMNS, COUNT, ORDER)
RANGED = Layout(
    ("k",),
    pa.schema([*COLUMNS, ("low", pa.int64()), ("high", pa.int64())]),
    COUNT,
    ORDER,
)


def framed(before: int, after: int) -> Function:
    """Return the sum over the rows from so many before a row to so many after it."""
    return lambda rows, i: [r[2] for r in rows[max(0, i - before) : i + after + 1]]


def near(rows: list[Row], i: int) -> Any:
    """Return the values of the rows whose order is near that of a row."""
    low, high = rows[i][3], rows[i][4]
    if rows[i][1] is None:
        return [r[2] for r in rows if r[1] is None]
    return [r[2] for r in rows if r[1] is not None and low <= r[1] <= high]


def ranked(rows: list[Row], i: int) -> Any:
    """Return the number of a row, its rank, and the number of rows up to the last one like it."""
    ties = [j for j, row in enumerate(rows) if row[1] == rows[i][1]]
    return i + 1, ties[0] + 1, ties[-1] + 1


def previous(rows: list[Row], i: int) -> Any:
    """Return the value of the row before, beside what is counted from the first one."""
    return (rows[i - 1][2] if i else None), *ranked(rows, i)


def running(rows: list[Row], i: int) -> Any:
    """Return the sum of the values up to a row, and of those of the order, and how many these are.

    Those of the order may be NULL. Also how many different ones there are.
    """
    orders = [row[1] for row in rows[: i + 1] if row[1] is not None]
    ranks = len({row[1] for row in rows[: i + 1]})
    return sum(row[2] for row in rows[: i + 1]), sum(orders), len(orders), ranks


FUNCTIONS: dict[str, tuple[NearRows, Function]] = {
    "the row before": (NearRows(BY_KEY, FrameReach(before=1)), framed(1, 0)),
    "two rows after": (NearRows(BY_KEY, FrameReach(after=2)), framed(0, 2)),
    "rows around": (NearRows(BY_KEY, FrameReach(2, 1)), framed(2, 1)),
    "values around": (NearRows(RANGED, FrameReach(0, 0, ("low",), ("high",))), near),
    "values and rows": (
        NearRows(RANGED, FrameReach(1, 1, ("low", "o"), ("high", "o"))),
        lambda rows, i: (near(rows, i), framed(1, 1)(rows, i)),
    ),
    "numbers": (NearRows(BY_KEY, FrameReach(running=True, peers=1)), ranked),
    "numbers and the row before": (
        NearRows(BY_KEY, FrameReach(before=1, running=True, peers=1)),
        previous,
    ),
}

RUNNING = NearRows(BY_KEY, FrameReach(running=True, peers=1, sums=("x", "o"), dense=True))

values = st.one_of(st.none(), st.integers(0, 9))


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[Row, int]]]:
    """Epochs of insertions and retractions; no row is retracted that is absent."""
    keys, live, epochs = st.sampled_from([None, 1, 2]), Counter[Row](), []
    for size in draw(st.lists(st.integers(0, 12), max_size=6)):
        epoch = []
        for _ in range(size):
            goes = bool(live) and draw(st.integers(0, 2)) == 0
            row = draw(st.sampled_from(sorted(live, key=repr))) if goes else None
            if row is None:
                o = draw(values)
                bounds = (None, None) if o is None else (o - 2, o + 1)
                row = (draw(keys), o, draw(st.integers(0, 3)), *bounds)
            live[row] += -1 if goes else 1
            live = nonzero(live)
            epoch.append((row, -1 if goes else 1))
        epochs.append(epoch)
    return epochs


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: (r[1] is not None, r[1] or 0, r[2]))


def whole(live: Bag, function: Function) -> Bag:
    """Return each row with the value of a function over its whole group."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in live.elements():
        groups[row[0]].append(row)
    ordered = map(in_order, groups.values())
    return Counter((row, repr(function(rows, i))) for rows in ordered for i, row in enumerate(rows))


def sliced(output: pa.Table, operator: NearRows, function: Function) -> tuple[Bag, Bag]:
    """Return the rows that were reached, with values over their slices, before and after."""
    names = [n for n in ("k", "o", "x", "low", "high") if n in operator.layout.columns.names]
    slices: dict[Any, list[tuple[Row, bool, int]]] = defaultdict(list)
    for each in output.to_pylist():
        row = tuple(each[name] for name in names)
        place = each[VERSION], each["k"], each[SLICE]
        slices[place].append((row, each[REACHED], each.get(BEFORE, 0)))
    found: tuple[Bag, Bag] = (Counter(), Counter())
    for (version, *_), given_rows in slices.items():
        marked = {row: reached for row, reached, _ in given_rows}
        rows = in_order(row for row, _, _ in given_rows)
        (before,) = {count for _, _, count in given_rows}
        padding: list[Row] = [(rows[0][0], object(), None, None, None)] * before
        for i, row in enumerate(rows):
            if marked[row]:
                value = function([*padding, *rows], before + i)
                found[version][row, repr(value)] += 1
    return found


def changes(layout: Layout, epoch: list[tuple[Row, int]], bits: int = 64) -> pa.Table:
    names = ("k", "o", "x", "low", "high")
    given_rows = [{**dict(zip(names, row, strict=True)), WEIGHT: w} for row, w in epoch]
    kept = [{n: row[n] for n in (*layout.columns.names, WEIGHT)} for row in given_rows]
    return table_of(layout, kept, bits=bits)


def history(layout: Layout, rows: int) -> Spine:
    """Return rows of one key as a spine of several runs, as many as merges would leave."""
    spine, stop = Spine(layout), rows
    while stop:
        start = stop // 4 if stop > 100 else 0
        many = [((1, 10 * i, i % 5, 10 * i - 25, 10 * i + 5), 1) for i in range(start, stop)]
        spine = spine.plus(
            NearRows(layout, FrameReach())
            .step((changes(layout, many),), (Spine(layout),))
            .updates[0]
        )
        stop = start
    return spine


def cost(name: str, rows: int, at: int) -> tuple[int, int]:
    """Return how many rows are read and emitted for an insertion after some row of a history."""
    operator, _ = FUNCTIONS[name]
    before = replace(history(operator.layout, rows), reads=Reads())
    o = 10 * at + 5
    one = changes(operator.layout, [((1, o, 9, o - 25, o + 5), 1)])
    return operator.step((one,), (before,)).output.num_rows, before.reads.rows


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_change_reads_a_few_rows_however_many_its_group_has(name: str) -> None:
    few, many = 1_000, choose(20_000, 100_000)
    places = {"end": lambda rows: rows} if "numbers" in name else PLACES
    for place in places.values():
        (emitted, read), (as_many, more) = (cost(name, n, place(n)) for n in (few, many))
        assert as_many == emitted <= 20
        # The number of runs grows with the logarithm, and so does a search in each of them.
        assert more <= 3 * read <= 900


def test_all_rows_after_a_change_are_numbered_again_and_no_others() -> None:
    assert cost("numbers", 2_000, 1_500)[0] == 499 + 500


PLACES: dict[str, Callable[[int], int]] = {"end": lambda rows: rows, "middle": lambda n: n // 2}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(epochs=histories(), bits=st.sampled_from([1, 64]))
def test_values_over_slices_change_as_those_over_whole_groups(
    name: str, epochs: list[list[tuple[Row, int]]], bits: int
) -> None:
    operator, function = FUNCTIONS[name]
    width = len(operator.layout.columns)
    spine, live = Spine(operator.layout), Counter[Row]()
    for epoch in epochs:
        step = operator.step((changes(operator.layout, epoch, bits),), (spine,))
        spine = spine.plus(step.updates[0])
        if len(spine.runs) > 3:
            spine = compacted(spine)
        delta: Bag = Counter()
        for row, weight in epoch:
            delta[row[:width]] += weight
        before, after = sliced(step.output, operator, function)
        old, live = whole(live, function), plus(live, delta)
        new = whole(live, function)
        assert new - old == after - before
        assert old - new == before - after


@pytest.mark.parametrize("rows", [1_000, 20_000])
def test_a_rank_at_the_end_counts_the_values_before_without_reading_them(rows: int) -> None:
    operator = NearRows(BY_KEY, FrameReach(running=True, peers=1, dense=True))
    spines = tuple(map(Spine, operator.layouts))
    for part in np.array_split(np.arange(rows), 3):
        many = [((1, 10 * int(i // 2), int(i) % 2, 0, 0), 1) for i in part]
        both = zip(spines, operator.step((changes(BY_KEY, many),), spines).updates, strict=True)
        spines = tuple(spine.plus(update) for spine, update in both)
    assert spines[1].weight == rows // 2
    spines = tuple(replace(spine, reads=Reads()) for spine in spines)
    last = (1, 5 * rows, 0, 0, 0)
    output = operator.step((changes(BY_KEY, [(last, 1)]),), spines).output
    assert output[ORDERS].to_pylist()[-1] + output[BEFORE].to_pylist()[-1] >= rows
    assert output.num_rows <= 6
    assert sum(spine.reads.rows for spine in spines) <= 150


def test_a_retraction_of_an_absent_row_is_refused() -> None:
    operator, _ = FUNCTIONS["the row before"]
    with pytest.raises(HeadraceError, match="negative") as caught:
        operator.step((changes(BY_KEY, [((1, 2, 3, 0, 0), -1)]),), (Spine(BY_KEY),))
    assert caught.value.code == Code.INTERNAL


@given(epochs=histories(), bits=st.sampled_from([1, 64]))
def test_slices_come_with_the_sums_of_what_is_before_them(
    epochs: list[list[tuple[Row, int]]], bits: int
) -> None:
    spines, live = tuple(map(Spine, RUNNING.layouts)), Counter[Row]()
    for epoch in epochs:
        step = RUNNING.step((changes(BY_KEY, epoch, bits),), spines)
        both = zip(spines, step.updates, strict=True)
        spines = tuple(spine.plus(update) for spine, update in both)
        delta: Bag = Counter()
        for row, weight in epoch:
            delta[row[:3]] += weight
        slices: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for each in step.output.to_pylist():
            slices[each[VERSION], each["k"], each[SLICE]].append(each)
        found: tuple[Bag, Bag] = (Counter(), Counter())
        for (version, *_), given_rows in slices.items():
            rows = in_order((each["k"], each["o"], each["x"]) for each in given_rows)
            names = (*sums_of(0), *sums_of(1), ORDERS)
            first = [int(given_rows[0][name]) for name in names]
            for i, row in enumerate(rows):
                xs, orders, count, ranks = running(rows, i)
                value = (xs + first[0], orders + first[2], count + first[3], ranks + first[4])
                found[version][row, repr(value)] += 1
        old, live = whole(live, running), plus(live, delta)
        new = whole(live, running)
        assert new - old == found[1] - found[0]
        assert old - new == found[0] - found[1]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [2**62, -(2**63), 7, None, 2**63 - 1] * 60),
        (pa.int16(), [-3, None, 32767] * 100),
        (pa.decimal128(18, 4), [Decimal("-99999999999999.9999"), None, Decimal("0.0001")] * 100),
    ],
)
def test_sums_of_positions_are_exact(type_: pa.DataType, values: list[Any]) -> None:
    layout = Layout(("k",), pa.schema([("k", pa.int32()), ("x", type_), ("i", pa.int32())]), COUNT)
    rows = [{"k": 1, "x": x, "i": i, WEIGHT: 1 + i % 3} for i, x in enumerate(values)]
    run = Run.of(ZSet.of(layout, table_of(layout, rows)).consolidated())
    kept = run.slice(0, run.rows).table.to_pylist()
    starts, stops = np.array([0, 3, 64, 100, 299]), np.array([300, 3, 129, 299, 300])
    found, read = sums_between(run, "x", starts, stops)
    assert read <= 2 * 64 * len(starts)
    for i, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        within = [row for row in kept[start:stop] if row["x"] is not None]
        upper, lower, seen = found[:, i].tolist()
        unit = Decimal(10) ** -getattr(type_, "scale", 0) if pa.types.is_decimal(type_) else 1
        assert ((upper << 32) + lower) * unit == sum(row["x"] * row[WEIGHT] for row in within)
        assert seen == sum(row[WEIGHT] for row in within)
