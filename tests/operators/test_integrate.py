"""Integrate: the sum of its changes."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import Integrate
from headrace.algebra.zset import WEIGHT, Layout
from reference import Bag, Epochs, bag, exact, plus, table_of
from text_tables import assert_rows, table

COUNT = pa.schema([(WEIGHT, pa.int64())])
LAYOUT = Layout(("k",), pa.schema([("k", pa.int64()), ("x", pa.float64())]), COUNT)
NO_COLUMNS = Layout((), pa.schema([]), COUNT)

changes = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, 1, 2]),
            "x": st.sampled_from([None, 0.0, -0.0, float("nan")]),
            WEIGHT: st.integers(-2, 2),
        }
    ),
    max_size=8,
)


@given(epochs=st.lists(changes, max_size=5), bits=st.sampled_from([1, 64]))
def test_after_every_epoch_the_sum_of_outputs_is_the_sum_of_inputs(epochs: list, bits: int) -> None:
    run = Epochs(Integrate(LAYOUT), ["k", "x"])
    total: Bag = Counter()
    for epoch in epochs:
        change = table_of(LAYOUT, epoch, bits=bits)
        step = run.step(change)
        total = plus(total, bag(change, ["k", "x"]))
        assert run.answer == total
        assert exact(step.output.to_pylist()) == exact(step.updates[0].table.to_pylist())
    assert run.state_rows == len(total)


def test_the_output_is_consolidated() -> None:
    text = "weight | k | x \n +1 | 1 | 0.5 \n +1 | 1 | 0.5 \n +1 | 2 | 1 \n -1 | 2 | 1"
    change = table(LAYOUT, text)
    output = Epochs(Integrate(LAYOUT), ["k", "x"]).step(change).output
    assert output.num_rows == 1
    assert_rows(output, "weight | k | x \n +2 | 1 | 0.5")


def test_rows_without_columns_are_counted() -> None:
    run = Epochs(Integrate(NO_COLUMNS), [])
    run.step(table(NO_COLUMNS, "weight \n +1 \n +4"))
    run.step(table(NO_COLUMNS, "weight \n -2"))
    assert run.answer == Counter({(): 3})
