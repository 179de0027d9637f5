"""Decimals of up to 38 digits in views, in epochs that Spark evaluates and in later ones."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import headrace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NINES = Decimal("9999999999999999999999999999.9999999999")
DIGITS = Decimal("1234567890123456789012345678.1234567891")


def test_decimals_of_38_digits_are_those_of_batch_in_each_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    with headrace.connect(tmp_path, spark=spark, partitions=2, continuous=False) as db:
        db.sql("""
            CREATE TABLE t (id INT PRIMARY KEY, g INT, w DECIMAL(38,10), n BIGINT);
            CREATE MATERIALIZED VIEW rounded AS SELECT id, CAST(w AS DECIMAL(38,2)) AS c,
                round(w, 3) AS r, coalesce(CAST(w AS DECIMAL(38,1)), 0) AS one FROM t WHERE g = 0;
            CREATE MATERIALIZED VIEW signed AS SELECT id, abs(w) AS a, -w AS m FROM t WHERE g = 1;
            CREATE MATERIALIZED VIEW added AS
                SELECT g, try_sum(w) AS w, try_sum(n) AS n FROM t GROUP BY g
        """)
        for id_ in range(5):  # the kernels evaluate what comes after the first epochs
            db.sql(
                f"INSERT INTO t VALUES ({id_}, 0, {NINES}, NULL), ({10 + id_}, 0, -1.0055, NULL)"
            )
            db.sql(f"INSERT INTO t VALUES ({20 + id_}, 1, {'-' * (id_ % 2)}{DIGITS}, 1)")
        whole, large = Decimal(10) ** 28, 2**63 - 1
        expected = [(each, whole, whole, whole) for each in range(5)]
        assert sorted(db.sql("SELECT * FROM rounded WHERE id < 10").fetchall()) == expected
        query = "SELECT id, abs(w) AS a, -w AS m FROM t WHERE g = 1"
        shown = sorted(db.sql("SELECT * FROM signed").fetchall())
        assert shown == sorted(db.sql(query).fetchall())
        assert shown[1][1:] == (Decimal("1234567890123456789012345678.1234570000"),) * 2
        db.sql(f"""
            INSERT INTO t VALUES (30, 2, {NINES}, {large});
            INSERT INTO t VALUES (31, 2, 5, 5), (32, 2, -13, -13);
            INSERT INTO t VALUES (40, 3, {NINES}, {large}), (41, 3, {NINES}, {large});
            INSERT INTO t VALUES (42, 3, -{NINES}, -{large}), (43, 3, -{NINES}, -{large})
        """)
        summed = "SELECT g, try_sum(w) AS w, try_sum(n) AS n FROM t WHERE g > 1 GROUP BY g"
        found = [
            (2, Decimal("9999999999999999999999999991.9999999999"), large - 8),
            (3, None, None),
        ]
        assert sorted(db.sql("SELECT * FROM added WHERE g > 1").fetchall()) == found
        assert sorted(db.sql(summed).fetchall()) == found
        for view in ("rounded", "signed", "added"):
            assert db.sql(f"VERIFY {view}").fetchall()[0][2:] == (0, "equal to batch"), view
