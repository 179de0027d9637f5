"""Reconciliation in the background: within its budget, in samples that are worth their time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.lifecycle.history.comparing import SLICE_ROWS, Rounds
from headrace.lifecycle.history.reconciler import Reconciler
from headrace.lifecycle.history.reconciling import SampleOutcome


class Fake:
    """Some relations over one log, of which comparing a sample takes a fixed time and more."""

    def __init__(self, names: str, fixed: float, per_row: float) -> None:
        self.fixed, self.per_row = fixed, per_row
        self.known = {_Relation(name): Rounds(1, 1 << 16) for name in names}
        self.now = 0.0
        self.busy = 0.0
        self.asked: list[tuple[str, int]] = []
        catalog = SimpleNamespace(bases=lambda _ids: {"log"})
        self.reader = SimpleNamespace(published=SimpleNamespace(catalog=catalog))
        self.failing: set[str] = set()

    def rounds(self, _state):
        return self.known

    def is_settled(self, relation, _rounds, _state) -> bool:
        return relation.id in self.failing

    def inputs(self, relation, _state):
        return {relation.id: 1}

    def compare(self, relations, _state, wanted, _report):
        rows = wanted(10**6)
        self.asked.append(("".join(each.id for each in relations), rows))
        seconds = self.fixed + self.per_row * rows
        self.now += seconds
        self.busy += seconds
        for each in relations:
            self.known[each] = Rounds(1, 1 << 16, at=self.now)
        return [SampleOutcome(each, self.known[each]) for each in relations]


class _Relation(SimpleNamespace):
    def __init__(self, name: str) -> None:
        super().__init__(id=name, name=name)

    __hash__ = object.__hash__


@pytest.mark.parametrize("budget", [0.02, 0.5])
def test_comparisons_take_their_share_of_time_and_no_more(budget: float) -> None:
    fake = Fake("ab", fixed=0.4, per_row=1e-5)
    reconciler = Reconciler(fake, budget, processors=2, clock=lambda: fake.now)
    for _ in range(50):
        fake.now += reconciler.turn()
    assert 2 * fake.busy <= budget * fake.now
    assert 2 * fake.busy > 0.9 * budget / (1 + budget) * fake.now


def test_samples_grow_while_that_is_hardly_longer() -> None:
    fake = Fake("a", fixed=0.4, per_row=1e-5)
    reconciler = Reconciler(fake, 0.02, processors=2, clock=lambda: fake.now)
    for _ in range(30):
        fake.now += reconciler.turn()
    sizes = [rows for _, rows in fake.asked]
    assert sizes[:3] == [SLICE_ROWS, 2 * SLICE_ROWS, 4 * SLICE_ROWS]
    # Reading rows takes longer than all else from 40,000 on.
    assert 40_000 < max(sizes) < 160_000
    assert min(sizes[12:]) > 20_000


def test_the_one_compared_longest_ago_is_next_with_one_that_shares_its_log() -> None:
    fake = Fake("abc", fixed=0.1, per_row=0.0)
    reconciler = Reconciler(fake, 0.5, processors=1, clock=lambda: fake.now)
    for _ in range(3):
        fake.now += reconciler.turn()
    assert [names for names, _ in fake.asked] == ["ab", "ca", "ba"]
    fake.failing |= {"a", "b", "c"}
    assert reconciler.turn() == reconciler.idle
