"""What VERIFY takes for equal: rows as bags, and floats within a tolerance."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pyspark.sql.types import StructType

import headrace
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.verifying.comparisons import Comparison, counted
from headrace.execution.engine.verifying.history import CanonicalHistory
from headrace.types import Schema

pytestmark = pytest.mark.spark

NAN, INF = math.nan, math.inf
SAME = [
    ([("a", 1.0, 0.5)], [("a", 1.0 + 1e-10, 0.5)]),
    ([("a", 1e300, 0.5)], [("a", 1e300 * (1 + 1e-10), 0.5)]),
    ([("a", 1e-17, 0.5)], [("a", 0.0, 0.5)]),
    ([("a", -0.0, 0.5)], [("a", 0.0, 0.5)]),
    ([("a", NAN, 0.5), (None, None, 0.5)], [("a", NAN, 0.5), (None, None, 0.5)]),
    ([("a", NAN, 0.5), ("a", INF, 1.0)], [("a", NAN, 0.5 + 1e-8), ("a", INF, 1.0 + 1e-7)]),
    ([("a", 1.0, 0.5)] * 2 + [("a", 2.0, 0.5)], [("a", 1.0 + 1e-12, 0.5)] * 2 + [("a", 2.0, 0.5)]),
]
DIFFERENT = [
    ([("a", 1.0, 0.5)], [("a", 1.0 + 1e-8, 0.5)]),
    ([("a", 1.0, 0.5)], [("a", 1.0, 0.501)]),
    ([("a", 1.0, 0.5)], [("b", 1.0 + 1e-12, 0.5)]),
    ([("a", NAN, 0.5)], [("a", 1.0, 0.5)]),
    ([("a", NAN, 0.5)], [("a", INF, 0.5)]),
    ([("a", INF, 0.5)], [("a", -INF, 0.5)]),
    ([("a", INF, 0.5)], [("a", 1e308, 0.5)]),
    ([("a", None, 0.5)], [("a", 0.0, 0.5)]),
    ([("a", 1.0, 0.5)] * 2, [("a", 1.0 + 1e-12, 0.5)]),
    ([], [("a", 1.0, 0.5)]),
]


@pytest.mark.long
def test_floats_agree_within_the_tolerance_where_the_other_columns_are_equal(spark):
    schema = StructType.fromDDL("k STRING, `a.b` DOUBLE, f FLOAT, place INT")
    mine, theirs = (
        [(*row, place) for place, pair in enumerate(SAME + DIFFERENT) for row in pair[side]]
        for side in (0, 1)
    )
    spark.createDataFrame(mine, schema).createOrReplaceTempView("mine")
    spark.createDataFrame(theirs, schema).createOrReplaceTempView("theirs")
    comparison = Comparison("mine", "theirs", Schema.of_spark(schema))
    found = spark.sql(comparison.further_apart(100)).collect()
    assert found[0].asDict().keys() == {"k", "a.b", "f", "place", "__weight"}
    assert {row["place"] for row in found} == set(range(len(SAME), len(SAME + DIFFERENT)))
    assert sum(row["__weight"] for row in found) == len(mine) - len(theirs)
    alone = StructType.fromDDL("a DOUBLE")
    spark.createDataFrame([(1.0,), (2.0,)], alone).createOrReplaceTempView("mine")
    spark.createDataFrame([(2.0 + 1e-12,), (1.0,)], alone).createOrReplaceTempView("theirs")
    comparison = Comparison("mine", "theirs", Schema.of_spark(alone))
    assert spark.sql(comparison.further_apart(100)).collect() == []
    assert [tuple(row) for row in spark.sql(counted([comparison])).collect()] == [(0, 2, 2, 0, 0)]


@pytest.mark.long
def test_verify_says_where_it_took_doubles_for_equal(db, monkeypatch):
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, k STRING, d DECIMAL(12,4), v INT)")
    views = {
        "spread": "SELECT k, stddev_samp(d) AS s FROM t GROUP BY k",
        "added": "SELECT k, avg(CAST(v AS DOUBLE) / 3) AS a, sum(CAST(v AS DOUBLE) / 7) AS b "
        "FROM t GROUP BY k",
        "exact": "SELECT k, sum(v) AS s, avg(d) AS a FROM t GROUP BY k",
        "plain": "SELECT id, CAST(v AS DOUBLE) / 3 AS x FROM t",
        "over": "SELECT k, s * 2 AS twice FROM spread",
    }
    for name, query in views.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for start in (0, 40, 20):
        rows = (f"({i}, 'k{i % 3}', {i * 0.3337 + start:.4f}, {i * 31 % 17})" for i in range(60))
        db.sql(f"INSERT INTO t VALUES {', '.join(list(rows)[start : start + 30])}")
        db.flush()
    equal, within = "equal to batch", "equal to batch (doubles within 1e-9)"
    verdicts = {view: rest for view, *rest in db.sql("VERIFY")}
    for name in ("exact", "plain"):
        assert verdicts[name][1:] == [0, equal]
    for name in ("spread", "added", "over"):
        assert verdicts[name][0] == 3
        assert verdicts[name][1] == 0
        assert verdicts[name][2] in (equal, within)

    compared = CanonicalHistory.counted

    def none_equal(self, *asked):
        return [replace(count, different=count.stored) for count in compared(self, *asked)]

    monkeypatch.setattr(CanonicalHistory, "counted", none_equal)
    verdicts = {view: rest for view, *rest in db.sql("VERIFY")}
    assert verdicts["spread"] == [3, 0, within]
    jobs = []

    def fails_together(self, views, *rest):
        jobs.append(len(views))
        if len(views) > 1:
            raise HeadraceError(Code.INVALID, "one of these has a row that fails")
        return compared(self, views, *rest)

    monkeypatch.setattr(CanonicalHistory, "counted", fails_together)
    assert isinstance(db, headrace.Database)
    assert {row[0] for row in db.sql("VERIFY")} == set(views)
    assert jobs == [2, 1, 1, 2, 1, 1, 1]  # two views in a job, then each of the two alone
