"""Z-sets: consolidation and the laws of addition, against counters."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet, row_codes
from headrace.errors import HeadraceError
from reference import Bag, bag, exact, is_consolidated, nonzero, plus, table_of
from text_tables import assert_rows, table, zset

COLUMNS = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))])
LAYOUT = Layout(("k",), COLUMNS, pa.schema([(WEIGHT, pa.int64())]))
NAMES = LAYOUT.columns.names
USERS = Layout(("user",), pa.schema([("user", pa.string())]), pa.schema([(WEIGHT, pa.int64())]))
TOTALS = Layout(
    ("user",),
    pa.schema([("user", pa.string())]),
    pa.schema([("total", pa.decimal128(10, 2)), (WEIGHT, pa.int64())]),
)

rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, 1, 2, 3]),
            "x": st.sampled_from([None, 0.0, -0.0, float("nan")]),
            "tags": st.sampled_from([None, [], ["a"], [None]]),
            WEIGHT: st.integers(-2, 2),
        }
    ),
    max_size=25,
)
bits = st.sampled_from([0, 2, 64])


def zset_of(changes: list, kept_bits: int) -> ZSet:
    return ZSet.of(LAYOUT, table_of(LAYOUT, changes, bits=kept_bits))


def ones(given_rows: ZSet) -> tuple[int, pa.Field, pa.Array]:
    """The place, the field and the values of a weight of one for each row."""
    index = given_rows.table.schema.get_field_index(WEIGHT)
    return index, given_rows.table.schema.field(index), pa.array([1] * given_rows.rows, pa.int64())


@given(changes=rows, kept=bits)
def test_consolidating_keeps_the_bag(changes: list, kept: int) -> None:
    given_rows = zset_of(changes, kept)
    result = given_rows.consolidated()
    assert is_consolidated(result)
    assert bag(result.table, NAMES) == bag(given_rows.table, NAMES)
    assert result.equals(given_rows)
    assert result.consolidated().table.num_rows == result.rows


@given(changes=rows, kept=bits)
def test_a_sum_that_keeps_zeros_has_every_row_once(changes: list, kept: int) -> None:
    given_rows = zset_of(changes, kept)
    result = given_rows.grouped()
    assert result.filter(result.any_sum).equals(given_rows)
    names = [HASH, *NAMES]
    once = Counter(dict.fromkeys(bag(given_rows.table.set_column(*ones(given_rows)), names), 1))
    assert bag(result.table.set_column(*ones(result)), names) == once


@given(changes=rows, codes=st.lists(st.integers(0, 3), min_size=25, max_size=25), kept=bits)
def test_sums_by_code_are_those_by_a_hash_that_is_the_code(
    changes: list, codes: list[int], kept: int
) -> None:
    given_rows = zset_of(changes, kept)
    own = np.array(codes[: given_rows.rows], np.int64)
    found, result = given_rows.summed(own)
    expected = given_rows.with_hashes(own).consolidated()
    assert found.tolist() == sorted(found.tolist())
    assert is_consolidated(result.with_hashes(found))
    assert result.with_hashes(found).equals(expected)


@given(changes=rows, kept=bits, zeros=st.booleans())
def test_rows_known_to_be_alike_are_not_compared(changes: list, kept: int, *, zeros: bool) -> None:
    given_rows = zset_of(changes, kept)
    codes = row_codes(given_rows.identity, given_rows.rows)
    found, result = given_rows.summed(codes, alike=True, zeros=zeros)
    again, compared = given_rows.summed(codes, zeros=zeros)
    assert found.tolist() == again.tolist()
    assert exact(result.table.to_pylist()) == exact(compared.table.to_pylist())


@given(first=rows, second=rows, kept=bits)
def test_addition_is_that_of_bags(first: list, second: list, kept: int) -> None:
    left, right = zset_of(first, kept), zset_of(second, kept)
    expected: Bag = plus(bag(left.table, NAMES), bag(right.table, NAMES))
    assert bag(left.plus(right).consolidated().table, NAMES) == expected
    assert left.plus(right).equals(right.plus(left))
    assert left.plus(left.negated()).consolidated().rows == 0
    assert left.equals(right) == (bag(left.table, NAMES) == bag(right.table, NAMES))


@given(changes=rows, low=st.integers(-(2**63), 2**63 - 1), high=st.integers(-(2**63), 2**63 - 1))
def test_a_range_of_hashes_has_the_rows_between_both_ends(
    changes: list, low: int, high: int
) -> None:
    whole = zset_of(changes, 64).consolidated()
    found = whole.between(low, high).hashes.tolist()
    assert found == [hash_ for hash_ in whole.hashes.tolist() if low <= hash_ <= high]


def test_rows_with_equal_hashes_but_other_columns_are_never_merged() -> None:
    names = [f"user{i}" for i in range(50)]
    text = "weight | user \n" + "\n".join(f"+1 | {name}" for name in names * 3)
    result = zset(USERS, text, bits=2)
    assert len(set(result.hashes.tolist())) == 4
    assert_rows(result.table, "weight | user \n" + "\n".join(f"+3 | {name}" for name in names))
    assert result.rows == 50


@pytest.mark.parametrize("order", list(product("ab", repeat=4)), ids="".join)
def test_equal_rows_merge_also_where_another_row_with_that_hash_stands_between(
    order: tuple[str, ...],
) -> None:
    result = zset(USERS, "weight | user \n" + "\n".join(f"+1 | {user}" for user in order), bits=0)
    assert result.rows == len(set(order))
    assert bag(result.table, ["user"]) == nonzero(
        plus({}, {(user,): order.count(user) for user in order})
    )


def test_a_row_is_dropped_only_if_all_its_sums_are_zero() -> None:
    result = zset(
        TOTALS,
        """
        weight | user | total
            +1 | ann  |  1.00
            -1 | ann  |  2.00
            +1 | bob  |  1.00
            +1 | bob  | -1.00
            +1 | cid  |  1.00
            -1 | cid  | -1.00
        """,
    )
    assert sorted(result.table.select(["user", "total", WEIGHT]).to_pylist(), key=str) == [
        {"user": "ann", "total": Decimal("3.00"), WEIGHT: 0},
        {"user": "bob", "total": Decimal("0.00"), WEIGHT: 2},
    ]


def test_a_single_row_with_zero_sums_is_dropped() -> None:
    assert zset(USERS, "weight | user \n 0 | ann").rows == 0


def test_an_empty_zset_consolidates_to_itself() -> None:
    assert ZSet.empty(LAYOUT).consolidated().rows == 0
    assert ZSet.empty(LAYOUT).negated().plus(ZSet.empty(LAYOUT)).rows == 0


def test_rows_without_columns_add_up_to_one() -> None:
    layout = Layout((), pa.schema([]), pa.schema([(WEIGHT, pa.int64())]))
    result = zset(layout, "weight \n +1 \n +1 \n -4")
    assert result.weights.tolist() == [-2]


def test_columns_are_selected_ordered_and_cast() -> None:
    given_rows = pa.table(
        {WEIGHT: pa.array([1], pa.int32()), "more": [1], "user": ["a"], HASH: [5]}
    )
    result = ZSet.of(USERS, given_rows)
    assert result.table.schema.equals(USERS.schema)
    assert result.table.to_pylist() == [{HASH: 5, "user": "a", WEIGHT: 1}]


def test_a_record_batch_is_taken_as_a_table() -> None:
    batch = table(USERS, "weight | user \n +1 | ann").to_batches()[0]
    assert_rows(ZSet.of(USERS, batch).table, "weight | user \n +1 | ann")


def test_sums_that_overflow_are_refused() -> None:
    text = f"weight | user \n {2**63 - 1} | ann \n +1 | ann"
    with pytest.raises(HeadraceError, match="overflowed"):
        zset(USERS, text)
    with pytest.raises(HeadraceError, match="overflowed"):
        zset(USERS, f"weight | user \n {-(2**63)} | ann").negated()


def test_large_inputs_consolidate_like_small_ones() -> None:
    random = np.random.default_rng(7)
    users = random.integers(0, 300, 20_000)
    hashes = users % 16
    given_rows = pa.table(
        {HASH: hashes, "user": users.astype(str), WEIGHT: random.integers(-1, 2, 20_000)}
    )
    result = ZSet.of(USERS, given_rows).consolidated()
    assert is_consolidated(result)
    assert bag(result.table, ["user"]) == bag(given_rows, ["user"])


@pytest.mark.parametrize("bits", [0, 2, 64])
def test_rows_are_placed_by_their_keys_also_where_hashes_are_equal(bits: int) -> None:
    changes = [{"user": user, WEIGHT: 1} for user in ("a", None, "b", "c", "a", "b", "b")]
    rows = ZSet.of(USERS, table_of(USERS, changes, bits=bits))
    keys = rows.consolidated()
    at = keys.places_of(rows)
    assert keys.take(at).table["user"].to_pylist() == [each["user"] for each in changes]
