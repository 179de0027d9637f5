"""FirstRows: against sorting in Python, after every epoch."""

from __future__ import annotations

from collections import Counter
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import FirstRows
from headrace.algebra.spine import Rank, Run, Spine
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.errors import HeadraceError
from reference import Bag, Epochs, compare, exact, nonzero, table_of
from text_tables import assert_rows, table

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
COUNT = pa.schema([(WEIGHT, pa.int64())])
LAYOUT = Layout(("user",), COLUMNS, COUNT, (OrderBy("x", descending=True, nulls_first=False),))
WHOLE = Layout((), COLUMNS, COUNT, (OrderBy("x"), OrderBy("user")))
NAMES = COLUMNS.names

rows = st.tuples(
    st.integers(0, 2),
    st.sampled_from([None, "ann", "bob"]),
    st.sampled_from([None, 0.0, -0.0, 2.5, float("nan")]),
    st.sampled_from([None, (), ("a",)]),
)
some_bits = st.sampled_from([1, 2, 64])
ranks = st.sampled_from(list(Rank))


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[tuple, int]]]:
    """Epochs of insertions and retractions; no row is retracted that is absent."""
    live: Counter[Any] = Counter()
    epochs = []
    for wanted in draw(st.lists(st.lists(st.tuples(rows, st.booleans()), max_size=8), max_size=5)):
        epoch = []
        for row, goes in wanted:
            weight = -live[exact(row)] if goes and live[exact(row)] else draw(st.integers(1, 3))
            live[exact(row)] += weight
            epoch.append((row, weight))
        epochs.append(epoch)
    return epochs


def input_of(layout: Layout, epoch: list[tuple[tuple, int]], bits: int = 64) -> pa.Table:
    given_rows = [dict(zip(NAMES, row, strict=True)) | {WEIGHT: weight} for row, weight in epoch]
    return table_of(layout, given_rows, bits=bits)


def played(
    layout: Layout, epochs: list[list[tuple[tuple, int]]], bits: int
) -> Iterator[tuple[pa.Table, Counter[Any], dict[Any, tuple]]]:
    """Each epoch's input, with the rows that are there after it, and what they were given as."""
    live: Counter[Any] = Counter()
    originals = {exact(row): row for epoch in epochs for row, _ in epoch}
    for epoch in epochs:
        for row, weight in epoch:
            live[exact(row)] += weight
        yield input_of(layout, epoch, bits), live, originals


def expected(
    operator: FirstRows, live: Counter[Any], originals: dict[Any, tuple]
) -> tuple[Bag, Bag]:
    """The first rows, without and with their ranks."""
    order = operator.layout.order
    # After the order: by column, NULL first, -0.0 before 0.0.
    rest = (*order, OrderBy("id"), OrderBy("user"), OrderBy("x"), OrderBy("sign"), OrderBy("tags"))
    groups: dict[Any, list[dict]] = {}
    for code in live.elements():
        row = dict(zip(NAMES, originals[code], strict=True))
        row |= {"sign": -1 if str(row["x"]) == "-0.0" else 1, "code": code}
        row["tags"] = None if row["tags"] is None else list(row["tags"])
        groups.setdefault(tuple(row[name] for name in operator.layout.key), []).append(row)
    bare: Bag = Counter()
    numbered: Bag = Counter()
    for members in groups.values():
        members.sort(key=cmp_to_key(lambda a, b: compare(a, b, rest)))
        rank, dense = 0, 0
        for number, row in enumerate(members, 1):
            if number == 1 or compare(members[number - 2], row, order):
                rank, dense = number, dense + 1
            value = {Rank.ROW_NUMBER: number, Rank.RANK: rank, Rank.DENSE_RANK: dense}
            if operator.skip < value[operator.rank] <= operator.skip + operator.count:
                bare[row["code"]] += 1
                numbered[(*row["code"], value[operator.rank])] += 1
    return bare, numbered


@given(
    layout=st.sampled_from([LAYOUT, WHOLE]),
    epochs=histories(),
    bits=some_bits,
    rank=ranks,
    count=st.integers(0, 4),
    skip=st.sampled_from([0, 0, 1, 3]),
)
def test_after_every_epoch_the_sum_of_outputs_is_the_first_rows(
    layout: Layout, epochs: list, bits: int, rank: Rank, count: int, skip: int
) -> None:
    bare = Epochs(FirstRows(layout, count, rank, skip), NAMES)
    numbered = Epochs(FirstRows(layout, count, rank, skip, "number"), [*NAMES, "number"])
    for given_rows, live, originals in played(layout, epochs, bits):
        bare.step(given_rows)
        step = numbered.step(given_rows)
        assert step.output.schema.equals(numbered.operator.schema)
        assert (bare.answer, numbered.answer) == expected(bare.operator, live, originals)


growing = st.lists(st.lists(st.tuples(rows, st.integers(1, 3)), max_size=8), max_size=5)


@given(
    layout=st.sampled_from([LAYOUT, WHOLE]),
    epochs=growing,
    bits=some_bits,
    rank=ranks,
    count=st.integers(0, 4),
    skip=st.sampled_from([0, 0, 1, 3]),
    some=st.sampled_from([0, 100]),
)
def test_of_an_input_that_only_grows_just_the_first_rows_are_kept(
    layout: Layout, epochs: list, bits: int, rank: Rank, count: int, skip: int, some: int
) -> None:
    run = Epochs(FirstRows(layout, count, rank, skip, "number", append_only=True), NAMES)
    for given_rows, live, originals in played(layout, epochs, bits):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headrace.algebra.operators.first_rows._SOME", some)
            run.step(given_rows)
        assert run.answer == expected(run.operator, live, originals)[0]
        kept = expected(FirstRows(layout, skip + count, rank), live, originals)[0]
        assert run.state_rows == len(kept)


