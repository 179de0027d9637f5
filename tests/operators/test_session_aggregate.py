"""SessionAggregate and TouchedSessions: against sessions united one row at a time in Python."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import (
    SESSION,
    VERSION,
    End,
    Extremum,
    SessionAggregate,
    TouchedSessions,
)
from headrace.algebra.spine import Run, Spine
from headrace.algebra.zset import WEIGHT, Layout
from headrace.errors import HeadraceError
from reference import Bag, Epochs, compacted, exact, is_consolidated, nonzero, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
SUMS = pa.schema([(WEIGHT, pa.int64()), ("total", pa.int64())])
LAYOUT = Layout(("user",), pa.schema([("user", pa.string()), ("session", TIMES)]), SUMS)
OF_ALL = Layout((), pa.schema([("session", TIMES)]), SUMS)
VALUE = pa.field("value", pa.float64())
PARTS = (
    Extremum(VALUE, "seen", "least", End.MIN),
    Extremum(VALUE, "seen", "greatest", End.MAX),
)
OUTPUT = ["user", "session", "__rows", "total", "least", "greatest"]

rows = st.tuples(
    st.sampled_from([None, "ann", "bob"]),
    st.integers(0, 40),
    st.sampled_from([1, 3, 3, 3, 12]),
    st.sampled_from([None, 1.0, -0.0, 0.0, 2.5, float("nan")]),
)


@st.composite
def histories(draw: st.DrawFn, *, grows: bool = False) -> list[list[tuple[tuple, int]]]:
    """Epochs of insertions and retractions; no row is retracted that is absent."""
    live: Counter[str] = Counter()
    known: dict[str, tuple] = {}
    epochs = []
    for wanted in draw(
        st.lists(st.lists(st.tuples(rows, st.integers(0, 9)), max_size=8), max_size=6)
    ):
        epoch = []
        for row, which in wanted:
            there = [name for name, count in live.items() if count]
            chosen = row
            goes = bool(there) and which < 5 and not grows
            if goes:
                chosen = known[there[which % len(there)]]
            known[repr(chosen)] = chosen
            weight = -1 if goes else draw(st.integers(1, 2))
            live[repr(chosen)] += weight
            epoch.append((chosen, weight))
        epochs.append(epoch)
    return epochs


def increments(epoch: list[tuple[tuple, int]]) -> list[dict[str, Any]]:
    """What the rows of an epoch add to count(*), sum(gap), min(value) and max(value)."""
    return [
        {
            "user": user,
            "session": {"start": at, "end": at + gap},
            "value": value,
            WEIGHT: weight,
            "total": weight * gap,
            "seen": weight * (value is not None),
        }
        for (user, at, gap, value), weight in epoch
    ]


def answer(live: list[tuple], key: int = 1) -> Bag:
    """The totals of the sessions of rows."""
    return Counter((*each[0][:key], *totals(each)) for each in sessions_of(live, key))


def sessions_of(live: list[tuple], key: int = 1) -> Iterator[list[tuple]]:
    """Rows by session, united as Spark does: while the next one starts by the end so far."""
    ordered = sorted(live, key=lambda row: (repr(row[:key]), row[1]))
    for _, own in groupby(ordered, key=lambda row: row[:key]):
        session: list[tuple] = []
        end = 0
        for row in own:
            if session and row[1] > end:
                yield session
                session = []
            end = max(end if session else 0, row[1] + row[2])
            session.append(row)
        yield session


def totals(members: list[tuple]) -> tuple:
    """The session, the number of rows, the sum of gaps, and the extrema of some rows."""
    values = [value for *_, value in members if value is not None]
    least = exact(min(values, key=rank)) if values else None
    greatest = exact(max(values, key=lambda each: rank(each, -1))) if values else None
    gaps = sum(gap for _, _, gap, _ in members)
    return extent(members), len(members), gaps, least, greatest


def extent(members: list[tuple]) -> tuple:
    """The session of some rows."""
    start = min(at for _, at, *_ in members)
    end = max(at + gap for _, at, gap, _ in members)
    return exact({"start": moment(start), "end": moment(end)})


def moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def rank(value: float, sign: int = 1) -> tuple[bool, float, float]:
    """Order floats as Spark does; among zeros, which tie, -0.0 is chosen."""
    nan = math.isnan(value)
    return nan, 0.0 if nan else value, sign * math.copysign(1, value)


@given(epochs=histories(), bits=st.sampled_from([1, 2, 64]))
def test_after_every_epoch_the_sum_of_outputs_is_the_totals_of_the_sessions(
    epochs: list, bits: int
) -> None:
    operator = SessionAggregate(LAYOUT, "session", PARTS)
    run = Epochs(operator, OUTPUT)
    for live, epoch in played(epochs):
        step = run.step(table_of(operator.increments, increments(epoch), bits=bits))
        assert run.answer == answer(live)
        assert set(step.output[WEIGHT].to_pylist()) <= {-1, 1}


@given(epochs=histories(grows=True), bits=st.sampled_from([1, 64]))
def test_an_input_that_only_grows_keeps_a_row_of_each_session_alone(
    epochs: list, bits: int
) -> None:
    operator = SessionAggregate(LAYOUT, "session", PARTS, append_only=True)
    run = Epochs(operator, OUTPUT)
    for live, epoch in played(epochs):
        run.step(table_of(operator.increments, increments(epoch), bits=bits))
        assert run.answer == answer(live)
        assert run.state_rows == len(answer(live))


@given(epochs=histories())
def test_without_a_key_there_is_one_row_of_sessions(epochs: list) -> None:
    operator = SessionAggregate(OF_ALL, "session", PARTS)
    run = Epochs(operator, OUTPUT[1:])
    for live, epoch in played(epochs):
        run.step(table_of(operator.increments, increments(epoch)))
        assert run.answer == answer(live, 0)


@given(epochs=histories())
def test_any_split_into_epochs_gives_the_same_sessions(epochs: list) -> None:
    operator = SessionAggregate(LAYOUT, "session", PARTS)
    whole, split = (Epochs(operator, OUTPUT) for _ in range(2))
    whole.step(table_of(operator.increments, increments([c for each in epochs for c in each])))
    for epoch in epochs:
        split.step(table_of(operator.increments, increments(epoch)))
    assert whole.answer == split.answer


@given(inserted=st.lists(rows, max_size=12))
def test_insert_all_then_nothing_then_delete_all_leaves_no_session(inserted: list) -> None:
    operator = SessionAggregate(LAYOUT, "session", PARTS)
    run = Epochs(operator, OUTPUT)
    run.step(table_of(operator.increments, increments([(row, 1) for row in inserted])))
    assert run.step(operator.increments.schema.empty_table()).output.num_rows == 0
    run.step(table_of(operator.increments, increments([(row, -1) for row in inserted])))
    assert not run.answer
    assert run.state_rows == 0


def played(epochs: list) -> Iterator[tuple[list[tuple], list]]:
    """Each epoch's changes, after the rows that are there with them; for None, all rows go."""
    live: Counter[str] = Counter()
    known: dict[str, tuple] = {}
    for each in epochs:
        epoch = each
        if each is None:
            epoch = [(known[name], -count) for name, count in live.items() if count]
        for row, weight in epoch:
            known[repr(row)] = row
            live[repr(row)] += weight
        yield [known[name] for name in live.elements()], epoch


