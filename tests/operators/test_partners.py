"""OuterJoin, SemiJoin and Matches: against a nested loop."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import (
    FLAG,
    MATCHES,
    ROW,
    Emits,
    InnerJoin,
    Matches,
    OuterJoin,
    Pairs,
    RowKind,
    SemiJoin,
    counts_layout,
)
from headrace.algebra.zset import HASH, WEIGHT, Layout
from headrace.errors import Code, HeadraceError
from reference import Bag, Epochs, hash_of, nonzero, plus, strays, table_of
from text_tables import assert_rows, table

if TYPE_CHECKING:
    from headrace.algebra.operators import StatefulOperator

COUNT = pa.schema([(WEIGHT, pa.int64())])
LEFT = Layout(("k",), pa.schema([("k", pa.int32()), ("a", pa.int64())]), COUNT)
RIGHT = Layout(("l",), pa.schema([("l", pa.int32()), ("b", pa.int64())]), COUNT)
PAIRS = Pairs(LEFT, RIGHT, (("k", "k"), ("a", "a")), (("l", "l"), ("b", "b")), (False,))
ONE_SIDE = Pairs(LEFT, counts_layout(RIGHT), (("k", "k"), ("a", "a")), (), (False,))
COLUMNS = ["k", "a", "l", "b"]

keys = st.sampled_from([None, 1, 2])
numbers = st.integers(0, 2)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list, list]]:
    """Epochs of insertions and retractions on both sides; no row is retracted that is absent."""
    live: tuple[Counter, Counter] = (Counter(), Counter())
    change = st.tuples(st.booleans(), keys, numbers, st.booleans())
    epochs = []
    for wanted in draw(st.lists(st.lists(change, max_size=8), min_size=1, max_size=5)):
        epoch: tuple[list, list] = ([], [])
        for is_left, key, number, goes in wanted:
            side = 0 if is_left else 1
            weight = -1 if goes and live[side][key, number] else 1
            live[side][key, number] += weight
            epoch[side].append(((key, number), weight))
        epochs.append(epoch)
    return epochs


def side(layout: Layout, changes: list, bits: int) -> pa.Table:
    names = layout.columns.names
    rows = [dict(zip(names, row, strict=False)) | {WEIGHT: weight} for row, weight in changes]
    return table_of(layout, rows, bits=bits)


def answers(left: Bag, right: Bag, *, below: bool) -> tuple[Bag, Bag, Bag]:
    """Return the pairs, and the rows of the left and of the right that are in none.

    With ``below`` a pair must have ``a < b`` as well.
    """
    pairs: Bag = Counter()
    for (k, a), weight in left.items():
        for (key, b), other in right.items():
            if k is not None and k == key and (not below or a < b):
                pairs[k, a, key, b] += weight * other
    return (
        pairs,
        Counter({r: w for r, w in left.items() if not any(p[:2] == r for p in pairs)}),
        Counter({r: w for r, w in right.items() if not any(p[2:] == r for p in pairs)}),
    )


def outer(pairs: Bag, left: Bag, right: Bag, kept: tuple[bool, bool]) -> Bag:
    total = Counter(pairs)
    if kept[0]:
        total.update({(*row, None, None): weight for row, weight in left.items()})
    if kept[1]:
        total.update({(None, None, *row): weight for row, weight in right.items()})
    return nonzero(total)


def after(live: Bag, changes: list) -> Bag:
    added: Bag = Counter()
    for row, weight in changes:
        added[row] += weight
    return plus(live, added)


SIDES = st.sampled_from([(True, False), (False, True), (True, True)])
BITS = st.sampled_from([1, 2, 64])


@given(epochs=histories(), kept=SIDES, bits=BITS)
def test_an_outer_join_is_its_pairs_and_the_rows_without_one(
    epochs: list, kept: tuple[bool, bool], bits: int
) -> None:
    run = Epochs(OuterJoin(PAIRS, *kept), COLUMNS)
    left: Bag = Counter()
    right: Bag = Counter()
    for of_left, of_right in epochs:
        before = run.answer
        step = run.step(side(LEFT, of_left, bits), side(RIGHT, of_right, bits))
        left, right = after(left, of_left), after(right, of_right)
        assert run.answer == outer(*answers(left, right, below=False), kept)
        assert not strays(step.output, COLUMNS, before, run.answer)


def semi(left: Bag, lone: Bag, emits: Emits) -> Bag:
    match emits:
        case Emits.MATCHED:
            return nonzero(Counter({r: w for r, w in left.items() if r not in lone}))
        case Emits.UNMATCHED:
            return nonzero(lone)
        case Emits.FLAGGED:
            return nonzero(Counter({(*r, r not in lone): w for r, w in left.items()}))


def columns_of(emits: Emits) -> list[str]:
    return ["k", "a", FLAG] if emits is Emits.FLAGGED else ["k", "a"]


@given(epochs=histories(), emits=st.sampled_from(list(Emits)), bits=BITS)
def test_a_semi_join_has_each_row_whose_key_is_in_the_other_side(
    epochs: list, emits: Emits, bits: int
) -> None:
    run = Epochs(SemiJoin(ONE_SIDE, emits), columns_of(emits))
    left: Bag = Counter()
    right: Bag = Counter()
    for of_left, of_right in epochs:
        before = run.answer
        step = run.step(side(LEFT, of_left, bits), side(counts_layout(RIGHT), of_right, bits))
        left, right = after(left, of_left), after(right, of_right)
        _, lone, _ = answers(left, right, below=False)
        assert run.answer == semi(left, lone, emits)
        assert not strays(step.output, columns_of(emits), before, run.answer)


def matches(which: RowKind, emits: Emits, *, passes: bool) -> Matches:
    columns = (LEFT if which is RowKind.LEFT else RIGHT).columns
    sums = pa.schema([(WEIGHT, pa.int64()), (MATCHES, pa.int64())])
    whole = [*LEFT.columns, *RIGHT.columns]
    schema = pa.schema([(HASH, pa.int64()), *whole, (ROW, pa.int64()), (WEIGHT, pa.int64())])
    layout = Layout(tuple(columns.names), columns, sums)
    return Matches(layout, schema, which, emits, passes)


def conditioned(joined: pa.Table, names: list[str], bits: int) -> pa.Table:
    """Apply ``a < b`` to pairs, and hash the columns of one side."""
    rows = [row for row in joined.to_pylist() if row[ROW] != RowKind.PAIR or row["a"] < row["b"]]
    for row in rows:
        row[HASH] = hash_of([row[name] for name in names], bits)
    return pa.Table.from_pylist(rows, schema=joined.schema)


@given(epochs=histories(), kept=SIDES, bits=BITS)
def test_an_outer_join_on_any_condition_counts_pairs(
    epochs: list, kept: tuple[bool, bool], bits: int
) -> None:
    stages = []
    if kept[0]:
        stages.append((matches(RowKind.LEFT, Emits.UNMATCHED, passes=True), ["k", "a"]))
    if kept[1]:
        stages.append((matches(RowKind.RIGHT, Emits.UNMATCHED, passes=True), ["l", "b"]))
    total = chain(InnerJoin(PAIRS, kept), stages, COLUMNS, bits)
    left: Bag = Counter()
    right: Bag = Counter()
    for of_left, of_right in epochs:
        answer = total(side(LEFT, of_left, bits), side(RIGHT, of_right, bits))
        left, right = after(left, of_left), after(right, of_right)
        assert answer == outer(*answers(left, right, below=True), kept)


@given(epochs=histories(), emits=st.sampled_from(list(Emits)), bits=BITS)
def test_a_semi_join_on_any_condition_counts_pairs(epochs: list, emits: Emits, bits: int) -> None:
    stages = [(matches(RowKind.LEFT, emits, passes=False), ["k", "a"])]
    total = chain(InnerJoin(PAIRS, (True, False)), stages, columns_of(emits), bits)
    left: Bag = Counter()
    right: Bag = Counter()
    for of_left, of_right in epochs:
        answer = total(side(LEFT, of_left, bits), side(RIGHT, of_right, bits))
        left, right = after(left, of_left), after(right, of_right)
        _, lone, _ = answers(left, right, below=True)
        assert answer == semi(left, lone, emits)


def chain(first: StatefulOperator, stages: list, outputs: list[str], bits: int):
    """Return a function that steps operators in a row, and returns the sum of what comes out."""
    head = Epochs(first, COLUMNS)
    rest = [(Epochs(operator, outputs), names) for operator, names in stages]

    def step(left: pa.Table, right: pa.Table) -> Bag:
        rows = head.step(left, right).output
        for i, (run, names) in enumerate(rest):
            given = conditioned(rows, names, bits) if i == 0 else rehashed(rows, names, bits)
            rows = run.step(given).output
        return rest[-1][0].answer

    return step


def rehashed(rows: pa.Table, names: list[str], bits: int) -> pa.Table:
    found = rows.to_pylist()
    for row in found:
        row[HASH] = hash_of([row[name] for name in names], bits)
    return pa.Table.from_pylist(found, schema=rows.schema)


def test_a_partner_that_is_replaced_within_an_epoch_moves_no_row() -> None:
    run = Epochs(SemiJoin(ONE_SIDE, Emits.UNMATCHED), ["k", "a"])
    counts = counts_layout(RIGHT)
    run.step(table(LEFT, "weight | k | a \n +1 | 1 | 5"), table(counts, "weight | l \n +1 | 1"))
    both = "weight | l \n -1 | 1 \n +1 | 1"
    assert run.step(LEFT.schema.empty_table(), table(counts, both)).output.num_rows == 0


def test_a_second_partner_pads_nothing() -> None:
    run = Epochs(OuterJoin(PAIRS, keeps_left=True, keeps_right=False), COLUMNS)
    run.step(
        table(LEFT, "weight | k | a \n +1 | 1 | 5"), table(RIGHT, "weight | l | b \n +1 | 1 | 7")
    )
    one_more = table(RIGHT, "weight | l | b \n +1 | 1 | 8")
    assert_rows(
        run.step(LEFT.schema.empty_table(), one_more).output,
        "weight | k | a | l | b \n +1 | 1 | 5 | 1 | 8",
    )


def test_a_row_whose_key_did_not_change_is_not_read() -> None:
    run = Epochs(SemiJoin(ONE_SIDE, Emits.MATCHED), ["k", "a"])
    many = "weight | k | a \n" + "\n".join(f"+1 | 1 | {i}" for i in range(100))
    counts = counts_layout(RIGHT)
    run.step(table(LEFT, many), table(counts, "weight | l \n +1 | 1"))
    before = run.spines[0].reads.rows
    run.step(LEFT.schema.empty_table(), table(counts, "weight | l \n +1 | 1"))
    assert run.spines[0].reads.rows == before


def test_a_retraction_of_an_absent_row_is_refused() -> None:
    run = SemiJoin(ONE_SIDE, Emits.MATCHED)
    gone = table(counts_layout(RIGHT), "weight | l \n -1 | 1")
    with pytest.raises(HeadraceError, match="negative") as caught:
        Epochs(run, ["k", "a"]).step(LEFT.schema.empty_table(), gone)
    assert caught.value.code == Code.INTERNAL