def test_an_input_that_was_to_grow_only_must_not_delete() -> None:
    run = Epochs(FirstRows(SCORES, 1, append_only=True), ["user", "score"])
    run.step(table(SCORES, "weight | user | score \n +1 | ann | 5"))
    with pytest.raises(HeadraceError, match="append-only input deletes"):
        run.step(table(SCORES, "weight | user | score \n -1 | ann | 5"))


@given(epochs=histories(), rank=ranks, count=st.integers(1, 3), bits=some_bits)
def test_neither_the_split_into_epochs_nor_their_order_matters(
    epochs: list, rank: Rank, count: int, bits: int
) -> None:
    whole, split = (Epochs(FirstRows(LAYOUT, count, rank), NAMES) for _ in range(2))
    changes = [change for epoch in epochs for change in epoch]
    whole.step(input_of(LAYOUT, changes[::-1], bits))
    for epoch in epochs:
        split.step(input_of(LAYOUT, epoch, bits))
    assert whole.answer == split.answer


@given(inserted=st.lists(rows, max_size=10), rank=ranks)
def test_insert_all_then_nothing_then_delete_all_leaves_nothing(inserted: list, rank: Rank) -> None:
    run = Epochs(FirstRows(LAYOUT, 2, rank), NAMES)
    run.step(input_of(LAYOUT, [(row, 1) for row in inserted]))
    assert run.step(input_of(LAYOUT, [])).output.num_rows == 0
    run.step(input_of(LAYOUT, [(row, -1) for row in inserted]))
    assert nonzero(run.answer) == Counter()
    assert run.state_rows == 0


SCORES = Layout(
    ("user",),
    pa.schema([("user", pa.string()), ("score", pa.int64())]),
    COUNT,
    (OrderBy("score", descending=True, nulls_first=False),),
)


def test_a_row_inserted_in_front_replaces_the_last() -> None:
    run = Epochs(FirstRows(SCORES, 2), ["user", "score"])
    run.step(table(SCORES, "weight | user | score \n +1 | ann | 5 \n +1 | ann | 3 \n +1 | ann | 1"))
    output = run.step(table(SCORES, "weight | user | score \n +1 | ann | 4")).output
    assert_rows(output, "weight | user | score \n +1 | ann | 4 \n -1 | ann | 3")
    output = run.step(table(SCORES, "weight | user | score \n -1 | ann | 5")).output
    assert_rows(output, "weight | user | score \n -1 | ann | 5 \n +1 | ann | 3")


def test_a_change_behind_the_first_rows_emits_nothing() -> None:
    run = Epochs(FirstRows(SCORES, 2), ["user", "score"])
    run.step(table(SCORES, "weight | user | score \n +1 | ann | 5 \n +2 | ann | 3"))
    step = run.step(table(SCORES, "weight | user | score \n +1 | ann | 2 \n +1 | ann | NULL"))
    assert step.output.num_rows == 0
    assert step.updates[0].rows == 2


def test_copies_may_be_among_the_first_in_part() -> None:
    run = Epochs(FirstRows(SCORES, 2), ["user", "score"])
    output = run.step(table(SCORES, "weight | user | score \n +1 | ann | 5 \n +3 | ann | 3")).output
    assert_rows(output, "weight | user | score \n +1 | ann | 5 \n +1 | ann | 3")
    output = run.step(table(SCORES, "weight | user | score \n -1 | ann | 5")).output
    assert_rows(output, "weight | user | score \n -1 | ann | 5 \n +1 | ann | 3")


def test_the_rank_is_a_column_where_it_is_asked_for() -> None:
    run = Epochs(FirstRows(SCORES, 3, number="n"), ["user", "score", "n"])
    output = run.step(table(SCORES, "weight | user | score \n +1 | ann | 5 \n +3 | ann | 3")).output
    assert_rows(
        output,
        "weight | user | score | n \n +1 | ann | 5 | 1 \n +1 | ann | 3 | 2 \n +1 | ann | 3 | 3",
    )
    output = run.step(table(SCORES, "weight | user | score \n -1 | ann | 3")).output
    assert output.num_rows == 0


def test_a_retraction_of_an_absent_row_is_refused() -> None:
    run = Epochs(FirstRows(SCORES, 1), ["user"])
    with pytest.raises(HeadraceError, match="negative weight"):
        run.step(table(SCORES, "weight | user | score \n -1 | ann | 5"))


def test_an_input_without_order_or_with_accumulators_is_refused() -> None:
    with pytest.raises(HeadraceError, match="without order"):
        FirstRows(Layout(SCORES.key, SCORES.columns, SCORES.summed), 1)
    with pytest.raises(HeadraceError, match="accumulators"):
        FirstRows(SCORES.with_summed(pa.field("n", pa.int64())), 1)


def test_the_first_rows_of_a_large_group_cost_a_few_rows() -> None:
    values = np.random.default_rng(5).permutation(100_000)

    def zset(part: np.ndarray, weight: int) -> ZSet:
        columns = {HASH: [7] * len(part), "user": ["ann"] * len(part), "score": part}
        weights = {WEIGHT: [weight] * len(part)}
        return ZSet(SCORES, pa.table(columns | weights, schema=SCORES.schema)).consolidated()

    spine = Spine(SCORES, tuple(Run.of(zset(part, 1)) for part in np.array_split(values, 5)))
    change = zset(np.array([99_999]), -1).plus(zset(np.array([100_001]), 1))
    output = FirstRows(SCORES, 10).step((change.table,), (spine,)).output
    assert_rows(output, "weight | user | score \n -1 | ann | 99999 \n +1 | ann | 100001")
    assert spine.reads.rows <= 2 * (5 * 11 + 2)
