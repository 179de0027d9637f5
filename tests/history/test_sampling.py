"""Rounds of samples: every row once in each, and what they say of the rows not seen yet."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headrace.execution.engine.verifying.comparisons import Count, sampled_by
from headrace.lifecycle.history.comparing import SLICE_ROWS, Rounds, upper_bound
from headrace.types import Column, DataType, Schema


def columns(key: tuple[str, ...], **types: DataType) -> tuple[str, ...]:
    return sampled_by(Schema(tuple(Column(name, type_) for name, type_ in types.items())), key)


def test_samples_are_taken_by_what_has_one_hash_on_both_sides() -> None:
    whole, text, real = IntegerType(), StringType(), DoubleType()
    held = StructType([StructField("x", FloatType())])
    assert columns(("k",), k=whole, v=text) == ("k",)
    assert columns((), a=whole, d=real, m=MapType(whole, whole), s=held, t=text) == ("a", "t")
    assert columns(("t",), a=whole, t=StringType("UTF8_LCASE")) == ("a",)
    assert columns((), d=real) == ()


@given(st.integers(0, 40 * SLICE_ROWS), st.lists(st.integers(1, 9), min_size=1))
def test_a_round_compares_every_slice_once(rows: int, sizes: list[int]) -> None:
    rounds, seen, taken = Rounds.first(rows, {}), [], 0
    slices = rounds.slices
    while not rounds.is_over:
        sample = rounds.sample(("k",), sizes[taken % len(sizes)])
        seen += sample.chosen
        rounds = rounds.after(sample, Count(1, 0, 1, 0), 1.0)
        rounds = Rounds.of_json(rounds.to_json())
        taken += 1
    assert sorted(seen) == list(range(slices))
    assert (rounds.covered, rounds.samples, rounds.total.units) == (1.0, taken, taken)
    again = rounds.next_round(rows, {})
    assert (again.done, again.complete, again.last) == (0, 1, rounds.tally)
    assert again.restarted(rows, {}).last.units == 0


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    # The quantiles of the beta distribution, as tables have them.
    assert upper_bound(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert upper_bound(0, 300) == pytest.approx(3 / 300, rel=0.01)
    assert upper_bound(1, 300) == pytest.approx(0.0157145, abs=1e-6)
    assert upper_bound(5, 100) == pytest.approx(0.1022534, abs=1e-6)
    assert (upper_bound(0, 0), upper_bound(3, 3)) == (1.0, 1.0)
    assert math.isclose(upper_bound(10, 100, 0.975), 0.1762226, abs_tol=1e-6)


def test_the_bound_holds_for_nineteen_samples_of_twenty() -> None:
    """Wrong rows are drawn at random, sampled without replacement, and the bound compared."""
    draw, rows, wrong, held, tries = random.Random(7), 2000, 60, 0, 2000
    for _ in range(tries):
        found = sum(row < wrong for row in draw.sample(range(rows), 150))
        held += upper_bound(found, 150) >= wrong / rows
    assert held / tries >= 0.95


@given(st.integers(0, 20), st.integers(0, 100_000))
def test_a_bound_is_rounded_up(wrong: int, units: int) -> None:
    units += wrong
    rounds = Rounds(1, 1).after(Rounds(1, 1).sample(()), Count(units, wrong, units, wrong), 1.0)
    exact = upper_bound(wrong, units)
    assert exact <= rounds.bound <= min(1.0, exact * 1.001)
