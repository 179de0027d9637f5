"""Queries over one relation that need no Spark job, beside the same queries as jobs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headrace
from headrace.errors import HeadraceError, Span
from headrace.execution.engine.declared import SessionNames
from headrace.execution.engine.reading.pulls import Plans, Pull
from headrace.execution.engine.reading.scans import Scans
from headrace.planning.catalyst.evaluation import Evaluation
from headrace.planning.catalyst.scala import items, scala_of
from length import each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = (
    "a INT, b BIGINT, s STRING, d DECIMAL(12,2), f DOUBLE, flag BOOLEAN, day DATE,"
    " at TIMESTAMP, parts ARRAY<INT>, pair STRUCT<x: INT, y: STRING>"
)
ROW = (
    "{a}, {b}, {s}, {d}, {f}, {flag}, DATE '2024-01-{day:02}',"
    " TIMESTAMP '2024-01-01 00:00:{day:02}', array({a}, NULL, {b}), named_struct('x', {a}, 'y', {s})"
)

QUERIES = (
    "SELECT * FROM t WHERE a = 3 AND b = 4",
    "SELECT * FROM t WHERE a IN (1, 2, 3) AND b IN (0, 1, NULL)",
    "SELECT b + 1 AS more, upper(s), d * 2 FROM t WHERE a = 3 AND b = 4",
    "SELECT a, a AS again, s FROM t WHERE a = 3 AND b = 4 AND length(s) > 1",
    "SELECT a, b FROM t WHERE a = 2",
    "SELECT s, b FROM t WHERE (b = 4 OR b = 1 OR b = 4) AND a IN (3, 1, 3)",
    "SELECT a, d FROM t WHERE d = 2.50 OR d IN (4.25, NULL)",
    "SELECT a, day FROM t WHERE CAST(at AS DATE) = DATE '2024-01-01' AND day = DATE '2024-01-03'",
    "SELECT s, count FROM (SELECT s, size(parts) AS count, a FROM t) WHERE a < 2",
    "SELECT a FROM t WHERE s = 'three' OR a = 1",
    "SELECT a, f FROM t WHERE f = 0.0",
    "SELECT a, f FROM t WHERE isnan(f) OR f < 1",
    "SELECT a FROM t WHERE flag",
    "SELECT a FROM t WHERE NOT flag AND day > DATE '2024-01-03'",
    "SELECT a, at FROM t WHERE at > TIMESTAMP '2024-01-01 00:00:03' AND at < now()",
    "SELECT pair.x, parts[0], pair FROM t WHERE pair.y = 'two'",
    "SELECT a FROM t WHERE s IS NULL",
    "SELECT a, s FROM t WHERE 1 = 1",
    "SELECT a FROM t WHERE s IS NOT NULL AND a IS NOT NULL",
    "SELECT a FROM t WHERE a <=> NULL",
    "SELECT a FROM t WHERE s LIKE 't%'",
    "SELECT a FROM t WHERE a = b",
    "SELECT 1 AS one, 'x' AS x FROM t WHERE a = 1 AND b = 1",
    "SELECT CASE WHEN a > 2 THEN 'many' ELSE s END AS word FROM t WHERE b <> 0",
    (
        "SELECT transform(parts, x -> x + 1) AS t, filter(parts, x -> x > 2) AS f,"
        " exists(parts, x -> x = 3) AS e, aggregate(parts, 0, (sum, x) -> sum + x) AS s,"
        " aggregate(parts, 0, (sum, x) -> sum + coalesce(x, 0)) AS c FROM t WHERE a IN (1, 3)"
    ),
    "SELECT a, parts FROM t WHERE forall(parts, x -> x < 5)",
    "SELECT n, k FROM v WHERE k = 'two'",
    "SELECT k, n * 10 AS n FROM v WHERE k IN ('one', 'two') AND n > 1",
)
AS_JOBS = (
    "SELECT sum(f) FROM t WHERE a = 3",
    "SELECT a, rand() AS r FROM t WHERE a = 3 AND b = 4",
    "SELECT a FROM t WHERE b = (SELECT max(b) FROM t)",
    "SELECT x.a FROM t x JOIN t y ON x.f = y.f WHERE x.a = 3",
    "SELECT explode(parts) AS p FROM t WHERE a = 3",
    "SELECT DISTINCT upper(s) FROM t WHERE a = 3",
)


@pytest.fixture(scope="module")
def db(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[headrace.Database]:
    folder: Path = tmp_path_factory.mktemp("pulls")
    words, random_ = ["one", "two", "three", None], random.Random(1)
    with headrace.connect(folder, spark=spark, partitions=2, continuous=False) as db:
        db.sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (a, b))")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT s AS k, count(*) AS n FROM t GROUP BY s")
        for _ in range(4):  # several runs, and rows that replace others
            rows = []
            for _ in range(12):
                a, b, word = random_.randrange(6), random_.randrange(6), random_.choice(words)
                number = random_.choice(["0.0", "-0.0", "double('NaN')", "1.5", "NULL"])
                rows.append(
                    ROW.format(
                        a=a,
                        b=b,
                        s="NULL" if word is None else f"'{word}'",
                        d=random_.choice(["2.50", "4.25", "0.01", "NULL"]),
                        f=number,
                        flag=random_.choice(["true", "false", "NULL"]),
                        day=random_.randrange(1, 6),
                    )
                )
            rows += [ROW.format(a=3, b=4, s="'three'", d=1, f=1, flag="true", day=3)]
            db.sql(f"INSERT INTO t SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)}")
            db.flush()
        yield db


def jobs(db: headrace.Database) -> int:
    """The number of jobs that Spark has begun."""
    return int(db.parts.engine.spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


def answer(db: headrace.Database, query: str) -> tuple[object, list[str]]:
    table = db.sql(query).to_arrow()
    return table.schema, sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("query", each(3, QUERIES))
def test_a_query_over_one_relation_runs_no_job_and_answers_as_a_job_does(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    before = jobs(db)
    found = answer(db, query)
    assert jobs(db) == before
    monkeypatch.setattr(Pull, "rows", lambda *_given: None)
    monkeypatch.setattr(Plans, "find", lambda *_given: None)
    monkeypatch.setattr(Scans, "rows", lambda *_given: None)
    monkeypatch.setattr(
        "headrace.interfaces.statements.reading.selects.simple_select", lambda _text: None
    )
    assert answer(db, query) == found
    assert jobs(db) > before


def test_a_query_whose_condition_is_never_true_reads_nothing(db: headrace.Database) -> None:
    db.sql("CREATE STREAM IF NOT EXISTS e (at TIMESTAMP)")
    before = jobs(db)
    for query in (
        "SELECT a + 1 AS more, s FROM t WHERE 1 = 0 AND a = 3 ORDER BY s LIMIT 5",
        "SELECT at FROM e WHERE 1 = 0",
    ):
        assert db.sql(query).fetchall() == []
        shape, _ = db.parts.queries.planned(Span.whole(query))
        assert len(shape.reads) == 1
    assert jobs(db) == before


@pytest.mark.parametrize("query", AS_JOBS)
def test_other_queries_stay_jobs(db: headrace.Database, query: str) -> None:
    before = jobs(db)
    db.sql(query)
    assert jobs(db) > before


def test_a_plan_is_kept_until_names_mean_something_else(db: headrace.Database) -> None:
    plans, planner = db.parts.queries.plans, type(db.parts.engine.planner)
    kept, analysed = [], []
    keep, select = type(plans).keep, planner.select
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plans), "keep", lambda *given: (kept.append(given[1]), keep(*given)))
        patch.setattr(
            planner,
            "select",
            lambda *given, **more: (analysed.append(1), select(*given, **more))[1],
        )
        for sql, rows in (
            (
                "CREATE TABLE w (k INT PRIMARY KEY, x INT); INSERT INTO w VALUES (1, 1), (2, 5)",
                (5, 2),
            ),
            ("INSERT INTO w VALUES (3, 7)", (7, 3)),
            ("DROP TABLE w; CREATE TABLE w (x INT, k BIGINT)", (None, 0)),
            ("INSERT INTO w VALUES (9, 7)", (9, 1)),
        ):
            db.sql(sql)
            for _ in range(2):
                assert db.sql("SELECT max(x + 0), count(*) FROM w").fetchall() == [rows]
        assert (len(kept), len(analysed)) == (2, 2)
        db.sql("CREATE VIEW p AS SELECT x FROM w")
        assert db.sql("SELECT x + 1 AS y FROM p").fetchall() == [(10,)]
        db.sql("CREATE OR REPLACE VIEW p AS SELECT k AS x FROM w")
        assert db.sql("SELECT x + 1 AS y FROM p").fetchall() == [(8,)]
    db.sql("DROP VIEW p; DROP TABLE w")
    now = "SELECT a, now() AS at FROM t WHERE a = 3 AND b = 4"
    first, second = db.sql(now).fetchall(), db.sql(now).fetchall()
    assert first[0][1] < second[0][1]


def test_a_query_that_is_asked_for_the_first_time_is_planned_once(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_given: object, **_more: object) -> None:
        pytest.fail("Spark plans the query a second time")

    epoch = db.sql("SELECT count(*) FROM t").epoch
    with monkeypatch.context() as patched:
        patched.setattr(type(db.parts.engine.planner), "analyse", refused)
        patched.setattr(SessionNames, "resolved", refused)
        for query in (
            "SELECT a + 41 AS x FROM t WHERE a = 3 AND b = 4",
            "SELECT b, count(*) + 41 AS n FROM t GROUP BY b",
            "SELECT collect_list(a + 41) AS n FROM t",
            "SELECT now(), a + 41 AS x FROM t",
            f"SELECT x.a + 41 AS n FROM t AS OF EPOCH {epoch} x JOIN t USING (a, b)",
        ):
            assert db.sql(query).fetchall()
    job = "SELECT collect_list(a + 41) AS n FROM t"
    assert db.sql(job).fetchall() == db.sql(job).fetchall()
    columns = "SELECT count(*) FROM information_schema.columns WHERE table_name = 't' AND 41 = 41"
    assert db.sql(columns).fetchall() == [(10,)]


def test_many_rows_are_read_by_a_job(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.execution.engine.reading.pulls._MOST_EVALUATED", 2)
    before = jobs(db)
    found = answer(db, "SELECT upper(s) FROM t WHERE a < 4")
    assert jobs(db) > before
    assert len(found[1]) > 2


def test_an_expression_that_fails_is_an_error_of_the_query(db: headrace.Database) -> None:
    with pytest.raises(HeadraceError, match=r"[Dd]ivision by zero"):
        db.sql("SELECT a / (a - 3) FROM t WHERE a = 3 AND b = 4")
    assert db.sql("SELECT 6 / (a - 2) FROM t WHERE a = 3 AND b = 4 AND a - 2 <> 0").fetchall()
    # The condition keeps away the rows on which the projection would fail.
    assert db.sql("SELECT 6 / (a - 3) FROM t WHERE abs(a - 3) > 0").fetchall()


def test_expressions_are_evaluated_over_all_batches_of_a_table(spark: SparkSession):
    frame = spark.createDataFrame([(1,)], "a INT").selectExpr("a + 1 AS b")
    plan = frame._jdf.queryExecution().analyzed()
    named = Evaluation(
        scala_of(spark), items(plan.projectList()), plan.child().output(), frame.schema
    )
    parts = [pa.table({"a": pa.array(values, pa.int32())}) for values in ([1, 2], [3], [])]
    assert named.over(pa.concat_tables(parts)).column(0).to_pylist() == [2, 3, 4]
