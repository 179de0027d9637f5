"""TPC-H: its 22 queries as views, while orders come and go and prices are revised."""

from __future__ import annotations

import pytest

from length import choose
from suites.suite import ROWS_PER_CHANGE, Run, Suite
from suites.tpch.evolution import Evolution, generated

pytestmark = pytest.mark.spark

TPCH = Suite("tpch")
GROUPS = {
    "scans": ("q01", "q06", "q12", "q14", "q19"),
    "joins": ("q03", "q05", "q07", "q08", "q09", "q10"),
    "subqueries": ("q02", "q11", "q15", "q17", "q18"),
    "presence": ("q04", "q13", "q16", "q20", "q21", "q22"),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("tpch"), 0.001)


@pytest.mark.long
@pytest.mark.parametrize("names", GROUPS.values(), ids=GROUPS)
def test_a_query_follows_its_tables(oracle, tables, names):
    run = Run(TPCH, oracle(rows_per_change=ROWS_PER_CHANGE))
    run.view(names)
    data = Evolution(run.oracle, tables, orders=300, seed=11)
    data.load()
    run.epoch()
    for size in choose((10,), (10, 100, 1)):
        data.change(size)
        run.epoch()
    data.delete_everything()
    run.epoch()
    data.load(slice(0, 100))
    run.epoch()
    run.hold()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", GROUPS.values(), ids=GROUPS)
def test_a_query_follows_a_long_history(oracle, tmp_path, names):
    run = Run(TPCH, oracle(rows_per_change=ROWS_PER_CHANGE))
    data = Evolution(run.oracle, generated(tmp_path / "tpch", 0.002), orders=2000, seed=22)
    data.load(slice(0, 1000))
    run.view(names)
    data.load(slice(1000, 2000))
    run.epoch()
    for size in (1, 10, 100, 1000, 1, 1, 1000, 10, 100):
        data.change(size)
        run.epoch()
    data.delete_everything()
    run.epoch()
    data.load()
    run.epoch()
    data.change(1000)
    run.epoch()
    run.hold()
    run.oracle.finish()


def test_every_query_is_in_a_group():
    assert sorted(name for names in GROUPS.values() for name in names) == list(TPCH.queries)
    assert len(TPCH.queries) == 22
    assert set(TPCH.not_kept) <= set(TPCH.queries)
