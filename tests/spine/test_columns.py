"""Spines as columns: the rows of large runs in place, and beside them what has to be added up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from headrace.algebra.spine import Run, Spine, flat
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.algebra.spine import Flat

COLUMNS = pa.schema([("k", pa.int64()), ("x", pa.int64())])
LAYOUT = Layout(("k",), COLUMNS, pa.schema([(WEIGHT, pa.int64())]))


def run(rows: list[tuple[int, int, int]], hash_of=lambda k: k) -> Run:
    k, x, weights = (np.array(each, np.int64) for each in zip(*rows, strict=True))
    columns = {
        HASH: np.array([hash_of(int(v)) for v in k], np.int64),
        "k": k,
        "x": x,
        WEIGHT: weights,
    }
    return Run.of(ZSet(LAYOUT, pa.table(columns).cast(LAYOUT.schema)).consolidated())


def bag(rows: ZSet) -> Counter[tuple[int, int]]:
    table = rows.table
    keys = zip(table["k"].to_pylist(), table["x"].to_pylist(), strict=True)
    return Counter(dict(zip(keys, table[WEIGHT].to_pylist(), strict=True)))


def counted(found: Flat) -> Counter[tuple[int, int]]:
    total = bag(found.beside)
    for batch, mask in found.batches():
        kept = batch if mask is None else batch.filter(pa.array(mask))
        assert set(kept.column(WEIGHT).to_pylist()) <= {1}
        total.update(zip(kept.column("k").to_pylist(), kept.column("x").to_pylist(), strict=True))
    return total


@pytest.mark.parametrize("small", [0, 4, 1000])
@pytest.mark.parametrize("collide", [1, 7])
def test_the_columns_are_the_sum(monkeypatch: pytest.MonkeyPatch, small: int, collide: int):
    monkeypatch.setattr("headrace.algebra.spine.columns._SMALL", small)
    rng = np.random.default_rng(small + collide)
    for _ in range(20):
        rows: Counter[tuple[int, int]] = Counter()
        runs: list[Run] = []
        for size in (60, 40, 9, 3, 1):
            delta = [(int(k), int(rng.integers(3)), 1) for k in rng.integers(0, 50, size)]
            for (k, x), n in list(rows.items()):
                if n and rng.random() < 0.1:
                    delta.append((k, x, -n))
            for k, x, n in delta:
                rows[k, x] += n
            runs.append(run(delta, lambda k: k // collide))
            spine = Spine(LAYOUT, tuple(runs))
            found = flat(spine)
            assert found is not None
            assert flat(spine) is found
            assert counted(found) == +rows


def test_rows_of_one_run_are_not_copied(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.algebra.spine.columns._SMALL", 0)
    first, second = run([(k, k, 1) for k in range(100)]), run([(k, k, 1) for k in range(200, 250)])
    found = flat(Spine(LAYOUT, (second, first)))
    assert found is not None
    assert [mask for _, mask in found.runs] == [None, None]
    assert found.beside.rows == 0


def test_too_many_rows_to_add_up_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.algebra.spine.columns.MOST_BESIDE", 10)
    monkeypatch.setattr("headrace.algebra.spine.columns._SMALL", 0)
    first, second = run([(k, k, 1) for k in range(100)]), run([(k, k, -1) for k in range(50)])
    assert flat(Spine(LAYOUT, (first, second))) is None
    assert flat(Spine(LAYOUT, (first,), low=3)) is None