def many(count: int, gap: int) -> list[tuple[tuple, int]]:
    """Rows of one key, ten times apart, each with an interval as long as the gap."""
    return [(("ann", 10 * i, gap, float(i)), 1) for i in range(count)]


@pytest.mark.parametrize("gap", [3, 10], ids=["many sessions", "one session"])
@pytest.mark.parametrize("grows", [True, False], ids=["only grows", "changes"])
def test_a_change_reads_and_writes_as_much_with_a_hundred_times_the_rows(
    gap: int, *, grows: bool
) -> None:
    operator = SessionAggregate(LAYOUT, "session", PARTS, append_only=grows)
    costs = []
    for count in (1_000, 100_000):
        first = table_of(operator.increments, increments(many(count, gap)))
        empty = tuple(Spine(layout) for layout in operator.layouts)
        filled = operator.step((first,), empty).updates
        cost = []
        for change in changes(count, gap, grows=grows):
            spines = tuple(Spine(each.layout, (Run.of(each),)) for each in filled)
            given = table_of(operator.increments, increments(change))
            step = operator.step((given,), spines)
            read = sum(spine.reads.rows for spine in spines)
            written = sum(each.rows for each in step.updates)
            assert read < 100
            assert step.output.num_rows <= 4
            assert written <= 6
            cost.append((written, step.output.num_rows))
        costs.append(cost)
    assert costs[0] == costs[1]


