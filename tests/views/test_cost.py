"""The work of an epoch is proportional to its changes, not to the stored rows."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_one_change_over_many_rows_touches_a_handful(oracle):
    run = oracle()
    run.table("t", "id INT, g INT, x INT", key="id")
    run.table("names", "g INT, name STRING", key="g")
    run.insert("names", [(g, f"name {g}") for g in range(2000)])
    run.insert("t", [(i, i % 2000, i) for i in range(10_000)])
    run.view("groups", "SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g")
    run.view("named", "SELECT names.name, groups.s FROM groups JOIN names ON groups.g = names.g")
    run.view("wide", "SELECT t.id, names.name FROM t JOIN names ON t.g = names.g")
    for write in (
        lambda: run.insert("t", [(10_001, 5, 1)]),
        lambda: run.update("t", {"x": "x + 1"}, "id = 77"),
        lambda: run.delete("t", "id = 78"),
    ):
        write()
        run.epoch()
        counters = run.db.parts.ledger.epochs.newest(1)[0].counters
        assert counters["changes"] == 1
        assert counters["rows_in"] <= 16
        assert counters["rows_read"] <= 16
        assert counters["rows_out"] <= 16
    run.insert("names", [(3, "five rows of t")])
    run.epoch()
    counters = run.db.parts.ledger.epochs.newest(1)[0].counters
    assert counters["rows_out"] <= 30
    run.finish()
