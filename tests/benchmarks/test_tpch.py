"""The commits of the TPC-H benchmark: so many rows, of orders that are there or to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks.tpch import Refreshes

from suites.suite import Suite
from suites.tpch.evolution import generated_tables

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    directory: Path = tmp_path_factory.mktemp("tpch")
    return generated_tables(directory, 0.001)


def test_a_commit_changes_rows_that_are_there_and_inserts_others(
    tables: dict[str, pa.Table],
) -> None:
    keys = {r.name: r.key.split(", ") for r in Suite("tpch").relations}

    def keyed(name: str, rows: pa.Table) -> list[tuple[int, ...]]:
        return list(zip(*(rows[key].to_pylist() for key in keys[name]), strict=True))

    refreshes = Refreshes(tables)
    there = {name: set(keyed(name, rows)) for name, rows in refreshes.loaded().items()}
    assert len(there["orders"]) < tables["orders"].num_rows
    for _ in range(5):
        changes = refreshes.commit(300)
        assert sum(rows.num_rows for rows in changes.values()) == 300
        for name, rows in changes.items():
            for key, weight in zip(keyed(name, rows), rows["__weight"].to_pylist(), strict=True):
                if weight < 0:
                    there[name].remove(key)
                else:
                    there[name].add(key)
        orders = {key for (key,) in there["orders"]}
        assert {order for order, _ in there["lineitem"]} == orders
