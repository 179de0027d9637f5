"""TPC-DS: its queries as views, while baskets come and go in three channels."""

from __future__ import annotations

import pytest

from suites.suite import ROWS_PER_CHANGE, Run, Suite
from suites.tpcds.evolution import Evolution

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]

TPCDS = Suite("tpcds")
AT_ONCE = 6
GROUPS = [list(TPCDS.queries)[i : i + AT_ONCE] for i in range(0, len(TPCDS.queries), AT_ONCE)]


@pytest.mark.parametrize("names", GROUPS, ids=[f"{g[0]}-{g[-1]}" for g in GROUPS])
def test_a_query_follows_its_tables(oracle, names):
    run = Run(TPCDS, oracle(rows_per_change=ROWS_PER_CHANGE))
    data = Evolution(run.oracle, 5)
    data.load(150)
    run.view(names)
    for size in (1, 10, 100):
        data.change(size)
        run.epoch()
    data.delete_everything()
    run.epoch()
    data.load(40)
    run.epoch()
    run.hold()


def test_every_query_is_there():
    assert len(TPCDS.queries) == 103
    assert len(TPCDS.relations) == 24
    assert set(TPCDS.not_kept) <= set(TPCDS.queries)
