"""A medallion: fifteen views in three layers, while orders arrive and customers move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks.medallion import STREAMS, TABLES, VIEWS, Rows

from length import choose
from suites.suite import ROWS_PER_CHANGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Oracle

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_views_in_three_layers_follow_their_streams(oracle: Callable[..., Oracle]) -> None:
    run, rows = oracle(rows_per_change=ROWS_PER_CHANGE), Rows(choose(50, 10))

    def commit(times: int = 1) -> None:
        for source, table in rows.commit(times).items():
            run.insert(source, zip(*(each.to_pylist() for each in table.columns), strict=True))

    for name, columns in STREAMS.items():
        run.stream(name, columns)
    for name, columns in TABLES.items():
        run.table(name, columns, "id")
    commit(2)
    for name, query in VIEWS.items():
        run.view(name, query)
    filled = {name for name in VIEWS if run.rows(name)}
    for _ in range(choose(2, 5)):
        commit()
        run.epoch()
        filled |= {name for name in VIEWS if run.rows(name)}
    assert filled == set(VIEWS), "a view that was always empty proves nothing"
    run.finish()
