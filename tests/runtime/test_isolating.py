"""Isolating: which insertions are refused, and how many trials that takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import Quarantine
from headrace.algebra.spine import write_run
from headrace.algebra.zset import HASH, WEIGHT, ZSet
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.isolating import Isolating, first_failing
from headrace.execution.runtime.quarantine import Guarded, RefusedHash, candidates_of
from headrace.execution.runtime.step import Report
from headrace.types import ArrangementId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.algebra.spine import RunFile

LEFT, RIGHT = ArrangementId("9/quarantine.1"), ArrangementId("9/quarantine.2")
Rows = set[tuple[ArrangementId, int]]
QUARANTINE = Quarantine(pa.schema([("h", pa.int64())]))
FAILURE = HeadraceError(Code.INVALID, "division by zero", hint="Use try_divide.")


class Pretended:
    """A step over insertions of two relations, which fails on what a function says."""

    def __init__(
        self, directory: Path, inserted: Rows, fails: Callable[[Rows], str | None]
    ) -> None:
        self.directory, self.inserted, self.fails = directory, inserted, fails
        self.code = Code.INVALID
        self.sifted: Rows = set()

    def __call__(self, guards: Mapping[ArrangementId, Guarded]) -> list[Report]:
        read = {
            (id_, hash_)
            for id_, hash_ in self.inserted
            if hash_ not in {each.hash for each in guards[id_].refused}
            and (guards[id_].below is None or hash_ < guards[id_].below)
        }
        error = self.fails(read)
        if error is not None:
            raise HeadraceError(self.code, error)
        runs = {}
        for id_, guarded in guards.items():
            hashes = [h for of, h in self.inserted if of == id_]
            if guarded.listed and hashes:
                rows = pa.table({HASH: hashes, "h": hashes, WEIGHT: [1] * len(hashes)})
                arrived = ZSet.of(QUARANTINE.rows, rows).consolidated()
                runs[candidates_of(id_)] = write_run(self.directory, arrived)
        return [Report("quarantine", 0, runs, 0, 0, 0, 0.0)]

    def sieve(self, id_: ArrangementId, runs: Sequence[RunFile]) -> dict[int, str]:
        assert runs
        return {hash_: "it fails" for of, hash_ in self.sifted if of == id_}

    def isolating(self, most: int = 1000) -> Isolating:
        layouts = dict.fromkeys((LEFT, RIGHT), QUARANTINE.layouts[0])
        return Isolating(self, self.sieve, layouts, 7, self.directory, most)

    def isolated(self, most: int = 1000) -> tuple[Rows, Isolating]:
        found = self.isolating(most)
        guards = found.run(FAILURE)
        assert self.fails(self._rest(guards)) is None
        return {(id_, r.hash) for id_, each in guards.items() for r in each.refused}, found

    def _rest(self, guards: Mapping[ArrangementId, Guarded]) -> Rows:
        refused = {(id_, r.hash) for id_, each in guards.items() for r in each.refused}
        assert all(each.below is None and not each.listed for each in guards.values())
        return self.inserted - refused


def on_each(poison: Rows) -> Callable[[Rows], str | None]:
    return lambda read: f"{min(read & poison)} fails" if read & poison else None


sides = st.sampled_from([LEFT, RIGHT])
rows = st.sets(st.tuples(sides, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=40)


@given(inserted=rows, data=st.data())
def test_of_rows_that_fail_alone_just_these_are_refused(
    tmp_path_factory: pytest.TempPathFactory, inserted: Rows, data: st.DataObject
) -> None:
    poison = set(data.draw(st.lists(st.sampled_from(sorted(inserted)), min_size=1, max_size=5)))
    step = Pretended(tmp_path_factory.getbasetemp(), inserted, on_each(poison))
    refused, found = step.isolated()
    assert refused == poison
    each = 1 + math.ceil(math.log2(len(inserted) + 1))
    assert found.trials <= 1 + len(poison) * each


@given(inserted=rows, data=st.data())
def test_of_rows_that_fail_together_so_many_are_refused_that_the_rest_passes(
    tmp_path_factory: pytest.TempPathFactory, inserted: Rows, data: st.DataObject
) -> None:
    one = st.sampled_from(sorted(inserted))
    pairs = data.draw(st.lists(st.tuples(one, one), min_size=1, max_size=4))

    def fails(read: Rows) -> str | None:
        return next((f"{a} and {b}" for a, b in pairs if a in read and b in read), None)

    step = Pretended(tmp_path_factory.getbasetemp(), inserted, fails)
    refused, _ = step.isolated()
    assert len(refused) <= len(pairs)


def test_each_row_has_the_error_that_it_causes(tmp_path: Path) -> None:
    poison = {(LEFT, 3), (RIGHT, 1)}
    inserted = {(id_, n) for id_ in (LEFT, RIGHT) for n in range(50)}
    step = Pretended(tmp_path, inserted, on_each(poison))
    guards = step.isolating().run(FAILURE)
    assert guards[LEFT].refused == (RefusedHash(3, f"{(LEFT, 3)} fails", 7),)
    assert guards[RIGHT].refused == (RefusedHash(1, f"{(RIGHT, 1)} fails", 7),)
    assert not list(tmp_path.iterdir())


def test_what_fails_without_any_insertion_is_not_quarantined(tmp_path: Path) -> None:
    step = Pretended(tmp_path, {(LEFT, 1)}, lambda _read: "the total is zero")
    with pytest.raises(HeadraceError) as failed:
        step.isolated()
    assert failed.value.primary == FAILURE.primary
    assert failed.value.hint == FAILURE.hint
    assert failed.value.detail == (
        "No row is quarantined. It fails as well if no row is inserted, so no inserted row is to blame."
        " It fails then by another error: the total is zero"
    )


def test_more_rows_than_the_limit_are_not_quarantined(tmp_path: Path) -> None:
    inserted = {(LEFT, n) for n in range(20)}
    step = Pretended(tmp_path, inserted, on_each({(LEFT, n) for n in (1, 5, 9)}))
    assert len(step.isolated(most=3)[0]) == 3
    with pytest.raises(HeadraceError, match="More than 2 rows"):
        step.isolated(most=2)


def test_a_failure_of_the_machine_is_no_rows_fault(tmp_path: Path) -> None:
    lost = "a worker was lost"
    step = Pretended(tmp_path, {(LEFT, 1), (LEFT, 2)}, lambda read: lost if read else None)
    step.code = Code.UNAVAILABLE
    with pytest.raises(HeadraceError) as failed:
        step.isolated()
    assert failed.value.code is Code.UNAVAILABLE


def test_bisecting_takes_a_logarithm_of_trials() -> None:
    asked: list[int] = []

    def fails(length: int) -> HeadraceError | None:
        asked.append(length)
        return FAILURE if length > 700_000 else None

    assert first_failing(fails, 0, 1_000_000, FAILURE) == (700_001, FAILURE)
    assert len(asked) <= 20


@given(inserted=rows, data=st.data())
def test_rows_that_a_sieve_finds_take_one_trial_and_a_few_to_tell_their_errors(
    tmp_path_factory: pytest.TempPathFactory, inserted: Rows, data: st.DataObject
) -> None:
    poison = set(data.draw(st.lists(st.sampled_from(sorted(inserted)), min_size=1, max_size=20)))
    step = Pretended(tmp_path_factory.getbasetemp(), inserted, on_each(poison))
    step.sifted = poison
    refused, found = step.isolated()
    assert refused == poison
    assert found.trials <= 2 + 8


def test_what_a_sieve_finds_and_what_it_does_not_are_refused(tmp_path: Path) -> None:
    inserted = {(id_, n) for id_ in (LEFT, RIGHT) for n in range(30)}
    poison = {(LEFT, 3), (LEFT, 9), (RIGHT, 1)}
    step = Pretended(tmp_path, inserted, on_each(poison))
    step.sifted = {(LEFT, 3), (LEFT, 9)}
    assert step.isolated()[0] == poison
    step.sifted = {(LEFT, 3), (LEFT, 9), (RIGHT, 1), (RIGHT, 2)}
    assert step.isolated()[0] == poison  # not what the sieve alone takes for bad
