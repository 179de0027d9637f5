"""Fills of views as other sessions see them while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from asked import rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 400
COUNTED = "SELECT v, count(*) AS n FROM t GROUP BY v"
LISTED = """
    SELECT table_schema, table_name, kind, state, rows_done, rows_total
    FROM information_schema.fills
"""


@pytest.fixture
def loaded(tmp_path: Path, spark: SparkSession) -> Iterator[headrace.Database]:
    """A table of some rows; views are filled in parts of 50 rows."""
    with headrace.connect(
        tmp_path / "db", spark=spark, continuous=False, partitions=2, fill_rows=50
    ) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.insert("t", [(k, k % 40) for k in range(ROWS)])
        yield db


def test_a_running_fill_is_listed_with_its_progress_until_it_ends(
    loaded: headrace.Database,
) -> None:
    seen: list[list[tuple[object, ...]]] = []
    with loaded.session() as session, loaded.session() as other:

        def look(made: headrace.Progress) -> None:
            if made.unit:
                seen.append(rows(other, LISTED))

        session.sql(f"CREATE MATERIALIZED VIEW m AS {COUNTED}", progress=look)
        first = seen[0]
        assert first == [("default", "m", "view", "running", 0, ROWS)]
        assert {found[4] for (found,) in seen} == {*range(0, ROWS + 1, 50)}
        assert rows(other, LISTED) == []

        seen.clear()
        held = f"CREATE OR REPLACE MATERIALIZED VIEW m WITH (auto_swap = false) AS {COUNTED}"
        session.sql(held, progress=look)
        assert {found[1:3] for (found,) in seen} == {("m", "candidate")}
        seen.clear()
        session.sql("CREATE INDEX i ON t (v)", progress=look)
        assert {found[1:3] for (found,) in seen} == {("i", "index")}
