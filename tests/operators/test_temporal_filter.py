"""Temporal: against a filter of all rows by the clock, after every epoch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import CLOCK, Temporal
from headrace.algebra.spine import Run, Spine, due_rows, earliest_due
from headrace.algebra.zset import HASH, WEIGHT, ZSet
from headrace.errors import HeadraceError
from reference import Bag, Epochs, bag, exact, hash_of, nonzero

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("x", pa.float64())])
NAMES = ROWS.names
OPERATORS = [
    Temporal(ROWS, "enters", "leaves"),
    Temporal(ROWS, "enters", None),
    Temporal(ROWS, None, "leaves"),
    Temporal(ROWS, None, None),
]

times = st.one_of(st.none(), st.integers(-2, 12))
rows = st.tuples(
    st.integers(0, 3),
    st.sampled_from([None, "ann"]),
    st.sampled_from([0.0, -0.0, float("nan")]),
    times,
    times,
)
operators = st.sampled_from(OPERATORS)
some_bits = st.sampled_from([1, 2, 64])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[tuple[tuple, int]]]]:
    """Epochs: the clock, insertions and retractions; no row is retracted that is absent."""
    live: Counter[Any] = Counter()
    clock = 0
    epochs = []
    for passed, wanted in draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.lists(st.tuples(rows, st.booleans()), max_size=8)),
            max_size=6,
        )
    ):
        clock += passed
        changes = []
        for row, goes in wanted:
            weight = -live[exact(row)] if goes and live[exact(row)] else draw(st.integers(1, 3))
            live[exact(row)] += weight
            changes.append((row, weight))
        epochs.append((clock, changes))
    return epochs


def change_of(operator: Temporal, changes: list[tuple[tuple, int]], bits: int = 64) -> pa.Table:
    fields = [pa.field(HASH, pa.int64()), *ROWS, pa.field("enters", pa.int64())]
    fields += [pa.field("leaves", pa.int64()), pa.field(WEIGHT, pa.int64())]
    found = [
        {HASH: hash_of(row[:3], bits), **dict(zip([*NAMES, "enters", "leaves"], row, strict=True))}
        | {WEIGHT: weight}
        for row, weight in changes
    ]
    half = len(found) // 2
    parts = [
        pa.Table.from_pylist(part, schema=pa.schema(fields))
        for part in (found[:half], found[half:])
    ]
    return pa.concat_tables(parts).select(list(operator.columns))


def clock_of(before: int, after: int) -> pa.Table:
    return pa.Table.from_pylist([{"before": before, "after": after}], schema=CLOCK)


def visible(operator: Temporal, live: Counter[Any], now: int) -> Bag:
    found: Bag = Counter()
    for row, weight in live.items():
        enters = row[3] if operator.enters else -100
        leaves = row[4] if operator.leaves else 100
        if enters is not None and leaves is not None and enters <= now < leaves:
            found[row[:3]] += weight
    return nonzero(found)


def to_come(operator: Temporal, live: Counter[Any], now: int) -> list[int]:
    """The times of all moves after a time."""
    found = []
    for row, weight in live.items():
        enters = row[3] if operator.enters else -100
        leaves = row[4] if operator.leaves else 100
        if not weight or enters is None or leaves is None or enters >= leaves:
            continue
        found += [enters] if operator.enters else []
        found += [leaves] if operator.leaves else []
    return sorted(time for time in found if time > now)


@given(operator=operators, epochs=histories(), bits=some_bits)
def test_after_every_epoch_the_sum_of_outputs_is_the_rows_valid_at_the_clock(
    operator: Temporal, epochs: list, bits: int
) -> None:
    run, live, before = Epochs(operator, NAMES), Counter(), 0
    for now, changes in epochs:
        for row, weight in changes:
            live[exact(row)] += weight
        run.step(change_of(operator, changes, bits), clock_of(before, now))
        before = now
        assert run.answer == visible(operator, live, now)
        coming = to_come(operator, live, now)
        assert earliest_due(run.spines[0], now) == (coming[0] if coming else None)


@given(operator=operators, epochs=histories())
def test_only_future_moves_are_kept(operator: Temporal, epochs: list) -> None:
    run, live, before = Epochs(operator, NAMES), Counter(), 0
    for now, changes in epochs:
        for row, weight in changes:
            live[exact(row)] += weight
        run.step(change_of(operator, changes), clock_of(before, now))
        before = now
        assert run.state_rows <= len(to_come(operator, live, now))
        for spine in run.spines:
            assert all((part.weights > 0).all() for part in spine.scan(100))


@given(operator=operators, epochs=histories(), bits=some_bits)
def test_neither_the_split_into_epochs_nor_the_clock_on_the_way_matters(
    operator: Temporal, epochs: list, bits: int
) -> None:
    whole, split, before = Epochs(operator, NAMES), Epochs(operator, NAMES), 0
    for now, changes in epochs:
        split.step(change_of(operator, changes, bits), clock_of(before, now))
        before = now
    changes = [change for _, part in epochs for change in part]
    whole.step(change_of(operator, changes[::-1], bits), clock_of(0, before))
    assert whole.answer == split.answer
    assert whole.state_rows == split.state_rows


@given(operator=operators, inserted=st.lists(rows, max_size=8), passed=st.integers(0, 12))
def test_insert_all_then_wait_then_delete_all_leaves_nothing(
    operator: Temporal, inserted: list, passed: int
) -> None:
    run = Epochs(operator, NAMES)
    run.step(change_of(operator, [(row, 1) for row in inserted]), clock_of(0, 0))
    run.step(change_of(operator, []), clock_of(0, passed))
    run.step(change_of(operator, [(row, -1) for row in inserted]), clock_of(passed, passed))
    assert run.answer == Counter()
    assert run.state_rows == 0


WINDOW = OPERATORS[0]


def test_a_row_that_came_too_late_leaves_no_trace() -> None:
    run = Epochs(WINDOW, NAMES)
    step = run.step(change_of(WINDOW, [((1, "ann", 0.0, 2, 5), 1)]), clock_of(9, 9))
    assert (step.output.num_rows, step.updates[0].rows) == (0, 0)


def test_deleting_a_row_that_has_left_changes_nothing() -> None:
    run, row = Epochs(WINDOW, NAMES), (1, "ann", 0.0, 2, 5)
    run.step(change_of(WINDOW, [(row, 1)]), clock_of(0, 3))
    run.step(change_of(WINDOW, []), clock_of(3, 5))
    step = run.step(change_of(WINDOW, [(row, -1)]), clock_of(5, 6))
    assert (step.output.num_rows, step.updates[0].rows) == (0, 0)


def test_a_row_with_weight_zero_only_lets_the_clock_pass() -> None:
    run, row = Epochs(WINDOW, NAMES), (1, "ann", 0.0, 2, 5)
    run.step(change_of(WINDOW, [(row, 2)]), clock_of(0, 0))
    tick = ((None, None, None, None, None), 0)
    step = run.step(change_of(WINDOW, [tick]), clock_of(0, 4))
    assert bag(step.output, NAMES) == Counter({exact(row[:3]): 2})


def test_the_work_follows_the_due_moves_and_not_the_past_ones() -> None:
    operator = Temporal(pa.schema([("id", pa.int64())]), None, "leaves")
    spine, rows_in = Spine(operator.layout), 20_000
    ids = np.arange(rows_in)
    change = pa.table(
        {HASH: (ids % 4) << 58, "id": ids, "leaves": ids + 1, WEIGHT: np.ones(rows_in, np.int64)}
    )
    spine = spine.plus(operator.step((change, clock_of(0, 0)), (spine,)).updates[0])
    nothing = change.slice(0, 0)
    for now in (10_000, 10_003):
        fresh = Spine(spine.layout, spine.runs)
        step = operator.step(
            (nothing, clock_of(now - 10_000 if now == 10_000 else now - 3, now)), (fresh,)
        )
        spine = spine.plus(step.updates[0])
    assert fresh.reads.rows == step.output.num_rows == 3
    fresh = Spine(spine.layout, spine.runs)
    assert earliest_due(fresh, 10_003) == 10_004
    assert fresh.reads.rows == 0


def test_the_earliest_due_row_is_not_one_that_another_run_has_retracted() -> None:
    operator = Temporal(pa.schema([("id", pa.int64())]), None, "leaves")
    ids = np.arange(300)
    spine = Spine(operator.layout)

    def changed(rows: np.ndarray, weight: int) -> Spine:
        change = pa.table(
            {HASH: (rows % 4) << 58, "id": rows, "leaves": rows + 1, WEIGHT: rows * 0 + weight}
        )
        return spine.plus(operator.step((change, clock_of(0, 0)), (spine,)).updates[0])

    spine = changed(ids, 1)
    assert [earliest_due(spine, after) for after in (0, 0, 7, 300)] == [1, 1, 8, None]
    for first in (1, 200, 300):
        spine = changed(ids[:first], -1)
        assert earliest_due(spine, 0) == (first + 1 if first < 300 else None)
        assert earliest_due(spine, 250) == (max(first + 1, 251) if first < 300 else None)
        spine = changed(ids[:first], 1)


def test_a_retraction_of_an_absent_row_is_refused() -> None:
    run, row = Epochs(WINDOW, NAMES), (1, "ann", 0.0, 2, 5)
    run.step(change_of(WINDOW, [(row, -1)]), clock_of(0, 0))
    with pytest.raises(HeadraceError, match="negative"):
        run.step(change_of(WINDOW, []), clock_of(0, 3))


def test_due_rows_are_found_across_batches_of_a_run() -> None:
    operator = Temporal(pa.schema([("id", pa.int64())]), "enters", None)
    ids = np.arange(100)
    change = pa.table({HASH: ids * 0, "id": ids, "enters": ids // 3, WEIGHT: ids * 0 + 1})
    update = operator.step((change, clock_of(-1, -1)), (Spine(operator.layout),)).updates[0]
    batches = update.table.to_batches(max_chunksize=7)
    spine = Spine(operator.layout, (Run.of_batches(operator.layout, batches),))
    for after in range(-2, 35):
        found = due_rows(spine, after, after + 4)
        expected = [i for i in ids if after < i // 3 <= after + 4]
        assert sorted(found.table["id"].to_pylist()) == expected
        later = [i // 3 for i in ids if i // 3 > after]
        assert earliest_due(spine, after) == (later[0] if later else None)
    assert isinstance(found, ZSet)
