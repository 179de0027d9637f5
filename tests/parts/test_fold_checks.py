"""Folds that break their promise are refused with few events; those that keep it are not."""

from __future__ import annotations

import itertools
import time

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

import headrace
from headrace.algebra.operators import Fold
from headrace.algebra.zset import WEIGHT, Layout, OrderBy, ZSet
from headrace.errors import HeadraceError
from headrace.lifecycle.definitions.functions import check_agreement
from headrace.planning.functions.folds import folding_of
from headrace.types import to_arrow
from reference import table_of

COLUMNS = pa.schema([("acct", pa.string()), ("at", pa.int64()), ("amount", pa.int64())])
BACKWARDS = tuple(
    OrderBy(name, descending=True, nulls_first=False) for name in ("at", "acct", "amount")
)
LAYOUT = Layout(("acct",), COLUMNS, pa.schema([(WEIGHT, pa.int64())]), BACKWARDS)
RETURNS = StructType().add("n", LongType())
EVENTS = [(at, at * 7 % 11) for at in range(30)]


def checked(step, start=0, finish=lambda state: {"n": state}):
    fold = headrace.fold(
        key=["acct"], order_by=["at"], returns="n BIGINT", start=start, finish=finish, name="f"
    )(step)
    operator = Fold(LAYOUT, tuple(COLUMNS.names), to_arrow(RETURNS), folding_of(fold, RETURNS))
    rows = [{"acct": "a", "at": at, "amount": n, WEIGHT: 1} for at, n in EVENTS]
    check_agreement(operator, ZSet.of(LAYOUT, table_of(LAYOUT, rows)).consolidated())


def added(state, event):
    return state + event.amount


def in_place(state, event):
    state["seen"].append(event.at)
    state["n"] = 3 * state["n"] + event.amount
    return state


def only_in_order(state, event):
    if event.at not in (state, state + 1):
        raise ValueError(f"{event.at} after {state}")
    return event.at


@pytest.mark.parametrize(
    ("step", "start", "finish"),
    [
        (added, 0, lambda state: {"n": state}),
        (in_place, {"seen": [], "n": 0}, lambda state: {"n": state["n"] % 1000}),
        (only_in_order, 0, lambda state: {"n": state}),
    ],
)
def test_a_fold_of_its_events_alone_is_accepted(step, start, finish):
    checked(step, start, finish)


def test_a_counter_outside_of_the_state_is_found():
    numbers = itertools.count()

    def counted(state, event):
        return state + event.amount + next(numbers)

    with pytest.raises(HeadraceError, match="once more") as refused:
        checked(counted)
    assert "(1) acct='a', at=" in refused.value.detail
    assert "(2)" not in refused.value.detail


def test_the_clock_is_found():
    with pytest.raises(HeadraceError, match="gives different rows for the same events"):
        checked(lambda state, _: state + time.perf_counter_ns())


def test_a_memory_of_what_was_seen_is_found():
    seen = {}

    def first_time(state, event):
        return 2 * state + seen.setdefault(event.at, len(seen))

    with pytest.raises(HeadraceError, match="different rows") as refused:
        checked(first_time)
    listed = refused.value.detail.split("Events: ")[1]
    assert listed.count("acct=") <= 2


def test_a_state_with_a_part_elsewhere_is_found():
    last = {}

    def since_last(state, event):
        if state is None:
            last.clear()
        gap = event.at - last.get("at", event.at)
        last["at"] = event.at
        return (state or 0) + gap

    with pytest.raises(HeadraceError, match="on from a state that was kept") as refused:
        checked(since_last, None)
    assert refused.value.detail.count("acct=") == 2
