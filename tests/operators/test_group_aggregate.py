"""GroupAggregate and GlobalAggregate: against counting and adding in Python."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import INIT, GlobalAggregate, GroupAggregate
from headrace.algebra.zset import HASH, WEIGHT, Layout
from headrace.errors import Code, HeadraceError
from reference import Bag, Epochs, table_of
from text_tables import assert_rows, table

SUMS = pa.schema([(WEIGHT, pa.int64()), ("seen", pa.int64()), ("total", pa.decimal128(12, 2))])
GROUPS = Layout(("user", "day"), pa.schema([("user", pa.string()), ("day", pa.int32())]), SUMS)
GLOBAL = Layout((), pa.schema([]), SUMS)
BY_USER = Layout(
    ("user",),
    pa.schema([("user", pa.string())]),
    pa.schema([(WEIGHT, pa.int64()), ("total", pa.int64())]),
)
OUTPUT = ["user", "day", "__rows", "seen", "total"]

rows = st.tuples(
    st.sampled_from([None, "ann", "bob"]),
    st.sampled_from([None, 1]),
    st.sampled_from([None, Decimal("0.10"), Decimal("-2.25")]),
)


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


def increments(epoch: list[tuple[tuple, int]]) -> list[dict[str, Any]]:
    """What the rows of an epoch add to count(*), count(amount) and sum(amount)."""
    return [
        {
            "user": user,
            "day": day,
            WEIGHT: weight,
            "seen": weight * (amount is not None),
            "total": weight * (amount or Decimal(0)),
        }
        for (user, day, amount), weight in epoch
    ]


def answer(live: Counter[tuple]) -> Bag:
    groups: dict[tuple, list[tuple]] = {}
    for row in live.elements():
        groups.setdefault(row[:2], []).append(row)
    return Counter((*key, *totals(members)) for key, members in groups.items())


def totals(members: list[tuple]) -> tuple[int, int, Decimal]:
    amounts = [amount for *_, amount in members if amount is not None]
    return len(members), len(amounts), sum(amounts, Decimal(0))


@given(epochs=histories(), bits=st.sampled_from([1, 2, 64]))
def test_after_every_epoch_the_sum_of_outputs_is_the_aggregate_of_the_rows(
    epochs: list, bits: int
) -> None:
    run = Epochs(GroupAggregate(GROUPS), OUTPUT)
    live: Counter[tuple] = Counter()
    for epoch in epochs:
        for row, weight in epoch:
            live[row] += weight
        step = run.step(table_of(GROUPS, increments(epoch), bits=bits))
        assert run.answer == answer(live)
        assert step.output.num_rows <= 2 * len({row[:2] for row, _ in epoch})
        assert set(step.output[WEIGHT].to_pylist()) <= {-1, 1}


@given(epochs=histories())
def test_a_global_aggregate_has_one_row_after_every_epoch(epochs: list) -> None:
    run = Epochs(GlobalAggregate(GLOBAL), OUTPUT[2:])
    live: Counter[tuple] = Counter()
    for epoch in [[], *epochs]:
        for row, weight in epoch:
            live[row] += weight
        run.step(table_of(GLOBAL, [_without_key(row) for row in increments(epoch)]))
        assert run.answer == Counter([totals(list(live.elements()))])


def _without_key(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in {"user", "day"}}


@given(epochs=histories())
def test_any_split_into_epochs_gives_the_same_total(epochs: list) -> None:
    whole, split = (Epochs(GroupAggregate(GROUPS), OUTPUT) for _ in range(2))
    changes = [change for epoch in epochs for change in epoch]
    whole.step(table_of(GROUPS, increments(changes)))
    for epoch in epochs:
        split.step(table_of(GROUPS, increments(epoch)))
    assert whole.answer == split.answer


@given(inserted=st.lists(rows, max_size=10))
def test_insert_all_then_nothing_then_delete_all_leaves_nothing(inserted: list) -> None:
    run = Epochs(GroupAggregate(GROUPS), OUTPUT)
    run.step(table_of(GROUPS, increments([(row, 1) for row in inserted])))
    assert run.step(GROUPS.schema.empty_table()).output.num_rows == 0
    run.step(table_of(GROUPS, increments([(row, -1) for row in inserted])))
    assert not run.answer
    assert run.state_rows == 0


def test_a_group_changes_from_old_to_new_and_is_removed_without_rows() -> None:
    run = Epochs(GroupAggregate(BY_USER), ["user", "__rows", "total"])
    run.step(table(BY_USER, "weight | user | total \n +2 | ann | 20 \n +1 | bob | 5"))
    step = run.step(
        table(
            BY_USER,
            """
            weight | user | total
                +1 | ann  |    10
                -1 | bob  |    -5
                +1 | cid  |     0
            """,
        )
    )
    assert_rows(
        step.output,
        """
        weight | user | rows | total
            -1 | ann  |    2 |    20
            +1 | ann  |    3 |    30
            -1 | bob  |    1 |     5
            +1 | cid  |    1 |     0
        """,
    )


def test_the_hash_of_a_group_is_carried_through() -> None:
    change = table(BY_USER, "weight | user | total \n +1 | ann | 10")
    output = Epochs(GroupAggregate(BY_USER), ["user"]).step(change).output
    assert output.schema.names == [HASH, "user", WEIGHT, "__rows", "total"]
    assert output[HASH].to_pylist() == change[HASH].to_pylist()


def test_increments_that_cancel_emit_nothing() -> None:
    run = Epochs(GroupAggregate(BY_USER), ["user"])
    change = "weight | user | total \n +1 | ann | 10 \n -1 | ann | -10"
    step = run.step(table(BY_USER, change))
    assert step.output.num_rows == 0
    assert step.updates[0].rows == 0


def test_a_change_of_the_sum_without_a_change_of_the_count_is_seen() -> None:
    run = Epochs(GroupAggregate(BY_USER), ["user", "__rows", "total"])
    run.step(table(BY_USER, "weight | user | total \n +1 | ann | 10"))
    output = run.step(table(BY_USER, "weight | user | total \n 0 | ann | 7")).output
    assert_rows(output, "weight | user | rows | total \n -1 | ann | 1 | 10 \n +1 | ann | 1 | 17")


def test_a_negative_number_of_rows_is_refused() -> None:
    run = Epochs(GroupAggregate(BY_USER), ["user"])
    with pytest.raises(HeadraceError, match="negative number of rows") as caught:
        run.step(table(BY_USER, "weight | user | total \n -1 | ann | -10"))
    assert caught.value.code == Code.INTERNAL


def test_a_total_without_rows_is_refused() -> None:
    run = Epochs(GroupAggregate(BY_USER), ["user"])
    with pytest.raises(HeadraceError, match="without rows has a total"):
        run.step(table(BY_USER, "weight | user | total \n +1 | ann | 10 \n -1 | ann | -9"))


def test_a_total_that_overflows_is_refused_also_across_epochs() -> None:
    run = Epochs(GroupAggregate(BY_USER), ["user"])
    change = table(BY_USER, f"weight | user | total \n +1 | ann | {2**63 - 1}")
    run.step(change)
    with pytest.raises(HeadraceError, match="overflowed"):
        run.step(change)


def test_a_global_aggregate_publishes_its_row_once_over_no_input() -> None:
    run = Epochs(GlobalAggregate(GLOBAL), OUTPUT[2:])
    first = run.step(GLOBAL.schema.empty_table())
    assert_rows(first.output, "weight | rows | seen | total \n +1 | 0 | 0 | 0.00")
    assert first.updates[0].table[INIT].to_pylist() == [1]
    second = run.step(GLOBAL.schema.empty_table())
    assert second.output.num_rows == 0
    assert second.updates[0].rows == 0


def test_a_global_aggregate_keeps_its_row_when_all_rows_are_deleted() -> None:
    run = Epochs(GlobalAggregate(GLOBAL), OUTPUT[2:])
    run.step(table(GLOBAL, "weight | seen | total \n +1 | 1 | 2.50"))
    output = run.step(table(GLOBAL, "weight | seen | total \n -1 | -1 | -2.50")).output
    assert_rows(output, "weight | rows | seen | total \n -1 | 1 | 1 | 2.50 \n +1 | 0 | 0 | 0.00")


def test_a_global_aggregate_refuses_a_key() -> None:
    with pytest.raises(HeadraceError, match="has a key"):
        GlobalAggregate(GROUPS)
