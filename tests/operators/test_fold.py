"""Fold: against folding all events of a key in Python, after every epoch; and what it costs."""

from __future__ import annotations

import json
from collections import Counter
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import FOLDED, Fold
from headrace.algebra.zset import WEIGHT, Layout, OrderBy
from headrace.errors import HeadraceError
from reference import Bag, Epochs, compare, exact, nonzero, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COLUMNS = pa.schema([("user", pa.string()), ("at", pa.int64()), ("id", pa.string())])
COUNT = pa.schema([(WEIGHT, pa.int64())])
FORWARDS = (OrderBy("at"), OrderBy("user"), OrderBy("id"))
BACKWARDS = tuple(OrderBy(by.name, descending=True, nulls_first=False) for by in FORWARDS)
LAYOUT = Layout(("user",), COLUMNS, COUNT, BACKWARDS)
NAMES = ("user", "at", "id")
ROW = pa.struct([("ids", pa.string()), ("n", pa.int64())])
OUTPUTS = ["user", FOLDED]


class Listing:
    """The ids of the events in order, which tells every order apart; it counts the steps."""

    def __init__(self) -> None:
        self.stepped = 0

    def events(self, columns: pa.Table) -> Iterator[dict[str, Any]]:
        assert tuple(columns.column_names) == NAMES
        yield from columns.to_pylist()

    def states(
        self, start: bytes | None, events: Iterator[dict[str, Any]], stops: Sequence[int]
    ) -> tuple[bytes, ...]:
        ids = [] if start is None else json.loads(start)
        found = []
        for place in range(stops[-1] + 1):
            if place in stops:
                found.append(json.dumps(ids).encode())
            if place < stops[-1]:
                event = next(events)
                ids = [*ids, f"{event['at']}{event['id']}"][-200:]
                self.stepped += 1
        return tuple(found)

    def rows(self, states: Sequence[bytes]) -> pa.StructArray:
        ids = [json.loads(state) for state in states]
        return pa.array([{"ids": " ".join(each), "n": len(each)} for each in ids], ROW)


def fold(spacing: int) -> tuple[Fold, Listing]:
    listing = Listing()
    return Fold(LAYOUT, NAMES, ROW, listing, spacing), listing


def expected(live: Counter[Any]) -> Bag:
    """The row of each key that has events."""
    keys: dict[Any, list[dict[str, Any]]] = {}
    for row in live.elements():
        keys.setdefault(row[0], []).append(dict(zip(NAMES, row, strict=True)))
    found: Bag = Counter()
    for user, events in keys.items():
        events.sort(key=cmp_to_key(lambda a, b: compare(a, b, FORWARDS)))
        ids = [f"{event['at']}{event['id']}" for event in events]
        found[(exact(user), exact({"ids": " ".join(ids), "n": len(ids)}))] += 1
    return found


rows = st.tuples(
    st.sampled_from([None, "ann", "bob"]),
    st.one_of(st.none(), st.integers(0, 12)),
    st.sampled_from([None, "a", "b"]),
)


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[tuple, int]]]:
    """Epochs of insertions, copies and retractions; no event is retracted that is absent."""
    live: Counter[Any] = Counter()
    epochs = []
    for wanted in draw(st.lists(st.lists(st.tuples(rows, st.booleans()), max_size=9), max_size=6)):
        epoch = []
        for row, goes in wanted:
            weight = -live[row] if goes and live[row] else draw(st.integers(1, 2))
            live[row] += weight
            epoch.append((row, weight))
        epochs.append(epoch)
    return epochs


def input_of(epoch: list[tuple[tuple, int]], bits: int = 64) -> pa.Table:
    given_rows = [dict(zip(NAMES, row, strict=True)) | {WEIGHT: weight} for row, weight in epoch]
    return table_of(LAYOUT, given_rows, bits=bits)


@given(epochs=histories(), bits=st.sampled_from([1, 2, 64]), spacing=st.sampled_from([1, 2, 64]))
def test_after_every_epoch_the_sum_of_outputs_is_the_fold_of_all_events(
    epochs: list, bits: int, spacing: int
) -> None:
    operator, _ = fold(spacing)
    run = Epochs(operator, OUTPUTS)
    live: Counter[Any] = Counter()
    for epoch in epochs:
        for row, weight in epoch:
            live[row] += weight
        run.step(input_of(epoch, bits))
        assert run.answer == expected(nonzero(live))
    run.step(input_of([(row, -weight) for row, weight in live.items()], bits))
    assert not run.answer
    assert run.state_rows == 0


def events(first: int, last: int, user: str = "ann") -> list[tuple[tuple, int]]:
    return [((user, at, "a"), 1) for at in range(first, last)]


def test_events_in_order_are_one_step_each() -> None:
    operator, listing = fold(4)
    run = Epochs(operator, OUTPUTS)
    for at in range(0, 60, 3):
        listing.stepped = 0
        run.step(input_of(events(at, at + 3)))
        assert listing.stepped == 2 * 3  # the harness takes every step twice


@pytest.mark.parametrize("back", [1, 10, 200])
@pytest.mark.parametrize("together", [7, 240])
def test_a_late_event_takes_about_twice_the_events_after_it(back: int, together: int) -> None:
    operator, listing = fold(4)
    run = Epochs(operator, OUTPUTS)
    for at in range(0, 240, together):
        run.step(input_of(events(at, min(at + together, 240))))
    listing.stepped = 0
    run.step(input_of([(("ann", 240 - back, "b"), 1)]))
    assert listing.stepped <= 2 * (2 * back + 2 * operator.spacing)


@pytest.mark.parametrize("together", [3, 10, 240])
def test_checkpoints_are_few(together: int) -> None:
    operator, _ = fold(4)
    run = Epochs(operator, OUTPUTS)
    for at in range(0, 240, together):
        run.step(input_of(events(at, at + together)))
    assert run.state_rows - 240 <= 16


def test_a_checkpoint_between_the_copies_of_an_event_is_one() -> None:
    operator, listing = fold(2)
    run = Epochs(operator, OUTPUTS)
    twice, last, other = (("ann", 1, "a"), 2), (("ann", 2, "a"), 1), (("ann", 2, "b"), 1)
    run.step(input_of([twice, last]))
    listing.stepped = 0
    run.step(input_of([other, (last[0], -1)]))
    assert listing.stepped == 2 * 2
    assert run.answer == expected(Counter({twice[0]: 2, other[0]: 1}))


def test_keys_that_do_not_change_are_not_touched() -> None:
    operator, listing = fold(4)
    run = Epochs(operator, OUTPUTS)
    run.step(input_of([*events(0, 50, "ann"), *events(0, 50, "bob")]))
    listing.stepped = 0
    step = run.step(input_of([(("bob", 50, "a"), 1)]))
    assert listing.stepped == 2
    assert set(step.output["user"].to_pylist()) == {"bob"}


def test_an_event_that_was_never_there_cannot_be_retracted() -> None:
    operator, _ = fold(4)
    run = Epochs(operator, OUTPUTS)
    run.step(input_of(events(0, 3)))
    with pytest.raises(HeadraceError, match=r"negative weight|as many events"):
        run.step(input_of([(("ann", 9, "z"), -1)]))


def test_the_order_must_have_all_columns() -> None:
    with pytest.raises(HeadraceError, match="total order"):
        Fold(Layout(("user",), COLUMNS, COUNT, BACKWARDS[:1]), NAMES, ROW, Listing())
