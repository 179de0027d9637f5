"""Recursion: what of a loop's change goes on, and what is set aside."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import Recursion
from headrace.algebra.zset import WEIGHT, Layout
from reference import Epochs, bag, table_of
from text_tables import assert_rows, table

LIMIT = 2
NAMES = ["x", "level"]
LAYOUT = Layout(
    ("x", "level"),
    pa.schema([("x", pa.int64()), ("level", pa.int64())]),
    pa.schema([(WEIGHT, pa.int64())]),
)

changes = st.lists(
    st.fixed_dictionaries(
        {
            "x": st.sampled_from([None, 1, 2]),
            "level": st.integers(0, LIMIT),
            WEIGHT: st.integers(-2, 2),
        }
    ),
    max_size=8,
)


@given(change=changes, bits=st.sampled_from([1, 64]))
def test_a_change_is_passed_on_or_set_aside_by_its_level(change: list, bits: int) -> None:
    given_ = table_of(LAYOUT, change, bits=bits)
    step = Epochs(Recursion(LAYOUT, LIMIT), NAMES).step(given_)
    expected = bag(given_, NAMES)
    within, beyond = (bag(update.table, NAMES) for update in step.updates)
    assert within == {row: n for row, n in expected.items() if row[1] < LIMIT}
    assert beyond == {row: n for row, n in expected.items() if row[1] >= LIMIT}
    assert bag(step.output, NAMES) == within


def test_changes_that_cancel_in_a_round_are_not_fed_back() -> None:
    text = "weight | x | level \n +1 | 7 | 1 \n -1 | 7 | 1 \n +1 | 8 | 1 \n +1 | 8 | 1"
    output = Epochs(Recursion(LAYOUT, LIMIT), NAMES).step(table(LAYOUT, text)).output
    assert_rows(output, "weight | x | level \n +2 | 8 | 1")
