"""InnerJoin: against a nested loop."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import InnerJoin, Pairs
from headrace.algebra.zset import HASH, WEIGHT, Layout
from headrace.errors import Code, HeadraceError
from reference import Bag, Epochs, bag, nonzero, plus, table_of
from text_tables import assert_rows, table

COUNT = pa.schema([(WEIGHT, pa.int64())])
LEFT = Layout(
    ("k", "s"), pa.schema([("a", pa.int64()), ("k", pa.int32()), ("s", pa.string())]), COUNT
)
RIGHT = Layout(
    ("kk", "ss"), pa.schema([("kk", pa.int32()), ("ss", pa.string()), ("b", pa.string())]), COUNT
)
OUTPUT = ["a", "key", "right_s", "b"]

ORDERS = Layout(("user",), pa.schema([("user", pa.string()), ("amount", pa.int64())]), COUNT)
USERS = Layout(("id",), pa.schema([("id", pa.string()), ("city", pa.string())]), COUNT)


def join(null_safe: tuple[bool, bool] = (False, True)) -> InnerJoin:
    return InnerJoin(
        Pairs(LEFT, RIGHT, (("a", "a"), ("k", "key")), (("ss", "right_s"), ("b", "b")), null_safe)
    )


def orders_and_users(*, null_safe: bool = False) -> InnerJoin:
    output = (("user", "user"), ("amount", "amount"))
    return InnerJoin(Pairs(ORDERS, USERS, output, (("city", "city"),), (null_safe,)))


def nested_loop(left: Bag, right: Bag, null_safe: tuple[bool, ...]) -> Bag:
    answer: Bag = Counter()
    for (a, *key), weight in left.items():
        for (*other, b), partner in right.items():
            if key == other and all(
                safe or value is not None for safe, value in zip(null_safe, key, strict=True)
            ):
                answer[a, key[0], key[1], b] += weight * partner
    return nonzero(answer)


def changes(layout: Layout) -> st.SearchStrategy[list[dict]]:
    values = {
        "int64": st.integers(0, 2),
        "int32": st.sampled_from([None, 1, 2]),
        "string": st.sampled_from([None, "", "x"]),
    }
    row = {field.name: values[str(field.type)] for field in layout.columns}
    return st.lists(st.fixed_dictionaries({**row, WEIGHT: st.integers(-2, 2)}), max_size=6)


@given(
    epochs=st.lists(st.tuples(changes(LEFT), changes(RIGHT)), min_size=1, max_size=5),
    null_safe=st.tuples(st.booleans(), st.booleans()),
    bits=st.sampled_from([1, 2, 64]),
)
def test_after_every_epoch_the_sum_of_outputs_is_the_join_of_the_sums(
    epochs: list, null_safe: tuple[bool, bool], bits: int
) -> None:
    run = Epochs(join(null_safe), OUTPUT)
    left: Bag = Counter()
    right: Bag = Counter()
    for left_rows, right_rows in epochs:
        left_table = table_of(LEFT, left_rows, bits=bits)
        right_table = table_of(RIGHT, right_rows, bits=bits)
        run.step(left_table, right_table)
        left = plus(left, bag(left_table, LEFT.columns.names))
        right = plus(right, bag(right_table, RIGHT.columns.names))
        assert run.answer == nested_loop(left, right, null_safe)


@given(
    left=changes(LEFT), right=changes(RIGHT), cuts=st.tuples(st.integers(0, 6), st.integers(0, 6))
)
def test_any_split_into_epochs_gives_the_same_total(
    left: list, right: list, cuts: tuple[int, int]
) -> None:
    whole, split = (Epochs(join(), OUTPUT) for _ in range(2))
    whole.step(table_of(LEFT, left), table_of(RIGHT, right))
    i, j = cuts
    split.step(table_of(LEFT, left[:i]), table_of(RIGHT, right[j:]))
    split.step(table_of(LEFT, left[i:]), table_of(RIGHT, right[:j]))
    assert whole.answer == split.answer


@given(left=changes(LEFT), right=changes(RIGHT))
def test_insert_all_then_nothing_then_delete_all_leaves_nothing(left: list, right: list) -> None:
    run = Epochs(join((False, False)), OUTPUT)
    inserts = table_of(LEFT, left), table_of(RIGHT, right)
    run.step(*inserts)
    assert run.step(LEFT.schema.empty_table(), RIGHT.schema.empty_table()).output.num_rows == 0
    run.step(*(negative(each) for each in inserts))
    assert not run.answer
    assert run.state_rows == 0


def negative(rows: pa.Table) -> pa.Table:
    index = rows.schema.get_field_index(WEIGHT)
    weights = pa.array([-weight for weight in rows[WEIGHT].to_pylist()], pa.int64())
    return rows.set_column(index, rows.schema.field(index), weights)


def test_both_sides_changing_in_one_epoch_pair_once() -> None:
    run = Epochs(orders_and_users(), ["user", "amount", "city"])
    run.step(
        table(ORDERS, "weight | user | amount \n +1 | ann | 10"),
        table(USERS, "weight | id | city \n +1 | ann | Oslo"),
    )
    step = run.step(
        table(
            ORDERS,
            """
            weight | user | amount
                +1 | ann  |     20
                -1 | ann  |     10
                +1 | bob  |      5
            """,
        ),
        table(
            USERS,
            """
            weight | id  | city
                -1 | ann | Oslo
                +1 | ann | Rome
                +1 | bob | Bonn
            """,
        ),
    )
    assert_rows(
        step.output,
        """
        weight | user | amount | city
            -1 | ann  |     10 | Oslo
            +1 | ann  |     20 | Rome
            +1 | bob  |      5 | Bonn
        """,
    )


def test_rows_with_equal_hashes_and_other_keys_do_not_pair() -> None:
    run = Epochs(orders_and_users(), ["user", "amount", "city"])
    users = "weight | id | city \n +1 | ann | Oslo \n +1 | bob | Rome \n +1 | cid | Bonn"
    run.step(ORDERS.schema.empty_table(), table(USERS, users, bits=0))
    order = table(ORDERS, "weight | user | amount \n +1 | bob | 10", bits=0)
    output = run.step(order, USERS.schema.empty_table()).output
    assert_rows(output, "weight | user | amount | city \n +1 | bob | 10 | Rome")


def test_a_null_key_equals_nothing_and_is_not_kept() -> None:
    inputs = (
        table(ORDERS, "weight | user | amount \n +1 | NULL | 10"),
        table(USERS, "weight | id | city \n +1 | NULL | Oslo"),
    )
    run = Epochs(orders_and_users(), ["user", "amount", "city"])
    assert run.step(*inputs).output.num_rows == 0
    assert run.state_rows == 0


def test_a_null_safe_key_pairs_null_with_null() -> None:
    inputs = (
        table(ORDERS, "weight | user | amount \n +1 | NULL | 10"),
        table(USERS, "weight | id | city \n +1 | NULL | Oslo"),
    )
    run = Epochs(orders_and_users(null_safe=True), ["user", "amount", "city"])
    output = run.step(*inputs).output
    assert_rows(output, "weight | user | amount | city \n +1 | NULL | 10 | Oslo")


def test_weights_multiply() -> None:
    run = Epochs(orders_and_users(), ["user", "amount", "city"])
    output = run.step(
        table(ORDERS, "weight | user | amount \n +2 | ann | 10"),
        table(USERS, "weight | id | city \n -3 | ann | Oslo"),
    ).output
    assert_rows(output, "weight | user | amount | city \n -6 | ann | 10 | Oslo")


def test_changes_that_cancel_inside_an_epoch_emit_nothing() -> None:
    run = Epochs(orders_and_users(), ["user", "amount", "city"])
    run.step(ORDERS.schema.empty_table(), table(USERS, "weight | id | city \n +1 | ann | Oslo"))
    order = "weight | user | amount \n +1 | ann | 10 \n -1 | ann | 10"
    step = run.step(table(ORDERS, order), USERS.schema.empty_table())
    assert step.output.num_rows == 0
    assert step.updates[0].rows == 0


def test_a_step_emits_no_more_rows_than_pairs_that_touch_a_change() -> None:
    run = Epochs(orders_and_users(), ["user", "amount", "city"])
    users = "weight | id | city \n" + "\n".join(f"+1 | user{i} | Oslo" for i in range(100))
    run.step(ORDERS.schema.empty_table(), table(USERS, users))
    order = table(ORDERS, "weight | user | amount \n +1 | user7 | 10")
    assert run.step(order, USERS.schema.empty_table()).output.num_rows == 1


def test_the_output_carries_the_hash_of_the_key() -> None:
    run = Epochs(orders_and_users(), ["user", "amount", "city"])
    orders = table(ORDERS, "weight | user | amount \n +1 | ann | 10 \n +1 | bob | 20")
    users = table(USERS, "weight | id | city \n +1 | ann | Oslo \n +1 | bob | Rome")
    output = run.step(orders, users).output
    hashes = dict(zip(orders["user"].to_pylist(), orders[HASH].to_pylist(), strict=True))
    found = zip(output["user"].to_pylist(), output[HASH].to_pylist(), strict=True)
    assert sorted(found) == sorted(hashes.items())


def test_a_cross_join_pairs_all_rows() -> None:
    left = Layout((), pa.schema([("a", pa.int64())]), COUNT)
    right = Layout((), pa.schema([("b", pa.int64())]), COUNT)
    run = Epochs(InnerJoin(Pairs(left, right, (("a", "a"),), (("b", "b"),), ())), ["a", "b"])
    output = run.step(
        table(left, "weight | a \n +1 | 1 \n +1 | 2"), table(right, "weight | b \n +1 | 3")
    ).output
    assert_rows(output, "weight | a | b \n +1 | 1 | 3 \n +1 | 2 | 3")


def test_keys_of_different_types_are_refused() -> None:
    other = Layout(("id",), pa.schema([("id", pa.int64())]), COUNT)
    with pytest.raises(HeadraceError, match="same types"):
        Pairs(ORDERS, other, (), (), (False,))


def test_a_weight_out_of_range_is_refused() -> None:
    run = Epochs(orders_and_users(), [])
    with pytest.raises(HeadraceError, match="overflowed") as caught:
        run.step(
            table(ORDERS, f"weight | user | amount \n {2**62} | ann | 10"),
            table(USERS, "weight | id | city \n +2 | ann | Oslo"),
        )
    assert caught.value.code == Code.INVALID
