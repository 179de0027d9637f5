"""Aggregates with parts: DISTINCT arguments, extrema, picked values, floats, beside plain Python."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import (
    Distinct,
    End,
    Extremum,
    FloatSum,
    GlobalAggregate,
    GroupAggregate,
    Part,
    Picked,
    Quantile,
    QuantileColumn,
    Quantiles,
)
from headrace.algebra.spine import Run, Spine
from headrace.algebra.spine.first_rows import Reads
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.errors import Code, HeadraceError
from reference import Bag, Epochs, compare_values, exact, table_of
from text_tables import assert_rows, table

MONEY = pa.decimal128(12, 2)
LONG = pa.int64()
SUMS = pa.schema([(WEIGHT, LONG), ("d0", LONG), ("seen", LONG), ("d1", LONG), ("d2", MONEY)])
USER = pa.schema([("user", pa.string())])
X, S, AMOUNT = (
    pa.field("x", pa.float64()),
    pa.field("s", pa.string()),
    pa.field("amount", pa.decimal128(5, 2)),
)


def parts(*, append_only: bool) -> tuple[Part, ...]:
    """count(DISTINCT s, amount) FILTER (...), count and sum(DISTINCT amount), min, max, and others.

    The others are max_by(s, x), first(s) by the amount, and sum(x).
    """
    last = [OrderBy(name, descending=True, nulls_first=False) for name in ("x", "s", "amount")]
    first = [OrderBy(name) for name in ("amount", "s")]
    return (
        Distinct(pa.schema([S, AMOUNT]), "w0", counts=("d0",)),
        Extremum(X, "w2", "least", End.MIN, append_only),
        Distinct(pa.schema([AMOUNT]), "w1", counts=("d1",), sums=(("d2", "amount"),)),
        Extremum(X, "w2", "greatest", End.MAX, append_only),
        Extremum(S, "w3", "last", End.MAX, append_only),
        Picked(pa.schema([S, X, AMOUNT]), tuple(last), "w2", "of_greatest", append_only),
        Picked(pa.schema([S, AMOUNT]), tuple(first), "w4", "first", append_only),
        FloatSum(X, "w2", "total"),
    )


GROUPS = GroupAggregate(Layout(("user",), USER, SUMS), parts(append_only=False))
GROWING = GroupAggregate(Layout(("user",), USER, SUMS), parts(append_only=True))
GLOBAL = GlobalAggregate(Layout((), pa.schema([]), SUMS), parts(append_only=False))
RESULTS = ["__rows", "d0", "seen", "d1", "d2", "least", "greatest", "last"]
RESULTS += ["of_greatest", "first", "total"]

rows = st.tuples(
    st.sampled_from([None, "ann", "bob"]),
    st.sampled_from([None, 0.0, -0.0, 2.5, -1.0, float("inf"), float("nan")]),
    st.sampled_from([None, "a", "b", "é"]),
    st.sampled_from([None, Decimal("0.10"), Decimal("-2.25")]),
)
some_bits = st.sampled_from([1, 2, 64])


@st.composite
def histories(draw: st.DrawFn, *, deletes: bool = True) -> list[list[tuple[tuple, int]]]:
    """Epochs of insertions and retractions; no row is retracted that is absent."""
    live: Counter[Any] = Counter()
    epochs = []
    for wanted in draw(st.lists(st.lists(st.tuples(rows, st.booleans()), max_size=8), max_size=5)):
        epoch = []
        for row, goes in wanted:
            weight = -1 if deletes and goes and live[exact(row)] else 1
            live[exact(row)] += weight
            epoch.append((row, weight))
        epochs.append(epoch)
    return epochs


def increments(epoch: list[tuple[tuple, int]]) -> list[dict[str, Any]]:
    """What rows add: to count(x), and with which weight they count for each part."""
    return [
        {
            "user": user,
            "x": x,
            "s": s,
            "amount": amount,
            WEIGHT: weight,
            "seen": weight * (x is not None),
            "w0": weight * (s is not None and amount is not None and s != "b"),
            "w1": weight * (amount is not None),
            "w2": weight * (x is not None),
            "w3": weight * (s is not None),
            "w4": weight,
        }
        for (user, x, s, amount), weight in epoch
    ]


def input_of(operator: GroupAggregate | GlobalAggregate, epoch: list, bits: int = 64) -> pa.Table:
    names = operator.increments.schema.names
    return table_of(
        operator.increments,
        [{n: v for n, v in row.items() if n in names} for row in increments(epoch)],
        bits=bits,
    )


def totals(members: list[tuple]) -> tuple:
    xs = [x for _, x, _, _ in members if x is not None]
    amounts = {amount for *_, amount in members if amount is not None}
    pairs = {(s, a) for _, _, s, a in members if s is not None and a is not None and s != "b"}
    # Of -0.0 and 0.0, which are equal, the first is always -0.0.
    xs.sort(key=lambda x: str(x) != "-0.0")
    up = sorted(xs, key=cmp_to_key(compare_values))
    down = sorted(xs, key=cmp_to_key(lambda a, b: compare_values(b, a)))
    return (
        len(members),
        len(pairs),
        len(xs),
        len(amounts),
        sum(amounts, Decimal(0)),
        exact(up[0]) if up else None,
        exact(down[0]) if down else None,
        max((s for _, _, s, _ in members if s is not None), default=None),
        _of_greatest([row for row in members if row[1] is not None]),
        _first_by_amount(members),
        exact(_sum_of_floats(xs)),
    )


def _first_by_amount(members: list[tuple]) -> str | None:
    """Return the first text in the order of the amounts, then of the texts, NULL first."""
    orders = [(a is not None, a or 0, s is not None, s or "") for _, _, s, a in members]
    return members[orders.index(min(orders))][2] if orders else None


def _of_greatest(members: list[tuple]) -> str | None:
    """Return the text of the last row of those with the greatest number."""
    greatest = max((x for _, x, _, _ in members), key=cmp_to_key(compare_values), default=None)
    tied = [row for row in members if compare_values(row[1], greatest) == 0]
    orders = [(s is not None, s or "", a is not None, a or 0) for _, _, s, a in tied]
    return tied[orders.index(max(orders))][2] if tied else None


def _sum_of_floats(values: list[float]) -> float | None:
    """Return the float nearest to the sum; None without values other than zero."""
    if not any(values):
        return None
    try:
        return math.fsum(values)
    except ValueError:  # infinities of both signs
        return math.nan


class Live:
    """The rows that are there."""

    def __init__(self) -> None:
        self.rows: dict[Any, tuple] = {}
        self.counts: Counter[Any] = Counter()

    def apply(self, epoch: list[tuple[tuple, int]]) -> None:
        for row, weight in epoch:
            self.rows[exact(row)] = row
            self.counts[exact(row)] += weight

    @property
    def members(self) -> list[tuple]:
        return [self.rows[code] for code in self.counts.elements()]

    @property
    def answer(self) -> Bag:
        groups: dict[Any, list[tuple]] = {}
        for row in self.members:
            groups.setdefault(row[0], []).append(row)
        return Counter((user, *totals(members)) for user, members in groups.items())


@given(epochs=histories(), bits=some_bits)
def test_after_every_epoch_the_sum_of_outputs_is_the_aggregate_of_the_rows(
    epochs: list, bits: int
) -> None:
    run, live = Epochs(GROUPS, ["user", *RESULTS]), Live()
    for epoch in epochs:
        live.apply(epoch)
        step = run.step(input_of(GROUPS, epoch, bits))
        assert run.answer == live.answer
        assert step.output.schema.equals(GROUPS.schema)
        assert step.output.num_rows <= 2 * len({row[0] for row, _ in epoch})
        entries = [exact({**row, WEIGHT: 0}) for row in step.output.to_pylist()]
        assert len(set(entries)) == len(entries), "a group that does not change emits nothing"


@given(epochs=histories(deletes=False), bits=some_bits)
def test_a_growing_input_needs_no_more_than_the_extremum_of_each_group(
    epochs: list, bits: int
) -> None:
    run, live = Epochs(GROWING, ["user", *RESULTS]), Live()
    for epoch in epochs:
        live.apply(epoch)
        run.step(input_of(GROWING, epoch, bits))
        assert run.answer == live.answer
    for index, part in enumerate(GROWING.parts):
        if isinstance(part, Extremum | Picked):
            kept = list(run.spines[index + 1].scan(1000))
            assert sum(part.rows for part in kept) <= len(live.answer)
            assert all((part.weights == 1).all() for part in kept)


@given(epochs=histories())
def test_a_global_aggregate_has_one_row_after_every_epoch(epochs: list) -> None:
    run, live = Epochs(GLOBAL, RESULTS), Live()
    for epoch in [[], *epochs]:
        live.apply(epoch)
        run.step(input_of(GLOBAL, epoch))
        assert run.answer == Counter([totals(live.members)])


@given(epochs=histories(), bits=some_bits)
def test_neither_the_split_into_epochs_nor_adding_up_before_matters(
    epochs: list, bits: int
) -> None:
    whole, split = (Epochs(GROUPS, ["user", *RESULTS]) for _ in range(2))
    changes = [change for epoch in epochs for change in epoch]
    whole.step(input_of(GROUPS, changes, bits))
    for epoch in epochs:
        added_up = ZSet.of(GROUPS.increments, input_of(GROUPS, epoch, bits)).consolidated()
        split.step(added_up.table)
    assert whole.answer == split.answer
    assert whole.state_rows == split.state_rows


@given(inserted=st.lists(rows, max_size=10), bits=some_bits)
def test_insert_all_then_nothing_then_delete_all_leaves_nothing(inserted: list, bits: int) -> None:
    run = Epochs(GROUPS, ["user", *RESULTS])
    run.step(input_of(GROUPS, [(row, 1) for row in inserted], bits))
    assert run.step(input_of(GROUPS, [])).output.num_rows == 0
    run.step(input_of(GROUPS, [(row, -1) for row in inserted], bits))
    assert not run.answer
    assert run.state_rows == 0


LEAST = GroupAggregate(
    Layout(("user",), USER, pa.schema([(WEIGHT, LONG)])),
    (Extremum(pa.field("x", LONG), "w0", "least", End.MIN),),
)
DISTINCT = GroupAggregate(
    Layout(("user",), USER, pa.schema([(WEIGHT, LONG), ("count", LONG), ("total", LONG)])),
    (Distinct(pa.schema([("x", pa.int32())]), "w0", counts=("count",), sums=(("total", "x"),)),),
)


def test_an_extremum_that_is_deleted_gives_way_to_the_next() -> None:
    run = Epochs(LEAST, ["user", "least"])
    run.step(
        table(
            LEAST.increments,
            """
            weight | user | x | w0
                +2 | ann  | 1 | +2
                +1 | ann  | 4 | +1
                +1 | ann  | 9 | +1
                +1 | ann  | NULL | 0
            """,
        )
    )
    once = run.step(table(LEAST.increments, "weight | user | x | w0 \n -1 | ann | 1 | -1"))
    assert_rows(
        once.output,
        "weight | user | rows | least \n -1 | ann | 5 | 1 \n +1 | ann | 4 | 1",
    )
    twice = run.step(
        table(LEAST.increments, "weight | user | x | w0 \n -1 | ann | 1 | -1 \n -1 | ann | 4 | -1")
    )
    assert_rows(
        twice.output,
        "weight | user | rows | least \n -1 | ann | 4 | 1 \n +1 | ann | 2 | 9",
    )
    thrice = run.step(table(LEAST.increments, "weight | user | x | w0 \n -1 | ann | 9 | -1"))
    assert_rows(
        thrice.output,
        "weight | user | rows | least \n -1 | ann | 2 | 9 \n +1 | ann | 1 | NULL",
    )


def test_a_row_replaced_shows_though_no_total_changes() -> None:
    run = Epochs(LEAST, ["user", "least"])
    run.step(table(LEAST.increments, "weight | user | x | w0 \n +1 | ann | 1 | +1"))
    change = "weight | user | x | w0 \n -1 | ann | 1 | -1 \n +1 | ann | 2 | +1"
    output = run.step(table(LEAST.increments, change)).output
    assert_rows(output, "weight | user | least \n -1 | ann | 1 \n +1 | ann | 2")


def test_a_group_emits_nothing_where_neither_total_nor_extremum_changes() -> None:
    run = Epochs(LEAST, ["user", "least"])
    run.step(
        table(
            LEAST.increments,
            "weight | user | x | w0 \n +1 | ann | 1 | +1 \n +1 | ann | 5 | +1",
        )
    )
    change = "weight | user | x | w0 \n -1 | ann | 5 | -1 \n +1 | ann | 2 | +1"
    step = run.step(table(LEAST.increments, change))
    assert step.output.num_rows == 0
    assert [update.rows for update in step.updates] == [0, 2]


def test_a_value_counts_once_however_often_it_is_inserted() -> None:
    run = Epochs(DISTINCT, ["user", "count", "total"])
    run.step(
        table(DISTINCT.increments, "weight | user | x | w0 \n +3 | ann | 7 | 3 \n +1 | ann | 5 | 1")
    )
    assert run.answer == Counter({("ann", 2, 12): 1})
    run.step(table(DISTINCT.increments, "weight | user | x | w0 \n -2 | ann | 7 | -2"))
    assert run.answer == Counter({("ann", 2, 12): 1})
    run.step(table(DISTINCT.increments, "weight | user | x | w0 \n -1 | ann | 7 | -1"))
    assert run.answer == Counter({("ann", 1, 5): 1})


def test_the_least_integer_is_summed_and_refused_where_its_negative_would_be() -> None:
    of_long = Distinct(pa.schema([("x", LONG)]), "w0", counts=("count",), sums=(("total", "x"),))
    operator = replace(DISTINCT, parts=(of_long,))
    run = Epochs(operator, ["user", "count", "total"])
    least = -(2**63)
    begin = f"weight | user | x | w0 \n +1 | ann | {least} | 1 \n +1 | bob | 5 | 1"
    run.step(table(operator.increments, begin))
    assert run.answer == Counter({("ann", 1, least): 1, ("bob", 1, 5): 1})
    other = f"weight | user | x | w0 \n -1 | bob | 5 | -1 \n +1 | eve | {least} | 1"
    run.step(table(operator.increments, other))
    assert run.answer == Counter({("ann", 1, least): 1, ("eve", 1, least): 1})
    with pytest.raises(HeadraceError, match="overflowed") as caught:
        run.step(table(operator.increments, f"weight | user | x | w0 \n -1 | ann | {least} | -1"))
    assert caught.value.code == Code.INVALID


def test_distinct_integers_are_summed_in_halves_beyond_64_bits() -> None:
    split = Distinct(
        pa.schema([("x", LONG)]), "w0", counts=("count",), halves=(("upper", "lower", "x"),)
    )
    sums = [(WEIGHT, LONG), ("count", LONG), ("upper", LONG), ("lower", LONG)]
    operator = replace(
        DISTINCT, layout=replace(DISTINCT.layout, summed=pa.schema(sums)), parts=(split,)
    )
    run = Epochs(operator, ["count", "upper", "lower"])

    def total() -> int:
        ((_, upper, lower),) = run.answer
        return upper * 2**32 + lower

    least, most = -(2**63), 2**63 - 1
    rows = [f"{sign:+} | ann | {x} | {sign}" for sign, x in ((1, most), (1, most - 1), (1, 3))]
    run.step(table(operator.increments, "\n".join(["weight | user | x | w0", *rows])))
    assert total() == 2 * most + 2
    rows = [f"-1 | ann | {most} | -1", "-1 | ann | 3 | -1", f"+2 | ann | {least} | 2"]
    run.step(table(operator.increments, "\n".join(["weight | user | x | w0", *rows])))
    assert total() == most - 1 + least
    rows = [f"-2 | ann | {least} | -2"]
    run.step(table(operator.increments, "\n".join(["weight | user | x | w0", *rows])))
    assert total() == most - 1


@pytest.mark.parametrize("operator", [LEAST, DISTINCT], ids=["extremum", "distinct"])
def test_a_retraction_of_an_absent_value_is_refused(operator: GroupAggregate) -> None:
    run = Epochs(operator, ["user"])
    run.step(table(operator.increments, "weight | user | x | w0 \n +2 | ann | 1 | 2"))
    with pytest.raises(HeadraceError, match="negative number of times") as caught:
        run.step(table(operator.increments, "weight | user | x | w0 \n -1 | ann | 2 | -1"))
    assert caught.value.code == Code.INTERNAL


def test_a_value_without_rows_is_refused() -> None:
    for operator, message in ((LEAST, "minimum or maximum"), (DISTINCT, "other than zero")):
        run = Epochs(operator, ["user"])
        run.step(table(operator.increments, "weight | user | x | w0 \n +1 | ann | 1 | 1"))
        with pytest.raises(HeadraceError, match=message):
            run.step(table(operator.increments, "weight | user | x | w0 \n -1 | ann | 1 | 0"))


def test_an_input_that_only_grows_must_not_delete() -> None:
    run = Epochs(GROWING, ["user"])
    row = ("ann", 1.0, "a", None)
    run.step(input_of(GROWING, [(row, 1)]))
    with pytest.raises(HeadraceError, match="negative number of times") as caught:
        run.step(input_of(GROWING, [(row, -1)]))
    assert "append-only" in str(caught.value.detail)


def test_the_input_has_keys_then_arguments_then_sums_then_weights() -> None:
    assert GROUPS.increments.schema.names == [
        *(HASH, "user", "s", "amount", "x", WEIGHT, "seen", "w0", "w2", "w1", "w3", "w4")
    ]
    assert GROUPS.increments.key == ("user",)
    assert [layout.columns.names for layout in GROUPS.layouts] == [
        ["user"],
        ["user", "s", "amount"],
        ["user", "x"],
        ["user", "amount"],
        ["user", "x"],
        ["user", "s"],
        ["user", "s", "x", "amount"],
        ["user", "s", "amount"],
        ["user", "__place"],
    ]
    plain = Layout(("user",), USER, SUMS)
    assert GroupAggregate(plain).increments == plain


def test_a_part_feeds_accumulators_of_its_own() -> None:
    twice = Distinct(pa.schema([X]), "w0", counts=("d0", "d0"))
    for part in (twice, Distinct(pa.schema([X]), "w0", counts=(WEIGHT,))):
        with pytest.raises(HeadraceError, match="feeds another"):
            GroupAggregate(Layout(("user",), USER, SUMS), (part,))


def test_parts_that_differ_about_an_argument_are_refused() -> None:
    other = Extremum(pa.field("x", LONG), "w9", "other", End.MIN)
    with pytest.raises(HeadraceError, match="one name and two types"):
        GroupAggregate(Layout(("user",), USER, SUMS), (*parts(append_only=False), other))


@pytest.mark.parametrize("operator", [LEAST, DISTINCT], ids=["extremum", "distinct"])
def test_a_change_of_a_large_group_costs_a_few_rows(operator: GroupAggregate) -> None:
    many = 100_000
    values = np.random.default_rng(5).permutation(many)
    totals_layout, layout = operator.layouts
    pieces = [
        {HASH: [7] * len(part), "user": ["ann"] * len(part), "x": part, WEIGHT: [1] * len(part)}
        for part in np.array_split(values, 5)
    ]
    runs = [ZSet(layout, pa.table(piece, schema=layout.schema)).consolidated() for piece in pieces]
    spine = Spine(layout, tuple(Run.of(run) for run in runs))
    group = {HASH: [7], "user": ["ann"], WEIGHT: [many], "count": [many], "total": [sum(values)]}
    group = {name: group[name] for name in totals_layout.schema.names}
    totals_rows = ZSet(totals_layout, pa.table(group, schema=totals_layout.schema))
    deleted = {HASH: [7], "user": ["ann"], "x": [0], WEIGHT: [-1], "w0": [-1]}
    change = pa.table(deleted, schema=operator.increments.schema)
    output = operator.step((change,), (Spine(totals_layout).plus(totals_rows), spine)).output
    assert output["__rows"].to_pylist() == [many, many - 1]
    if operator is LEAST:
        assert output["least"].to_pylist() == [0, 1]
    else:
        assert output["count"].to_pylist() == [many, many - 1]
    # A search halves each of five runs of 20,000 rows until eight are left to be read.
    assert spine.reads.rows <= 5 * (12 + 8) + 20


@given(data=st.data(), bits=some_bits)
def test_an_extremum_follows_the_values_of_its_group(data: st.DataObject, bits: int) -> None:
    """Of groups with several values, the next one is found, however the first ones go."""
    part = Extremum(pa.field("x", LONG), "w0", "least", data.draw(st.sampled_from(list(End))))
    operator = GroupAggregate(LEAST.layout, (part,))
    run = Epochs(operator, ["user", "least"])
    live: Counter[tuple[str, int]] = Counter()
    values = st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 5))
    for _ in range(4):
        epoch = []
        for row, goes in data.draw(st.lists(st.tuples(values, st.booleans()), max_size=8)):
            weight = -1 if goes and live[row] else 1
            live[row] += weight
            epoch.append({"user": row[0], "x": row[1], WEIGHT: weight, "w0": weight})
        run.step(table_of(operator.increments, epoch, bits=bits))
        groups: dict[str, list[int]] = {}
        for user, x in live.elements():
            groups.setdefault(user, []).append(x)
        choose = min if part.end is End.MIN else max
        assert run.answer == Counter((user, choose(xs)) for user, xs in groups.items())


KINDS = {
    pa.int64(): st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**53 + 2, 2**63 - 1]),
    pa.float64(): st.sampled_from([-1.5, -0.0, 0.0, 0.3, math.inf, -math.inf, math.nan]),
    MONEY: st.sampled_from([Decimal(n) for n in ("-1.10", "0.00", "0.07", "9999999999.99")]),
}
PLACES = tuple(
    Quantile(at, discrete, descending)
    for at in (0.0, 0.25, 0.5, 0.9, 1.0)
    for discrete in (False, True)
    for descending in (False, True)
)
SHOWN = (*(QuantileColumn(f"q{i}", (i,), is_list=False) for i in range(len(PLACES))),)
SHOWN += (QuantileColumn("several", (5, 0, 9), is_list=True),)


def quantiles_of(type_: pa.DataType) -> GroupAggregate:
    part = Quantiles(pa.field("x", type_), "w0", PLACES, SHOWN)
    return GroupAggregate(LEAST.layout, (part,))


def quantile(values: list, place: Quantile) -> float:
    """The value that Spark shows of these at a place."""
    values = sorted(values, key=lambda x: str(x) != "-0.0")
    values.sort(key=cmp_to_key(compare_values))
    values = values[::-1] if place.descending else values
    if place.discrete:
        return float(values[max(math.ceil(len(values) * place.at) - 1, 0)])
    position = (len(values) - 1) * place.at
    low, high = (values[each(position)] for each in (math.floor, math.ceil))
    share = position - math.floor(position)
    if low == high or not share:
        return float(low)
    found = float(low) + share * (float(high) - float(low))
    return math.nan if math.isnan(found) else found


@given(data=st.data(), bits=some_bits, type_=st.sampled_from(list(KINDS)))
def test_quantiles_follow_the_values_of_their_group(
    data: st.DataObject, bits: int, type_: pa.DataType
) -> None:
    """However the values come and go, and whatever of them is added at once."""
    operator = quantiles_of(type_)
    run, whole = (Epochs(operator, ["user", *(each.name for each in SHOWN)]) for _ in range(2))
    there: list[tuple] = []
    changes = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows = st.tuples(st.sampled_from(["ann", "bob"]), KINDS[type_] | st.none())
        came = data.draw(st.lists(rows, max_size=12))
        there, gone = _parted(data, there)
        there += came
        given = [
            {"user": user, "x": x, WEIGHT: weight, "w0": weight * (x is not None)}
            for weight, some in ((1, came), (-1, gone))
            for user, x in some
        ]
        changes += given
        run.step(table_of(operator.increments, given, bits=bits))
        groups: dict[str, list] = {}
        for user, x in there:
            groups.setdefault(user, []).extend([] if x is None else [x])
        shown = {user: [_shown(xs, each) for each in SHOWN] for user, xs in groups.items()}
        assert run.answer == Counter((user, *results) for user, results in shown.items())
    whole.step(table_of(operator.increments, changes, bits=bits))
    assert (whole.answer, whole.state_rows) == (run.answer, run.state_rows)
    undone = [{**row, WEIGHT: -row[WEIGHT], "w0": -row["w0"]} for row in changes]
    run.step(table_of(operator.increments, undone, bits=bits))
    assert (run.answer, run.state_rows) == (Counter(), 0)


def _parted(data: st.DataObject, rows: list) -> tuple[list, list]:
    """Return the rows that stay, and those that go."""
    goes = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    pairs = list(zip(rows, goes, strict=True))
    return [row for row, go in pairs if not go], [row for row, go in pairs if go]


def _shown(values: list, shown: QuantileColumn) -> Any:
    if not values:
        return None
    found = [quantile(values, PLACES[i]) for i in shown.of]
    return exact(found) if shown.is_list else exact(found[0])


@pytest.mark.parametrize("rows", [1_000, 30_000])
def test_a_change_of_a_large_group_reads_a_few_values_next_to_its_quantiles(rows: int) -> None:
    part = Quantiles(pa.field("x", LONG), "w0", (Quantile(0.5), Quantile(0.9)), SHOWN[:2])
    operator = GroupAggregate(LEAST.layout, (part,))
    spines = tuple(map(Spine, operator.layouts))
    values = np.random.default_rng(5).permutation(rows)
    for piece in np.array_split(values, 3):
        many = [{"user": "ann", "x": int(x), WEIGHT: 1, "w0": 1} for x in piece]
        first = operator.step((table_of(operator.increments, many),), spines)
        both = zip(spines, first.updates, strict=True)
        spines = tuple(spine.plus(update) for spine, update in both)
    for value, weight in ((3, 1), (rows // 2, -1), (rows, 1), (0, -1)):
        before = tuple(replace(spine, reads=Reads()) for spine in spines)
        row = {"user": "ann", "x": value, WEIGHT: weight, "w0": weight}
        output = operator.step((table_of(operator.increments, [row]),), before).output
        live = [*values, value] if weight > 0 else values[values != value]
        assert output["q0"].to_pylist()[-1] == np.percentile(live, 50)
        assert sum(spine.reads.rows for spine in before) <= 240


def test_sums_of_floats_forget_what_is_retracted() -> None:
    floats = GroupAggregate(
        Layout(("user",), USER, pa.schema([(WEIGHT, LONG)])), (FloatSum(X, "w", "t"),)
    )
    run = Epochs(floats, ["user", "t"])
    for x, weight in ((0.1, 1), (1e300, 1), (float("inf"), 1), (1e300, -1), (float("inf"), -1)):
        given = [{"user": "ann", "x": x, WEIGHT: weight, "w": weight}]
        run.step(table_of(floats.increments, given))
    assert run.answer == Counter([("ann", exact(0.1))])


@pytest.mark.parametrize("rows", [1_000, 50_000])
def test_a_change_of_a_group_reads_a_few_of_its_values(rows: int) -> None:
    names = ("of_greatest", "first", "total")
    kept = tuple(part for part in GROUPS.parts if getattr(part, "result", "") in names)
    operator = GroupAggregate(Layout(("user",), USER, pa.schema([(WEIGHT, LONG)])), kept)
    weights = dict.fromkeys(("w2", "w4", WEIGHT), 1)
    amount, x = Decimal("1.00"), [float(i * 7919 % rows) - 0.3 for i in range(rows)]
    many = [{"user": "ann", "x": v, "s": "a", "amount": amount, **weights} for v in x]
    spines = tuple(map(Spine, operator.layouts))
    first = operator.step((table_of(operator.increments, many),), spines)
    spines = tuple(spine.plus(update) for spine, update in zip(spines, first.updates, strict=True))
    for value, weight in ((0.5, 1), (x[rows // 2], -1), (float(rows), 1)):
        before = tuple(replace(spine, reads=Reads()) for spine in spines)
        given = dict.fromkeys(weights, weight) | {"user": "ann", "x": value}
        row = {**given, "s": "a", "amount": amount}
        operator.step((table_of(operator.increments, [row]),), before)
        assert sum(spine.reads.rows for spine in before) <= 60
