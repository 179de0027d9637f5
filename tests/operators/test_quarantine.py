"""Quarantine: what goes in comes out or stays, and both are bags."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import ERROR, REFUSED, SINCE, Quarantine, held_back
from headrace.algebra.spine import Spine
from headrace.algebra.zset import HASH, WEIGHT
from reference import bag, exact, hash_of, is_consolidated, plus, table_of

NAMES = ["k", "x"]
COLUMNS = pa.schema([("k", pa.int64()), ("x", pa.float64())])
KEPT = [*NAMES, ERROR, SINCE]
NOTHING = REFUSED.empty_table()

keys = st.sampled_from([None, 1, 2])
values = st.sampled_from([None, 0.0, -0.0, float("nan")])
rows = st.tuples(keys, values)
epochs = st.lists(
    st.tuples(st.lists(st.tuples(rows, st.integers(-3, 3)), max_size=6), st.lists(rows)),
    max_size=6,
)


def refusals(refused: list[tuple], since: int, bits: int = 64) -> pa.Table:
    hashes = dict.fromkeys(hash_of(row, bits) for row in refused)
    given_ = [{HASH: each, ERROR: f"no {each}", SINCE: since} for each in hashes]
    return pa.Table.from_pylist(given_, schema=REFUSED)


class Divided:
    """A quarantine, epoch by epoch."""

    def __init__(self, known: Spine | None = None, bits: int = 64) -> None:
        self.operator = Quarantine(COLUMNS)
        self.kept = Spine(self.operator.layouts[0])
        self.known = known or Spine(self.operator.layouts[0])
        self.bits = bits
        self.passed: Counter = Counter()

    def step(self, changes: list[tuple], refused: list[tuple] = (), since: int = 0) -> pa.Table:
        given_ = [{"k": k, "x": x, WEIGHT: weight} for (k, x), weight in changes]
        change = table_of(self.operator.rows, given_, bits=self.bits)
        found = self.operator.step(
            (change, refusals(refused, since, self.bits)), (self.kept, self.known)
        )
        assert is_consolidated(found.updates[0])
        self.kept = self.kept.plus(found.updates[0])
        self.passed = plus(self.passed, bag(found.output, NAMES))
        return found.output

    @property
    def held(self) -> Counter:
        return self._kept(NAMES)

    def _kept(self, names: list[str]) -> Counter:
        total: Counter = Counter()
        for part in self.kept.scan(100):
            total = plus(total, bag(part.table, names))
        return total

    @property
    def reasons(self) -> set[tuple]:
        return set(self._kept(KEPT))


@given(epochs=epochs, bits=st.sampled_from([1, 64]))
def test_rows_pass_or_are_kept_and_neither_part_is_ever_negative(epochs: list, bits: int) -> None:
    run, there = Divided(bits=bits), Counter()
    for number, (changes, refused) in enumerate(epochs):
        possible = []
        for row, weight in changes:
            after = max(0, there[repr(row)] + weight)
            possible.append((row, after - there[repr(row)]))
            there[repr(row)] = after
        before = set(run.held)
        arrived = {hash_of(row, bits): row for row, _ in possible}
        output = run.step(possible, refused, number)
        whole = plus(run.passed, run.held)
        assert sum(whole.values()) == sum(there.values())
        assert all(count > 0 for count in (*run.passed.values(), *run.held.values()))
        named = {hash_of(row, bits) for row in refused}
        inserted = output.filter(pa.array(output[WEIGHT].to_numpy() > 0))
        assert not named & set(inserted[HASH].to_pylist())
        fresh = set(run.held) - before
        assert len(fresh) <= len(arrived) * 4
        if not refused:
            assert not fresh


def test_an_equal_row_follows_and_a_retracted_one_leaves_the_quarantine_first() -> None:
    run, bad = Divided(), (1, 0.0)
    run.step([(bad, 1), ((2, 0.0), 1)], [bad], since=7)
    run.step([(bad, 2)])
    assert run.reasons == {(1, exact(0.0), f"no {hash_of(bad, 64)}", 7)}
    assert sum(run.held.values()) == 3
    run.step([(bad, -3)])
    assert not run.held
    run.step([(bad, 1)])
    assert not run.held
    assert sum(run.passed.values()) == 2


def test_copies_that_were_read_before_stay_when_another_is_refused() -> None:
    run, bad = Divided(), (1, 0.0)
    run.step([(bad, 2)])
    run.step([(bad, 1)], [bad])
    assert (sum(run.passed.values()), sum(run.held.values())) == (2, 1)
    run.step([(bad, -2)])
    assert (sum(run.passed.values()), sum(run.held.values())) == (1, 0)


def test_what_another_quarantine_has_is_refused_for_the_same_reason() -> None:
    first, bad = Divided(), (None, 0.0)
    first.step([(bad, 1)], [bad], since=3)
    second = Divided(first.kept)
    second.step([(bad, 2), ((2, 0.0), 1)])
    assert second.reasons == first.reasons
    assert (sum(second.passed.values()), sum(second.held.values())) == (1, 2)


def test_insertions_from_a_hash_on_are_held_back_and_retractions_are_not() -> None:
    given_ = [{"k": k, "x": None, WEIGHT: weight} for k, weight in ((1, 1), (2, 1), (None, -1))]
    change = table_of(Quarantine(COLUMNS).rows, given_)
    low, high = sorted(hash_of((k, None), 64) for k in (1, 2))
    for below, expected in ((low, 1), (high, 2), (high + 1, 3), (None, 3)):
        passing, inserted = held_back(change, below)
        assert passing.num_rows == expected
        assert sorted(inserted[HASH].to_pylist()) == [low, high]
