"""TouchedGroups: against the rows of the groups, kept in Python."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import PRESENT, VERSION, StepResult, TouchedGroups
from headrace.algebra.spine import Spine
from headrace.algebra.zset import HASH, WEIGHT, Layout
from headrace.errors import Code, HeadraceError
from reference import Bag, compacted, exact, nonzero, plus, table_of
from text_tables import table

COUNT = pa.schema([(WEIGHT, pa.int64())])
BY_KEY = Layout(("k",), pa.schema([("k", pa.int32()), ("x", pa.string())]), COUNT)
GLOBAL = Layout((), BY_KEY.columns, COUNT)

rows = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "a", "b"]))


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[tuple, int]]]:
    """Epochs of insertions and retractions; no row is retracted that is absent."""
    live: Counter[tuple] = Counter()
    epochs = []
    for wanted in draw(st.lists(st.lists(st.tuples(rows, st.booleans()), max_size=8), max_size=5)):
        epoch = []
        for row, goes in wanted:
            weight = -1 if goes and live[row] else 1
            live[row] += weight
            epoch.append((row, weight))
        epochs.append(epoch)
    return epochs


class Run:
    """Steps the operator, and keeps its arrangements."""

    def __init__(self, operator: TouchedGroups) -> None:
        self.operator = operator
        self.spines = tuple(Spine(layout) for layout in operator.layouts)

    def step(self, given: pa.Table) -> StepResult:
        step = self.operator.step((given,), self.spines)
        self.spines = tuple(
            compacted(spine.plus(update))
            for spine, update in zip(self.spines, step.updates, strict=True)
        )
        return step


def versions(output: pa.Table) -> tuple[Bag, Bag, list[int]]:
    """Return the rows before and after, and the versions of the rows that stand for nothing."""
    found: tuple[Bag, Bag] = (Counter(), Counter())
    absent = []
    for row in output.to_pylist():
        if row[PRESENT]:
            found[row[VERSION]][exact(row["k"]), exact(row["x"])] += 1
        else:
            absent.append(row[VERSION])
    return *found, sorted(absent)


def changes(layout: Layout, epoch: list, bits: int = 64) -> pa.Table:
    given = [{"k": k, "x": x, WEIGHT: weight} for (k, x), weight in epoch]
    return table_of(layout, given, bits=bits)


@given(epochs=histories(), bits=st.sampled_from([1, 2, 64]))
def test_the_groups_touched_come_whole_before_and_after(epochs: list, bits: int) -> None:
    run = Run(TouchedGroups(BY_KEY))
    live: Bag = Counter()
    for epoch in epochs:
        before, after, absent = versions(run.step(changes(BY_KEY, epoch, bits)).output)
        delta: Bag = Counter()
        for row, weight in epoch:
            delta[row] += weight
        new = plus(live, delta)
        touched = {row[0] for row in nonzero(delta)}
        assert before == Counter({r: n for r, n in live.items() if r[0] in touched})
        assert after == Counter({r: n for r, n in new.items() if r[0] in touched})
        assert absent == []
        live = new


@given(epochs=histories())
def test_without_a_key_there_is_an_answer_over_no_rows(epochs: list) -> None:
    run = Run(TouchedGroups(GLOBAL, always=True))
    live: Bag = Counter()
    for i, epoch in enumerate([[], *epochs]):
        before, after, absent = versions(run.step(changes(GLOBAL, epoch)).output)
        delta: Bag = Counter()
        for row, weight in epoch:
            delta[row] += weight
        changed = bool(nonzero(delta))
        assert absent == ([1] if i == 0 else [0, 1] if changed else [])
        new = plus(live, delta)
        assert (before, after) == ((live, new) if changed else (Counter(), Counter()))
        live = new


def test_a_group_that_did_not_change_is_not_read() -> None:
    run = Run(TouchedGroups(BY_KEY))
    many = "weight | k | x \n" + "\n".join(f"+1 | {i} | a" for i in range(100))
    run.step(table(BY_KEY, many))
    assert run.step(table(BY_KEY, "weight | k | x \n +1 | 7 | b")).output.num_rows == 3


def test_the_hash_is_that_of_the_group() -> None:
    given = table(BY_KEY, "weight | k | x \n +2 | 7 | b")
    output = Run(TouchedGroups(BY_KEY)).step(given).output
    assert output[HASH].to_pylist() == given[HASH].to_pylist() * 2


def test_a_retraction_of_an_absent_row_is_refused() -> None:
    with pytest.raises(HeadraceError, match="negative") as caught:
        Run(TouchedGroups(BY_KEY)).step(table(BY_KEY, "weight | k | x \n -1 | 7 | b"))
    assert caught.value.code == Code.INTERNAL
