"""Random queries over random histories agree with Spark batch at every epoch."""

from __future__ import annotations

import itertools
import os

import pytest

from generator.cases import random_case
from generator.execution import Player, Verdict
from generator.files import read, written
from generator.search import REGRESSIONS, Search
from length import choose

PAIRS = int(os.environ.get("HEADRACE_RANDOM_QUERIES", choose("1", "300")))
SEED = int(os.environ.get("HEADRACE_RANDOM_SEED", "20000"))
PARTS = choose(1, 4)
"""Into how many tests the pairs are divided, so that processes can share them."""


@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_queries_agree_with_spark_batch(spark, tmp_path, part):
    player = Player(spark, again=part % 2 == 1)
    search = Search(player, print, seconds=120, directory=tmp_path)
    search.run(itertools.count(SEED + part * PAIRS), -(-PAIRS // PARTS))
    coverage, failures = search.result.coverage, search.result.failures
    print(coverage.table())
    assert not failures
    assert coverage.verdicts[Verdict.BATCH_ERROR] <= PAIRS // PARTS // 10 + 1
    assert coverage.verdicts[Verdict.AGREED]


def _ways() -> list[object]:
    """Every failure in one task and parted; of every seventh one, a short run has one, in turn."""
    return [
        pytest.param(
            path,
            parted,
            id=f"{path.stem}-{'parted' if parted else 'in one task'}",
            marks=[pytest.mark.long] if place % 7 or parted == (place // 7) % 2 else [],
        )
        for place, path in enumerate(sorted(REGRESSIONS.glob("*.txt")))
        for parted in (False, True)
    ]


@pytest.mark.spark
@pytest.mark.parametrize(("path", "parted"), _ways())
def test_what_failed_once_agrees(spark, path, parted):
    found = Player(spark, parted=parted).run(read(path.read_text(encoding="utf-8")))
    assert not found.failures


def test_a_seed_is_always_the_same_case():
    assert random_case(7, 4) == random_case(7, 4)
    assert random_case(7, 4) != random_case(8, 4)


def test_a_case_is_read_as_it_was_written():
    for seed in range(20):
        case = random_case(seed, 3)
        text = written(case, "as it was")
        again = read(text)
        assert written(again, "as it was") == text
        assert [repr(step) for step in again.epochs] == [
            repr(
                type(step)(
                    {r.name: step.changes[r.name] for r in case.relations if r.name in step.changes}
                )
            )
            for step in case.epochs
        ]