def changes(count: int, gap: int, *, grows: bool) -> Iterator[list[tuple[tuple, int]]]:
    """Changes of one row at the end of :func:`many`, in its middle, and at its start."""
    for place in (count, count // 2, 0):
        yield [(("ann", 10 * place, gap, 5.0), 1)]
        yield [(("ann", 10 * place + 2, gap, 5.0), 1)]
    for place in () if grows else (count // 2, count // 3):
        gone = (("ann", 10 * place, gap, float(place)), -1)
        if gap < 10:
            yield [gone]
        yield [gone, (("ann", 10 * place, gap, 7.0), 1)]
        yield [gone, (("ann", 10 * place + 3, gap + 3, 7.0), 1), (("ann", 10 * place, 3, 5.0), 1)]


def test_a_retraction_that_splits_a_session_reads_its_rows_alone() -> None:
    operator = SessionAggregate(LAYOUT, "session", PARTS)
    others = [(("ann", 10**6 + 10 * i, 10, 1.0), 1) for i in range(10_000)]
    first = table_of(operator.increments, increments([*many(100, 10), *others]))
    filled = operator.step((first,), tuple(Spine(each) for each in operator.layouts)).updates
    spines = tuple(Spine(each.layout, (Run.of(each),)) for each in filled)
    gone = table_of(operator.increments, increments([(("ann", 500, 10, 50.0), -1)]))
    step = operator.step((gone,), spines)
    counts = step.output["__rows"].to_pylist(), step.output[WEIGHT].to_pylist()
    assert sorted(zip(*counts, strict=True)) == [(49, 1), (50, 1), (100, -1)]
    assert 99 <= spines[0].reads.rows < 200


def test_a_row_that_was_never_inserted_cannot_be_retracted() -> None:
    operator = SessionAggregate(LAYOUT, "session", PARTS)
    run = Epochs(operator, OUTPUT)
    run.step(table_of(operator.increments, increments([(("ann", 0, 3, 1.0), 1)])))
    for row in (("ann", 1, 3, 1.0), ("ann", 50, 3, 1.0), ("bob", 0, 3, 1.0), ("ann", 0, 3, 2.5)):
        with pytest.raises(HeadraceError, match=r"negative|no rows have"):
            run.step(table_of(operator.increments, increments([(row, -1)])))
    grown = SessionAggregate(LAYOUT, "session", PARTS, append_only=True)
    with pytest.raises(HeadraceError, match="append-only"):
        Epochs(grown, OUTPUT).step(
            table_of(grown.increments, increments([(("ann", 0, 3, 1.0), -1)]))
        )


WHOLE_ROWS = Layout(
    ("user",),
    pa.schema([("user", pa.string()), ("session", TIMES), ("value", pa.float64())]),
    pa.schema([(WEIGHT, pa.int64())]),
)


@given(epochs=histories(), bits=st.sampled_from([1, 64]))
def test_the_sessions_touched_come_whole_before_and_after(epochs: list, bits: int) -> None:
    operator = TouchedSessions(WHOLE_ROWS, "session")
    spines = tuple(Spine(layout) for layout in operator.layouts)
    shown: Bag = Counter()
    for live, epoch in played([*epochs, None]):
        step = operator.step((table_of(WHOLE_ROWS, increments(epoch), bits=bits),), spines)
        assert all(is_consolidated(each) for each in step.updates)
        spines = tuple(s.plus(u) for s, u in zip(spines, step.updates, strict=True))
        for row in step.output.to_pylist():
            values = (row[name] for name in ("user", "session", "value", SESSION))
            shown[exact(tuple(values))] += 1 if row[VERSION] else -1
        assert nonzero(shown) == Counter(
            (user, extent([(user, at, gap, value)]), exact(value), extent(session))
            for session in sessions_of(live)
            for user, at, gap, value in session
        )
    assert not sum(compacted(spine).rows_upper_bound for spine in spines)


def test_a_change_reads_the_rows_of_the_sessions_near_it_alone() -> None:
    operator = TouchedSessions(WHOLE_ROWS, "session")
    for count in (1_000, 100_000):
        first = table_of(WHOLE_ROWS, increments(many(count, 3)))
        filled = operator.step((first,), tuple(Spine(each) for each in operator.layouts)).updates
        for change in changes(count, 3, grows=False):
            spines = tuple(Spine(each.layout, (Run.of(each),)) for each in filled)
            step = operator.step((table_of(WHOLE_ROWS, increments(change)),), spines)
            assert sum(spine.reads.rows for spine in spines) < 100
            assert step.output.num_rows <= 6
            assert sum(each.rows for each in step.updates) <= 6
