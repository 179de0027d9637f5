"""Upsert: against a dict."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import OFFSET, Upsert
from headrace.algebra.zset import WEIGHT, Layout
from headrace.errors import HeadraceError
from reference import Epochs, table_of
from text_tables import assert_rows, table

COLUMNS = pa.schema([("name", pa.string()), ("id", pa.int64()), ("tag", pa.list_(pa.int64()))])
LAYOUT = Layout(("id",), COLUMNS, pa.schema([(WEIGHT, pa.int64())]))
POSITION = pa.field(OFFSET, pa.int64())

change = st.tuples(
    st.sampled_from([None, 1, 2, 3]),
    st.one_of(
        st.just("delete"),
        st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, [], [1, None]])),
    ),
)


def rows_of(changes: list[tuple[int, tuple]]) -> list[dict[str, Any]]:
    rows = []
    for offset, (key, what) in changes:
        row = {"id": key, OFFSET: offset, WEIGHT: -1}
        if what != "delete":
            row |= {"name": what[0], "tag": what[1], WEIGHT: 1}
        rows.append(row)
    return rows


@given(
    changes=st.lists(change, max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=4),
    bits=st.sampled_from([1, 2, 64]),
    random=st.randoms(use_true_random=False),
)
def test_after_every_epoch_the_sum_of_outputs_is_the_last_row_of_each_key(
    changes: list, cuts: list, bits: int, random: Any
) -> None:
    run = Epochs(Upsert(LAYOUT), ["id", "name", "tag"])
    current: dict[Any, tuple] = {}
    log = list(enumerate(changes))
    bounds = [0, *sorted(cuts), len(log)]
    for start, stop in itertools.pairwise(bounds):
        epoch = log[start:stop]
        for _, (key, what) in epoch:
            if what == "delete":
                current.pop(key, None)
            else:
                name, tag = what
                current[key] = (key, name, None if tag is None else tuple(tag))
        random.shuffle(epoch)
        run.step(table_of(LAYOUT, rows_of(epoch), POSITION, bits=bits))
        assert run.answer == Counter(current.values())
    assert run.state_rows == len(current)


def test_the_last_change_of_a_key_wins_whatever_the_order_of_arrival() -> None:
    run = Epochs(Upsert(LAYOUT), ["id", "name"])
    output = run.step(
        table(
            LAYOUT,
            """
            weight | offset | id | name
                +1 |      7 |  1 | late
                -1 |      6 |  1 | NULL
                +1 |      5 |  1 | early
            """,
            POSITION,
        )
    ).output
    assert_rows(output, "weight | id | name \n +1 | 1 | late")


def test_an_update_replaces_and_a_delete_by_key_removes() -> None:
    run = Epochs(Upsert(LAYOUT), ["id", "name"])
    before = "weight | offset | id | name \n +1 | 1 | 1 | ann \n +1 | 2 | 2 | bob"
    run.step(table(LAYOUT, before, POSITION))
    after = "weight | offset | id | name \n +1 | 3 | 1 | eve \n -1 | 4 | 2 | NULL"
    assert_rows(
        run.step(table(LAYOUT, after, POSITION)).output,
        """
        weight | id | name
            -1 |  1 | ann
            +1 |  1 | eve
            -1 |  2 | bob
        """,
    )


def test_the_same_row_again_changes_nothing() -> None:
    run = Epochs(Upsert(LAYOUT), ["id", "name"])
    run.step(table(LAYOUT, "weight | offset | id | name \n +1 | 1 | 1 | ann", POSITION))
    step = run.step(table(LAYOUT, "weight | offset | id | name \n +1 | 2 | 1 | ann", POSITION))
    assert step.output.num_rows == 0
    assert step.updates[0].rows == 0


def test_deleting_an_absent_key_changes_nothing() -> None:
    run = Epochs(Upsert(LAYOUT), ["id", "name"])
    step = run.step(table(LAYOUT, "weight | offset | id | name \n -1 | 1 | 1 | NULL", POSITION))
    assert step.output.num_rows == 0


def test_an_empty_epoch_changes_nothing() -> None:
    run = Epochs(Upsert(LAYOUT), ["id", "name"])
    assert run.step(table_of(LAYOUT, [], POSITION)).output.num_rows == 0


def test_a_weight_other_than_one_is_refused() -> None:
    run = Epochs(Upsert(LAYOUT), ["id"])
    with pytest.raises(HeadraceError, match="neither upserts nor deletes"):
        run.step(table(LAYOUT, "weight | offset | id \n +2 | 1 | 1", POSITION))
