"""Joins by a key and a range of values, and by the nearest value, beside all pairs in Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import InnerJoin, RangePairs, Within
from headrace.algebra.spine import Spine
from headrace.algebra.spine.first_rows import Reads
from headrace.algebra.zset import WEIGHT, Layout, OrderBy
from length import choose
from reference import Bag, bag, compacted, nonzero, plus, table_of

COUNT = pa.schema([(WEIGHT, pa.int64())])
NAMES = {"l": ("lk", "lx", "llow", "lhigh"), "r": ("rk", "rx", "rnext")}


def layout(names: tuple[str, ...], by: str, *, descending: bool = False) -> Layout:
    columns = pa.schema([(name, pa.int64()) for name in names])
    return Layout(names[:1], columns, COUNT, (OrderBy(by, descending=descending),))


def pairs(*, nearest: bool, descending: bool = False) -> RangePairs:
    """Return pairs of rows near each other, or of a row with the last one that is not after it."""
    outputs = (tuple((n, n) for n in NAMES[side]) for side in "lr")
    left = layout(NAMES["l"], "lx", descending=descending)
    right = layout(NAMES["r"], "rx", descending=descending)
    if nearest:
        of_left = (Within("lx", is_low=False),)
        of_right = (Within("rx", is_low=True), Within("rnext", is_low=False, is_open=True))
    else:
        of_left = (Within("lx", is_low=True, shift=-3), Within("lx", is_low=False, shift=2))
        of_right = (Within("rx", is_low=False, shift=3), Within("rx", is_low=True, shift=-2))
    return RangePairs(left, right, *outputs, (False,), of_left, of_right, nearest)


def in_range(left: tuple, right: tuple) -> bool:
    if None in (left[0], right[0], left[1], right[1]):
        return False
    return left[0] == right[0] and left[2] <= right[1] <= left[3]


def is_nearest(left: tuple, right: tuple) -> bool:
    if None in (left[0], right[0], left[1], right[1]):
        return False
    after = right[2] is None or left[1] < right[2]
    return left[0] == right[0] and right[1] <= left[1] and after


def is_next(left: tuple, right: tuple) -> bool:
    if None in (left[0], right[0], left[1], right[1]):
        return False
    before = right[2] is None or left[1] > right[2]
    return left[0] == right[0] and right[1] >= left[1] and before


CASES: dict[str, tuple[RangePairs, Any]] = {
    "ranges": (pairs(nearest=False), in_range),
    "nearest": (pairs(nearest=True), is_nearest),
    "next": (pairs(nearest=True, descending=True), is_next),
}

values = st.one_of(st.none(), st.integers(0, 30))
keys = st.sampled_from([None, 1, 2])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list, list]]:
    """Epochs of changes of (key, value), by side; no row is retracted that is absent."""
    live: dict[str, Counter[Any]] = {"l": Counter(), "r": Counter()}
    epochs = []
    for _ in range(draw(st.integers(0, 6))):
        epoch: dict[str, list] = {"l": [], "r": []}
        for side in draw(st.lists(st.sampled_from("lr"), max_size=14)):
            goes = bool(live[side]) and draw(st.integers(0, 3)) == 0
            row = draw(st.sampled_from(sorted(live[side], key=repr))) if goes else None
            row = row or (draw(keys), draw(values))
            weight = -1 if goes else 1
            live[side][row] += weight
            live[side] = nonzero(live[side])
            epoch[side].append((row, weight))
        epochs.append((epoch["l"], epoch["r"]))
    return epochs


def left_rows(live: Counter[Any]) -> Bag:
    return Counter(
        {
            (k, x, None if x is None else x - 3, None if x is None else x + 2): n
            for (k, x), n in live.items()
        }
    )


def right_rows(live: Counter[Any], *, descending: bool) -> Bag:
    """Return rows with the value of the next one of their key, as a window would."""
    found: Bag = Counter()
    for key in {k for k, x in live if x is not None}:
        rows = sorted(
            (r for r in live.elements() if r[0] == key and r[1] is not None), key=lambda r: r[1]
        )
        rows = rows[::-1] if descending else rows
        for i, row in enumerate(rows):
            found[*row, rows[i + 1][1] if i + 1 < len(rows) else None] += 1
    return found


def table(side: Layout, change: Bag, bits: int) -> pa.Table:
    names = side.columns.names
    rows = [{**dict(zip(names, row, strict=True)), WEIGHT: n} for row, n in change.items() if n]
    return table_of(side, rows, bits=bits)


@pytest.mark.parametrize("name", CASES)
@given(epochs=histories(), bits=st.sampled_from([1, 64]))
def test_what_meets_the_condition_of_the_pairs_is_the_join(
    name: str, epochs: list[tuple[list, list]], bits: int
) -> None:
    of, meets = CASES[name]
    operator, descending = InnerJoin(of), of.right.order[0].descending
    spines = (Spine(of.left), Spine(of.right))
    live: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
    rows: tuple[Bag, Bag] = (Counter(), Counter())
    answer: Bag = Counter()
    for epoch in epochs:
        for side, changes in zip(live, epoch, strict=True):
            for row, weight in changes:
                side[row] += weight
        new = left_rows(nonzero(live[0])), right_rows(nonzero(live[1]), descending=descending)
        deltas = [Counter(now) for now in new]
        for delta, then in zip(deltas, rows, strict=True):
            delta.subtract(then)
        inputs = tuple(map(table, (of.left, of.right), deltas, (bits, bits)))
        step = operator.step(inputs, spines)
        spines = tuple(
            compacted(s.plus(u)) if len(s.runs) > 3 else s.plus(u)
            for s, u in zip(spines, step.updates, strict=True)
        )
        found = bag(step.output, [*NAMES["l"], *NAMES["r"]])
        met = Counter({row: n for row, n in found.items() if meets(row[:4], row[4:])})
        answer = plus(answer, met)
        rows = new
        expected: Bag = Counter()
        for left, n in rows[0].items():
            for right, m in rows[1].items():
                if meets(left, right):
                    expected[(*left, *right)] += n * m
        assert answer == nonzero(expected)


@pytest.mark.parametrize("name", ["ranges", "nearest"])
def test_a_change_reads_the_rows_near_it_however_many_its_key_has(name: str) -> None:
    of, _ = CASES[name]
    costs = []
    for many in (1_000, choose(20_000, 100_000)):
        lefts = Counter({(1, 10 * i + 5, 10 * i + 2, 10 * i + 7): 1 for i in range(many)})
        rights = Counter({(1, 10 * i, 10 * (i + 1)): 1 for i in range(many)})
        empty = (Spine(of.left), Spine(of.right))
        nothing = (of.left.schema.empty_table(), of.right.schema.empty_table())
        given_rows = (table(of.left, lefts, 64), table(of.right, rights, 64))
        first = InnerJoin(of).step((given_rows[0], nothing[1]), empty).updates[0]
        second = InnerJoin(of).step((nothing[0], given_rows[1]), empty).updates[1]
        spines = (empty[0].plus(first), empty[1].plus(second))
        x = 10 * (many // 2) + 3
        own = table(of.left, Counter({(1, x, x - 3, x + 2): 1}), 64)
        other = table(of.right, Counter({(1, x, x + 3): 1}), 64)
        for inputs in ((own, nothing[1]), (nothing[0], other)):
            before = tuple(replace(spine, reads=Reads()) for spine in spines)
            step = InnerJoin(of).step(inputs, before)
            costs.append((step.output.num_rows, sum(spine.reads.rows for spine in before)))
    (few_left, few_right), (many_left, many_right) = costs[:2], costs[2:]
    for (rows, read), (as_many, more) in ((few_left, many_left), (few_right, many_right)):
        assert as_many == rows <= 10
        assert more <= 2 * read <= 120


@pytest.mark.parametrize("name", ["nearest", "next"])
@pytest.mark.parametrize("many", [1, 4, 5, 6, 20, 32, 33, 60])
def test_the_nearest_row_is_found_among_any_number_after_it(name: str, many: int) -> None:
    """A run has all rows of the key, most of them beyond those that are asked for."""
    of, meets = CASES[name]
    step = -1 if of.right.order[0].descending else 1
    marks = [10 * i for i in range(many)][::step]
    rights: Bag = Counter(zip([1] * many, marks, [*marks[1:], None], strict=True))
    lefts: Bag = Counter((1, x + 5 * step, None, None) for x in marks)
    nothing = of.left.schema.empty_table()
    update = InnerJoin(of).step(
        (nothing, table(of.right, rights, 64)), (Spine(of.left), Spine(of.right))
    )
    spines = (Spine(of.left), Spine(of.right).plus(update.updates[1]))
    for left in lefts:
        inputs = (table(of.left, Counter({left: 1}), 64), of.right.schema.empty_table())
        found = bag(InnerJoin(of).step(inputs, spines).output, [*NAMES["l"], *NAMES["r"]])
        met = {row[4:] for row in found if meets(row[:4], row[4:])}
        assert met == {right for right in rights if meets(left, right)} != set(), left
